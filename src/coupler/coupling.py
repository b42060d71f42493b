"""`connect`: the client's side joined to an agent's, across a pipe or in one process."""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.client.confinement import Confinement
from coupler.client.connection import FRAME_LIMIT
from coupler.client.errors import AgentError
from coupler.client.link import LastWords, Link, ProcessLink
from coupler.client.observation import OnEvent
from coupler.client.offer import Offer
from coupler.client.pool import IDLE_SECONDS, MOST_AGENTS, SessionPool
from coupler.client.quirks import Quirks
from coupler.client.remote import RemoteAgent
from coupler.runtime.environment import Environment, SpawnError, split_command
from coupler.wire.transport import MemoryTransport, Transport

if TYPE_CHECKING:
    from coupler.agent.factory import Blueprint
    from coupler.agent.startup.serve_options import ServeOptions
    from coupler.client.elicitation import OnForm, OnUrl
    from coupler.client.files import FileAccess

STARTUP_TIMEOUT = 30.0
"""Seconds in which an agent must be started, introduced and have opened its first session."""

INSTALLER_TIMEOUT = 120.0
"""The same, for commands that may download the agent first."""

INSTALLERS = frozenset({"npx", "uvx", "bunx", "pnpx", "pipx"})


def connect(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] = ".",
    env: Environment | Mapping[str, str | None] | None = None,
    startup_timeout: float | None = None,
    frame_limit: int = FRAME_LIMIT,
    quirks: Quirks | None = None,
    on_event: OnEvent | None = None,
    files: FileAccess | None = None,
    terminals: bool = False,
    on_form: OnForm | None = None,
    on_url: OnUrl | None = None,
    record: str | PathLike[str] | None = None,
) -> RemoteAgent:
    """An agent to hold sessions with, as an async context manager that starts and ends it.

    `agent` is a command line, a list of its words, a name of the catalogue such as "claude", or a turn
    function or `Agent`: that one runs in this process. `env` is added to our environment; `Environment.exact`
    replaces it. Lines of the agent over `frame_limit` bytes are dropped. `quirks` say how to take this agent,
    in place of what the catalogue knows; `on_event` sees all that happens. All that is said is written to
    the file `record`, without secrets, as `coupler record` does it; each start has a file of its own.

    Through us the agent may read the files in a session's directories; `files="write"` lets it write them,
    too, and "none" neither; agents that cannot deal with that are offered what the catalogue says. With
    `terminals` it may run commands there. `on_form` and `on_url` are functions that ask the user what the
    agent wants to know.
    """
    _refuse_no_agent(agent)
    words = words_of(agent)
    if isinstance(agent, str) and (meant := named(agent, cwd=cwd, env=env)) is not None:
        agent, env = meant.target, meant.env
        quirks, files = quirks or meant.quirks, files or meant.files
    timeout = usual_startup_timeout(agent) if startup_timeout is None else startup_timeout
    confinement = confinement_of(agent)
    if confinement is not None and (files is not None or terminals):
        raise AgentError(
            "spawn",
            f"{confinement.agent} reads, writes and runs commands by itself, so that `files` and `terminals` "
            "cannot keep it from that: leave them out and choose a mode, or drive its ACP form",
        )

    def link() -> Link:
        way = link_to(agent, cwd=cwd, env=env)
        return way if record is None else _recorded(way, record, agent, env)

    link()  # says now, and not at the start, what cannot be started
    return ServableAgent(
        words,
        link,
        cwd=cwd,
        startup_timeout=timeout,
        frame_limit=frame_limit,
        offer=Offer(files=files, terminals=terminals, on_form=on_form, on_url=on_url),
        quirks=quirks,
        on_event=on_event,
        confinement=confinement,
    )


class ServableAgent(RemoteAgent):
    """What `connect` gives: an agent to drive, or to serve again with `serve(connect(…))`."""

    def __init__(self, words: str, link: Callable[[], Link], **settings: Any) -> None:
        super().__init__(link, **settings)
        self.words = words

    def blueprint(self, options: ServeOptions) -> Blueprint:
        """How it is served; see `coupler.relay`."""
        # Imported on use: whoever drives an agent does not serve it.
        from coupler.relay.relay import Relay

        return Relay(self, self.words, options).blueprint()


class Pool(SessionPool):
    """Agents and sessions that are used again: `async with Pool() as pool`, `pool.session("gemini")`."""

    def __init__(self, *, most: int = MOST_AGENTS, idle: float = IDLE_SECONDS) -> None:
        """With `most` agents in use others wait; what nobody uses for `idle` seconds is ended."""
        super().__init__(connect, most=most, idle=idle)


def confinement_of(agent: object) -> Confinement | None:
    """How an agent of this process is kept to a policy, if it is one that asks for nothing."""
    confinement = getattr(agent, "confinement", None)
    return confinement if isinstance(confinement, Confinement) else None


def words_of(agent: str | Sequence[str] | Any) -> str:
    """What an agent is called by who started it: its command line, or the name of its code."""
    if not _is_command(agent):
        return str(getattr(agent, "__qualname__", type(agent).__name__))
    try:
        return shlex.join(split_command(agent))
    except SpawnError:
        return ""  # the start itself will say what is wrong


def link_to(
    agent: str | Sequence[str] | Any,
    *,
    cwd: str | PathLike[str] | None = None,
    env: Environment | Mapping[str, str | None] | None = None,
) -> Link:
    """What `connect` takes for an agent, as something that can be opened."""
    if _is_command(agent):
        return ProcessLink(startable(agent), cwd=cwd, env=env)
    if env is not None:
        raise AgentError("spawn", "`env` is for commands: an agent in this process has our environment")
    return LocalLink(agent)


def _recorded(
    link: Link,
    path: str | PathLike[str],
    agent: str | Sequence[str] | Any,
    env: Environment | Mapping[str, str | None] | None,
) -> Link:
    """The link with a file beside it. What only the agent was given is as secret as what we have."""
    # Imported on use, because most agents are not recorded.
    from coupler.client.recording import recorded
    from coupler.redaction.sources import secrets_in_environment
    from coupler.wire.tap import agent_name

    try:
        words = split_command(agent) if _is_command(agent) else [getattr(agent, "__name__", "agent")]
        given = (env if isinstance(env, Environment) else Environment.inherit(env)).resolve()
    except SpawnError:
        return link  # nothing will be said: the start itself will tell what is wrong
    label = agent_name(words)
    return recorded(link, path, label=label, secrets=secrets_in_environment(given))


class Meant(NamedTuple):
    """What a name of the catalogue stands for: a command or an `Agent`, and how it is to be taken."""

    target: Any
    env: Environment | Mapping[str, str | None] | None
    quirks: Quirks | None
    files: FileAccess | None = None


def named(
    agent: str,
    *,
    cwd: str | PathLike[str] | None = None,
    env: Environment | Mapping[str, str | None] | None = None,
) -> Meant | None:
    """What a name means in a directory; None if it is a command line."""
    if not agent or any(char.isspace() or char in "/\\" for char in agent):
        return None
    # Imported on use, because most agents are command lines.
    from coupler.catalogue.choice import chosen_for

    chosen = chosen_for(agent, cwd)
    if chosen is None:
        return None
    entry = chosen.entry
    if not isinstance(env, Environment):
        env = {**entry.env, **(env or {})} or None
    if chosen.form == "acp":
        return Meant([*chosen.command], env, entry.quirks, entry.files)
    return Meant(_native(entry.native or "", env), None, entry.quirks)


def _native(name: str, env: Environment | Mapping[str, str | None] | None) -> Any:
    from coupler.providers.registry import ENTRIES, provider

    if env is None:
        return provider(name)()
    if isinstance(env, Environment) or ENTRIES[name].program is None:
        raise AgentError("spawn", f"the native form of {name} takes no `env` but a mapping for its program")
    made: Any = provider(name)
    return made(env=env)


class LocalLink:
    """An agent in this process and event loop, which speaks the protocol all the same."""

    def __init__(self, target: Any, *, store: str | bool = False) -> None:
        """`store` is the file that keeps its sessions; most are not kept."""
        self._target = target
        self._store = store
        self._serving: asyncio.Task[None]

    def open(self) -> Transport:
        # Imported on use: whoever drives other programs does not need the agent's side.
        from coupler.agent.factory import Blueprint
        from coupler.agent.startup.serve import serve_async

        try:
            Blueprint.of(self._target)
        except (TypeError, ValueError) as error:
            raise AgentError("spawn", str(error)) from None
        ours, theirs = MemoryTransport.pair()
        self._serving = asyncio.get_running_loop().create_task(
            serve_async(self._target, transport=theirs, store=self._store)
        )
        return ours

    async def wait(self) -> None:
        await asyncio.wait([self._serving])

    async def close(self, grace: float = 5.0) -> None:
        await asyncio.wait([self._serving])

    def last_words(self) -> LastWords:
        return LastWords()


def startable(command: str | Sequence[str]) -> str | Sequence[str]:
    """The command; `coupler` itself is also found when its environment is not activated."""
    try:
        program, *rest = split_command(command)
    except SpawnError:
        return command  # the start itself will say what is wrong
    if program == "coupler" and shutil.which(program) is None:
        return [sys.executable, "-m", "coupler", *rest]
    return command


def usual_startup_timeout(agent: str | Sequence[str] | Any) -> float:
    """Seconds that an agent may take to start: more if its command may download it first."""
    if not _is_command(agent):
        return STARTUP_TIMEOUT
    try:
        program = PurePath(split_command(agent)[0]).stem
    except SpawnError:
        return STARTUP_TIMEOUT  # the start itself will say what is wrong
    return INSTALLER_TIMEOUT if program in INSTALLERS else STARTUP_TIMEOUT


def _refuse_no_agent(agent: object) -> None:
    """What can be no agent at all is a mistake in the program, and told where it was made."""
    if isinstance(agent, str) and not agent.strip():
        raise ValueError("the agent is an empty text: give a command line, or a name of the catalogue")
    if _is_command(agent) and not agent:
        raise ValueError("the agent is an empty list: give the words of a command line")
    if agent is None or isinstance(agent, bool | int | float | bytes | set | dict):
        raise TypeError(
            "an agent is a command line, a list of its words, a name of the catalogue, a turn function or an "
            f"Agent; this is {agent!r}"
        )


def _is_command(agent: object) -> bool:
    return isinstance(agent, str) or (isinstance(agent, Sequence) and not isinstance(agent, bytes))
