"""Write what pages say of the protocol from the code: reasons, kinds, events, `_meta`.

    python scripts/generate_protocol_docs.py [--check]

Sentences that the code has no place for are here; one too many or too few is an error.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args

from msgspec import UNSET

from coupler import events
from coupler.agent.errors import REASONS as OF_AGENTS
from coupler.cli.serve_checks import START_ERRORS
from coupler.client.errors import REASONS as OF_CLIENTS
from coupler.client.errors import AgentErrorKind
from coupler.client.observation import OBSERVED_FORMS, TRACE_KEYS, Observation
from coupler.events.events import CANCELLED_META
from coupler.events.json_form import FORMS, Form
from coupler.events.v1_codec import EmittedEvent, to_update
from coupler.mcp.tools import McpErrorKind
from coupler.relay.errors import REASONS as OF_RELAYS
from coupler.runtime.environment import SpawnErrorKind
from coupler.schema import v1
from coupler.schema.base import Unknown
from coupler.store.errors import StoreErrorKind
from coupler.wire.messages import ErrorReason
from coupler.workflow.editor.chat_messages import CallOrigin, answer_meta
from coupler.workflow.journal.run_events import Failure, Happening, RunFinished, RunHappening
from json_schema import schema_text
from pages import keep, table, update
from python_source import Described, Member, described

CODES = {
    -32700: "JSON-RPC: parse error",
    -32600: "JSON-RPC: invalid request",
    -32601: "JSON-RPC: method not found",
    -32602: "JSON-RPC: invalid params",
    -32603: "JSON-RPC: internal error",
    -32800: "ACP: the request was cancelled",
    -32000: "ACP: a login is needed",
    -32002: "ACP: there is no such resource",
}

AGENT_ERRORS: Mapping[AgentErrorKind, str] = {
    "spawn": "The agent's program could not be started.",
    "initialize": "It was started and could not be introduced: it does not speak ACP, or no known version.",
    "session": "A session could not be opened, or not be set up as it was wanted.",
    "prompt": "The agent answered the prompt with an error.",
    "died": "The agent's process ended after it was introduced.",
    "output": "The answer is not what `output` describes, after all repairs.",
    "tool": "A Python function that was given as a tool cannot be offered, or failed.",
    "budget": "The budget is spent.",
    "deadline": "The time is up.",
    "refused": "The turn stopped because the agent refused it.",
    "cancelled": "The turn was cancelled.",
    "limit": "The turn stopped at a limit of the agent's own.",
    "busy": "The session has a running prompt, or another process uses the session that was kept.",
    "overflow": "Too many events were not read.",
    "closed": "The session or the agent was closed.",
}
MCP_ERRORS: Mapping[McpErrorKind, str] = {
    "unknown_server": "The session has no server of that name.",
    "not_started": "It could not be started or reached.",
    "refused": "It answered with an error, or with something that is no answer.",
    "timed_out": "It did not answer in time.",
    "lost": "It ended, or was left, before it answered.",
}
SPAWN_ERRORS: Mapping[SpawnErrorKind, str] = {
    "bad_command": "The command cannot be a command: it is empty, or cannot be split into words.",
    "bad_environment": "A variable's name or value cannot be given to a program.",
    "missing_directory": "The directory that it was to run in is not there.",
    "missing_program": "The program is not there, or not on the `PATH`.",
    "not_executable": "It is there, and may not be run.",
    "refused": "The system did not start it.",
}
STORE_ERRORS: Mapping[StoreErrorKind, str] = {
    "locked": "Another process keeps the file locked for too long.",
    "full": "The disk is full, a quota is used up, or the file may not grow (`ulimit -f`).",
    "newer": "A newer Coupler has written the file.",
    "unusable": "The file is no store, is damaged, or may not be written.",
    "held": "The session is open in another process; the reason is then `session_held`.",
    "cursor": "A place in a list that there is not; the reason is then `invalid_params`.",
}

BLOCK = v1.TextContent("")
SAMPLES: Sequence[EmittedEvent] = (
    events.Text(""),
    events.Thought(""),
    events.Content(BLOCK),
    events.ToolUpdate(id="", title=""),
    events.Plan(()),
    events.Usage(0, 0),
    events.Commands(()),
    events.Mode(""),
    events.Options(()),
    events.Info(""),
    events.Notice("", ""),
    events.Compaction("", ""),
    events.CompactionSummary("", BLOCK),
)
"""One of each event that an agent emits."""

IN_JSON = {
    "content": "A piece of a message that is not the agent's text: an image of its, or what the user said.",
    "tool_call": "A tool call as it stands.",
    "tool_call_update": "A change of a tool call of a run: its id, and the keys that are other than before.",
    "tool_output": "More content of a tool call of a run. Text goes on where it ended, unless `apart`.",
    "info": "A change of the session's description; null clears.",
    "turn": "The end of a turn, with the tokens and the cost of its prompt.",
    "permission": "The decision about a permission request.",
}
"""The descriptions of events in JSON where their types' descriptions speak of Python."""

OF_CALLS = {
    "run": "the run's id",
    "step": "the step's [path](workflow-language.md#resuming), such as `fixes[2].fix`; of a branch or an "
    "iteration, that of the step which it is a part of",
    "branch": "which branch it is, or the step is in, from 0; absent elsewhere",
    "iteration": "the same of iterations",
    "attempt": "which attempt at the step, from 1",
    "parent": "the id of the tool call around this one: of a sub-agent's call that of the task, of a step "
    "that of the block, branch or iteration which it is in; absent at the top",
    "outcome": "`cancelled` for a call that failed because it was cancelled; `parked` for one that is "
    "completed because its run waits",
}
OF_ANSWERS = {
    "run": "the run's id",
    "workflow": "the workflow's name",
    "status": "`success`, `failed`, `cancelled` or `parked`",
    "exitCode": "[that of `coupler run`](cli.md#exit-codes)",
    "outputs": "the outputs by their names, each of its type",
    "error": "`kind` and `message` of what went wrong",
    "step": "the step that failed",
}


def main(arguments: list[str]) -> int:
    pages = {
        "errors.md": errors(),
        "events.md": happenings(),
        "meta-keys.md": meta_keys(),
        "relay.md": {"reasons of relays": reasons(OF_RELAYS)},
    }
    return update(pages, arguments) or keep({"events.schema.json": schema_text()}, arguments)


def errors() -> dict[str, str]:
    return {
        "codes": table(("code", "whose", "reasons"), codes()),
        "reasons of agents": reasons(OF_AGENTS),
        "reasons of clients": reasons(OF_CLIENTS),
        "reasons of relays": reasons(OF_RELAYS),
        "errors at start": table(("code", "meaning", "what to do"), START_ERRORS),
        "kinds of AgentError": kinds(AGENT_ERRORS, AgentErrorKind),
        "kinds of McpError": kinds(MCP_ERRORS, McpErrorKind),
        "kinds of SpawnError": kinds(SPAWN_ERRORS, SpawnErrorKind),
        "kinds of store_failed": kinds(STORE_ERRORS, StoreErrorKind),
    }


def codes() -> list[tuple[str, str, str]]:
    by_code: dict[int, list[str]] = {}
    for reason in (*OF_AGENTS, *OF_CLIENTS, *OF_RELAYS):
        by_code.setdefault(reason.code, []).append(f"`{reason.name}`")
    check_same("codes", CODES, by_code)
    return [(str(code), CODES[code], ", ".join(by_code[code])) for code in CODES]


def reasons(rows: Iterable[ErrorReason]) -> str:
    return table(
        ("`data.reason`", "code", "meaning"),
        [(f"`{each.name}`", str(each.code), each.meaning) for each in rows],
    )


def kinds(sentences: Mapping[Any, str], literal: Any) -> str:
    check_same("kinds", sentences, get_args(literal))
    return table(("`kind`", "what has happened"), [(f"`{kind}`", text) for kind, text in sentences.items()])


def happenings() -> dict[str, str]:
    check_same("events", map(type, SAMPLES), get_args(EmittedEvent))
    kinds = {kind.__name__: kind for kind in get_args(events.Event)}
    received = {name: kind for name, kind in kinds.items() if name not in ("Other", "Stop")}
    words = {type(each).__name__.replace("ToolUpdate", "ToolCall"): spelled(each) for each in SAMPLES}
    rows = [(f"[`{name}`](#{name.lower()})", words[name], of(kind).text) for name, kind in received.items()]
    return {
        "events of sessions": table(("event", "as ACP spells it", "what it is"), rows),
        "fields of events": "\n\n".join(map(section, get_args(events.Event))),
        "observations": "\n\n".join(map(section, get_args(Observation))),
        "json form": table(("`event`", "its keys", "what it is"), map(form, (*FORMS, *OBSERVED_FORMS))),
        "happenings": table(("`event`", "what it is", "keys"), map(happening, get_args(RunHappening))),
    }


def spelled(event: EmittedEvent) -> str:
    """The `sessionUpdate` that says this event."""
    if isinstance(event, events.ToolUpdate):
        return "`tool_call`, `tool_call_update`"
    if isinstance(event, events.Content):
        return "`agent_message_chunk`, `agent_thought_chunk`, `user_message_chunk`"
    update = to_update(event, ())
    assert not isinstance(update, Unknown), "all of them have words of the protocol"
    return f"`{update.__struct_config__.tag}`"


def of(kind: type) -> Described:
    thing = described(kind.__module__, kind.__name__)
    return thing._replace(text=" ".join(thing.text.split()))


def section(kind: type) -> str:
    thing = of(kind)
    fields = [bullet(member) for member in thing.members if "(" not in member.signature]
    return "\n".join([f"### {thing.name}", "", thing.text, "", *fields]).strip()


def bullet(member: Member) -> str:
    return f"- `{member.signature}`: {member.sentence}" if member.sentence else f"- `{member.signature}`"


def form(form: Form) -> tuple[str, str, str]:
    keys = (f"`{key.name}`{'?' if key.is_optional or key.default is UNSET else ''}" for key in form.keys)
    return f"`{form.event}`", ", ".join(keys), IN_JSON.get(form.event) or of(form.kind).text


def happening(kind: type[Happening]) -> tuple[str, str, str]:
    keys = [name for name in kind.__struct_fields__ if name != "place"]
    return f"`{kind.__struct_config__.tag}`", of(kind).text, ", ".join(f"`{name}`" for name in keys)


def meta_keys() -> dict[str, str]:
    failed = RunFinished(
        status="failed", exit_code=3, error=Failure(kind="exit", message=""), failed_step="a"
    )
    check_same("keys of calls", OF_CALLS, {*CallOrigin.__struct_fields__, *CANCELLED_META["coupler"]})
    check_same("keys of answers", OF_ANSWERS, answer_meta("", "", failed)["coupler"])
    return {
        "keys of calls": table(("`_meta.coupler`", "what it is"), quoted(OF_CALLS)),
        "keys of answers": table(("`_meta.coupler`", "what it is"), quoted(OF_ANSWERS)),
        "keys of traces": ", ".join(f"`_meta.{key}`" for key in TRACE_KEYS),
    }


def quoted(rows: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(f"`{name}`", text) for name, text in rows.items()]


def check_same(what: str, here: Iterable[Any], there: Iterable[Any]) -> None:
    different = {*here} ^ {*there}
    if different:
        raise ValueError(
            f"scripts/generate_protocol_docs.py: {what} of the code and here differ: {different}"
        )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
