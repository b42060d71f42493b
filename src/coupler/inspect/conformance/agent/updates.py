"""Updates: what an agent tells while it works, and the validity of all that it says."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from coupler.inspect.conformance.agent.bare_conversation import hold_bare_conversation
from coupler.inspect.conformance.agent.permission import PERMISSION, begin_asking
from coupler.inspect.conformance.assertion import (
    MUST,
    ROBUST,
    SHOULD,
    Case,
    Finding,
    fault_unless,
    probe,
    rule,
)
from coupler.inspect.conformance.candidate import Candidate
from coupler.inspect.conformance.reading import (
    BOOKKEEPING,
    CONTENT,
    Span,
    is_absolute,
    is_count,
    items,
    objects,
    part,
    spans,
)
from coupler.inspect.desk import cancel, hold
from coupler.inspect.trace import Entry, Trace, Update
from coupler.inspect.validity import problems
from coupler.schema.methods import METHODS

TOOL_CALLS = ("tool_call", "tool_call_update")
CHUNKS = ("user_message_chunk", "agent_message_chunk", "agent_thought_chunk")
OPEN = ("pending", "in_progress")
PRIORITIES = ("high", "medium", "low")
EMPTY_RESULTS = (
    "authenticate",
    "logout",
    "session/load",
    "session/resume",
    "session/delete",
    "session/close",
    "session/set_mode",
)
STATUSES = ("pending", "in_progress", "completed")


@rule(
    "A46",
    MUST,
    "a tool call is introduced once, by tool_call or a permission request, before it is updated",
    "tool-calls",
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
            yield fault_unless(is_new, f"the tool call {call[1]!r} is introduced again", update.entry)
        elif update.session not in resumed:  # its calls were introduced to another process
            is_known = call in called or asked.get(call, math.inf) < update.entry.number
            yield fault_unless(is_known, f"the tool call {call[1]!r} was never introduced", update.entry)


A47 = (
    "A47",
    ROBUST,
    "no tool call is left pending or in progress when its turn ends, and none is called cancelled",
    "tool-calls#status",
)


@probe(*A47)
async def cancels_a_tool_call(agent: Candidate) -> None:
    """A call that waits for permission is the likeliest to be left behind; the rule judges whether it is."""
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
            yield Finding("ACP 1 has no status `cancelled`; `failed` is meant", (update.entry,))
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
    absent="no tool call with content or a path was seen",
)
def tool_calls_show_what_can_be_shown(trace: Trace) -> Iterator[Case]:
    for entry, call in _tool_calls(trace):
        for content in items(call.get("content")):
            yield fault_unless(_is_wrapped(content), f"the content is not wrapped: {content!r:.200}", entry)
            if part(content, "type") == "diff":
                yield _absolute(part(content, "path"), "a diff", entry)
        for location in objects(call.get("locations")):
            line = location.get("line")
            yield _absolute(location.get("path"), "a location", entry)
            from_one = line is None or (is_count(line) and line >= 1)
            yield fault_unless(from_one, f"a location has the line {line!r:.100}", entry)
    for exchange in trace.exchanges(sender="agent"):
        if exchange.method in ("fs/read_text_file", "fs/write_text_file"):
            yield _absolute(exchange.params.get("path"), exchange.method, exchange.request)
        elif exchange.method == "terminal/create" and exchange.params.get("cwd") is not None:
            yield _absolute(exchange.params.get("cwd"), exchange.method, exchange.request)


@rule("A49", MUST, "every plan has all its entries, whole", "agent-plan", absent="no plan was seen")
def plans_are_complete(trace: Trace) -> Iterator[Case]:
    prompts = spans(trace, "session/prompt")
    last: dict[tuple[str, int], list[Any]] = {}
    for update in trace.updates(None, "plan"):
        entries = update.body.get("entries")
        bad = [entry for entry in items(entries) if not _is_plan_entry(entry)]
        if not isinstance(entries, list) or bad:
            yield Finding(f"this is no whole plan: {(bad or entries)!r:.200}", (update.entry,))
            continue
        turn = str(update.session), _turn_number(update, prompts)
        patches = _is_patch(entries, last.get(turn, []))
        last[turn] = entries
        yield fault_unless(
            not patches, "the plan has one entry of the plan before, with another status", update.entry
        )


@rule(
    "A50",
    MUST,
    "usage is counted in integers from 0, and a cost has an amount and a currency",
    "prompt-turn",
    absent="no usage was seen",
)
def usage_is_counted(trace: Trace) -> Iterator[Case]:
    for update in trace.updates(None, "usage_update"):
        used, size, cost = (update.body.get(name) for name in ("used", "size", "cost"))
        counted = is_count(used) and is_count(size)
        yield fault_unless(counted, f"used is {used!r:.100}, size is {size!r:.100}", update.entry)
        yield fault_unless(cost is None or _is_cost(cost), f"the cost is {cost!r:.200}", update.entry)


@rule(
    "A51",
    SHOULD,
    "all chunks of a message have one messageId, and the next message has another",
    "prompt-turn",
    absent="no chunk with a messageId was seen",
)
def messages_have_one_id(trace: Trace) -> Iterator[Case]:
    for session in {update.session for update in trace.updates() if isinstance(update.session, str)}:
        yield from _message_ids(trace, session)


N01 = (
    "N01",
    MUST,
    "compaction is shown only to a client with session.compaction",
    "schema: CompactionCapabilities",
)
N02 = ("N02", MUST, "notices are given only to a client with session.notices", "schema: NoticeCapabilities")


@probe(*N01)
async def compacts_for_a_bare_client(agent: Candidate) -> None:
    """The rule judges what comes of it."""
    await hold_bare_conversation(agent)


@rule(*N01, absent="no turn without session.compaction was seen")
def compaction_is_asked_for(trace: Trace) -> Iterator[Case]:
    yield from _unasked(trace, "session.compaction", "compaction_update", "compaction_summary_chunk")


@probe(*N02)
async def gives_notice_to_a_bare_client(agent: Candidate) -> None:
    """The rule judges what comes of it."""
    await hold_bare_conversation(agent)


@rule(*N02, absent="no turn without session.notices was seen")
def notices_are_asked_for(trace: Trace) -> Iterator[Case]:
    yield from _unasked(trace, "session.notices", "notice")


@rule(
    "N03",
    MUST,
    "the name of a tool call, if there is one, is a string that is not empty",
    "schema: ToolCall",
    absent="no tool call with a name was seen",
)
def tool_names_are_names(trace: Trace) -> Iterator[Case]:
    for entry, call in _tool_calls(trace):
        name = call.get("name")
        if name is not None:
            yield fault_unless(isinstance(name, str) and name, f"the name is {name!r:.100}", entry)


@rule(
    "S01",
    MUST,
    "everything that the agent says is valid by the published schema",
    "schema",
    absent="the agent said nothing",
)
def everything_is_valid(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender == "agent" and entry.message and not _is_unknown_update(entry):
            yield _validity(entry, trace)


@rule(
    "T11",
    ROBUST,
    "no update is about a session whose id the client has not been given yet",
    "session-setup",
    absent="no session/new was answered with a session",
)
def sessions_begin_with_their_answer(trace: Trace) -> Iterator[Case]:
    known: set[str] = set()
    for exchange in trace.exchanges("session/new"):
        session = part(exchange.result, "sessionId")
        if not isinstance(session, str) or exchange.answer is None or session in known:
            continue
        known.add(session)
        yield None
        for update in trace.updates(session):
            if update.entry.number < exchange.answer.number:
                message = f"{update.kind!r:.100} came before the answer to session/new"
                is_note = update.kind not in CONTENT
                yield Finding(message, (update.entry, exchange.answer), is_note)


def _tool_calls(trace: Trace) -> Iterator[tuple[Entry, dict[str, Any]]]:
    """All that describes a tool call, in updates and in permission requests."""
    for update in trace.updates(None, *TOOL_CALLS):
        yield update.entry, update.body
    for exchange in trace.exchanges(PERMISSION, "agent"):
        call = exchange.params.get("toolCall")
        if isinstance(call, dict):
            yield exchange.request, call


def _call_of(session: Any, body: Any) -> tuple[str, str] | None:
    """A tool call's id with that of its session, within which it is unique."""
    call = part(body, "toolCallId")
    return (session, call) if isinstance(session, str) and isinstance(call, str) else None


def _first_permissions(trace: Trace) -> dict[tuple[str, str], int]:
    """At which entry permission was first asked for each tool call."""
    found: dict[tuple[str, str], int] = {}
    for exchange in trace.exchanges(PERMISSION, "agent"):
        call = _call_of(exchange.params.get("sessionId"), exchange.params.get("toolCall"))
        if call is not None:
            found.setdefault(call, exchange.request.number)
    return found


def _statuses(updates: list[Update]) -> dict[str, tuple[Any, Entry]]:
    """The last status of each tool call, and the entry that told it; an update without one keeps it."""
    found: dict[str, tuple[Any, Entry]] = {}
    for update in updates:
        call, status = update.body.get("toolCallId"), update.body.get("status")
        if isinstance(call, str) and (status is not None or update.kind == "tool_call"):
            found[call] = "pending" if status is None else status, update.entry
    return found


def _unsettled(answer: Entry, statuses: dict[str, tuple[Any, Entry]]) -> Case:
    for call, (status, entry) in statuses.items():
        if status in OPEN:
            return Finding(f"the turn ended while the tool call {call!r} was {status}", (entry, answer))
    return None


def _is_in_another(prompt: Span, prompts: list[Span]) -> bool:
    """Whether another prompt of the session was running when this one ended, with calls of its own."""
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


def _absolute(path: Any, where: str, entry: Entry) -> Case:
    return fault_unless(is_absolute(path), f"the path of {where} is {path!r:.200}", entry)


def _is_plan_entry(entry: Any) -> bool:
    return (
        isinstance(part(entry, "content"), str)
        and part(entry, "priority") in PRIORITIES
        and part(entry, "status") in STATUSES
    )


def _is_patch(entries: list[Any], before: list[Any]) -> bool:
    """Whether a single entry of several is sent again only because its status changed."""
    if len(entries) != 1 or len(before) < 2:
        return False
    statuses = [entry["status"] for entry in before if entry["content"] == entries[0]["content"]]
    return bool(statuses) and entries[0]["status"] not in statuses


def _turn_number(update: Update, prompts: list[Span]) -> int:
    return sum(prompt.session == update.session and prompt.begin < update.entry.number for prompt in prompts)


def _is_cost(cost: Any) -> bool:
    amount, currency = part(cost, "amount"), part(cost, "currency")
    return type(amount) in (int, float) and isinstance(currency, str) and bool(currency)


def _message_ids(trace: Trace, session: str) -> Iterator[Case]:
    """Judge the chunks of a session in runs: of one kind, with nothing of the conversation between them.

    A `place` is a turn, and who speaks. An id in two of them belongs to two messages, but for a load, which
    may show the same messages again, with the same ids or with others.
    """
    turns = {span.begin for span in spans(trace, "session/prompt") if span.session == session}
    loads = {span.begin for span in spans(trace, "session/load") if span.session == session}
    places: dict[str, tuple[int, bool]] = {}
    turn, last = 0, None
    passed = 0
    for update in trace.updates(session, *CONTENT):
        between = range(passed, update.entry.number)
        passed = update.entry.number
        if any(begin in between for begin in loads):
            places.clear()
        is_user = update.kind == "user_message_chunk"
        speaks_again = is_user and last is not None and last.kind != "user_message_chunk"
        if speaks_again or any(begin in between for begin in turns | loads):
            turn, last = turn + 1, None
        if update.kind in CHUNKS:
            yield from _chunk_ids(update, last, places, (turn, is_user))
        last = update


def _chunk_ids(
    update: Update, last: Update | None, places: dict[str, tuple[int, bool]], place: tuple[int, bool]
) -> Iterator[Case]:
    message = update.body.get("messageId")
    if last is not None and last.kind == update.kind:
        yield from _change_of_id(last, update)
    if isinstance(message, str):
        reused = places.setdefault(message, place) != place
        yield fault_unless(not reused, f"the id {message!r:.100} belongs to a message before", update.entry)


def _change_of_id(last: Update, update: Update) -> Iterator[Case]:
    """What can be told of two chunks in a row: a space where they meet shows that they are one message."""
    before, after = last.body.get("messageId"), update.body.get("messageId")
    if before == after:
        return
    if before is None or after is None:
        yield Finding("some chunks of a message have an id and some have none", (last.entry, update.entry))
    texts = part(last.body, "content.text"), part(update.body, "content.text")
    if all(isinstance(text, str) for text in texts) and (texts[0].endswith(" ") or texts[1].startswith(" ")):
        yield Finding("the id changes in the midst of a sentence", (last.entry, update.entry))


def _unasked(trace: Trace, capability: str, *kinds: str) -> Iterator[Case]:
    if isinstance(part(trace.client_capabilities, capability), dict) or not trace.exchanges("initialize"):
        return
    yield from (None for prompt in trace.exchanges("session/prompt") if prompt.answer is not None)
    for update in trace.updates(None, *kinds):
        yield Finding(f"{update.kind} was sent to a client without {capability}", (update.entry,))


def _is_unknown_update(entry: Entry) -> bool:
    """Whether this is an update of a kind that the schema lacks: that has an assertion of its own."""
    kind = part(entry.params, "update.sessionUpdate")
    return entry.method == "session/update" and isinstance(kind, str) and kind not in CONTENT + BOOKKEEPING


def _validity(entry: Entry, trace: Trace) -> Case:
    if entry.method is not None and not entry.method.startswith(("_", "$/")):
        method = METHODS.get(entry.method)
        if method is None or method.direction == "agent":
            return Finding(f"clients have no method {entry.method!r:.100}", (entry,))
    wrong = [problem for problem in problems(entry, trace) if not problem.is_stray_key]
    if [problem.path for problem in wrong] == ["result"] and _is_null_for_nothing(entry, trace):
        return Finding("a result is null where the schema has an object", (entry,), is_note=True)
    return fault_unless(not wrong, "; ".join(map(str, wrong)), entry)


def _is_null_for_nothing(answer: Entry, trace: Trace) -> bool:
    """Whether null stands for an empty object. The protocol's own pages do so, and many agents with them."""
    methods = [exchange.method for exchange in trace.exchanges() if exchange.answer is answer]
    return answer.message["result"] is None and any(method in EMPTY_RESULTS for method in methods)
