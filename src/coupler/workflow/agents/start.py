"""How the agent of a step is started: what it is, in which form, and with what it is told at its start.

Native agents take model, instructions and options when they are made; others are set to them in a session.
Python agents run in a process of their own, as `coupler serve` runs them.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.agent.factory import is_file, split
from coupler.client.errors import AgentError
from coupler.client.remote import Offer
from coupler.client_api import STARTUP_TIMEOUT, LocalLink, ServableAgent, connect
from coupler.providers.catalogue import ENTRIES, Chosen, chosen_for, is_coder, provider
from coupler.runtime.environment import SpawnError, split_command
from coupler.workflow.agents.offer import StepOffer

if TYPE_CHECKING:
    from coupler.client.files import FileAccess
    from coupler.client.remote import RemoteAgent
    from coupler.workflow.agents.offer import Asked

FORMS = frozenset({"acp", "native"})

OPENAI_VARIABLES = {"OPENAI_MODEL": "model", "OPENAI_BASE_URL": "base_url", "OPENAI_API_KEY": "api_key"}
"""What the one native agent that is no program is given instead of an environment."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


class Native(NamedTuple):
    """What a native agent is made with."""

    model: str | None = None
    system: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


class Start(NamedTuple):
    """All that makes one agent's process another one than the next; steps that agree in it share one."""

    agent: str
    """As it is journaled: a name of the catalogue with its form, a command line, or a target of Python."""
    cwd: str
    env: tuple[tuple[str, str], ...] = ()
    files: FileAccess | None = None
    store: str | None = None
    """The file that keeps its sessions, for agents that leave that to us."""
    native: Native | None = None
    asks: bool = True
    """Whether it asks before it uses a tool; the command lines of vendors do not."""
    words: tuple[str, ...] = ()
    """What is said behind its command."""

    @property
    def name(self) -> str:
        """The agent, whatever its form: sessions of one form cannot be opened by the other."""
        name, _, form = self.agent.partition(":")
        return name if form in FORMS else self.agent


class Wanted(NamedTuple):
    """What a step wants to be started, rendered."""

    agent: str
    cwd: str
    env: Mapping[str, str]
    files: FileAccess | None
    native: Native
    directory: str
    """That of the workflow, where files of Python agents are looked for first."""
    store: str | None


def start_of(wanted: Wanted) -> Start:
    """What is started; raises `AgentError` for agents that are not there. May wait for a disk."""
    start = Start(wanted.agent, wanted.cwd, tuple(sorted(wanted.env.items())), wanted.files)
    target = _python_target(wanted)
    if target is not None:
        return start._replace(agent=target, store=wanted.store)
    chosen = _chosen(wanted.agent, wanted.cwd)
    if chosen is None:
        return start
    start = start._replace(agent=f"{chosen.entry.name}:{chosen.form}")
    if is_coder(chosen.entry):
        # What a step says is for its agent, also if it begins like the command of a workflow.
        model = () if wanted.native.model is None else ("--model", wanted.native.model)
        return start._replace(words=("--no-workflows", *model))
    if chosen.form == "acp":
        return start
    asks = ENTRIES[chosen.entry.native or ""].program is None
    return start._replace(store=wanted.store, native=wanted.native, asks=asks)


def made(start: Start, asked: Asked) -> RemoteAgent:
    """The agent, not started yet; raises `AgentError`. May wait for a disk."""
    agent = _made(start)
    agent.offer_instead(StepOffer(agent.wanted_files, asked))
    return agent


def _made(start: Start) -> RemoteAgent:
    env = dict(start.env)
    if start.native is not None:
        chosen = _chosen(start.agent, start.cwd)
        assert chosen is not None
        return _native(start, chosen, {**chosen.entry.env, **env})
    agent: str | list[str] = start.agent
    if _is_python(start.agent):
        kept = ["--no-store"] if start.store is None else ["--store", start.store]
        agent = [sys.executable, "-P", "-m", "coupler", "serve", start.agent, *kept]
    elif start.words:
        chosen = _chosen(start.agent, start.cwd)
        assert chosen is not None
        agent, env = [*chosen.command, *start.words], {**chosen.entry.env, **env}
    return connect(agent, cwd=start.cwd, env=env or None, files=start.files)


def _native(start: Start, chosen: Chosen, env: Mapping[str, str]) -> RemoteAgent:
    assert start.native is not None
    name = chosen.entry.native or ""
    model, system, options = start.native
    given: dict[str, Any] = {"model": model, "system_prompt": system, "options": dict(options)}
    if ENTRIES[name].program is not None:
        given["env"] = env
    else:
        given |= {OPENAI_VARIABLES[each]: env[each] for each in env if each in OPENAI_VARIABLES}
        given["model"] = model or given["model"]
    try:
        agent = provider(name)(**given)
    except (TypeError, ValueError) as error:
        raise AgentError("session", f"{chosen.entry.title} cannot be set up like this: {error}") from None
    return ServableAgent(
        start.agent,
        lambda: LocalLink(agent, store=start.store or False),
        cwd=start.cwd,
        startup_timeout=STARTUP_TIMEOUT,
        offer=Offer(files=start.files),
        quirks=chosen.entry.quirks,
    )


def _chosen(agent: str, cwd: str) -> Chosen | None:
    if any(char.isspace() or char in "/\\" for char in agent):
        return None
    return chosen_for(agent, cwd)


def _python_target(wanted: Wanted) -> str | None:
    """`file.py:attribute` with the whole path, or `module:attribute`; None for what is something else."""
    if not _is_python(wanted.agent):
        return None
    place, attribute = split(wanted.agent)
    if is_file(place):
        beside = Path(wanted.directory, place)
        place = str(beside if beside.exists() else Path(wanted.cwd, place))
        if not Path(place).is_file():
            raise AgentError("spawn", f"the agent's file {place} does not exist")
    return f"{place}:{attribute}" if attribute else place


def _is_python(agent: str) -> bool:
    if any(char.isspace() for char in agent) and not Path(split(agent)[0]).is_file():
        return False
    place, attribute = split(agent)
    if place.endswith(".py"):
        return True
    return bool(attribute) and attribute not in FORMS and _MODULE.fullmatch(place) is not None


def words_for_login(agent: str) -> str:
    """What to give `coupler login` for a journaled agent."""
    name, _, form = agent.partition(":")
    if form in FORMS:
        return name
    try:
        return shlex.join(split_command(agent))
    except SpawnError:
        return agent
