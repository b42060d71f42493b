"""The model of a workflow: the keys of its file, and what the reader makes of them for the engine.

Every key of the language is a field of one of these structs, declared once: reading, the JSON Schema and the
manual follow from it. A key is declared when something uses it; until then it is unknown, and an error
wherever it is written. Texts that may hold `{{ }}` are templates, and expressions are bare Jinja2; both are
kept as they were written and rendered when their step runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec

from coupler.fields.nodes import Json as Json
from coupler.fields.nodes import SourcePosition as SourcePosition
from coupler.fields.shapes import (
    Anything,
    Boolean,
    Choice,
    Duration,
    Either,
    ListOf,
    MappingOf,
    Names,
    Number,
    Shape,
    Text,
)
from coupler.fields.tables import (
    Inline,
    Key,
    KeyRule,
    Needs,
    OneOf,
    Short,
    Table,
    form_of,
    keys_of,
    shape_of,
    table,
    table_of,
    tables_in,
    variant_of,
)
from coupler.runtime.formatting import listed
from coupler.workflow.language.shapes import (
    ANY_TEXT,
    EXPRESSION,
    FILES,
    FREE_NAMES,
    NAMES,
    PLAIN,
    RULES,
    TAKEN_NAMES,
    VARIABLES,
    AgentName,
    Alone,
    Branches,
    Count,
    ExitCode,
    FileName,
    Inside,
    JsonSchema,
    NamedFile,
    Seconds,
    StepId,
    Steps,
    TemplateText,
    Yes,
)

S = TypeVar("S", bound="StepBase")

Expression = str
"""The text between `{{` and `}}`."""

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
    "http",
]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)

MOST_ROUNDS = 100
"""Most rounds of a `while` that sets no limit."""

NEVER_SECRET = ("integer", "number", "boolean")
"""Types of inputs that cannot be hidden: their values are found everywhere."""

CONDITION = Either((Boolean(), EXPRESSION))
SCHEMA = Either((FileName("the name of a file with a JSON Schema"), JsonSchema()))
VALUES = MappingOf(Anything(kind="template"), "a mapping of values by name", NAMES)

Timeout = Annotated[Seconds | None, Key("How long one attempt may take.", "30s")]
Environment = Annotated[
    Mapping[str, TemplateText],
    Key("Variables for the programs of the step, besides our environment.", "{CI: true}", shape=VARIABLES),
]
Directory = Annotated[
    TemplateText | None,
    Key(
        "The directory to work in, from the run's own on.",
        '"packages/{{ item }}"',
        "where the run was started",
    ),
]


@table("input", "an input", Short("type"))
class Input(msgspec.Struct, frozen=True, kw_only=True):
    """A value that whoever starts the workflow gives, or that has a default."""

    name: str
    type: Annotated[
        InputType,
        Key("What it is. A file is the path of one that exists, from the working directory on.", "integer"),
    ] = "string"
    description: Annotated[
        str, Key("What it is for; shown to whoever starts the workflow.", "Branch or path", shape=PLAIN)
    ] = ""
    required: Annotated[bool, Key("Whether the workflow cannot start without it.", "true")] = False
    default: Annotated[
        Json | msgspec.UnsetType, Key("The value when none is given.", "2", shape=Anything())
    ] = msgspec.UNSET
    enum: Annotated[
        tuple[Json, ...],
        Key("The only values that fit.", "[dev, staging]", shape=ListOf(Anything(), "a list of values", 1)),
    ] = ()
    pattern: Annotated[
        str | None, Key("What a text must match as a whole.", '"v[0-9]+"', shape=Text("a regular expression"))
    ] = None
    min: Annotated[
        float | None, Key("The least number, or the shortest length of a text or list.", "1", shape=Number())
    ] = None
    max: Annotated[
        float | None,
        Key("The greatest number, or the longest length of a text or list.", "5", shape=Number()),
    ] = None
    secret: Annotated[bool, Key("Whether its value is masked wherever people or files see it.", "true")] = (
        False
    )
    rest: Annotated[bool, Key("Whether it takes the text that is left after the named inputs.", "true")] = (
        False
    )
    position: SourcePosition

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> Input:
        """Make it; the name of one that can be hidden may declare it a secret."""
        from coupler.redaction.sources import declares_secret

        if fields.get("type", "string") not in NEVER_SECRET:
            fields.setdefault("secret", declares_secret(fields["name"]))
        return cls(**fields)

    def problems(self) -> Iterator[tuple[str, str]]:
        """Yield the keys that do not go together with the others, and why."""
        from coupler.workflow.language.inputs import unfit_keys

        return unfit_keys(self)


@table("retry", "`retry`", Short("attempts"))
class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """How often and when a failed step is tried again."""

    attempts: Annotated[Count, Key("All attempts, the first one included.", "3")] = 1
    delay: Annotated[
        float, Key("The time before the second attempt.", "1s", shape=Duration(may_be_zero=True))
    ] = 1.0
    max_delay: Annotated[
        float, Key("The longest time between attempts.", "30s", shape=Duration(may_be_zero=True))
    ] = 60.0
    backoff: Annotated[
        Literal["constant", "linear", "exponential"],
        Key("How the time grows from attempt to attempt.", "exponential"),
    ] = "constant"
    jitter: Annotated[
        float,
        Key(
            "The share of the time by which it is longer or shorter at random.",
            "0.2",
            shape=Number(minimum=0, maximum=1),
        ),
    ] = 0.0
    on: Annotated[
        tuple[ErrorKind | int, ...],
        Key(
            "Which errors are worth another attempt: error kinds, and exit codes.",
            "[rate_limit, timeout, 75]",
            "all but `denied`, `cancelled` and `budget`",
            shape=ListOf(
                Either((Choice.of(*ERROR_KINDS), shape_of(ExitCode))), "a list of error kinds and exit codes"
            ),
        ),
    ] = ()


Retries = Annotated[
    Retry | None,
    Key(
        "How often a failed step is tried again: a number of attempts, or a mapping.",
        "{attempts: 3, delay: 1s, backoff: exponential}",
        "1",
    ),
]


@table("goto", "a `goto`", Short("step"))
class Goto(msgspec.Struct, frozen=True):
    """The step of the same list that comes next; going back needs `max`."""

    step: Annotated[StepId, Key("The step that comes next, of the same list.", "build")]
    most: Annotated[Count | None, Key("How often it may go there; needed to go back.", "3", name="max")] = (
        None
    )


Handling = Literal["fail", "continue"] | Goto


class OnError(msgspec.Struct, frozen=True):
    """What comes after a failure: one way for all, or one for each kind."""

    default: Handling = "fail"
    of_kinds: Mapping[str, Handling] = {}

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> OnError:
        """Make it of the handlings of kinds and of all others, or of a `goto` for all."""
        handlings = {name: each["goto"] if isinstance(each, dict) else each for name, each in fields.items()}
        default = handlings.pop("goto", None) or handlings.pop("default", "fail")
        return cls(default, handlings)

    def of(self, kind: str) -> Handling:
        """Return the handling of a kind of error."""
        return self.of_kinds.get(kind, self.default)


def _on_error(name: str, *, may_go: bool) -> Shape:
    """Return the shape of `on_error`: of steps, and of the defaults, which know no other step."""
    leave = Choice.of("fail", "continue")
    next_step = Key("The step that comes next.", "build", name="goto", shape=shape_of(Goto), is_required=True)
    way = Table("go", "a way on", [next_step], sentence="The step that comes next.")
    handling = Either((leave, way)) if may_go else leave
    goto = Key(
        "The step that comes next, whatever the error is.", "clean_up", name="goto", shape=shape_of(Goto)
    )
    others = Key("What comes after all others.", "fail", "`fail`", "default", handling)
    keys = [
        *([goto] if may_go else []),
        *(
            Key(f"What comes after an error of the kind `{kind}`.", "continue", name=kind, shape=handling)
            for kind in ERROR_KINDS
        ),
        others,
    ]
    bound = [msgspec.structs.replace(key, path=(key.name,), default=key.default or "") for key in keys]
    rules = [Alone("goto")] if may_go else []
    whole = Table(name, "`on_error`", bound, rules, OnError.__doc__ or "", OnError)
    return form_of(OnError, whole, Short("default", leave))


ON_ERROR = _on_error("on_error", may_go=True)
DEFAULT_ON_ERROR = _on_error("default_on_error", may_go=False)


OnDeny = Literal["skip", "fail", "stop"]


@table("gate", "`approve`", Short(None, Yes()), Short("question"), without=("tools",))
class ApprovalGate(msgspec.Struct, frozen=True, kw_only=True):
    """A question that is answered by yes or no before the step begins."""

    question: Annotated[
        TemplateText | None, Key("What is asked.", '"Deploy to {{ inputs.host }}?"', "the step's description")
    ] = None
    on_deny: Annotated[OnDeny, Key("What a no means for the workflow.", "stop")] = "fail"
    on_denied_call: OnDeny | None = None
    """The end of the step after a no to a call of `tools`; None: the agent is told, and goes on."""
    default: Annotated[
        Literal["allow", "deny"] | None,
        Key(
            "The answer when nobody is there to ask, or when the time is over.",
            "deny",
            "`deny`, when nobody is there",
        ),
    ] = None
    timeout: Annotated[Seconds | None, Key("How long an answer is waited for.", "5m")] = None
    tools: Annotated[
        tuple[str, ...],
        Key(
            "Rules for tool calls of the agent before which it is asked, not before the step.",
            '["execute(git push *)"]',
            shape=ListOf(RULES.item, RULES.words, 1),
        ),
    ] = ()

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> ApprovalGate:
        """Make it; a no to a call of `tools` means what is written, and else nothing for the step."""
        of_call = fields.get("on_deny") if "tools" in fields else None
        return cls(**fields, on_denied_call=of_call)


_GATE_KEYS = ("question", "on_deny", "default", "timeout")
QUESTION = variant_of(
    ApprovalGate,
    "question",
    "`approve`",
    "A question that is answered by yes or no.",
    _GATE_KEYS,
    question=Key("What is asked.", '"Go on?"', is_required=True),
)
AGENT_GATE = variant_of(
    ApprovalGate,
    "agent_gate",
    "`approve`",
    "A question that is answered by yes or no, before the step or before tool calls.",
    (*_GATE_KEYS, "tools"),
    on_deny=Key(
        "What a no means for the workflow, to the question or to a call of `tools`.",
        "stop",
        "`fail`; after a no to a call the agent goes on",
    ),
)
AGENT_GATE_FORM = form_of(ApprovalGate, AGENT_GATE, Short(None, Yes()), Short("question"))
_GATE = Key(
    "A question that needs a yes before the step begins: a text, `true`, or a mapping.",
    '"Deploy now?"',
    name="approve",
)


@table("budget", "a budget")
class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What may be used up at most; what is left out has no limit."""

    tokens: Annotated[
        int | None, Key("Tokens that agents may use.", "50000", shape=Number(minimum=1, is_whole=True))
    ] = None
    cost: Annotated[
        float | None,
        Key("What agents may cost, in the currency that they report.", "1.50", shape=Number(above=0)),
    ] = None
    time: Annotated[Seconds | None, Key("How long it may take.", "10m")] = None


class StepBase(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of every step, whatever it does."""

    id: Annotated[
        StepId,
        Key(
            "What expressions call the step: `steps.ID`.",
            "diff",
            "its kind and place: `run_1`",
            is_required=False,
        ),
    ]
    position: SourcePosition
    is_named: bool = True
    """False: the id was made from its place in the list."""
    description: Annotated[
        TemplateText | None,
        Key("What people see of the step.", '"Test {{ inputs.target }}"', "made from its kind"),
    ] = None
    condition: Annotated[
        Expression | bool | None,
        Key("The step is skipped unless this is true.", "steps.gate.approved", name="if", shape=CONDITION),
    ] = None
    timeout: Timeout = None
    retry: Retries = None
    on_error: Annotated[
        OnError | None,
        Key(
            "What comes after a failure that no retry has mended.",
            "{goto: clean_up}",
            "`fail`",
            shape=ON_ERROR,
        ),
    ] = None
    goto: Annotated[
        Goto | None,
        Key(
            "The step of the same list that comes next; to go back, say how often.",
            "{step: build, max: 3}",
            "the next one",
        ),
    ] = None
    env: Environment = {}
    cwd: Directory = None
    once: Annotated[
        bool,
        Key(
            "Whether the step must not run a second time after a crash in its midst, unless somebody says "
            "so.",
            "true",
        ),
    ] = False
    gate: Annotated[ApprovalGate | None, _GATE] = None
    needs: Annotated[
        tuple[StepId, ...],
        Key(
            "Of a branch of `parallel`, on its first step: steps of other branches that are over before it "
            "begins.",
            "[build]",
            shape=ListOf(shape_of(StepId), "a list of step ids", 1),
        ),
    ] = ()

    @property
    def lists(self) -> tuple[tuple[Step, ...], ...]:
        """The lists of steps inside."""
        return ()


@table("tools", "`tools`")
class ToolRuleTexts(msgspec.Struct, frozen=True):
    """Permission rules for the tool calls of an agent."""

    allow: Annotated[
        tuple[str, ...], Key("Tool calls that need no question.", '["read(**)"]', shape=RULES)
    ] = ()
    deny: Annotated[
        tuple[str, ...], Key("Tool calls that are refused.", '["execute(rm *)"]', shape=RULES)
    ] = ()


@table(
    "mcp_server",
    "an MCP server",
    OneOf(("command", "url")),
    Needs("args", "command"),
    Needs("env", "command"),
    Needs("type", "url"),
    Needs("headers", "url"),
)
class McpServerEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An MCP server: a program that is started, or an address."""

    name: str
    command: Annotated[
        tuple[TemplateText, ...],
        Key("The program of a server that is started.", "npx", shape=shape_of(TemplateText)),
        Key(
            "The program's arguments.",
            '[-y, "@example/server"]',
            name="args",
            shape=ListOf(ANY_TEXT, "a list of texts"),
        ),
    ] = ()
    env: Annotated[
        Mapping[str, TemplateText],
        Key("The program's environment, besides ours.", "{LOG_LEVEL: debug}", shape=VARIABLES),
    ] = {}
    url: Annotated[
        TemplateText | None, Key("The address of a server that runs already.", "https://mcp.example.com/mcp")
    ] = None
    type: Annotated[
        Literal["stdio", "http", "sse"],
        Key("How that server is spoken to.", "sse", "`http`", shape=Choice.of("http", "sse")),
    ] = "stdio"
    headers: Annotated[
        Mapping[str, TemplateText],
        Key(
            "Headers of every request to it.",
            '{Authorization: "Bearer {{ secrets.MCP_TOKEN }}"}',
            shape=VARIABLES,
        ),
    ] = {}

    @classmethod
    def from_keys(cls, fields: dict[str, Any]) -> McpServerEntry:
        """Make it of a program and its arguments, or of an address."""
        if "url" in fields:
            return cls(**{"type": "http", **fields})
        command = (fields.pop("command"), *fields.pop("args", ()))
        return cls(command=command, **fields)


SERVERS = MappingOf(table_of(McpServerEntry), "a mapping of MCP servers by name", FREE_NAMES, is_tuple=True)


class AgentSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The settings and the prompt of an agent; of a step, and of the profile that it names."""

    prompt: Annotated[TemplateText | None, Key("What the agent is told.", '"Fix {{ inputs.target }}."')] = (
        None
    )
    prompt_file: Annotated[
        str | None, Key("A file with the prompt; its text is a template.", "prompts/fix.md", shape=FileName())
    ] = None
    system: Annotated[TemplateText | None, Key("The system prompt.", "You review code.")] = None
    model: Annotated[TemplateText | None, Key("The agent's model.", "sonnet", "the agent's own")] = None
    mode: Annotated[TemplateText | None, Key("The agent's mode.", "plan", "the agent's own")] = None
    options: Annotated[
        Mapping[str, Json],
        Key(
            "Options of the agent, by their ids.",
            "{effort: high}",
            shape=MappingOf(Anything(kind="template"), "a mapping of values", Names(r"\S", "a text")),
        ),
    ] = {}
    tools: Annotated[
        ToolRuleTexts | None,
        Key(
            "Permission rules for the agent's tool calls; see [permissions](permissions.md).",
            '{allow: ["read(**)"], deny: ["execute(*)"]}',
        ),
    ] = None
    files: Annotated[
        Literal["none", "read", "write"] | None,
        Key("What of the working directory the agent may use through Coupler.", "read", "the agent's own"),
    ] = None
    mcp_servers: Annotated[
        tuple[McpServerEntry, ...],
        Key("MCP servers whose tools the agent gets.", "{tickets: {command: tickets-mcp}}", shape=SERVERS),
    ] = ()
    intercept: Annotated[
        bool | None,
        Key(
            "Whether calls to MCP servers pass through Coupler, where rules judge them and the run's log has "
            "them.",
            "true",
            "false",
        ),
    ] = None
    context: Annotated[
        tuple[str, ...], Key("Files whose text goes before the prompt.", "[docs/style.md]", shape=FILES)
    ] = ()
    skills: Annotated[
        tuple[str, ...],
        Key(
            "Files with instructions that are added to the system prompt.", "[skills/review.md]", shape=FILES
        ),
    ] = ()
    output: Annotated[
        Json | None,
        Key(
            "A JSON Schema, or a file with one, that the answer must fit; the answer is then "
            "`steps.x.output`.",
            "schemas/findings.json",
            "the answer is text",
            shape=SCHEMA,
        ),
    ] = None
    repairs: Annotated[
        int | None,
        Key(
            "How often an answer that does not fit `output` is handed back.",
            "1",
            "2",
            shape=Number(minimum=0, maximum=100, is_whole=True),
        ),
    ] = None
    budget: Annotated[Limits | None, Key("What may be used up at most.", "{tokens: 50000, time: 10m}")] = None
    continues: Annotated[
        StepId | None,
        Key("The step before, of the same agent, whose session goes on here.", "review", name="continue"),
    ] = None


@table("hooks", "`hooks`")
class Hooks(msgspec.Struct, frozen=True, kw_only=True):
    """Steps beside the workflow."""

    start: Annotated[tuple[Step, ...], Key("Before the first step.", "[{run: date}]", shape=Steps())] = ()
    end: Annotated[
        tuple[Step, ...], Key("After the last, however it ended.", "[{run: rm -rf tmp}]", shape=Steps())
    ] = ()
    error: Annotated[
        tuple[Step, ...],
        Key("When the workflow has failed.", '[{run: "notify {{ run.error.message }}"}]', shape=Steps()),
    ] = ()
    cancel: Annotated[
        tuple[Step, ...], Key("When it was cancelled.", "[{run: docker compose down}]", shape=Steps())
    ] = ()


MOMENTS = Hooks.__struct_fields__
"""The moments that hooks are for."""


@table("profile", "an agent")
class AgentProfile(msgspec.Struct, frozen=True, kw_only=True):
    """An agent with a name and settings of its own, for `agent` and `converse`."""

    name: str
    agent: Annotated[
        AgentName,
        Key("A name of the catalogue, a command line, `module:attribute`, or another profile.", "claude"),
    ]
    set_up: Annotated[AgentSettings, Inline(without=("prompt", "prompt_file", "continues"))] = AgentSettings()
    env: Environment = {}
    hooks: Annotated[
        Hooks | None, Key("Steps around each step that uses the agent.", "{start: [{run: git stash}]}")
    ] = None
    position: SourcePosition


_KINDS: dict[str, type[StepBase]] = {}
_KIND_KEYS: dict[str, str] = {}


def step(
    kind: str, *marks: KeyRule | Short, also: Sequence[str] = (), without: Sequence[str] = ()
) -> Callable[[type[S]], type[S]]:
    """Declare a kind of step: which key says that a step is of it, or which others also do.

    The first line of the class's docstring is its sentence, as with every `table`.
    """

    def declare(struct: type[S]) -> type[S]:
        _KINDS[kind] = struct
        _KIND_KEYS.update(dict.fromkeys((*also, kind), kind))
        article = "an" if kind[0] in "aeiou" or kind == "http" else "a"
        title = f"{article} `{kind}` step"
        return table(f"{kind}_step", title, *marks, without=without)(struct)

    return declare


@step("run", OneOf(("run", "run_file")), also=("run_file",))
class Run(StepBase, frozen=True, kw_only=True, tag="run"):
    """A script of the shell."""

    script: Annotated[
        TemplateText | None,
        Key(
            "A script of the shell. A value in `{{ }}` is never read as script, unless it says `| raw`.",
            '"git diff {{ inputs.target }}"',
            name="run",
        ),
    ] = None
    file: Annotated[
        str | None,
        Key(
            "A file with the script; its text is a template as well.",
            "scripts/test.sh",
            name="run_file",
            shape=FileName(),
        ),
    ] = None
    shell: Annotated[Literal["sh", "bash"], Key("Which shell runs scripts.", "bash")] = "sh"
    stdin: Annotated[
        TemplateText | None,
        Key("What the script reads.", '"{{ steps.diff.stdout }}"', "nothing", shape=ANY_TEXT),
    ] = None
    output: Annotated[
        str | Mapping[str, Json] | None,
        Key(
            "How stdout becomes `steps.x.output`: as JSON, as lines, or as JSON that fits a schema.",
            "json",
            "stdout is text",
            shape=Either(
                (
                    FileName(
                        "`json`, `lines`, the name of a file with a JSON Schema", not_files=("json", "lines")
                    ),
                    JsonSchema(),
                )
            ),
        ),
    ] = None
    ok_codes: Annotated[
        tuple[int, ...],
        Key(
            "Exit codes that are no failure.",
            "[0, 1]",
            "`[0]`",
            shape=ListOf(shape_of(ExitCode), "a list of exit codes", 1),
        ),
    ] = (0,)


STATUSES = ListOf(
    Either(
        (
            Number(100, 599, is_whole=True),
            Text(
                "a class such as `2xx`, or a range such as `200-204`",
                "^[1-5](xx|[0-9]{2}-[1-5][0-9]{2})$",
                wrong_words="must be a class such as `2xx`, or a range such as `200-204`",
            ),
        )
    ),
    "a list of statuses",
    1,
)


@step("http", without=("env", "cwd"))
class Http(StepBase, frozen=True, kw_only=True, tag="http"):
    """A request to a server, and its response: `steps.x.status_code`, `headers`, `text` and `output`."""

    url: Annotated[
        TemplateText,
        Key("The address.", '"https://api.example.com/issues/{{ inputs.number }}"', name="http"),
    ]
    method: Annotated[
        Literal["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"], Key("The method.", "POST")
    ] = "GET"
    headers: Annotated[
        Mapping[str, TemplateText],
        Key(
            "Headers of the request.",
            '{Authorization: "Bearer {{ secrets.GITHUB_TOKEN }}"}',
            shape=VARIABLES,
        ),
    ] = {}
    query: Annotated[
        Mapping[str, Json],
        Key(
            "Parameters behind the address, which are encoded; of a list each item, and null is left out.",
            '{state: open, labels: [bug, "{{ inputs.label }}"]}',
            shape=MappingOf(Anything(kind="template"), "a mapping of values", Names(r"\S", "a text")),
        ),
    ] = {}
    body: Annotated[
        Json,
        Key(
            "What is sent: a text as it is, all else as JSON, with the `Content-Type` that belongs to it.",
            '{title: "{{ inputs.title }}", labels: [bug]}',
            "nothing",
            shape=Anything(kind="template"),
        ),
    ] = None
    ok_status: Annotated[
        tuple[int | str, ...],
        Key("Statuses that are no failure.", "[2xx, 404]", "`[2xx]`", shape=STATUSES),
    ] = ("2xx",)
    output: Annotated[
        str | Mapping[str, Json] | None,
        Key(
            "What the body must be: JSON, or JSON that fits a schema; it is then `steps.x.output`.",
            "json",
            "JSON if the server says so",
            shape=Either(
                (FileName("`json`, the name of a file with a JSON Schema", not_files=("json",)), JsonSchema())
            ),
        ),
    ] = None


class AgentStep(StepBase, frozen=True, kw_only=True):
    """The keys of steps that prompt an agent; their `approve` may be about its tool calls."""

    gate: Annotated[ApprovalGate | None, msgspec.structs.replace(_GATE, shape=AGENT_GATE_FORM)] = None


@step("agent", OneOf(("prompt", "prompt_file")))
class Agent(AgentStep, frozen=True, kw_only=True, tag="agent"):
    """One prompt to an agent, and its answer."""

    agent: Annotated[
        AgentName,
        Key(
            "A name of `agents`, `coupler.toml` or the catalogue, a command line, or `module:attribute`.",
            "claude",
            "that of `defaults`",
            is_required=False,
        ),
    ]
    set_up: Annotated[AgentSettings, Inline()]


@step("converse", OneOf(("prompt", "prompt_file"), is_needed=False))
class Converse(AgentStep, frozen=True, kw_only=True, tag="converse"):
    """A conversation with an agent, until the user leaves it."""

    agent: Annotated[AgentName, Key("An agent, as in `agent`.", "claude", name="converse")]
    max_turns: Annotated[Count | None, Key("How many messages of the user it takes at most.", "20")] = None
    set_up: Annotated[AgentSettings, Inline()]


_BESIDE = ("on_deny", "default", "timeout")


@step("approve", Inside("approve", _BESIDE), without=("timeout", "gate"))
class Approve(StepBase, frozen=True, kw_only=True, tag="approve"):
    """A question that is answered by yes or no; `steps.x.approved` is the answer."""

    question: Annotated[
        ApprovalGate,
        Key(
            "What is asked: a text, or a mapping with `question` and the keys below.",
            '"Commit {{ steps.fixes.results | length }} fixes?"',
            name="approve",
            shape=form_of(ApprovalGate, QUESTION, Short("question")),
        ),
        Inline(only=_BESIDE),
    ]


@step("ask")
class Ask(StepBase, frozen=True, kw_only=True, tag="ask"):
    """A question whose answer is a text, or a value of a type: `steps.x.text` and `steps.x.output`."""

    question: Annotated[TemplateText, Key("What is asked.", '"Which version?"', name="ask")]
    answer: Annotated[Input, Inline(only=("type", "default", "enum", "pattern", "min", "max"))]
    """Type, enum, pattern, default … of the answer; its name is that of the step."""


Wait = Annotated[
    Literal["all", "any", "settled"],
    Key(
        "Until `all` are done or one failed, until `any` has succeeded, or until all have `settled`.",
        "settled",
    ),
]
Body = Annotated[tuple["Step", ...], Key("The steps of each round.", "[{run: make}]", shape=Steps())]


@step("parallel")
class Parallel(StepBase, frozen=True, kw_only=True, tag="parallel"):
    """Branches that run beside each other; afterwards their steps are ordinary ones."""

    branches: Annotated[
        tuple[tuple[Step, ...], ...],
        Key(
            "Branches: each is a step, or a list of steps.",
            "[{run: make lint}, {run: make test}]",
            name="parallel",
            shape=Branches(),
        ),
    ]
    wait: Wait = "all"
    max_concurrent: Annotated[Count | None, Key("How many branches run at a time.", "2", "all")] = None

    @property
    def lists(self) -> tuple[tuple[Step, ...], ...]:
        return self.branches


@step("for_each")
class ForEach(StepBase, frozen=True, kw_only=True, tag="for_each"):
    """The same steps for each item of a list; `index` counts from 0."""

    items: Annotated[
        Expression | tuple[Json, ...],
        Key(
            "A list, or an expression whose value is one.",
            "steps.files.output",
            name="for_each",
            shape=Either((EXPRESSION, ListOf(Anything(kind="template"), "a list"))),
        ),
    ]
    steps: Body
    name: Annotated[
        str,
        Key(
            "What an item is called.",
            "file",
            name="as",
            shape=Text(
                "a name",
                f"^(?!({'|'.join(TAKEN_NAMES)})$){NAMES.pattern[1:]}",
                wrong_words=f"must be {NAMES.words}, and none of {listed(TAKEN_NAMES)}",
            ),
        ),
    ] = "item"
    wait: Wait = "all"
    max_concurrent: Annotated[Count, Key("How many items are worked on at a time.", "4")] = 1

    @property
    def lists(self) -> tuple[tuple[Step, ...], ...]:
        return (self.steps,)


@step("while")
class While(StepBase, frozen=True, kw_only=True, tag="while"):
    """The same steps again, as long as an expression is true; `index` counts from 0."""

    test: Annotated[
        Expression | bool,
        Key("The steps run again as long as this is true.", "vars.tries < 3", name="while", shape=CONDITION),
    ]
    steps: Body
    max_rounds: Annotated[Count, Key("How many rounds there are at most; one more is an error.", "10")] = (
        MOST_ROUNDS
    )

    @property
    def lists(self) -> tuple[tuple[Step, ...], ...]:
        return (self.steps,)


@step("call")
class Call(StepBase, frozen=True, kw_only=True, tag="call"):
    """Another workflow; its outputs are `steps.x.output`."""

    workflow: Annotated[
        str,
        Key(
            "A workflow by its name, or by a path that starts where this file is.",
            "lint.yaml",
            name="call",
            shape=Text("a workflow"),
        ),
    ]
    inputs: Annotated[
        Mapping[str, Json], Key("Its inputs; texts are templates.", '{target: "{{ item }}"}', shape=VALUES)
    ] = {}


@step("set")
class Set(StepBase, frozen=True, kw_only=True, tag="set"):
    """Variables, as `vars.name` from here on."""

    values: Annotated[
        Mapping[str, Json],
        Key(
            "Variables: a text is an expression, everything else is itself.",
            "{tries: vars.tries + 1}",
            name="set",
            shape=MappingOf(
                Anything("an expression, or a value", "expression"), "a mapping of expressions", NAMES
            ),
        ),
    ]


@table("ending", "`stop`", Short("message"))
class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """How the workflow ends."""

    status: Annotated[Literal["success", "failure", "cancelled"], Key("How the run ends.", "failure")] = (
        "success"
    )
    message: Annotated[TemplateText, Key("What people are told.", '"Nothing to do."', shape=ANY_TEXT)] = ""
    exit_code: Annotated[
        ExitCode | None, Key("The exit code of `coupler run`.", "7", "that of the status")
    ] = None


@step("stop")
class Stop(StepBase, frozen=True, kw_only=True, tag="stop"):
    """The end of the workflow."""

    ending: Annotated[
        Ending, Key("A message, or a mapping.", '{status: success, message: "Done."}', name="stop")
    ]


@step("break")
class Break(StepBase, frozen=True, kw_only=True, tag="break"):
    """The end of the loop around it, whatever rounds are left."""

    is_meant: Annotated[Literal[True], Key("Leaves the loop.", "true", name="break", shape=Yes())]


@step("continue")
class Continue(StepBase, frozen=True, kw_only=True, tag="continue"):
    """The end of the round; the loop around it goes on with the next one."""

    is_meant: Annotated[Literal[True], Key("Ends the round.", "true", name="continue", shape=Yes())]


Step = (
    Run
    | Http
    | Agent
    | Converse
    | Approve
    | Ask
    | Parallel
    | ForEach
    | While
    | Call
    | Set
    | Stop
    | Break
    | Continue
)


@table("defaults", "`defaults`")
class Defaults(msgspec.Struct, frozen=True, kw_only=True):
    """What steps have that do not say it themselves."""

    agent: Annotated[AgentName | None, Key("The agent of steps with a prompt and no `agent`.", "claude")] = (
        None
    )
    shell: Annotated[Literal["sh", "bash"] | None, Key("Which shell runs scripts.", "bash", "`sh`")] = None
    timeout: Timeout = None
    retry: Retries = None
    on_error: Annotated[
        OnError | None, Key("As in a step, without `goto`.", "continue", "`fail`", shape=DEFAULT_ON_ERROR)
    ] = None
    env: Environment = {}
    cwd: Directory = None
    set_up: Annotated[
        AgentSettings,
        Inline(only=("model", "system", "options", "tools", "files", "mcp_servers", "intercept", "budget")),
    ] = AgentSettings()


@table("workflow", "a workflow")
class Workflow(msgspec.Struct, frozen=True, kw_only=True):
    """A whole file."""

    name: Annotated[
        str,
        Key(
            "What it is called: in lists, and as a slash command.",
            "review",
            "the file's name",
            shape=Text("a name", FREE_NAMES.pattern, wrong_words=f"must be {FREE_NAMES.words}"),
            is_required=False,
        ),
    ]
    file: str
    """The absolute path that it was read from."""
    digest: str
    """Changes when the file's meaning may have changed."""
    description: Annotated[str, Key("What it does, in a sentence.", "Review a change", shape=PLAIN)] = ""
    inputs: Annotated[
        Mapping[str, Input],
        Key(
            "Values that whoever starts it gives.",
            "{target: {type: string, required: true}}",
            shape=MappingOf(shape_of(Input), "a mapping of inputs by name", NAMES),
        ),
    ] = {}
    secrets: Annotated[
        tuple[str, ...],
        Key(
            "Environment variables that it uses as `secrets.NAME`, that its commands get, and that are "
            "masked wherever they show.",
            "[GITHUB_TOKEN]",
            shape=ListOf(
                Text(
                    "a variable's name",
                    NAMES.pattern,
                    wrong_words="must have the names of variables, never their values",
                ),
                "a list of variable names",
            ),
        ),
    ] = ()
    agents: Annotated[
        Mapping[str, AgentProfile],
        Key(
            "Agents with names of their own.",
            "{reviewer: {agent: claude, model: opus}}",
            shape=MappingOf(shape_of(AgentProfile), "a mapping of agents by name", FREE_NAMES),
        ),
    ] = {}
    mcp_servers: Annotated[
        tuple[McpServerEntry, ...],
        Key("MCP servers whose tools all agents get.", "{tickets: {command: tickets-mcp}}", shape=SERVERS),
    ] = ()
    defaults: Annotated[
        Defaults, Key("What steps have that do not say it themselves.", "{agent: claude, timeout: 10m}")
    ] = Defaults()
    budget: Annotated[Limits | None, Key("What the whole run may use up at most.", "{cost: 5, time: 1h}")] = (
        None
    )
    max_steps: Annotated[
        Count, Key("How many steps a run may take, those of called workflows included.", "500")
    ] = 10_000
    steps: Annotated[
        tuple[Step, ...], Key("What it does, from top to bottom.", "[{run: make}]", shape=Steps())
    ]
    outputs: Annotated[
        Mapping[str, Json],
        Key(
            "What comes out of it; texts are templates, and one whole `{{ }}` keeps its type.",
            '{findings: "{{ steps.review.output }}"}',
            shape=VALUES,
        ),
    ] = {}
    hooks: Annotated[
        Hooks,
        Key(
            "Steps beside the workflow: when it starts, ends, fails or is cancelled.",
            "{end: [{run: rm -rf tmp}]}",
        ),
    ] = Hooks()
    files: tuple[NamedFile, ...] = ()
    """Scripts, prompts, schemas, context and skills: the files that belong to it."""


@cache
def step_tables() -> Mapping[str, Table]:
    """Return the tables of all kinds of steps; each knows to which others a key belongs that it has not."""
    owners = {key.name: table_of(_KINDS[kind]).title for kind in reversed(_KINDS) for key in own_keys(kind)}
    tables = {kind: table_of(struct) for kind, struct in _KINDS.items()}
    for each in tables.values():
        each.elsewhere = owners
    return tables


@cache
def workflow_table() -> Table:
    """Return the table of a whole file."""
    whole = table_of(Workflow)
    whole.elsewhere = {name: "a step, in `steps`" for each in step_tables().values() for name in each.names}
    return whole


@cache
def all_tables() -> tuple[Table, ...]:
    """Return every table of the language, once."""
    return (*tables_in(workflow_table(), *step_tables().values()).values(),)


@cache
def step_lists() -> frozenset[str]:
    """Return the keys whose values are lists of steps."""
    return frozenset(key.name for each in all_tables() for key in each.keys if isinstance(key.shape, Steps))


def own_keys(kind: str) -> list[Key]:
    """Return the keys that only this kind of step has."""
    common = StepBase.__struct_fields__
    return [key for key in table_of(_KINDS[kind]).keys if key.path[0] not in common]


def common_keys() -> tuple[Key, ...]:
    """Return the keys that every step has."""
    return keys_of(StepBase)


def kind_keys() -> Mapping[str, str]:
    """Return the keys that say what a step does, and the kind of step that each means."""
    return _KIND_KEYS


def inner_lists(step: Step) -> Iterator[tuple[Step, ...]]:
    """Yield the lists of steps inside of a step."""
    yield from step.lists


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
