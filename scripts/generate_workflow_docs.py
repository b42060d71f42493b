"""Write what the pages about workflows have from the code: keys, filters, fields, limits, exit codes.

    python scripts/generate_workflow_docs.py [--check]

Each part goes between two comments that name it. `--check` writes nothing and fails on a difference.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence

from coupler.cli.exit_codes import RUN_EXIT_CODES
from coupler.fields.tables import Key, table_of
from coupler.workflow.engine.interpreter import CANCEL_HOOK_TIMEOUT
from coupler.workflow.engine.performers import LONGEST_DELAY
from coupler.workflow.engine.run import CANCEL_GRACE
from coupler.workflow.expressions import values
from coupler.workflow.expressions.expression import MOST_ITEMS
from coupler.workflow.expressions.filters import FILTERS, LONGEST_PATH, TESTS
from coupler.workflow.expressions.values import LIST_METHODS, MAPPING_METHODS, TEXT_METHODS
from coupler.workflow.language import yaml_source
from coupler.workflow.language.library import DEEPEST_CALLS
from coupler.workflow.language.model import (
    AGENT_GATE,
    ERROR_KINDS,
    AgentProfile,
    Defaults,
    Ending,
    ErrorKind,
    Hooks,
    Input,
    Limits,
    McpServerEntry,
    Retry,
    ToolRuleTexts,
    Workflow,
    common_keys,
    own_keys,
    step_tables,
)
from coupler.workflow.language.reader import MOST_FILE_BYTES, read_text
from coupler.workflow.steps.blocks import MOST_WITH_NEEDS
from coupler.workflow.steps.http_request import LARGEST_BODY, MOST_REDIRECTS
from coupler.workflow.steps.shell_command import GRACE, MOST_HEAD, MOST_TAIL
from coupler.workflow.validation.views import COMMON_FIELDS, NESTED_FIELDS, fields_of
from pages import table, update

STRUCTS = (
    *(Workflow, Input, Retry, Limits, McpServerEntry, ToolRuleTexts, Ending, Hooks, AgentProfile, Defaults),
)

ONE_OF_EACH = """
steps:
  - {id: run, run: make}
  - {id: http, http: "https://example.com/"}
  - {id: agent, agent: claude, prompt: Hello}
  - {id: converse, converse: claude}
  - {id: approve, approve: Go on?}
  - {id: ask, ask: Who?}
  - {id: parallel, parallel: [{run: make}]}
  - {id: for_each, for_each: [1], steps: [{run: make}]}
  - {id: while, while: false, steps: [{run: make}]}
  - {id: call, call: lint.yaml}
  - {id: set, set: {a: 1}}
  - {id: stop, stop: Done}
"""
WITH_OUTPUT = ONE_OF_EACH.replace("run: make}\n", "run: make, output: json}\n", 1).replace(
    "prompt: Hello", "prompt: Hello, output: {type: object}"
)

FIELDS = {
    "status": "`success`, `failed`, `skipped`, `denied` or `cancelled`",
    "error": "why it failed",
    "duration": "seconds, with all attempts",
    "stdout": "what the script wrote, byte for byte",
    "stderr": "what it wrote besides",
    "exit_code": "how it ended; 128 and the number of a signal that ended it",
    "status_code": "the status of the response",
    "headers": "those of the response, by their names in small letters",
    "text": "the answer; of a conversation the agent's last one; the body of a response",
    "output": "the value: what `output` says, the JSON of a response, the typed answer, what was called "
    "gave, the variables that were set; of a conversation a list of messages with `role` and `text`",
    "usage": "tokens and cost, of all attempts together",
    "session_id": "the agent's session",
    "approved": "whether the answer was yes",
    "results": "a list with the steps of each round, by their ids",
}
ERRORS: dict[ErrorKind, str] = {
    "exit": "A command ended with a code that is not in `ok_codes`, or a called workflow stopped as failed.",
    "timeout": "An attempt took longer than `timeout`.",
    "template": "An expression cannot be evaluated, or a value cannot stand where it stands.",
    "provider": "An agent failed, died, refused, or cannot do what the step wants.",
    "rate_limit": "An agent's provider, or a server with the status 429, wants fewer requests. If it says "
    "how long to wait, `retry` does.",
    "invalid_output": "What a command wrote, or a server answered, is not what `output` says, or an agent's "
    "answer still does not fit after all `repairs`.",
    "denied": "Somebody said no, and `on_deny` is `fail`; or a rule is against an `http` request.",
    "budget": "A `budget`, `max_rounds` or the `max` of a `goto` is used up. `max_steps` end the whole run.",
    "cancelled": "An agent ended its turn as cancelled, or a called workflow was stopped as cancelled.",
    "not_found": "A program, a directory, a file, an agent, a session or a host is not there.",
    "http": "A server could not be reached, or answered with a status that `ok_status` does not name.",
}
LIMITS = (
    ("a workflow's file", f"{yaml_source.MOST_BYTES >> 20} MiB, {yaml_source.MOST_DEPTH} levels deep"),
    ("a file that it names", f"{MOST_FILE_BYTES >> 20} MiB"),
    ("an expression, or a text with all its `{{ }}`", f"{values.MOST_SECONDS:g} s of processor time"),
    ("memory that it takes", f"{values.MOST_MEMORY >> 20} MiB"),
    ("a text that it makes", f"{values.MOST_TEXT:,} characters"),
    ("a list that it makes", f"{values.MOST_ITEMS:,} items"),
    ("a `range`", f"{values.MOST_RANGE:,} numbers of 64 bits"),
    (
        "the characters that `rfind`, `rindex`, `rsplit`, `rpartition`, `strip`, `lstrip`, `rstrip` and "
        "`trim` look for, times those of the text",
        f"{values.MOST_COMPARED:,}",
    ),
    ("an `attribute` of a filter", f"{LONGEST_PATH:,} characters"),
    ("a whole number", f"{values.MOST_BITS:,} bits"),
    ("a `for_each`", f"{MOST_ITEMS:,} items"),
    ("workflows that call each other in a row", str(DEEPEST_CALLS)),
    (
        "stdout, and stderr",
        f"the first {MOST_HEAD >> 20} MiB and the last {MOST_TAIL >> 20} MiB, with a mark between them",
    ),
    ("branches of a `parallel` step in which some have `needs`", f"{MOST_WITH_NEEDS:,}"),
    ("the response to an `http` step", f"{LARGEST_BODY >> 20} MiB, unpacked"),
    ("its redirects", str(MOST_REDIRECTS)),
    (
        "the time between SIGTERM and SIGKILL",
        f"{GRACE:g} s, after a cancel in an editor {CANCEL_GRACE[0]:g} s",
    ),
    (
        "the time of hooks after a cancel from outside",
        f"{CANCEL_HOOK_TIMEOUT:g} s, [less](workflows-in-editors.md#cancel-and-resume) in an editor",
    ),
    ("the wait that a provider asks for", f"{LONGEST_DELAY / 3600:g} h"),
)


def main(arguments: list[str]) -> int:
    return update(
        {"workflow-language.md": language_parts(), "running-workflows.md": running_parts()}, arguments
    )


def language_parts() -> dict[str, str]:
    tables = {table.name: table.keys for table in (AGENT_GATE, *map(table_of, STRUCTS))}
    tables |= {"steps": common_keys()} | {table.name: own_keys(kind) for kind, table in step_tables().items()}
    return {f"keys of {name}": table_of_keys(keys) for name, keys in tables.items()} | {
        "words of expressions": table(("what", "names"), words_of_expressions()),
        "fields of steps": table(("of a step", "which steps", "what it is"), fields()),
        "kinds of errors": table(("kind", "what has happened"), errors()),
        "limits": table(("of what", "at most"), LIMITS),
    }


def running_parts() -> dict[str, str]:
    return {"exit codes": table(("code", ""), [(str(each.code), each.sentence) for each in RUN_EXIT_CODES])}


def table_of_keys(keys: Sequence[Key]) -> str:
    rows = []
    for key in keys:
        default = "**required**" if key.is_required else key.default
        rows.append((f"`{key.name}`", key.shape.words, default, key.sentence, f"`{key.example}`"))
    return table(("key", "value", "default", "what it does", "example"), rows)


def words_of_expressions() -> list[tuple[str, str]]:
    return [
        ("filters", listed(FILTERS)),
        ("tests, after `is`", listed(name for name in TESTS if name.isalpha())),
        ("methods of texts", listed(TEXT_METHODS)),
        ("methods of lists", listed(LIST_METHODS)),
        ("methods of mappings", listed(MAPPING_METHODS)),
        ("functions", "`range`"),
    ]


def fields() -> list[tuple[str, str, str]]:
    """Each field, the kinds of steps that have it, and its parts."""
    plain, rich = kinds_by_field(ONE_OF_EACH), kinds_by_field(WITH_OUTPUT)
    rows = []
    for name in (*COMMON_FIELDS, *(name for name in rich if name not in COMMON_FIELDS)):
        kinds = [
            f"`{kind}`" if kind in plain.get(name, ()) else f"`{kind}` that has `output`"
            for kind in rich[name]
        ]
        parts = f": {listed(NESTED_FIELDS[name], is_sorted=False)}" if name in NESTED_FIELDS else ""
        which = "all" if name in COMMON_FIELDS else ", ".join(kinds)
        rows.append((f"`{name}`", which, f"{FIELDS[name]}{parts}"))
    return rows


def kinds_by_field(text: str) -> dict[str, list[str]]:
    workflow = read_text(text, "/one-of-each.yaml")
    by_field: dict[str, list[str]] = {}
    for step in workflow.steps:
        for name in fields_of(step, workflow):
            by_field.setdefault(name, []).append(step.id)
    return by_field


def errors() -> list[tuple[str, str]]:
    return [(f"`{kind}`", ERRORS[kind]) for kind in ERROR_KINDS]


def listed(names: Iterable[str], *, is_sorted: bool = True) -> str:
    return ", ".join(f"`{name}`" for name in (sorted(names) if is_sorted else names))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
