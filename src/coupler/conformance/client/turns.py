"""Asserts how clients answer permission requests and cancel turns."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.conformance.assertion import MUST, SHOULD, Case, fault_unless, rule, scenario
from coupler.conformance.candidate import KILLED
from coupler.conformance.client.initialization import permission
from coupler.conformance.client.open_world import begin, ending
from coupler.conformance.peers import ScriptError
from coupler.conformance.reading import objects, shown, value_at
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import CANCELLED, Trace, TraceEntry, TraceExchange

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


@rule(
    "C07",
    MUST,
    "on a cancel every pending permission is answered with the outcome cancelled",
    "prompt-turn#cancellation",
    "The Client MUST respond to all pending `session/request_permission` requests with "
    "the `cancelled` outcome.",
    absent="the client did not cancel while a permission was pending, not even when it got Ctrl-C; "
    "try it by hand: `coupler check --client`",
    side="client",
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


@rule(
    "C08",
    SHOULD,
    "after a cancel the client takes updates until the prompt is answered, and does not hang",
    "prompt-turn#cancellation",
    "The Client SHOULD still accept tool call updates received after sending `session/cancel`.",
    absent="the client did not cancel, not even when it got Ctrl-C; try it by hand: `coupler check --client`",
    side="client",
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


@rule(
    "X02",
    MUST,
    "a permission is answered with one of the options that were offered, or with cancelled",
    "tool-calls#requesting-permission",
    "`selected` with an `optionId` - The ID of the selected permission option.",
    absent="the client answered no permission",
    side="client",
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
