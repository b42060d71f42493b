"""A workflow as it was written: what `reading` makes of a file, and all that the engine knows of it.

Texts that may hold `{{ }}` are templates, and expressions are bare Jinja2; both are kept as they were written
and rendered when their step runs.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Literal, get_args

import msgspec

Template = str
"""Text in which `{{ }}` is replaced; exactly one `{{ }}` keeps the type of its value."""

Expression = str
"""What may stand between `{{` and `}}`."""

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
"""How often a `while` goes round unless it says otherwise."""


class Position(msgspec.Struct, frozen=True):
    """Where something stands in a file; lines and columns count from 1."""

    file: str
    line: int
    column: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


class NamedFile(msgspec.Struct, frozen=True):
    """A file that a workflow names, from its own directory on."""

    name: str
    position: Position


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
    position: Position


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often and when a failed step is tried again."""

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
    """A step of the same list that comes next."""

    step: str
    most: int | None = None
    """How often; needed to go back."""


Handling = Literal["fail", "continue"] | Goto


class OnError(msgspec.Struct, frozen=True):
    """What comes after a failure that no retry has mended."""

    default: Handling = "fail"
    of_kinds: Mapping[str, Handling] = {}

    def of(self, kind: str) -> Handling:
        return self.of_kinds.get(kind, self.default)


Denied = Literal["skip", "fail", "stop"]


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """A question that is answered by yes or no before something is done."""

    question: Template | None = None
    on_deny: Denied = "fail"
    default: Literal["allow", "deny"] | None = None
    """The answer when nobody is there, or when the timeout has passed."""
    timeout: float | None = None
    tools: tuple[str, ...] = ()
    """Permission rules: tool calls of the step's agent that somebody is asked about."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a step or a run may use up at most; None: as much as it takes."""

    tokens: int | None = None
    cost: float | None = None
    time: float | None = None


class Common(msgspec.Struct, frozen=True, kw_only=True):
    """What every step may say, whatever it does."""

    id: str
    position: Position
    is_named: bool = True
    """False: the id was made from its place in the list."""
    description: Template | None = None
    condition: Expression | bool | None = None
    """`if`"""
    timeout: float | None = None
    retry: Retry | None = None
    on_error: OnError | None = None
    goto: Goto | None = None
    env: Mapping[str, Template] = {}
    cwd: Template | None = None
    once: bool = False
    """Must not run a second time after a crash in its midst, unless somebody says so."""
    gate: Gate | None = None
    """`approve` as a key of a step that does something else."""


class Tools(msgspec.Struct, frozen=True):
    """Permission rules for the tool calls of an agent."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class Server(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a command, or an address."""

    name: str
    command: tuple[Template, ...] = ()
    env: Mapping[str, Template] = {}
    url: Template | None = None
    type: Literal["stdio", "http", "sse"] = "stdio"
    headers: Mapping[str, Template] = {}


class Prompted(msgspec.Struct, frozen=True, kw_only=True):
    """How an agent is set up and asked; of a step, and of the profile that it names."""

    prompt: Template | None = None
    prompt_file: str | None = None
    system: Template | None = None
    model: Template | None = None
    mode: Template | None = None
    options: Mapping[str, Json] = {}
    tools: Tools | None = None
    files: Literal["none", "read", "write"] | None = None
    """What of the session's directory the agent may use through us."""
    mcp_servers: tuple[Server, ...] = ()
    intercept: bool | None = None
    """Whether the calls to MCP servers pass through Coupler."""
    context: tuple[str, ...] = ()
    """Files whose text goes before the prompt."""
    skills: tuple[str, ...] = ()
    """Files with instructions that are added to the system prompt."""
    output: Json | None = None
    """A JSON Schema, or the name of a file with one."""
    repairs: int | None = None
    """How often an answer that does not fit `output` is handed back; twice unless it is said."""
    continues: str | None = None
    """`continue`: the step whose session goes on."""
    budget: Limits | None = None


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """An agent that a workflow or `coupler.toml` has given a name of its own."""

    name: str
    agent: str
    """A catalogue name, a command line, `module:attribute`, or another profile."""
    set_up: Prompted = Prompted()
    env: Mapping[str, Template] = {}
    hooks: Hooks | None = None
    position: Position


class Run(Common, frozen=True, kw_only=True, tag="run"):
    """A command of the shell."""

    script: Template | None = None
    file: str | None = None
    """`run_file`: a script in a file of its own; its text is a template as well."""
    shell: Literal["sh", "bash"] = "sh"
    stdin: Template | None = None
    output: str | Mapping[str, Json] | None = None
    """How stdout is read into `steps.x.output`: `json`, `lines`, or a JSON Schema (or the name of a file with
    one) that its JSON must fit."""
    ok_codes: tuple[int, ...] = (0,)


class Agent(Common, frozen=True, kw_only=True, tag="agent"):
    """One prompt to an agent, and its answer."""

    agent: Template
    set_up: Prompted


class Converse(Common, frozen=True, kw_only=True, tag="converse"):
    """A conversation with an agent, until the user leaves it."""

    agent: Template
    set_up: Prompted
    max_turns: int | None = None


class Approve(Common, frozen=True, kw_only=True, tag="approve"):
    """A question to the user; `steps.x.approved` is the answer."""

    question: Gate


class Ask(Common, frozen=True, kw_only=True, tag="ask"):
    """A question whose answer is text, or a value of a type; `steps.x.text` and `steps.x.output`."""

    question: Template
    answer: Input
    """Type, enum, pattern, default … of the answer; its name is that of the step."""


class Parallel(Common, frozen=True, kw_only=True, tag="parallel"):
    """Branches that run beside each other; each is one step, or several in a row."""

    branches: tuple[tuple[Step, ...], ...]
    wait: Literal["all", "any", "settled"] = "all"
    max_concurrent: int | None = None


class ForEach(Common, frozen=True, kw_only=True, tag="for_each"):
    """The same steps for each item of a list."""

    items: Expression | tuple[Json, ...]
    steps: tuple[Step, ...]
    name: str = "item"
    """`as`: what an item is called inside; `index` counts from 0."""
    wait: Literal["all", "any", "settled"] = "all"
    max_concurrent: int = 1


class While(Common, frozen=True, kw_only=True, tag="while"):
    """The same steps again, as long as an expression is true; `index` counts from 0."""

    test: Expression | bool
    steps: tuple[Step, ...]
    max_rounds: int = MOST_ROUNDS


class Call(Common, frozen=True, kw_only=True, tag="call"):
    """Another workflow; its outputs are `steps.x.output`."""

    workflow: str
    """A name, or a path that starts where this file is."""
    inputs: Mapping[str, Json] = {}
    """Texts are templates."""


class Set(Common, frozen=True, kw_only=True, tag="set"):
    """Variables, as `vars.name` from here on."""

    values: Mapping[str, Json]
    """Texts are expressions; everything else is itself."""


class Stop(Common, frozen=True, kw_only=True, tag="stop"):
    """The end of the workflow."""

    status: Literal["success", "failure", "cancelled"] = "success"
    message: Template = ""
    exit_code: int | None = None


Step = Run | Agent | Converse | Approve | Ask | Parallel | ForEach | While | Call | Set | Stop


class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """Steps beside the workflow: when it starts, ends (however), fails, or is cancelled."""

    start: tuple[Step, ...] = ()
    end: tuple[Step, ...] = ()
    error: tuple[Step, ...] = ()
    cancel: tuple[Step, ...] = ()


class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What steps have that do not say it themselves."""

    agent: str | None = None
    shell: Literal["sh", "bash"] | None = None
    timeout: float | None = None
    retry: Retry | None = None
    on_error: OnError | None = None
    env: Mapping[str, Template] = {}
    cwd: Template | None = None
    set_up: Prompted = Prompted()


class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    name: str
    file: str
    """Where it was read, as an absolute path."""
    digest: str
    """Changes when the file's meaning may have changed."""
    description: str = ""
    inputs: Mapping[str, Input] = {}
    secrets: tuple[str, ...] = ()
    agents: Mapping[str, Profile] = {}
    mcp_servers: tuple[Server, ...] = ()
    defaults: Defaults = Defaults()
    budget: Limits | None = None
    max_steps: int = 10_000
    """How many steps a run may take at most, those of called workflows included."""
    steps: tuple[Step, ...]
    outputs: Mapping[str, Json] = {}
    hooks: Hooks = Hooks()
    files: tuple[NamedFile, ...] = ()
    """Scripts, prompts, schemas, context and skills: what belongs to it besides its own text."""


def inner_lists(step: Step) -> Iterator[tuple[Step, ...]]:
    """The lists of steps inside of a step."""
    match step:
        case Parallel():
            yield from step.branches
        case ForEach() | While():
            yield step.steps
        case _:
            pass


def all_steps(steps: tuple[Step, ...]) -> Iterator[Step]:
    """Steps and what is inside of them, in the order of the file."""
    for step in steps:
        yield step
        for inner in inner_lists(step):
            yield from all_steps(inner)


def lists_of(workflow: Workflow) -> list[tuple[Step, ...]]:
    """All lists of steps that stand by themselves: the workflow's own, and its hooks."""
    hooks = [workflow.hooks, *(profile.hooks for profile in workflow.agents.values() if profile.hooks)]
    return [workflow.steps, *(steps for each in hooks for steps in _of_hooks(each))]


def _of_hooks(hooks: Hooks) -> tuple[tuple[Step, ...], ...]:
    return hooks.start, hooks.end, hooks.error, hooks.cancel


# Words that people who know other workflow languages write, and the keys that have that meaning here.


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
    "uses": ("call",),
    "values": ("enum",),
    "vars": ("set", "env"),
    "when": ("if",),
    "with": ("inputs",),
    "workflow": ("call",),
    "working_directory": ("cwd",),
}


def meant_by(word: str, keys: Collection[str]) -> str | None:
    """Which of some keys a word means elsewhere, as they stand in a sentence; None if it is none of them."""
    meanings = _MEANINGS.get(word[:60].casefold().replace("-", "_"), ())
    return " or ".join(f"`{key}`" for key in meanings if key in keys) or None


# How long something takes, as people write it: `500ms`, `30s`, `5m`, `2h`, or a number of seconds.


LONGEST = 1e9
"""Seconds, about 31 years: more is a slip of the keyboard."""

PATTERN = r"^[0-9]{1,9}(\.[0-9]{1,9})?(ms|s|m|h)$"
WORDS = "a duration, such as `500ms`, `30s`, `5m` or `2h`, or a number of seconds"

_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_PARTS = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,9})?)(ms|s|m|h)")


def seconds_in(text: str) -> float | None:
    """The seconds that a text stands for; None: it is no duration."""
    parts = _PARTS.fullmatch(text)
    return float(parts[1]) * _SECONDS[parts[2]] if parts else None
