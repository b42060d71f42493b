"""Declares the keys of the workflow language: every key is one entry of these tables.

Reading, the JSON Schema and the manual follow from these tables. A key is declared when something uses it;
until then it is unknown, and an error wherever it is written.
"""

from __future__ import annotations

from typing import get_args

from coupler.workflow.language.model import ERROR_KINDS, MOST_ROUNDS, InputType
from coupler.workflow.language.values import (
    Alone,
    AnyText,
    Anything,
    Boolean,
    Branches,
    Choice,
    Duration,
    Either,
    FileName,
    Inside,
    JsonSchema,
    Key,
    ListOf,
    MappingOf,
    Needs,
    Number,
    OneOf,
    PermissionRule,
    Shape,
    Steps,
    Table,
    Text,
    Variable,
    Yes,
    listed,
)

HOOKS = Table(
    "hooks",
    "`hooks`",
    (
        Key("start", Steps(), "Before the first step.", "[{run: date}]"),
        Key("end", Steps(), "After the last, however it ended.", "[{run: rm -rf tmp}]"),
        Key("error", Steps(), "When the workflow has failed.", '[{run: "notify {{ run.error.message }}"}]'),
        Key("cancel", Steps(), "When it was cancelled.", "[{run: docker compose down}]"),
    ),
    sentence="Steps beside the workflow.",
)
_HOOKS = Key(
    "hooks",
    HOOKS,
    "Steps beside the workflow: when it starts, ends, fails or is cancelled.",
    "{end: [{run: rm -rf tmp}]}",
)

AGENT_NAME = Text("an agent", kind="template")

TEMPLATE = Text(kind="template")
SYSTEM_KEY = Key("system", TEMPLATE, "The system prompt.", "You review code.")
MODEL_KEY = Key("model", TEMPLATE, "The agent's model.", "sonnet", "the agent's own")
_MODE = Key("mode", TEMPLATE, "The agent's mode.", "plan", "the agent's own")
OPTIONS_KEY = Key(
    "options",
    MappingOf(Anything(kind="template"), "a mapping of values", r"\S", "a text"),
    "Options of the agent, by their ids.",
    "{effort: high}",
)
TOOLS = Table(
    "tools",
    "`tools`",
    (
        Key(
            "allow",
            ListOf(PermissionRule(), "a list of permission rules"),
            "Tool calls that need no question.",
            '["read(**)"]',
        ),
        Key(
            "deny",
            ListOf(PermissionRule(), "a list of permission rules"),
            "Tool calls that are refused.",
            '["execute(rm *)"]',
        ),
    ),
    sentence="Permission rules for the tool calls of an agent.",
)
TOOLS_KEY = Key(
    "tools",
    TOOLS,
    "Permission rules for the agent's tool calls; see [permissions](permissions.md).",
    '{allow: ["read(**)"], deny: ["execute(*)"]}',
)
FILES_KEY = Key(
    "files",
    Choice(("none", "read", "write")),
    "What of the working directory the agent may use through Coupler.",
    "read",
    "the agent's own",
)
NO_CONTROL_PATTERN = r"^[^=\x00-\x1f\x7f]+$"
VARIABLES = MappingOf(
    Variable(),
    "a mapping of texts",
    NO_CONTROL_PATTERN,
    "a variable's name, without `=` and control characters",
)
SERVER = Table(
    "mcp_server",
    "an MCP server",
    (
        Key("command", TEMPLATE, "The program of a server that is started.", "npx"),
        Key(
            "args",
            ListOf(AnyText(), "a list of texts"),
            "The program's arguments.",
            '[-y, "@example/server"]',
        ),
        Key("env", VARIABLES, "The program's environment, besides ours.", "{LOG_LEVEL: debug}"),
        Key("url", TEMPLATE, "The address of a server that runs already.", "https://mcp.example.com/mcp"),
        Key("type", Choice(("http", "sse")), "How that server is spoken to.", "sse", "`http`"),
        Key(
            "headers",
            VARIABLES,
            "Headers of every request to it.",
            '{Authorization: "Bearer {{ secrets.MCP_TOKEN }}"}',
        ),
    ),
    (
        OneOf(("command", "url")),
        Needs("args", "command"),
        Needs("env", "command"),
        Needs("type", "url"),
        Needs("headers", "url"),
    ),
    sentence="An MCP server: a program that is started, or an address.",
)
FREE_NAME_PATTERN = "^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$"
FREE_NAME_WORDS = "made of letters, digits, `_`, `-` and `.`, at most 64 of them"
SERVERS = MappingOf(SERVER, "a mapping of MCP servers by name", FREE_NAME_PATTERN, FREE_NAME_WORDS)
SERVERS_KEY = Key(
    "mcp_servers", SERVERS, "MCP servers whose tools the agent gets.", "{tickets: {command: tickets-mcp}}"
)
INTERCEPT_KEY = Key(
    "intercept",
    Boolean(),
    "Whether calls to MCP servers pass through Coupler, where rules judge them and the run's log has them.",
    "true",
    "false",
)
_CONTEXT = Key(
    "context",
    ListOf(FileName(), "a list of file names"),
    "Files whose text goes before the prompt.",
    "[docs/style.md]",
)
_SKILLS = Key(
    "skills",
    ListOf(FileName(), "a list of file names"),
    "Files with instructions that are added to the system prompt.",
    "[skills/review.md]",
)
_SCHEMA = Either((FileName("the name of a file with a JSON Schema"), JsonSchema()))
_OUTPUT = Key(
    "output",
    _SCHEMA,
    "A JSON Schema, or a file with one, that the answer must fit; the answer is then `steps.x.output`.",
    "schemas/findings.json",
    "the answer is text",
)
_REPAIRS = Key(
    "repairs",
    Number(minimum=0, maximum=100, is_whole=True),
    "How often an answer that does not fit `output` is handed back.",
    "1",
    "2",
)

BUDGET = Table(
    "budget",
    "a budget",
    (
        Key("tokens", Number(minimum=1, is_whole=True), "Tokens that agents may use.", "50000"),
        Key("cost", Number(above=0), "What agents may cost, in the currency that they report.", "1.50"),
        Key("time", Duration(), "How long it may take.", "10m"),
    ),
    sentence="What may be used up at most; what is left out has no limit.",
)
BUDGET_KEY = Key("budget", BUDGET, "What may be used up at most.", "{tokens: 50000, time: 10m}")
SET_UP_KEYS = (
    SYSTEM_KEY,
    MODEL_KEY,
    _MODE,
    OPTIONS_KEY,
    TOOLS_KEY,
    FILES_KEY,
    SERVERS_KEY,
    INTERCEPT_KEY,
    _CONTEXT,
    _SKILLS,
    _OUTPUT,
    _REPAIRS,
    BUDGET_KEY,
)

ENV_KEY = Key(
    "env", VARIABLES, "Variables for the programs of the step, besides our environment.", "{CI: true}"
)
PROFILE = Table(
    "profile",
    "an agent",
    (
        Key(
            "agent",
            AGENT_NAME,
            "A name of the catalogue, a command line, `module:attribute`, or another profile.",
            "claude",
            is_required=True,
        ),
        *SET_UP_KEYS,
        ENV_KEY,
        Key("hooks", HOOKS, "Steps around each step that uses the agent.", "{start: [{run: git stash}]}"),
    ),
    sentence="An agent with a name and settings of its own, for `agent` and `converse`.",
)
LEAVE = Choice(("fail", "continue"))


def _on_error(name: str, handling: Shape, *goto: Key) -> Shape:
    kinds = (
        Key(kind, handling, f"What comes after an error of the kind `{kind}`.", "continue")
        for kind in ERROR_KINDS
    )
    others = Key("default", handling, "What comes after all others.", "fail", "`fail`")
    rules = tuple(Alone(key.name) for key in goto)
    return Either(
        (
            LEAVE,
            Table(
                name,
                "`on_error`",
                (*goto, *kinds, others),
                rules,
                sentence="What comes after a failure: one way for all, or one for each kind.",
            ),
        )
    )


DEFAULT_ON_ERROR = _on_error("default_on_error", LEAVE)
CWD_KEY = Key(
    "cwd",
    TEMPLATE,
    "The directory to work in, from the run's own on.",
    '"packages/{{ item }}"',
    "where the run was started",
)
SHELL_KEY = Key("shell", Choice(("sh", "bash")), "Which shell runs scripts.", "bash", "`sh`")
TIMEOUT_KEY = Key("timeout", Duration(), "How long one attempt may take.", "30s")
COUNT = Number(minimum=1, maximum=1_000_000, is_whole=True)
RETRY = Table(
    "retry",
    "`retry`",
    (
        Key("attempts", COUNT, "All attempts, the first one included.", "3", "1"),
        Key("delay", Duration(may_be_zero=True), "The time before the second attempt.", "1s", "`1s`"),
        Key("max_delay", Duration(may_be_zero=True), "The longest time between attempts.", "30s", "`60s`"),
        Key(
            "backoff",
            Choice(("constant", "linear", "exponential")),
            "How the time grows from attempt to attempt.",
            "exponential",
            "`constant`",
        ),
        Key(
            "jitter",
            Number(minimum=0, maximum=1),
            "The share of the time by which it is longer or shorter at random.",
            "0.2",
            "0",
        ),
        Key(
            "on",
            ListOf(
                Either((Choice(ERROR_KINDS), Number(0, 255, is_whole=True))),
                "a list of error kinds and exit codes",
            ),
            "Which errors are worth another attempt: error kinds, and exit codes.",
            "[rate_limit, timeout, 75]",
            "all but `denied`, `cancelled` and `budget`",
        ),
    ),
    sentence="How often and when a failed step is tried again.",
)
RETRY_KEY = Key(
    "retry",
    Either((COUNT, RETRY)),
    "How often a failed step is tried again: a number of attempts, or a mapping.",
    "{attempts: 3, delay: 1s, backoff: exponential}",
    "1",
)
DEFAULTS = Table(
    "defaults",
    "`defaults`",
    (
        Key("agent", AGENT_NAME, "The agent of steps with a prompt and no `agent`.", "claude"),
        SHELL_KEY,
        TIMEOUT_KEY,
        RETRY_KEY,
        Key("on_error", DEFAULT_ON_ERROR, "As in a step, without `goto`.", "continue", "`fail`"),
        ENV_KEY,
        CWD_KEY,
        MODEL_KEY,
        SYSTEM_KEY,
        OPTIONS_KEY,
        TOOLS_KEY,
        FILES_KEY,
        SERVERS_KEY,
        INTERCEPT_KEY,
        BUDGET_KEY,
    ),
    sentence="What steps have that do not say it themselves.",
)

TYPES: tuple[str, ...] = get_args(InputType)
CONSTRAINT_KEYS = (
    Key("enum", ListOf(Anything(), "a list of values", 1), "The only values that fit.", "[dev, staging]"),
    Key("pattern", Text("a regular expression"), "What a text must match as a whole.", '"v[0-9]+"'),
    Key("min", Number(), "The least number, or the shortest length of a text or list.", "1"),
    Key("max", Number(), "The greatest number, or the longest length of a text or list.", "5"),
)
TYPE_KEY = Key(
    "type",
    Choice(TYPES),
    "What it is. A file is the path of one that exists, from the working directory on.",
    "integer",
    "`string`",
)
DEFAULT_KEY = Key("default", Anything(), "The value when none is given.", "2")
PLAIN = AnyText(is_template=False)
INPUT = Table(
    "input",
    "an input",
    (
        TYPE_KEY,
        Key("description", PLAIN, "What it is for; shown to whoever starts the workflow.", "Branch or path"),
        Key("required", Boolean(), "Whether the workflow cannot start without it.", "true", "false"),
        DEFAULT_KEY,
        *CONSTRAINT_KEYS,
        Key(
            "secret",
            Boolean(),
            "Whether its value is masked wherever people or files see it.",
            "true",
            "false",
        ),
        Key(
            "rest",
            Boolean(),
            "Whether it takes the text that is left after the named inputs.",
            "true",
            "false",
        ),
    ),
    sentence="A value that whoever starts the workflow gives, or that has a default.",
)
NAME_PATTERN = "^[A-Za-z_][A-Za-z0-9_]{0,63}$"
NAME_WORDS = "made of letters, digits and `_`, at most 64 of them, and not begin with a digit"
INPUTS = MappingOf(Either((Choice(TYPES), INPUT)), "a mapping of inputs by name", NAME_PATTERN, NAME_WORDS)
ON_DENY = Choice(("skip", "fail", "stop"))
ON_DENY_KEY = Key("on_deny", ON_DENY, "What a no means for the workflow.", "stop", "`fail`")
ANSWER_KEY = Key(
    "default",
    Choice(("allow", "deny")),
    "The answer when nobody is there to ask, or when the time is over.",
    "deny",
    "`deny`, when nobody is there",
)
_GATE = (
    Key("question", TEMPLATE, "What is asked.", '"Deploy to {{ inputs.host }}?"', "the step's description"),
    ON_DENY_KEY,
    ANSWER_KEY,
    Key("timeout", Duration(), "How long an answer is waited for.", "5m"),
)
GATE = Table(
    "gate",
    "`approve`",
    _GATE,
    sentence="A question that is answered by yes or no before the step begins.",
)

STEP_ID_PATTERN = "^[a-z_][a-z0-9_]{0,63}$"
STEP_ID = Text(
    "the id of a step", STEP_ID_PATTERN, wrong_words="must be made of lower-case letters, digits and `_`"
)
EXPRESSION = Text("an expression", kind="expression")
CONDITION = Either((Boolean(), EXPRESSION))
_BEFORE = (
    Key("id", STEP_ID, "What expressions call the step: `steps.ID`.", "diff", "its kind and place: `run_1`"),
    Key(
        "description",
        TEMPLATE,
        "What people see of the step.",
        '"Test {{ inputs.target }}"',
        "made from its kind",
    ),
    Key("if", CONDITION, "The step is skipped unless this is true.", "steps.gate.approved"),
)

GOTO: Shape = Either(
    (
        STEP_ID,
        Table(
            "goto",
            "a `goto`",
            (
                Key(
                    "step", STEP_ID, "The step that comes next, of the same list.", "build", is_required=True
                ),
                Key("max", COUNT, "How often it may go there; needed to go back.", "3"),
            ),
            sentence="The step of the same list that comes next; going back needs `max`.",
        ),
    )
)
GO = Table(
    "go",
    "a way on",
    (Key("goto", GOTO, "The step that comes next.", "build", is_required=True),),
    sentence="The step that comes next.",
)
HANDLING = Either((LEAVE, GO))

ON_ERROR = _on_error(
    "on_error", HANDLING, Key("goto", GOTO, "The step that comes next, whatever the error is.", "clean_up")
)
_ON_ERROR = Key(
    "on_error", ON_ERROR, "What comes after a failure that no retry has mended.", "{goto: clean_up}", "`fail`"
)
_AFTER = (
    RETRY_KEY,
    _ON_ERROR,
    Key(
        "goto",
        GOTO,
        "The step of the same list that comes next; to go back, say how often.",
        "{step: build, max: 3}",
        "the next one",
    ),
    ENV_KEY,
    CWD_KEY,
    Key(
        "once",
        Boolean(),
        "Whether the step must not run a second time after a crash in its midst, unless somebody says so.",
        "true",
        "false",
    ),
)


def _gate(table: Table) -> Key:
    words = Text("a text", kind="template")
    return Key(
        "approve",
        Either((Yes(), words, table)),
        "A question that needs a yes before the step begins: a text, `true`, or a mapping.",
        '"Deploy now?"',
    )


COMMON_KEYS = (*_BEFORE, TIMEOUT_KEY, *_AFTER, _gate(GATE))

RUN = Table(
    "run_step",
    "a `run` step",
    (
        Key(
            "run",
            TEMPLATE,
            "A script of the shell. A value in `{{ }}` is never read as script, unless it says `| raw`.",
            '"git diff {{ inputs.target }}"',
        ),
        Key(
            "run_file",
            FileName(),
            "A file with the script; its text is a template as well.",
            "scripts/test.sh",
        ),
        SHELL_KEY,
        Key("stdin", AnyText(), "What the script reads.", '"{{ steps.diff.stdout }}"', "nothing"),
        Key(
            "output",
            Either(
                (
                    FileName("`json`, `lines`, the name of a file with a JSON Schema", ("json", "lines")),
                    JsonSchema(),
                )
            ),
            "How stdout becomes `steps.x.output`: as JSON, as lines, or as JSON that fits a schema.",
            "json",
            "stdout is text",
        ),
        Key(
            "ok_codes",
            ListOf(Number(0, 255, is_whole=True), "a list of exit codes", 1),
            "Exit codes that are no failure.",
            "[0, 1]",
            "`[0]`",
        ),
    ),
    (OneOf(("run", "run_file")),),
    sentence="A script of the shell.",
)
PROMPT_KEYS = (
    Key("prompt", TEMPLATE, "What the agent is told.", '"Fix {{ inputs.target }}."'),
    Key("prompt_file", FileName(), "A file with the prompt; its text is a template.", "prompts/fix.md"),
)
CONTINUE_KEY = Key(
    "continue", STEP_ID, "The step before, of the same agent, whose session goes on here.", "review"
)
AGENT = Table(
    "agent_step",
    "an `agent` step",
    (
        Key(
            "agent",
            AGENT_NAME,
            "A name of `agents`, `coupler.toml` or the catalogue, a command line, or `module:attribute`.",
            "claude",
            "that of `defaults`",
        ),
        *PROMPT_KEYS,
        *SET_UP_KEYS,
        CONTINUE_KEY,
    ),
    (OneOf(("prompt", "prompt_file")),),
    sentence="One prompt to an agent, and its answer.",
)
CONVERSE = Table(
    "converse_step",
    "a `converse` step",
    (
        Key("converse", AGENT_NAME, "An agent, as in `agent`.", "claude", is_required=True),
        *PROMPT_KEYS,
        Key("max_turns", COUNT, "How many messages of the user it takes at most.", "20"),
        *SET_UP_KEYS,
        CONTINUE_KEY,
    ),
    (OneOf(("prompt", "prompt_file"), is_needed=False),),
    sentence="A conversation with an agent, until the user leaves it.",
)
QUESTION = Table(
    "question",
    "`approve`",
    (Key("question", TEMPLATE, "What is asked.", '"Go on?"', is_required=True), *_GATE[1:]),
    sentence="A question that is answered by yes or no.",
)
APPROVE = Table(
    "approve_step",
    "an `approve` step",
    (
        Key(
            "approve",
            Either((Text("a text", kind="template"), QUESTION)),
            "What is asked: a text, or a mapping with `question` and the keys below.",
            '"Commit {{ steps.fixes.results | length }} fixes?"',
            is_required=True,
        ),
        ON_DENY_KEY,
        ANSWER_KEY,
        Key("timeout", Duration(), "How long an answer is waited for.", "5m"),
    ),
    (Inside("approve", ("on_deny", "default", "timeout")),),
    sentence="A question that is answered by yes or no; `steps.x.approved` is the answer.",
)
ASK = Table(
    "ask_step",
    "an `ask` step",
    (
        Key("ask", TEMPLATE, "What is asked.", '"Which version?"', is_required=True),
        TYPE_KEY,
        DEFAULT_KEY,
        *CONSTRAINT_KEYS,
    ),
    sentence="A question whose answer is a text, or a value of a type: `steps.x.text` and `steps.x.output`.",
)
_WAIT = Key(
    "wait",
    Choice(("all", "any", "settled")),
    "Until `all` are done or one failed, until `any` has succeeded, or until all have `settled`.",
    "settled",
    "`all`",
)
PARALLEL = Table(
    "parallel_step",
    "a `parallel` step",
    (
        Key(
            "parallel",
            Branches(),
            "Branches: each is a step, or a list of steps.",
            "[{run: make lint}, {run: make test}]",
            is_required=True,
        ),
        _WAIT,
        Key("max_concurrent", COUNT, "How many branches run at a time.", "2", "all"),
    ),
    sentence="Branches that run beside each other; afterwards their steps are ordinary ones.",
)

_STEPS = Key("steps", Steps(), "The steps of each round.", "[{run: make}]", is_required=True)
TAKEN_NAMES = ("inputs", "secrets", "steps", "vars", "run", "index")
"""Names that mean something else in expressions."""
FOR_EACH = Table(
    "for_each_step",
    "a `for_each` step",
    (
        Key(
            "for_each",
            Either((EXPRESSION, ListOf(Anything(kind="template"), "a list"))),
            "A list, or an expression whose value is one.",
            "steps.files.output",
            is_required=True,
        ),
        _STEPS,
        Key(
            "as",
            Text(
                "a name",
                f"^(?!({'|'.join(TAKEN_NAMES)})$){NAME_PATTERN[1:]}",
                wrong_words=f"must be {NAME_WORDS}, and none of {listed(TAKEN_NAMES)}",
            ),
            "What an item is called.",
            "file",
            "`item`",
        ),
        _WAIT,
        Key("max_concurrent", COUNT, "How many items are worked on at a time.", "4", "1"),
    ),
    sentence="The same steps for each item of a list; `index` counts from 0.",
)
WHILE = Table(
    "while_step",
    "a `while` step",
    (
        Key(
            "while",
            CONDITION,
            "The steps run again as long as this is true.",
            "vars.tries < 3",
            is_required=True,
        ),
        _STEPS,
        Key(
            "max_rounds",
            COUNT,
            "How many rounds there are at most; one more is an error.",
            "10",
            str(MOST_ROUNDS),
        ),
    ),
    sentence="The same steps again, as long as an expression is true; `index` counts from 0.",
)
CALL = Table(
    "call_step",
    "a `call` step",
    (
        Key(
            "call",
            Text("a workflow"),
            "A workflow by its name, or by a path that starts where this file is.",
            "lint.yaml",
            is_required=True,
        ),
        Key(
            "inputs",
            MappingOf(Anything(kind="template"), "a mapping of values by name", NAME_PATTERN, NAME_WORDS),
            "Its inputs; texts are templates.",
            '{target: "{{ item }}"}',
        ),
    ),
    sentence="Another workflow; its outputs are `steps.x.output`.",
)
SET = Table(
    "set_step",
    "a `set` step",
    (
        Key(
            "set",
            MappingOf(
                Anything("an expression, or a value", "expression"),
                "a mapping of expressions",
                NAME_PATTERN,
                NAME_WORDS,
            ),
            "Variables: a text is an expression, everything else is itself.",
            "{tries: vars.tries + 1}",
            is_required=True,
        ),
    ),
    sentence="Variables, as `vars.name` from here on.",
)
ENDING = Table(
    "ending",
    "`stop`",
    (
        Key(
            "status", Choice(("success", "failure", "cancelled")), "How the run ends.", "failure", "`success`"
        ),
        Key("message", AnyText(), "What people are told.", '"Nothing to do."'),
        Key(
            "exit_code",
            Number(0, 255, is_whole=True),
            "The exit code of `coupler run`.",
            "7",
            "that of the status",
        ),
    ),
    sentence="How the workflow ends.",
)
STOP = Table(
    "stop_step",
    "a `stop` step",
    (
        Key(
            "stop",
            Either((AnyText(), ENDING)),
            "A message, or a mapping.",
            '{status: success, message: "Done."}',
            is_required=True,
        ),
    ),
    sentence="The end of the workflow.",
)
KINDS: dict[str, Table] = {
    "run": RUN,
    "agent": AGENT,
    "converse": CONVERSE,
    "approve": APPROVE,
    "ask": ASK,
    "parallel": PARALLEL,
    "for_each": FOR_EACH,
    "while": WHILE,
    "call": CALL,
    "set": SET,
    "stop": STOP,
}
"""The kinds of steps, and the keys that only such a step has."""
_OWNERS = {key.name: table.title for table in reversed(KINDS.values()) for key in table.keys}
"""The kind of step that has a key which others have not."""
AGENT_GATE = Table(
    "agent_gate",
    "`approve`",
    (
        _GATE[0],
        Key(
            "on_deny",
            ON_DENY,
            "What a no means for the workflow, to the question or to a call of `tools`.",
            "stop",
            "`fail`; after a no to a call the agent goes on",
        ),
        *_GATE[2:],
        Key(
            "tools",
            ListOf(PermissionRule(), "a list of permission rules", 1),
            "Rules for tool calls of the agent before which it is asked, not before the step.",
            '["execute(git push *)"]',
        ),
    ),
    sentence="A question that is answered by yes or no, before the step or before tool calls.",
)
AGENT_COMMON_KEYS = (*_BEFORE, TIMEOUT_KEY, *_AFTER, _gate(AGENT_GATE))
QUESTION_COMMON_KEYS = (*_BEFORE, *_AFTER)
_COMMON_OF = {"agent": AGENT_COMMON_KEYS, "converse": AGENT_COMMON_KEYS, "approve": QUESTION_COMMON_KEYS}


def _step(kind: str, own: Table) -> Table:
    keys = (*own.keys, *_COMMON_OF.get(kind, COMMON_KEYS))
    return Table(own.name, own.title, keys, own.rules, own.sentence, _OWNERS)


STEP_TABLES = {kind: _step(kind, own) for kind, own in KINDS.items()}
"""All keys of each kind of step."""
WORKFLOW = Table(
    "workflow",
    "a workflow",
    (
        Key(
            "name",
            Text("a name", FREE_NAME_PATTERN, wrong_words=f"must be {FREE_NAME_WORDS}"),
            "What it is called: in lists, and as a slash command.",
            "review",
            "the file's name",
        ),
        Key("description", PLAIN, "What it does, in a sentence.", "Review a change"),
        Key(
            "inputs",
            INPUTS,
            "Values that whoever starts it gives.",
            "{target: {type: string, required: true}}",
        ),
        Key(
            "secrets",
            ListOf(
                Text(
                    "a variable's name",
                    NAME_PATTERN,
                    wrong_words="must have the names of variables, never their values",
                ),
                "a list of variable names",
            ),
            "Environment variables that it uses as `secrets.NAME`, that its commands get, and that are "
            "masked wherever they show.",
            "[GITHUB_TOKEN]",
        ),
        Key(
            "agents",
            MappingOf(PROFILE, "a mapping of agents by name", FREE_NAME_PATTERN, FREE_NAME_WORDS),
            "Agents with names of their own.",
            "{reviewer: {agent: claude, model: opus}}",
        ),
        Key(
            "mcp_servers",
            SERVERS,
            "MCP servers whose tools all agents get.",
            "{tickets: {command: tickets-mcp}}",
        ),
        Key(
            "defaults",
            DEFAULTS,
            "What steps have that do not say it themselves.",
            "{agent: claude, timeout: 10m}",
        ),
        Key("budget", BUDGET, "What the whole run may use up at most.", "{cost: 5, time: 1h}"),
        Key(
            "max_steps",
            COUNT,
            "How many steps a run may take, those of called workflows included.",
            "500",
            "10000",
        ),
        Key("steps", Steps(), "What it does, from top to bottom.", "[{run: make}]", is_required=True),
        Key(
            "outputs",
            MappingOf(Anything(kind="template"), "a mapping of values by name", NAME_PATTERN, NAME_WORDS),
            "What comes out of it; texts are templates, and one whole `{{ }}` keeps its type.",
            '{findings: "{{ steps.review.output }}"}',
        ),
        _HOOKS,
    ),
    sentence="A whole file.",
    elsewhere={key.name: "a step, in `steps`" for table in STEP_TABLES.values() for key in table.keys},
)
