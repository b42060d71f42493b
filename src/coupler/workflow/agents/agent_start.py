"""How the agent of a step is started: what it is, in which form, and with what it is told at its start.

Native agents take model, instructions and options when they are made; others are set to them in a session.
Python agents run in a process of their own, as `coupler serve` runs them.
"""

from __future__ import annotations

import re
import shlex
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from coupler.agent.factory import is_file, split
from coupler.client.errors import AgentError
from coupler.client.remote import Offer, OpeningOptions
from coupler.client.session import RemoteSession
from coupler.client_api import STARTUP_TIMEOUT, LocalLink, ServableAgent, connect
from coupler.providers.catalogue import ENTRIES, Chosen, chosen_for, is_coder, provider
from coupler.runtime.environment import SpawnError, split_command
from coupler.runtime.threads import in_thread
from coupler.workflow.agents.editor_access import Owner, StepFiles
from coupler.workflow.errors import StepError
from coupler.workflow.language.library import read_neighbour
from coupler.workflow.language.model import (
    Agent,
    Converse,
    Hooks,
    Json,
    Profile,
    Prompted,
    Server,
    Template,
    Tools,
    Workflow,
)

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.errors import Listener, Responder
    from coupler.client.files import FileAccess
    from coupler.client.remote import RemoteAgent
    from coupler.config.agent_tables import AgentTable
    from coupler.schema.v1 import McpServer
    from coupler.workflow.agents.editor_access import Touch
    from coupler.workflow.agents.permission import Interception
    from coupler.workflow.agents.prompts import Exchange
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.front import Front, OpenFiles


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


# An agent's process in a run, the sessions that it has open for steps, and what those were opened for.
#
# What an agent asks comes here, and goes to the step whose prompt runs in that session.


class Earlier(NamedTuple):
    """The session of an earlier step, as its result has it."""

    session_id: str
    agent: str


class Order(NamedTuple):
    """The session that a step wants."""

    start: Start
    options: OpeningOptions
    servers: tuple[McpServer, ...] = ()
    is_intercepted: bool = False
    earlier: Earlier | None = None
    is_kept: bool = False
    """Whether a later step may go on with it."""
    transcript: str | None = None
    """What was said in the earlier session, if that is not in the journal as steps have it."""

    @property
    def opening(self) -> tuple[Start, tuple[McpServer, ...], bool]:
        """What is settled when a session is opened."""
        return self.start, self.servers, self.is_intercepted


@dataclass(eq=False)
class Held:
    """A session that this process holds. It belongs to one step at a time."""

    session: RemoteSession
    order: Order
    """What it was opened for."""
    connected: Connected
    told: str | None = None
    """What stands for the instructions that it has heard before a prompt."""
    after: str | None = None
    """The session in whose place it was opened."""
    transcript: str | None = None
    """What was said there, until it has been told."""
    reason: str | None = None
    """Why it is not the session that was wanted."""
    exchange: Exchange | None = None
    """The prompt that runs."""
    interception: Interception | None = None

    @property
    def start(self) -> Start:
        return self.order.start

    @property
    def key(self) -> Earlier:
        return Earlier(self.session.id, self.start.agent)

    def serves(self, order: Order) -> bool:
        """Whether it can go on for this order as it is: what it was opened with cannot be changed."""
        return not self.session.is_over and self.order.opening == order.opening


class Connected:
    """An agent's process, and the sessions that it has open for us."""

    def __init__(self, front: Front) -> None:
        self.agent: RemoteAgent
        self.shows_forms = front.shows_forms
        self.shows_pages = front.shows_pages
        self.users = 0
        self.last_used = 0.0
        self.sessions: dict[str, Held] = {}

    async def start(self, start: Start) -> None:
        self.agent = await in_thread(lambda: made(start, self))
        await self.agent.__aenter__()

    def release(self) -> None:
        """Somebody uses it no longer."""
        self.users -= 1
        self.last_used = time.monotonic()

    async def fill_in(self, form: FormRequest) -> FormAnswer:
        """A form goes to the step whose prompt runs; nobody else can answer it."""
        exchange = self._exchange(form.session_id)
        return False if exchange is None else await exchange.fill_in(form)

    async def open_page(self, page: UrlRequest) -> bool | None:
        """The same for a page."""
        exchange = self._exchange(page.session_id)
        return False if exchange is None else await exchange.open_page(page)

    async def may_touch(self, session_id: str, touch: Touch, path: str, text: str | None) -> bool:
        """Files are for the step whose prompt runs; outside of it there are no rules to judge by."""
        exchange = self._exchange(session_id)
        return exchange is not None and await exchange.judging.may_touch(touch, path, text)

    def open_files(self, session_id: str) -> OpenFiles | None:
        """The files that are not those on the disk."""
        exchange = self._exchange(session_id)
        return None if exchange is None else exchange.files

    def _exchange(self, session_id: str | None) -> Exchange | None:
        held = self.sessions.get(session_id or "")
        return None if held is None else held.exchange


# What the agents of steps are offered: files as they are wanted, questions if somebody can be asked.


class Asked(Owner, Protocol):
    """Answers for the steps whose agents ask."""

    @property
    def shows_forms(self) -> bool: ...

    @property
    def shows_pages(self) -> bool: ...

    async def fill_in(self, form: FormRequest) -> FormAnswer: ...

    async def open_page(self, page: UrlRequest) -> bool | None: ...


class StepOffer(Offer):
    """Computed once for an agent, whichever of its steps it works for."""

    def __init__(self, files: FileAccess | None, asked: Asked) -> None:
        super().__init__(
            files=files,
            on_form=asked.fill_in if asked.shows_forms else None,
            on_url=asked.open_page if asked.shows_pages else None,
        )
        self._asked = asked

    def responders(self) -> Mapping[str, Responder | Listener]:
        return {**super().responders(), **StepFiles(self._files, self._asked).responders()}


# Agents as steps want them: the step's own settings over those of the profiles that its agent stands on.
#
# A profile is a name of the workflow's `agents`, or of `[agents.NAME]` in `coupler.toml`; it may stand on
# another one. What is not said by any of them is as the workflow's `defaults` have it.


T = TypeVar("T")
Render = Callable[[Template], str]


class Plain(str):
    """A text of `coupler.toml`, in which braces are braces: only workflows have templates."""

    __slots__ = ()


class Role(NamedTuple):
    """What a step makes of an agent; its templates are not rendered yet."""

    agent: str
    """A name of the catalogue, a command line, or `module:attribute`: no profile of the workflow any more."""
    set_up: Prompted
    env: Mapping[str, Template]


def role_of(
    step: Agent | Converse,
    agent: str,
    workflow: Workflow,
    tables: Iterable[AgentTable] = (),
    render: Render = str,
) -> Role:
    """The role of a step's agent, whose name is rendered; raises `StepError` for profiles in a circle."""
    env: dict[str, Template] = {}
    set_ups = [step.set_up]
    for profile in _profiles(agent, workflow, render):
        set_ups.append(profile.set_up)
        env = {**profile.env, **env}
        agent = render(profile.agent).strip()
    set_ups += _configured(agent, {table.name: table for table in tables})
    # MCP servers of the workflow come after those of its agents, whatever else they are set to.
    of_workflow = Prompted(mcp_servers=workflow.mcp_servers)
    return Role(agent, joined([*set_ups, workflow.defaults.set_up, of_workflow]), env)


def hooks_around(agent: str, workflow: Workflow, render: Render) -> Hooks | None:
    """The hooks of the nearest profile that has some."""
    return _first(profile.hooks for profile in _profiles(agent, workflow, render))


def _profiles(agent: str, workflow: Workflow, render: Render) -> Iterator[Profile]:
    """The profile of this name, the one that it stands on, and so on."""
    names: list[str] = []
    while (profile := workflow.agents.get(agent)) is not None:
        if agent in names:
            raise _in_a_circle([*names, agent])
        names.append(agent)
        yield profile
        agent = render(profile.agent).strip()


def joined(set_ups: Iterable[Prompted]) -> Prompted:
    """Several settings as one, the strongest first. Rules, files and servers add up; a denial stays one."""
    strongest = [*set_ups]
    weakest = strongest[::-1]
    asking = next((each for each in strongest if each.prompt is not None or each.prompt_file), Prompted())
    return Prompted(
        prompt=asking.prompt,
        prompt_file=asking.prompt_file,
        system=_first(each.system for each in strongest),
        model=_first(each.model for each in strongest),
        mode=_first(each.mode for each in strongest),
        options={name: value for each in weakest for name, value in each.options.items()},
        tools=_tools([each.tools for each in weakest if each.tools is not None]),
        files=_first(each.files for each in strongest),
        mcp_servers=_servers(server for each in strongest for server in each.mcp_servers),
        intercept=_first(each.intercept for each in strongest),
        context=tuple(dict.fromkeys(name for each in weakest for name in each.context)),
        skills=tuple(dict.fromkeys(name for each in weakest for name in each.skills)),
        output=_first(each.output for each in strongest),
        repairs=_first(each.repairs for each in strongest),
        continues=strongest[0].continues,
        budget=_first(each.budget for each in strongest),
    )


def _configured(agent: str, tables: Mapping[str, AgentTable]) -> Iterator[Prompted]:
    """What `coupler.toml` has for a name and for those that it stands on."""
    names: list[str] = []
    name: str | None = agent.partition(":")[0]
    while name is not None and (table := tables.get(name)) is not None:
        if name in names:
            raise _in_a_circle([*names, name])
        names.append(name)
        yield Prompted(
            system=_plain(table.system),
            model=_plain(table.model),
            mode=_plain(table.mode),
            options={name: _plain(value) for name, value in table.options.items()},
            tools=Tools(table.allow, table.deny) if table.allow or table.deny else None,
            context=table.context,
            skills=table.skills,
        )
        name = None if table.agent is None else table.agent.partition(":")[0]


def _plain(value: T) -> T | Plain:
    return Plain(value) if isinstance(value, str) else value


def _in_a_circle(names: Iterable[str]) -> StepError:
    chain = " → ".join(names)
    return StepError("not_found", f"the agent in the end stands on itself: {chain}: see `agent` of these")


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _tools(given: list[Tools]) -> Tools | None:
    if not given:
        return None
    allow = dict.fromkeys(rule for each in given for rule in each.allow)
    return Tools(tuple(allow), tuple(dict.fromkeys(rule for each in given for rule in each.deny)))


def _servers(servers: Iterable[Server]) -> tuple[Server, ...]:
    by_name: dict[str, Server] = {}
    for server in servers:
        by_name.setdefault(server.name, server)
    return tuple(by_name.values())


# What an agent is told: its instructions, and a step's prompt with the files that go before it.
#
# Prompts are texts and nothing else: no shell ever sees them.


LONGEST = 16 * 1024 * 1024
"""Characters of a prompt, with the files before it."""

INSTRUCTIONS = "[Instructions that hold for this whole conversation:]"
END_OF_INSTRUCTIONS = "[End of the instructions. The user's message follows.]"


class Briefing(NamedTuple):
    """All of it, rendered."""

    system: str | None
    prompt: str | None
    """None for a conversation that the user begins."""
    schema: Json | None
    """The JSON Schema of the answer."""


def briefing_of(set_up: Prompted, attempt: Attempt) -> Briefing:
    """What a step tells its agent; raises `StepError` for files that cannot be read, and templates."""
    system = [] if set_up.system is None else [rendered(set_up.system, attempt)]
    system += [_beside(name, attempt) for name in set_up.skills]
    prompt = _prompt(set_up, attempt)
    if prompt is not None:
        prompt = "\n\n".join([*(_context(name, attempt) for name in set_up.context), prompt])
        if len(prompt) > LONGEST:
            raise StepError("template", f"the prompt is too long: it has {len(prompt):,} characters")
    schema = None if set_up.output is None else schema_of(set_up.output, attempt.workflow.file)
    return Briefing("\n\n".join(filter(None, map(str.strip, system))) or None, prompt, schema)


def rendered(template: Template, attempt: Attempt) -> str:
    """A text of the workflow as a template; one of `coupler.toml` as it is."""
    return str(template) if isinstance(template, Plain) else attempt.text(template)


def instructed(system: str, prompt: str) -> str:
    """A prompt that begins with instructions, for agents that take them in no other way."""
    return "\n\n".join([INSTRUCTIONS, system, END_OF_INSTRUCTIONS, prompt])


def schema_of(output: Json, workflow_file: str) -> Json:
    """The JSON Schema that stands in a step, or in the file that it names; raises `StepError`."""
    schema = _decoded(output, workflow_file) if isinstance(output, str) else output
    if not isinstance(schema, dict):
        raise StepError("invalid_output", "The step's `output` is no JSON Schema: that is an object.")
    _check(msgspec.json.encode(schema))
    return schema


def _decoded(name: str, workflow_file: str) -> Json:
    try:
        return msgspec.json.decode(read_neighbour(name, workflow_file))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise StepError("invalid_output", f"The schema {name!r} is no JSON: {error}.") from None


@lru_cache(maxsize=64)
def _check(schema: bytes) -> None:
    """Raise `StepError` for what cannot be asked for, before an agent is started for it."""
    from coupler.mcp.shape import shape_of
    from coupler.runtime.extras import MissingExtraError

    try:
        shape_of(msgspec.json.decode(schema))
    except TypeError as error:
        raise StepError("invalid_output", f"The step's `output` cannot be used: {error}.") from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def _prompt(set_up: Prompted, attempt: Attempt) -> str | None:
    if set_up.prompt is not None:
        return attempt.text(set_up.prompt)
    if set_up.prompt_file is None:
        return None
    return attempt.text(_beside(set_up.prompt_file, attempt))


def _beside(name: str, attempt: Attempt) -> str:
    return read_neighbour(name, attempt.workflow.file)


def _context(name: str, attempt: Attempt) -> str:
    shown = Path(name).name if Path(name).is_absolute() else name
    return f"[The file {shown}:]\n\n{_beside(name, attempt).strip()}\n\n[End of {shown}.]"
