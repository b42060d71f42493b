"""Starts the agent of a step: finds its program or class, and merges the settings of its profiles.

A step's own settings stand over those of its agent's profiles: a profile is a name of the workflow's
`agents`, or of `[agents.NAME]` in `coupler.toml`, and may stand on another one. What none of them says is as
the workflow's `defaults` have it. Native agents take model, instructions and options when they are made;
others are set to them in a session. Python agents run in a process of their own, as `coupler serve` runs
them.
"""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import msgspec

from coupler.agent.factory import is_file_target, split_target
from coupler.client.agent_profile import file_in_prompt
from coupler.client.errors import AgentError
from coupler.client.remote import ClientOffer
from coupler.client_api import STARTUP_TIMEOUT, LocalLink, ServableAgent, connect_bare
from coupler.providers.catalogue import ENTRIES, ChosenForm, is_coder, provider, resolve
from coupler.runtime.environment import SpawnError, split_command
from coupler.workflow.agents.editor_access import FileAccessPolicy, StepFiles
from coupler.workflow.errors import StepError
from coupler.workflow.language.library import read_file_beside
from coupler.workflow.language.model import (
    Agent,
    AgentProfile,
    AgentSettings,
    Converse,
    Hooks,
    Json,
    McpServerEntry,
    ToolRuleTexts,
    Workflow,
    all_steps,
)
from coupler.workflow.language.shapes import TemplateText
from coupler.workflow.steps.agents import AgentStep

if TYPE_CHECKING:
    from coupler.client.elicitation import FormAnswer, FormRequest, UrlRequest
    from coupler.client.errors import NotificationListener, Responder
    from coupler.client.files import FileAccess
    from coupler.client.remote import RemoteAgent
    from coupler.config.agent_tables import AgentTable
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.language.library import Bundle


AGENT_FORMS = frozenset({"acp", "native"})
"""The forms of the catalogue's agents."""

OPENAI_VARIABLES = {"OPENAI_MODEL": "model", "OPENAI_BASE_URL": "base_url", "OPENAI_API_KEY": "api_key"}
"""The arguments that the one native agent that is no program takes from its environment."""

LONGEST_PROMPT = 16 * 1024 * 1024
"""Characters of a prompt, with the files before it."""

_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")

T = TypeVar("T")
Render = Callable[[TemplateText], str]


class LiteralText(str):
    """A text of `coupler.toml`, which is never rendered: only workflows have templates."""

    __slots__ = ()


class StepAgent(NamedTuple):
    """A step's agent without profiles, and its settings; templates are not rendered yet."""

    agent: str
    """A name of the catalogue, a command line, or `module:attribute`."""
    set_up: AgentSettings
    env: Mapping[str, TemplateText]


def resolve_step_agent(
    step: Agent | Converse,
    agent: str,
    workflow: Workflow,
    tables: Iterable[AgentTable] = (),
    render: Render = str,
) -> StepAgent:
    """Resolve a step's agent, whose name is rendered; raises `StepError` for profiles in a circle."""
    env: dict[str, TemplateText] = {}
    set_ups = [step.set_up]
    for profile in _profiles(agent, workflow, render):
        set_ups.append(profile.set_up)
        env = {**profile.env, **env}
        agent = render(profile.agent).strip()
    set_ups += _configured(agent, {table.name: table for table in tables})
    # MCP servers of the workflow come after those of its agents, whatever else they are set to.
    of_workflow = AgentSettings(mcp_servers=workflow.mcp_servers)
    return StepAgent(agent, merge_settings([*set_ups, workflow.defaults.set_up, of_workflow]), env)


def image_steps(bundle: Bundle) -> list[Agent | Converse]:
    """Return the steps whose agents may take images: which do is known for sure when they are started.

    The command-line agents of vendors take none; hooks are given none.
    """
    return [
        step
        for workflow in bundle.workflows
        for step in all_steps(workflow.steps)
        if isinstance(step, AgentStep) and not _is_native_program(step, workflow)
    ]


def _is_native_program(step: Agent | Converse, workflow: Workflow) -> bool:
    """Tell whether a step names the native form of an agent that is a program, as in `claude:native`."""
    try:
        name, _, form = resolve_step_agent(step, str(step.agent).strip(), workflow).agent.partition(":")
    except StepError:
        return False  # it is told when the step runs
    entry = ENTRIES.get(name)
    return form == "native" and entry is not None and entry.program is not None


def agent_hooks(agent: str, workflow: Workflow, render: Render) -> Hooks | None:
    """Return the hooks of the nearest profile that has some."""
    return _first(profile.hooks for profile in _profiles(agent, workflow, render))


def _profiles(agent: str, workflow: Workflow, render: Render) -> Iterator[AgentProfile]:
    """The profile of this name, the one that it stands on, and so on."""
    names: list[str] = []
    while (profile := workflow.agents.get(agent)) is not None:
        if agent in names:
            raise _in_a_circle([*names, agent])
        names.append(agent)
        yield profile
        agent = render(profile.agent).strip()


def merge_settings(set_ups: Iterable[AgentSettings]) -> AgentSettings:
    """Merge settings, the strongest first. Rules, files and servers add up; a denial stays one."""
    strongest = [*set_ups]
    weakest = strongest[::-1]
    asking = next(
        (each for each in strongest if each.prompt is not None or each.prompt_file), AgentSettings()
    )
    return AgentSettings(
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


def _configured(agent: str, tables: Mapping[str, AgentTable]) -> Iterator[AgentSettings]:
    """The settings of `coupler.toml` for a name and for those that it stands on."""
    names: list[str] = []
    name: str | None = agent.partition(":")[0]
    while name is not None and (table := tables.get(name)) is not None:
        if name in names:
            raise _in_a_circle([*names, name])
        names.append(name)
        yield AgentSettings(
            system=_plain(table.system),
            model=_plain(table.model),
            mode=_plain(table.mode),
            options={name: _plain(value) for name, value in table.options.items()},
            tools=ToolRuleTexts(table.allow, table.deny) if table.allow or table.deny else None,
            context=table.context,
            skills=table.skills,
        )
        name = None if table.agent is None else table.agent.partition(":")[0]


def _plain(value: T) -> T | LiteralText:
    return LiteralText(value) if isinstance(value, str) else value


def _in_a_circle(names: Iterable[str]) -> StepError:
    chain = " → ".join(names)
    return StepError("not_found", f"the agent in the end stands on itself: {chain}: see `agent` of these")


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _tools(given: list[ToolRuleTexts]) -> ToolRuleTexts | None:
    if not given:
        return None
    allow = dict.fromkeys(rule for each in given for rule in each.allow)
    return ToolRuleTexts(tuple(allow), tuple(dict.fromkeys(rule for each in given for rule in each.deny)))


def _servers(servers: Iterable[McpServerEntry]) -> tuple[McpServerEntry, ...]:
    by_name: dict[str, McpServerEntry] = {}
    for server in servers:
        by_name.setdefault(server.name, server)
    return tuple(by_name.values())


class RenderedPrompt(NamedTuple):
    """The rendered instructions, prompt and output schema of a step."""

    system: str | None
    prompt: str | None
    """None for a conversation that the user begins."""
    schema: Json | None
    """The JSON Schema of the answer."""


def render_prompt(set_up: AgentSettings, attempt: Attempt) -> RenderedPrompt:
    """Render a step's instructions, prompt and schema; raises `StepError` for templates and unreadable files.

    Prompts are texts and nothing else: no shell ever sees them.
    """
    system = [] if set_up.system is None else [render_setting(set_up.system, attempt)]
    system += [_beside(name, attempt) for name in set_up.skills]
    prompt = _prompt(set_up, attempt)
    if prompt is not None:
        prompt = "\n\n".join([*(_context(name, attempt) for name in set_up.context), prompt])
        if len(prompt) > LONGEST_PROMPT:
            raise StepError("template", f"the prompt is too long: it has {len(prompt):,} characters")
    schema = None if set_up.output is None else output_schema(set_up.output, attempt.workflow.file)
    return RenderedPrompt("\n\n".join(filter(None, map(str.strip, system))) or None, prompt, schema)


def render_setting(template: TemplateText, attempt: Attempt) -> str:
    """Render a template of the workflow; a text of `coupler.toml` stays as it is."""
    return str(template) if isinstance(template, LiteralText) else attempt.text(template)


def output_schema(output: Json, workflow_file: str) -> Json:
    """Return the JSON Schema of a step's output, also from the file that it names; raises `StepError`."""
    schema = _decoded(output, workflow_file) if isinstance(output, str) else output
    if not isinstance(schema, dict):
        raise StepError("invalid_output", "The step's `output` is no JSON Schema: that is an object.")
    _check(msgspec.json.encode(schema))
    return schema


def _decoded(name: str, workflow_file: str) -> Json:
    try:
        return msgspec.json.decode(read_file_beside(name, workflow_file))
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError) as error:
        raise StepError("invalid_output", f"The schema {name!r} is no JSON: {error}.") from None


@lru_cache(maxsize=64)
def _check(schema: bytes) -> None:
    """Raise `StepError` for a schema that cannot be used, before an agent is started for it."""
    from coupler.fields.json_types import json_type_of
    from coupler.runtime.extras import MissingExtraError

    try:
        json_type_of(msgspec.json.decode(schema))
    except TypeError as error:
        raise StepError("invalid_output", f"The step's `output` cannot be used: {error}.") from None
    except MissingExtraError as error:
        raise StepError("not_found", f"{error}.") from None


def _prompt(set_up: AgentSettings, attempt: Attempt) -> str | None:
    if set_up.prompt is not None:
        return attempt.text(set_up.prompt)
    if set_up.prompt_file is None:
        return None
    return attempt.text(_beside(set_up.prompt_file, attempt))


def _beside(name: str, attempt: Attempt) -> str:
    return read_file_beside(name, attempt.workflow.file)


def _context(name: str, attempt: Attempt) -> str:
    shown = Path(name).name if Path(name).is_absolute() else name
    return file_in_prompt(shown, _beside(name, attempt))


class NativeSettings(NamedTuple):
    """The arguments of a native agent."""

    model: str | None = None
    system: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


class AgentStart(NamedTuple):
    """Everything that distinguishes agents' processes from each other; steps with equal ones share one."""

    agent: str
    """As in the journal: a catalogue name with its form, a command line, or a Python target."""
    cwd: str
    env: tuple[tuple[str, str], ...] = ()
    files: FileAccess | None = None
    store: str | None = None
    """The file for its sessions, if the agent does not store them itself."""
    native: NativeSettings | None = None
    asks: bool = True
    """True if it asks before it uses a tool; the command-line agents of vendors do not."""
    words: tuple[str, ...] = ()
    """Arguments after its command."""

    @property
    def name(self) -> str:
        """The agent's name without its form.

        The form is a part of `agent` because sessions of one form cannot be opened by the other.
        """
        name, _, form = self.agent.partition(":")
        return name if form in AGENT_FORMS else self.agent


class AgentRequest(NamedTuple):
    """The agent that a step needs, rendered."""

    agent: str
    cwd: str
    env: Mapping[str, str]
    files: FileAccess | None
    native: NativeSettings
    directory: str
    """The workflow's directory, where files of Python agents are looked for first."""
    store: str | None


def resolve_start(wanted: AgentRequest) -> AgentStart:
    """Resolve what to start; raises `AgentError` for agents that are not there. May block on the disk."""
    start = AgentStart(wanted.agent, wanted.cwd, tuple(sorted(wanted.env.items())), wanted.files)
    target = _python_target(wanted)
    if target is not None:
        return start._replace(agent=target, store=wanted.store)
    chosen = _chosen(wanted.agent, wanted.cwd)
    if chosen is None:
        return start
    start = start._replace(agent=f"{chosen.entry.name}:{chosen.form}")
    if is_coder(chosen.entry):
        # What a step says is for its agent, also if it begins like a command: it may be text of others.
        model = () if wanted.native.model is None else ("--model", wanted.native.model)
        return start._replace(words=("--no-workflows", "--no-commands", *model))
    if chosen.form == "acp":
        return start
    asks = ENTRIES[chosen.entry.native or ""].program is None
    return start._replace(store=wanted.store, native=wanted.native, asks=asks)


def make_agent(start: AgentStart, asked: QuestionHandler) -> RemoteAgent:
    """Make the agent, not started yet; raises `AgentError`. May wait for a disk."""
    agent = _made(start)
    agent.offer_instead(StepClientOffer(agent.wanted_files, asked))
    return agent


def _made(start: AgentStart) -> RemoteAgent:
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
    return connect_bare(agent, cwd=start.cwd, env=env or None, files=start.files)


def _native(start: AgentStart, chosen: ChosenForm, env: Mapping[str, str]) -> RemoteAgent:
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
        offer=ClientOffer(files=start.files),
        assumed_quirks=chosen.entry.quirks,
    )


def _chosen(agent: str, cwd: str) -> ChosenForm | None:
    if any(char.isspace() or char in "/\\" for char in agent):
        return None
    return resolve(agent, cwd)


def _python_target(wanted: AgentRequest) -> str | None:
    """`file.py:attribute` with the whole path, or `module:attribute`; None for what is something else."""
    if not _is_python(wanted.agent):
        return None
    place, attribute = split_target(wanted.agent)
    if is_file_target(place):
        beside = Path(wanted.directory, place)
        place = str(beside if beside.exists() else Path(wanted.cwd, place))
        if not Path(place).is_file():
            raise AgentError("spawn", f"the agent's file {place} does not exist")
    return f"{place}:{attribute}" if attribute else place


def _is_python(agent: str) -> bool:
    if any(char.isspace() for char in agent) and not Path(split_target(agent)[0]).is_file():
        return False
    place, attribute = split_target(agent)
    if place.endswith(".py"):
        return True
    return bool(attribute) and attribute not in AGENT_FORMS and _MODULE.fullmatch(place) is not None


def login_argument(agent: str) -> str:
    """Return the argument of `coupler login` for a journaled agent."""
    name, _, form = agent.partition(":")
    if form in AGENT_FORMS:
        return name
    try:
        return shlex.join(split_command(agent))
    except SpawnError:
        return agent


class QuestionHandler(FileAccessPolicy, Protocol):
    """Answers for the steps whose agents ask."""

    @property
    def shows_forms(self) -> bool: ...

    @property
    def shows_pages(self) -> bool: ...

    async def fill_in(self, form: FormRequest) -> FormAnswer: ...

    async def open_page(self, page: UrlRequest) -> bool | None: ...


class StepClientOffer(ClientOffer):
    """Client capabilities for a step's agent: files as wanted, forms and pages if somebody can be asked."""

    def __init__(self, files: FileAccess | None, asked: QuestionHandler) -> None:
        super().__init__(
            files=files,
            on_form=asked.fill_in if asked.shows_forms else None,
            on_url=asked.open_page if asked.shows_pages else None,
        )
        self._asked = asked

    def responders(self) -> Mapping[str, Responder | NotificationListener]:
        return {**super().responders(), **StepFiles(self._files, self._asked).responders()}
