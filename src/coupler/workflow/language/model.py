"""The model of a workflow: what the reader makes of a file, and all that the engine knows of it.

Texts that may hold `{{ }}` are templates, and expressions are bare Jinja2; both are kept as they were written
and rendered when their step runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

TemplateText = str
"""Text in which `{{ }}` is replaced; exactly one `{{ }}` keeps the type of its value."""

Expression = str
"""The text between `{{` and `}}`."""

Json = Any
"""Null, a boolean, a number, a text, a list or a mapping of these."""

InputType = Literal["string", "integer", "number", "boolean", "list", "object", "file"]
ErrorKind = Literal[
    "exit",
    "timeout",
    "template",
    "provider",
    "rate_limit",
    "invalid_output",
    "denied",
    "budget",
    "cancelled",
    "not_found",
]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

MOST_ROUNDS = 100
"""Most rounds of a `while` that sets no limit."""

LONGEST_DURATION = 1e9
"""Seconds, about 31 years: more is a slip of the keyboard."""

DURATION_PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)$"
DURATION_WORDS = "a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of seconds"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARTS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")


class SourcePosition(msgspec.Struct, frozen=True):
    """A position in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class NamedFile(msgspec.Struct, frozen=True):
    """A file that a workflow names, relative to its own directory."""

    name: str
    position: SourcePosition


class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A value that whoever starts the workflow gives, or that has a default."""

    name: str
    type: InputType = "string"
    description: str = ""
    required: bool = False
    default: Json | msgspec.UnsetType = msgspec.UNSET
    enum: tuple[Json, ...] = ()
    pattern: str | None = None
    min: float | None = None
    max: float | None = None
    secret: bool = False
    rest: bool = False
    """Takes the free text that is left after the named inputs."""
    position: SourcePosition


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """The number of attempts at a step that fails, and the delays between them."""

    attempts: int = 1
    """All of them, the first included."""
    delay: float = 1.0
    max_delay: float = 60.0
    backoff: Literal["constant", "linear", "exponential"] = "constant"
    jitter: float = 0.0
    """The share of a delay, from 0 to 1, by which it is longer or shorter at random."""
    on: tuple[ErrorKind | int, ...] = ()
    """Error kinds and exit codes that are worth another attempt; empty: all but denied, cancelled, budget."""


class Goto(msgspec.Struct, frozen=True):
    """The step of the same list that comes next."""

    step: str
    most: int | None = None
    """Most times that it is followed; required to go back."""


Handling = Literal["fail", "continue"] | Goto


class OnError(msgspec.Struct, frozen=True):
    """The handling of a failure that no retry has mended."""

    default: Handling = "fail"
    of_kinds: Mapping[str, Handling] = {}

    def of(self, kind: str) -> Handling:
        """Return the handling of a kind of error."""
        return self.of_kinds.get(kind, self.default)


OnDeny = Literal["skip", "fail", "stop"]


class ApprovalGate(msgspec.Struct, frozen=True, kw_only=True):
    """A yes or no question before something is done."""

    question: TemplateText | None = None
    on_deny: OnDeny = "fail"
    on_denied_call: OnDeny | None = None
    """The end of the step after a no to a call of `tools`; None: the agent is told, and goes on."""
    default: Literal["allow", "deny"] | None = None
    """The answer when nobody is there, or when the timeout has passed."""
    timeout: float | None = None
    tools: tuple[str, ...] = ()
    """Permission rules: tool calls of the step's agent that somebody is asked about."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a step or a run; None: no limit."""

    tokens: int | None = None
    cost: float | None = None
    time: float | None = None


class StepBase(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of every step, whatever it does."""

    id: str
    position: SourcePosition
    is_named: bool = True
    """False: the id was made from its place in the list."""
    description: TemplateText | None = None
    condition: Expression | bool | None = None
    """`if`"""
    timeout: float | None = None
    retry: Retry | None = None
    on_error: OnError | None = None
    goto: Goto | None = None
    env: Mapping[str, TemplateText] = {}
    cwd: TemplateText | None = None
    once: bool = False
    """Must not run a second time after a crash in its midst, unless somebody says so."""
    gate: ApprovalGate | None = None
    """`approve` as a key of a step that does something else."""


class ToolRuleTexts(msgspec.Struct, frozen=True):
    """Permission rules for the tool calls of an agent, as they were written."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class McpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a command, or an address."""

    name: str
    command: tuple[TemplateText, ...] = ()
    env: Mapping[str, TemplateText] = {}
    url: TemplateText | None = None
    type: Literal["stdio", "http", "sse"] = "stdio"
    headers: Mapping[str, TemplateText] = {}


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and the prompt of an agent; of a step, and of the profile that it names."""

    prompt: TemplateText | None = None
    prompt_file: str | None = None
    system: TemplateText | None = None
    model: TemplateText | None = None
    mode: TemplateText | None = None
    options: Mapping[str, Json] = {}
    tools: ToolRuleTexts | None = None
    files: Literal["none", "read", "write"] | None = None
    """The access to files of the session's directory that the agent has through us."""
    mcp_servers: tuple[McpServerEntry, ...] = ()
    intercept: bool | None = None
    """True if the calls to MCP servers pass through Coupler."""
    context: tuple[str, ...] = ()
    """Files whose text goes before the prompt."""
    skills: tuple[str, ...] = ()
    """Files with instructions that are added to the system prompt."""
    output: Json | None = None
    """A JSON Schema, or the name of a file with one."""
    repairs: int | None = None
    """Most times that an answer which does not fit `output` is handed back; two by default."""
    continues: str | None = None
    """`continue`: the step whose session goes on."""
    budget: Limits | None = None


class AgentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a workflow or `coupler.toml` has given a name of its own."""

    name: str
    agent: str
    """A catalogue name, a command line, `module:attribute`, or another profile."""
    set_up: AgentSettings = AgentSettings()
    env: Mapping[str, TemplateText] = {}
    hooks: Hooks | None = None
    position: SourcePosition


class Run(StepBase, frozen=True, kw_only=True, tag="run"):
    """A shell command."""

    script: TemplateText | None = None
    file: str | None = None
    """`run_file`: a script in a file of its own; its text is a template as well."""
    shell: Literal["sh", "bash"] = "sh"
    stdin: TemplateText | None = None
    output: str | Mapping[str, Json] | None = None
    """The format of stdout for `steps.x.output`: `json`, `lines`, or a JSON Schema.

    The schema, which the JSON must fit, may also be the name of a file.
    """
    ok_codes: tuple[int, ...] = (0,)


class Agent(StepBase, frozen=True, kw_only=True, tag="agent"):
    """One prompt to an agent, and its answer."""

    agent: TemplateText
    set_up: AgentSettings


class Converse(StepBase, frozen=True, kw_only=True, tag="converse"):
    """A conversation with an agent, until the user leaves it."""

    agent: TemplateText
    set_up: AgentSettings
    max_turns: int | None = None


class Approve(StepBase, frozen=True, kw_only=True, tag="approve"):
    """A question to the user; `steps.x.approved` is the answer."""

    question: ApprovalGate


class Ask(StepBase, frozen=True, kw_only=True, tag="ask"):
    """A question whose answer is text, or a value of a type; `steps.x.text` and `steps.x.output`."""

    question: TemplateText
    answer: Input
    """Type, enum, pattern, default … of the answer; its name is that of the step."""


class Parallel(StepBase, frozen=True, kw_only=True, tag="parallel"):
    """Branches that run concurrently; each is one step, or several in a row."""

    branches: tuple[tuple[Step, ...], ...]
    wait: Literal["all", "any", "settled"] = "all"
    max_concurrent: int | None = None


class ForEach(StepBase, frozen=True, kw_only=True, tag="for_each"):
    """The same steps for each item of a list."""

    items: Expression | tuple[Json, ...]
    steps: tuple[Step, ...]
    name: str = "item"
    """`as`: what an item is called inside; `index` counts from 0."""
    wait: Literal["all", "any", "settled"] = "all"
    max_concurrent: int = 1


class While(StepBase, frozen=True, kw_only=True, tag="while"):
    """The same steps again, as long as an expression is true; `index` counts from 0."""

    test: Expression | bool
    steps: tuple[Step, ...]
    max_rounds: int = MOST_ROUNDS


class Call(StepBase, frozen=True, kw_only=True, tag="call"):
    """A call of another workflow; its outputs are `steps.x.output`."""

    workflow: str
    """A name, or a path that starts where this file is."""
    inputs: Mapping[str, Json] = {}
    """Texts are templates."""


class Set(StepBase, frozen=True, kw_only=True, tag="set"):
    """Sets variables, as `vars.name` from here on."""

    values: Mapping[str, Json]
    """Texts are expressions; everything else is itself."""


class Stop(StepBase, frozen=True, kw_only=True, tag="stop"):
    """Ends the workflow."""

    status: Literal["success", "failure", "cancelled"] = "success"
    message: TemplateText = ""
    exit_code: int | None = None


Step = Run | Agent | Converse | Approve | Ask | Parallel | ForEach | While | Call | Set | Stop


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """Steps that run when the workflow starts, ends (however), fails, or is cancelled."""

    start: tuple[Step, ...] = ()
    end: tuple[Step, ...] = ()
    error: tuple[Step, ...] = ()
    cancel: tuple[Step, ...] = ()


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """Settings for steps that do not have them themselves."""

    agent: str | None = None
    shell: Literal["sh", "bash"] | None = None
    timeout: float | None = None
    retry: Retry | None = None
    on_error: OnError | None = None
    env: Mapping[str, TemplateText] = {}
    cwd: TemplateText | None = None
    set_up: AgentSettings = AgentSettings()


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A whole workflow file."""

    name: str
    file: str
    """The absolute path that it was read from."""
    digest: str
    """Changes when the file's meaning may have changed."""
    description: str = ""
    inputs: Mapping[str, Input] = {}
    secrets: tuple[str, ...] = ()
    agents: Mapping[str, AgentProfile] = {}
    mcp_servers: tuple[McpServerEntry, ...] = ()
    defaults: Defaults = Defaults()
    budget: Limits | None = None
    max_steps: int = 10_000
    """Most steps of a run, with those of called workflows."""
    steps: tuple[Step, ...]
    outputs: Mapping[str, Json] = {}
    hooks: Hooks = Hooks()
    files: tuple[NamedFile, ...] = ()
    """Scripts, prompts, schemas, context and skills: the files that belong to it."""


def inner_lists(step: Step) -> Iterator[tuple[Step, ...]]:
    """Yield the lists of steps inside of a step."""
    match step:
        case Parallel():
            yield from step.branches
        case ForEach() | While():
            yield step.steps
        case _:
            pass


def all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Yield steps and what is inside of them, in the order of the file."""
    for step in steps:
        yield step
        for inner in inner_lists(step):
            yield from all_steps(inner)


def lists_of(workflow: Workflow) -> list[tuple[Step, ...]]:
    """Return all outermost lists of steps: the workflow's own, and those of its hooks."""
    hooks = [workflow.hooks, *(profile.hooks for profile in workflow.agents.values() if profile.hooks)]
    return [workflow.steps, *(steps for each in hooks for steps in hook_lists(each))]


def hook_lists(hooks: Hooks) -> tuple[tuple[Step, ...], ...]:
    """Return the lists of steps of hooks."""
    return hooks.start, hooks.end, hooks.error, hooks.cancel


def seconds_in(text: str) -> float | None:
    """Parse a duration, such as `500ms` or `2h`, into seconds; None if it is none."""
    parts = _PARTS.fullmatch(text)
    return float(parts[1]) * _SECONDS[parts[2]] if parts else None


_MEANINGS: dict[str, tuple[str, ...]] = {
    "args": ("inputs",),
    "arguments": ("inputs",),
    "catch": ("on_error",),
    "cmd": ("run",),
    "command": ("run",),
    "concurrency": ("max_concurrent",),
    "dir": ("cwd",),
    "directory": ("cwd",),
    "environment": ("env",),
    "exec": ("run",),
    "file": ("run_file", "prompt_file"),
    "finally": ("hooks",),
    "for": ("for_each",),
    "foreach": ("for_each",),
    "jobs": ("steps",),
    "loop": ("for_each", "while"),
    "message": ("prompt",),
    "name": ("id", "description"),
    "on_failure": ("on_error",),
    "options": ("enum",),
    "parameters": ("inputs",),
    "params": ("inputs",),
    "question": ("ask", "approve"),
    "repeat": ("while",),
    "retries": ("retry",),
    "script": ("run", "run_file"),
    "sh": ("run",),
    "shell": ("run",),
    "stages": ("steps",),
    "tasks": ("steps",),
    "title": ("description",),
    "until": ("while",),
    "values": ("enum",),
    "vars": ("set", "env"),
    "when": ("if",),
    "with": ("inputs",),
    "workflow": ("call",),
    "working_directory": ("cwd",),
}
"""Words of other workflow languages, and the keys that have that meaning here."""


_ADVICE = {
    "continue_on_error": "write `on_error: continue`",
    "depends_on": "steps run in the order of the file: leave it out, and put those that may run side by side "
    "into `parallel`",
    "needs": "steps run in the order of the file: leave it out, and put those that may run side by side into "
    "`parallel`",
    "uses": "`call` runs another workflow of yours; an action of GitHub is not run here, but its command can "
    "be a `run` step",
    "with": "values for a command stand in `env`, those for a workflow that you `call` in its `inputs`",
}
"""What to do instead of words of other workflow languages that no single key has the meaning of."""


def advice_about(word: str) -> str | None:
    """Return what to write instead of a word of other languages, as a part of a sentence, or None."""
    return _ADVICE.get(word[:60].casefold().replace("-", "_"))


def key_meant_by(word: str, keys: Collection[str]) -> str | None:
    """Return the keys that a word of other languages means, as they stand in a sentence, or None."""
    meanings = _MEANINGS.get(word[:60].casefold().replace("-", "_"), ())
    return " or ".join(f"`{key}`" for key in meanings if key in keys) or None
