"""The keys of every step: when it runs, how often, what comes after, and who is asked before."""

from __future__ import annotations

from coupler.workflow.language.definition import ERROR_KINDS
from coupler.workflow.language.keys_shared import CONDITION, COUNT, STEP_ID, TEMPLATE, VARIABLES
from coupler.workflow.language.notes import Shape
from coupler.workflow.language.scalars import Boolean, Choice, Duration, Number, Rule, Text, Yes
from coupler.workflow.language.shapes import Either, ListOf
from coupler.workflow.language.table import Alone, Key, Table

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
LEAVE = Choice(("fail", "continue"))
GO = Table(
    "go",
    "a way on",
    (Key("goto", GOTO, "The step that comes next.", "build", is_required=True),),
    sentence="The step that comes next.",
)
HANDLING = Either((LEAVE, GO))


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


ON_ERROR = _on_error(
    "on_error", HANDLING, Key("goto", GOTO, "The step that comes next, whatever the error is.", "clean_up")
)
DEFAULT_ON_ERROR = _on_error("default_on_error", LEAVE)
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
ON_DENY_KEY = Key(
    "on_deny", Choice(("skip", "fail", "stop")), "What a no means for the workflow.", "stop", "`fail`"
)
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
AGENT_GATE = Table(
    "agent_gate",
    "`approve`",
    (
        *_GATE,
        Key(
            "tools",
            ListOf(Rule(), "a list of permission rules", 1),
            "Rules for tool calls of the agent before which it is asked, not before the step.",
            '["execute(git push *)"]',
        ),
    ),
    sentence="A question that is answered by yes or no, before the step or before tool calls.",
)
QUESTION = Table(
    "question",
    "`approve`",
    (Key("question", TEMPLATE, "What is asked.", '"Go on?"', is_required=True), *_GATE[1:]),
    sentence="A question that is answered by yes or no.",
)
ENV_KEY = Key(
    "env", VARIABLES, "Variables for the programs of the step, besides our environment.", "{CI: true}"
)
CWD_KEY = Key(
    "cwd",
    TEMPLATE,
    "The directory to work in, from the run's own on.",
    '"packages/{{ item }}"',
    "where the run was started",
)
SHELL_KEY = Key("shell", Choice(("sh", "bash")), "Which shell runs scripts.", "bash", "`sh`")
TIMEOUT_KEY = Key("timeout", Duration(), "How long one attempt may take.", "30s")
RETRY_KEY = Key(
    "retry",
    Either((COUNT, RETRY)),
    "How often a failed step is tried again: a number of attempts, or a mapping.",
    "{attempts: 3, delay: 1s, backoff: exponential}",
    "1",
)
_ON_ERROR = Key(
    "on_error", ON_ERROR, "What comes after a failure that no retry has mended.", "{goto: clean_up}", "`fail`"
)
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
AGENT_COMMON_KEYS = (*_BEFORE, TIMEOUT_KEY, *_AFTER, _gate(AGENT_GATE))
QUESTION_COMMON_KEYS = (*_BEFORE, *_AFTER)
