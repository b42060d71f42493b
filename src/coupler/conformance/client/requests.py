"""Asserts how clients answer requests, read lists in pages, write valid lines and cancel turns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from coupler.conformance.assertion import (
    MUST,
    SHOULD,
    TASTE,
    Case,
    RuleFinding,
    client_rule,
    fault_unless,
    scenario,
)
from coupler.conformance.candidate import KILLED
from coupler.conformance.client.initialization import permission
from coupler.conformance.client.robustness import begin, ending, finish, play_turn
from coupler.conformance.peers import RequestRefused, ScriptError
from coupler.conformance.reading import is_null_for_nothing, objects, shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import (
    CANCELLED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    Trace,
    TraceEntry,
    TraceExchange,
    id_key,
    schema_problems,
)

CANCEL = "cancel"
CANCEL_PATIENCE = 3.0
"""Seconds in which a program that got Ctrl-C sends its cancel, if it ever does."""


@scenario(
    CANCEL,
    "The turn is cancelled while a permission is asked for; updates come until the turn is answered.",
    *("C07", "C08"),
    look="Do not answer the permission: cancel the turn (the stop button). The question must go away, and "
    "nothing may be shown as a failure.",
)
async def cancel(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update("tool_call", toolCallId="held", title="Wait to be cancelled", kind="other", status="pending")
    agent.ask(
        "session/request_permission",
        {"sessionId": agent.session_id, **permission("held", "Wait to be cancelled")},
    )
    await agent.quiet(0.2)
    agent.interrupt()
    try:
        await agent.pipe.until(
            lambda: _cancels(agent.trace) or None,
            "session/cancel",
            None if agent.is_watched else CANCEL_PATIENCE,
        )
    except ScriptError as error:
        if error.kind != "silent":
            raise
        turn.end()
        return
    turn.update("tool_call_update", toolCallId="held", status="failed")
    turn.say("This came after the cancel.")
    await agent.quiet(0.3)
    # A client that has left in the meantime gets no answer: so the trace shows that it did not wait for one.
    if not agent.pipe.has_ended:
        turn.end("cancelled")


@client_rule(
    "C07",
    MUST,
    "on a cancel every pending permission is answered with the outcome cancelled",
    "prompt-turn#cancellation",
    "The Client MUST respond to all pending `session/request_permission` requests with "
    "the `cancelled` outcome.",
    absent="the client did not cancel while a permission was pending, not even when it got Ctrl-C; "
    "try it by hand: `coupler check --client`",
)
def cancels_permissions(trace: Trace) -> Iterator[Case]:
    for cancel in _cancels(trace):
        for exchange in trace.exchanges("session/request_permission", "agent"):
            if not _is_pending(exchange, cancel):
                continue
            outcome = value_at(exchange.result, "outcome.outcome")
            answer = (
                "not answered" if exchange.answer is None else f"answered with {shown(outcome or 'an error')}"
            )
            yield fault_unless(
                outcome == "cancelled" or value_at(exchange.error, "code") == CANCELLED,
                f"a permission that was pending when the turn was cancelled was {answer}",
                exchange.request,
                cancel,
            )


@client_rule(
    "C08",
    SHOULD,
    "after a cancel the client takes updates until the prompt is answered, and does not hang",
    "prompt-turn#cancellation",
    "The Client SHOULD still accept tool call updates received after sending `session/cancel`.",
    absent="the client did not cancel, not even when it got Ctrl-C; try it by hand: `coupler check --client`",
)
def waits_after_a_cancel(trace: Trace) -> Iterator[Case]:
    if trace.label != CANCEL:
        return
    for cancel in _cancels(trace):
        for prompt in trace.exchanges("session/prompt"):
            if prompt.request.number < cancel.number:
                message = "the client left before its cancelled prompt was answered"
                yield fault_unless(prompt.answer is not None, message, cancel)
        yield fault_unless(trace.exit_code != KILLED, f"after its cancel {ending(trace)}", cancel)


@client_rule(
    "X02",
    MUST,
    "a permission is answered with one of the options that were offered, or with cancelled",
    "tool-calls#requesting-permission",
    "`selected` with an `optionId` - The ID of the selected permission option.",
    absent="the client answered no permission",
)
def picks_an_offered_option(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges("session/request_permission", "agent"):
        if exchange.answer is None or exchange.error is not None:
            continue
        offered = [option.get("optionId") for option in objects(exchange.params.get("options"))]
        outcome = value_at(exchange.result, "outcome")
        good = value_at(outcome, "outcome") == "cancelled" or (
            value_at(outcome, "outcome") == "selected" and value_at(outcome, "optionId") in offered
        )
        yield fault_unless(
            good,
            f"offered were {offered}, the outcome is {shown(outcome)}",
            exchange.request,
            exchange.answer,
        )


def _cancels(trace: Trace) -> list[TraceEntry]:
    return trace.notifications("session/cancel", "client")


def _is_pending(exchange: TraceExchange, cancel: TraceEntry) -> bool:
    """True if the request was open when the cancel came, or answered as cancelled just before."""
    if exchange.request.number > cancel.number:
        return False
    answer = exchange.answer
    return (
        answer is None
        or answer.number > cancel.number
        or value_at(exchange.result, "outcome.outcome") == "cancelled"
    )


PAGING = "pages"
UNKNOWN_METHODS = ("_coupler/unknown", "coupler_unknown")

PAGES: dict[Any, tuple[str, str | None]] = {
    None: ("session_a", "päge/2 + =="),
    "päge/2 + ==": ("session_b", '{"offset": 20}'),
    '{"offset": 20}': ("session_c", None),
}
"""Pages of the list by their cursor: the session on the page, and the next cursor."""

MOST_PAGES = 3 * len(PAGES)
"""Most pages that a client may ask for; it may list its sessions more than once, but has to stop."""


@scenario(
    "unknown-requests",
    "Sends requests of methods that nobody knows, with ids of every kind.",
    *("C20", "X03"),
    look="Nothing is shown.",
)
async def unknown_requests(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    ids = ["a string", 0, 9007199254740991]
    for index, each in enumerate(ids):
        agent.ask(UNKNOWN_METHODS[index % 2], {"sessionId": agent.session_id}, id=each)
    for each in ids:
        await agent.answer_to(each)
    await finish(agent, turn)


@scenario(
    PAGING,
    "Lists its sessions in three pages, with cursors that tempt to be read.",
    "C20",
    needs_connection=True,
)
async def pages(agent: ScriptedAgent) -> None:
    agent.introduction["agentCapabilities"] = {"sessionCapabilities": {"list": {}}}
    agent.services["session/list"] = lambda params: _page(agent.trace, params)
    await play_turn(agent)


def _page(trace: Trace, params: dict[str, Any]) -> dict[str, Any]:
    cursor = params.get("cursor")
    if cursor is not None and cursor not in PAGES:
        raise RequestRefused(INVALID_PARAMS, f"there is no cursor {shown(cursor)}")
    if len(trace.exchanges("session/list")) > MOST_PAGES:
        raise RequestRefused(INVALID_PARAMS, f"{MOST_PAGES} pages were given of a list that has {len(PAGES)}")
    session, following = PAGES[cursor]
    page: dict[str, Any] = {"sessions": [{"sessionId": session, "cwd": "/"}]}
    return page if following is None else {**page, "nextCursor": following}


@client_rule(
    "C20",
    MUST,
    "an unknown request is refused with -32601; a cursor is sent back as it came, and none means the end",
    "extensibility",
    "Clients MUST treat cursors as opaque tokens — do not parse, modify, or persist "
    "them. Clients MUST treat a missing `nextCursor` as the end of results.",
    absent="the client got no unknown request and listed no sessions",
)
def refuses_unknown_requests(trace: Trace) -> Iterator[Case]:
    for method in UNKNOWN_METHODS:
        for exchange in trace.exchanges(method, "agent"):
            if exchange.answer is None:
                yield RuleFinding(
                    f"the unknown request {shown(method)} was not answered", (exchange.request,)
                )
                continue
            code = value_at(exchange.error, "code")
            result = f"the result {shown(exchange.answer.message.get('result'), 100)}"
            given = result if exchange.error is None else f"the error {code}"
            message = f"the unknown request {shown(method)} was answered with {given}"
            yield fault_unless(code == METHOD_NOT_FOUND, message, exchange.request, exchange.answer)
    yield from _judge_paging(trace)


def _judge_paging(trace: Trace) -> Iterator[Case]:
    given: list[Any] = []
    unused: list[Any] = []
    ended: list[Any] = []
    listed = trace.exchanges("session/list")
    for exchange in listed:
        cursor = exchange.params.get("cursor")
        yield _judge_cursor(exchange, given, unused, ended)
        if cursor in unused:
            unused.remove(cursor)
        following = value_at(exchange.result, "nextCursor")
        if following is not None:
            given.append(following)
            unused.append(following)
        elif exchange.result is not None:
            ended.append(cursor)
    if trace.label == PAGING and len(listed) > MOST_PAGES:
        message = (
            f"the list has {len(PAGES)} pages, the last without nextCursor; {len(listed)} were asked for"
        )
        yield RuleFinding(message, (listed[-1].request,))


def _judge_cursor(exchange: TraceExchange, given: list[Any], unused: list[Any], ended: list[Any]) -> Case:
    """Judge the cursor of a request: it must have been given, and not ask on from the last page.

    A request without a cursor begins a list. Pages before the last may be asked for again.
    """
    cursor, request = exchange.params.get("cursor"), exchange.request
    if cursor is None:
        return None
    if cursor not in given:
        return RuleFinding(f"the cursor {shown(cursor)} was never given; given were {given}", (request,))
    asks_on = cursor in ended and cursor not in unused
    message = f"the page of the cursor {shown(cursor)} had no nextCursor, and the client asked once more"
    return fault_unless(not asks_on, message, request)


@client_rule(
    "X03",
    MUST,
    "every answer has the id of a request, in value and type, and there is one for each",
    "JSON-RPC",
    "It MUST be the same as the value of the id member in the Request Object.",
    absent="the client answered no request",
)
def answers_once(trace: Trace) -> Iterator[Case]:
    for exchange in trace.exchanges(sender="agent"):
        if exchange.answer is not None:
            yield None
        elif _was_waited_for(exchange, trace):
            yield RuleFinding(f"{exchange.method} was not answered", (exchange.request,))
    for answer in trace.stray_answers:
        # JSON-RPC lets an error without an id say that a line could not be read.
        is_complaint = answer.message.get("id") is None and "error" in answer.message
        if answer.sender == "client" and not is_complaint:
            key = id_key(answer.message.get("id"))
            yield RuleFinding(f"an answer with the id {key}, which no open request has", (answer,))


def _was_waited_for(exchange: TraceExchange, trace: Trace) -> bool:
    """True if the client had time to answer: it outlived the agent's patience, or hung until killed.

    A client that leaves owes no answer. A permission that is open at a cancel is judged by C07.
    """
    if trace.label == CANCEL:
        return False
    answers = [prompt.answer for prompt in trace.exchanges("session/prompt") if prompt.answer is not None]
    gave_up = any(answer.number > exchange.request.number for answer in answers)
    return gave_up or trace.exit_code == KILLED


@client_rule(
    "X04",
    MUST,
    "everything that the client sends is one line of JSON-RPC that the schema allows",
    "schema",
    "The client MUST NOT write anything to the agent's `stdin` that is not a valid ACP message.",
    absent="the client sent nothing",
)
def sends_valid_frames(trace: Trace) -> Iterator[Case]:
    for entry in trace.entries:
        if entry.sender != "client":
            continue
        if not entry.message:
            yield RuleFinding(f"a line is no JSON object: {shown(entry.line)}", (entry,))
            continue
        found = schema_problems(entry, trace)
        wrong = [problem for problem in found if not problem.is_draft]
        if [problem.path for problem in wrong] == ["result"] and is_null_for_nothing(entry, trace):
            yield RuleFinding("a result is null where the schema has an object", (entry,), level=TASTE)
            continue
        yield fault_unless(not wrong, f"{_name(entry.method)}: {'; '.join(map(str, wrong))}", entry)
        for problem in found:
            if problem.is_draft:
                yield RuleFinding(
                    f"{_name(entry.method)} has a draft field: {problem}", (entry,), level=TASTE
                )


def _name(method: str | None) -> str:
    return method or "an answer"
