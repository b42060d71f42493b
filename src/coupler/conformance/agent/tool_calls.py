"""Asserts how agents report tool calls and ask for permission."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import (
    MUST,
    SHOULD,
    TASTE,
    Case,
    RuleFinding,
    Skip,
    fault_unless,
    probe,
    rule,
)
from coupler.conformance.candidate import Candidate
from coupler.conformance.peers import ScriptError, cancel, hold
from coupler.conformance.reading import (
    RequestSpan,
    is_absolute,
    is_count,
    items,
    objects,
    shown,
    spans,
    value_at,
)
from coupler.conformance.scripted_client import ScriptedClient
from coupler.recording.traces import Trace, TraceEntry, TraceExchange, TraceUpdate

TOOL_CALLS = ("tool_call", "tool_call_update")
OPEN = ("pending", "in_progress")

PERMISSION = "session/request_permission"
NOT_ASKED = "the prompt made the agent ask for no permission; pass a --prompt that does"


@rule(
    "A46",
    MUST,
    "a tool call is introduced once, by tool_call or a permission request, before it is updated",
    "tool-calls",
    "`toolCallId`: A unique identifier for this tool call within the session. When the "
    "language model requests a tool invocation, the Agent SHOULD report it to the Client.",
    absent="no tool call was seen",
)
def tool_calls_are_introduced(trace: Trace) -> Iterator[Case]:
    replays = spans(trace, "session/load")
    resumed = {span.session for span in spans(trace, "session/resume")}
    asked = _first_permissions(trace)
    called: set[tuple[str, str]] = set()
    for update in trace.updates(None, *TOOL_CALLS):
        call = _call_of(update.session, update.body)
        if call is None:
            continue
        if update.kind == "tool_call":
            is_new = call not in called or any(replay.holds(update) for replay in replays)
            called.add(call)
            yield fault_unless(is_new, f"the tool call {shown(call[1])} is introduced again", update.entry)
        elif update.session not in resumed:  # its calls were introduced to another process
            is_known = call in called or asked.get(call, math.inf) < update.entry.number
            message = f"the tool call {shown(call[1])} was never introduced"
            yield fault_unless(is_known, message, update.entry, level=SHOULD)


A47 = (
    "A47",
    TASTE,
    "no tool call is left pending or in progress when its turn ends, and none is called cancelled",
    "tool-calls#status",
)


@probe(*A47)
async def cancels_a_tool_call(agent: Candidate) -> None:
    """Cancel a call that waits for permission, the likeliest to be left open.

    The rule judges whether it is.
    """
    async with agent.conversation() as (client, session):
        client.desk.services[PERMISSION] = hold
        prompt = await begin_asking(agent, client, session)
        client.notify("session/cancel", {"sessionId": session})
        client.desk.services[PERMISSION] = cancel
        client.answer_held(PERMISSION)
        await client.end_of_turn(session, prompt)


@rule(*A47, absent="no turn with a tool call was seen")
def tool_calls_are_settled(trace: Trace) -> Iterator[Case]:
    updates = trace.updates(None, *TOOL_CALLS)
    for update in updates:
        if update.body.get("status") == "cancelled":
            yield RuleFinding("ACP 1 has no status `cancelled`; `failed` is meant", (update.entry,))
    prompts = spans(trace, "session/prompt")
    for prompt in prompts:
        statuses = _statuses([update for update in updates if prompt.holds(update)])
        answer = prompt.exchange.answer
        if answer is not None and statuses and not _is_in_another(prompt, prompts):
            yield _unsettled(answer, statuses)


@rule(
    "A48",
    MUST,
    "the content of tool calls is wrapped, paths are absolute, and lines count from 1",
    "tool-calls",
    "All file paths in the protocol MUST be absolute. Line numbers are 1-based.",
    absent="no tool call with content or a path was seen",
)
def tool_calls_show_what_can_be_shown(trace: Trace) -> Iterator[Case]:
    for entry, call in _tool_calls(trace):
        for content in items(call.get("content")):
            yield fault_unless(_is_wrapped(content), f"the content is not wrapped: {shown(content)}", entry)
            if value_at(content, "type") == "diff":
                yield _absolute(value_at(content, "path"), "a diff", entry)
        for location in objects(call.get("locations")):
            line = location.get("line")
            yield _absolute(location.get("path"), "a location", entry)
            from_one = line is None or (is_count(line) and line >= 1)
            yield fault_unless(from_one, f"a location has the line {shown(line, 100)}", entry)
    for exchange in trace.exchanges(sender="agent"):
        if exchange.method in ("fs/read_text_file", "fs/write_text_file"):
            yield _absolute(exchange.params.get("path"), exchange.method, exchange.request)
        elif exchange.method == "terminal/create" and exchange.params.get("cwd") is not None:
            yield _absolute(exchange.params.get("cwd"), exchange.method, exchange.request)


@rule(
    "N03",
    TASTE,
    "the name of a tool call, if there is one, is a string that is not empty",
    "schema: ToolCall",
    absent="no tool call with a name was seen",
)
def tool_names_are_names(trace: Trace) -> Iterator[Case]:
    for entry, call in _tool_calls(trace):
        name = call.get("name")
        if name is not None:
            yield fault_unless(isinstance(name, str) and name, f"the name is {shown(name, 100)}", entry)


def _tool_calls(trace: Trace) -> Iterator[tuple[TraceEntry, dict[str, Any]]]:
    """Yield every description of a tool call, in updates and in permission requests."""
    for update in trace.updates(None, *TOOL_CALLS):
        yield update.entry, update.body
    for exchange in trace.exchanges(PERMISSION, "agent"):
        call = exchange.params.get("toolCall")
        if isinstance(call, dict):
            yield exchange.request, call


def _call_of(session: Any, body: Any) -> tuple[str, str] | None:
    """Return a tool call's id with that of its session, as it is unique only within the session."""
    call = value_at(body, "toolCallId")
    return (session, call) if isinstance(session, str) and isinstance(call, str) else None


def _first_permissions(trace: Trace) -> dict[tuple[str, str], int]:
    """Return the number of the entry in which permission was first asked for, by tool call."""
    found: dict[tuple[str, str], int] = {}
    for exchange in trace.exchanges(PERMISSION, "agent"):
        call = _call_of(exchange.params.get("sessionId"), exchange.params.get("toolCall"))
        if call is not None:
            found.setdefault(call, exchange.request.number)
    return found


def _statuses(updates: list[TraceUpdate]) -> dict[str, tuple[Any, TraceEntry]]:
    """Return the last status of each tool call, and its entry; an update without one keeps it."""
    found: dict[str, tuple[Any, TraceEntry]] = {}
    for update in updates:
        call, status = update.body.get("toolCallId"), update.body.get("status")
        if isinstance(call, str) and (status is not None or update.kind == "tool_call"):
            found[call] = "pending" if status is None else status, update.entry
    return found


def _unsettled(answer: TraceEntry, statuses: dict[str, tuple[Any, TraceEntry]]) -> Case:
    for call, (status, entry) in statuses.items():
        if status in OPEN:
            return RuleFinding(
                f"the turn ended while the tool call {shown(call)} was {status}", (entry, answer)
            )
    return None


def _is_in_another(prompt: RequestSpan, prompts: list[RequestSpan]) -> bool:
    """True if another prompt of the session was running when this one ended, as calls may belong to that."""
    return any(
        other is not prompt and other.session == prompt.session and other.begin < prompt.end < other.end
        for other in prompts
    )


def _is_wrapped(content: Any) -> bool:
    match content:
        case {"type": "content", "content": {"type": str()}}:
            return True
        case {"type": "diff", "newText": str()} | {"type": "terminal", "terminalId": str()}:
            return True
    return False


def _absolute(path: Any, where: str, entry: TraceEntry) -> Case:
    return fault_unless(is_absolute(path), f"the path of {where} is {shown(path)}", entry)


async def begin_asking(agent: Candidate, client: ScriptedClient, session: str) -> int:
    """Send a prompt and return its id once the agent asks for permission; skips if it does not ask."""
    prompt = client.ask_prompt(session, agent.prompt)
    try:
        question = await client.request_in_turn(prompt, PERMISSION)
    except ScriptError as error:
        if error.kind == "silent":
            raise Skip(f"{NOT_ASKED} within {client.timeout:g} s") from None
        raise
    if question is None:
        raise Skip(NOT_ASKED)
    return prompt


def signs_of_running(trace: Trace, question: TraceExchange) -> list[TraceEntry]:
    """Return the messages after the answer which show that the tool in question ran.

    Other tools may go on meanwhile, so only what belongs to this one counts.
    """
    if question.answer is None:
        return []
    later = [entry for entry in trace.entries[question.answer.number :] if entry.sender == "agent"]
    call = question.params.get("toolCall")
    return [
        entry
        for index, entry in enumerate(later)
        if _completes(entry, call) or _writes(entry, call) or _runs(entry, call, later[:index])
    ]


def _completes(entry: TraceEntry, call: Any) -> bool:
    is_update = entry.method == "session/update" and value_at(entry.params, "update.status") == "completed"
    return is_update and value_at(entry.params, "update.toolCallId") == value_at(call, "toolCallId")


def _writes(entry: TraceEntry, call: Any) -> bool:
    """True if this writes a file that the call names."""
    named = [each.get("path") for name in ("locations", "content") for each in objects(value_at(call, name))]
    path = value_at(entry.params, "path")
    return entry.method == "fs/write_text_file" and path is not None and path in named


def _runs(entry: TraceEntry, call: Any, before: list[TraceEntry]) -> bool:
    """True if this starts a command for the call: no other call was reported since the answer."""
    if entry.method != "terminal/create" or value_at(call, "kind") != "execute":
        return False
    reported = [value_at(each.params, "update.toolCallId") for each in before]
    return all(each in (None, value_at(call, "toolCallId")) for each in reported)
