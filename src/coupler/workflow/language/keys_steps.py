"""The keys of each kind of step."""

from __future__ import annotations

from coupler.workflow.language.definition import MOST_ROUNDS
from coupler.workflow.language.keys_agents import AGENT_NAME, CONTINUE_KEY, PROMPT_KEYS, SET_UP_KEYS
from coupler.workflow.language.keys_flow import (
    AGENT_COMMON_KEYS,
    ANSWER_KEY,
    COMMON_KEYS,
    ON_DENY_KEY,
    QUESTION,
    QUESTION_COMMON_KEYS,
    SHELL_KEY,
)
from coupler.workflow.language.keys_inputs import CONSTRAINT_KEYS, DEFAULT_KEY, TYPE_KEY
from coupler.workflow.language.keys_shared import (
    CONDITION,
    COUNT,
    EXPRESSION,
    NAME_PATTERN,
    NAME_WORDS,
    TEMPLATE,
)
from coupler.workflow.language.notes import listed
from coupler.workflow.language.scalars import AnyText, Choice, Duration, FileName, Number, Text
from coupler.workflow.language.shapes import Anything, Branches, Either, JsonSchema, ListOf, MappingOf, Steps
from coupler.workflow.language.table import Inside, Key, OneOf, Table

_STEPS = Key("steps", Steps(), "The steps of each round.", "[{run: make}]", is_required=True)
_WAIT = Key(
    "wait",
    Choice(("all", "any", "settled")),
    "Until `all` are done or one failed, until `any` has succeeded, or until all have `settled`.",
    "settled",
    "`all`",
)
TAKEN_NAMES = ("inputs", "secrets", "steps", "vars", "run", "index")
"""What expressions call something else."""

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
"""What a step does, and the keys that only such a step has."""
_OWNERS = {key.name: table.title for table in reversed(KINDS.values()) for key in table.keys}
"""Which kind of step has a key that others have not."""
_COMMON_OF = {"agent": AGENT_COMMON_KEYS, "converse": AGENT_COMMON_KEYS, "approve": QUESTION_COMMON_KEYS}


def _step(kind: str, own: Table) -> Table:
    keys = (*own.keys, *_COMMON_OF.get(kind, COMMON_KEYS))
    return Table(own.name, own.title, keys, own.rules, own.sentence, _OWNERS)


STEP_TABLES = {kind: _step(kind, own) for kind, own in KINDS.items()}
"""All keys of each kind of step."""
