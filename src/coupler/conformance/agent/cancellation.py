"""Asserts how agents cancel turns and requests."""

from __future__ import annotations

import json

from coupler.conformance.agent.prompting import BARRIER, goes_on, is_over, start_slow_turn, too_short
from coupler.conformance.agent.tool_calls import PERMISSION, begin_asking, signs_of_running
from coupler.conformance.assertion import MUST, TASTE, Fault, Skip, probe, require
from coupler.conformance.candidate import NO_SUCH_SESSION, Candidate, describe
from coupler.conformance.peers import ScriptError, cancel, hold
from coupler.conformance.reading import shown
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient, ScriptedTurn, prompt_params
from coupler.recording.traces import CANCELLED, TraceEntry


@probe(
    "A52",
    MUST,
    "a cancelled turn ends with the stop reason cancelled, neither with an error nor as if it were done",
    "prompt-turn#cancellation",
    "After all ongoing operations have been successfully aborted and pending updates "
    "have been sent, the Agent MUST respond to the original `session/prompt` request "
    "with the `cancelled` stop reason.",
)
async def cancelled_turn(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        prompt = await start_slow_turn(agent, client, session)
        was_over = is_over(client, prompt)
        turn, went_on = await cancel_and_watch(client, session, prompt)
        if turn.stop_reason == "end_turn" and not went_on and (was_over or not agent.has_slow_prompt):
            turn, went_on = await _cancel_at_once(agent, client, session)
            if turn.stop_reason == "end_turn" and not went_on:
                raise Skip(too_short("it could be cancelled"))
        message = f"the turn ended with {_end(turn)}"
        if went_on:
            message = f"{len(went_on)} updates came after the cancel, and {message}"
        entries = (*went_on[:1], turn.answer.entry)
        require(turn.stop_reason == "cancelled", message, *entries)


@probe(
    "A53",
    TASTE,
    "a cancel without a turn, or for an unknown session, is ignored, and the next prompt is answered",
    "prompt-turn#cancellation",
)
async def idle_cancel(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        for target in (session, session, NO_SUCH_SESSION):
            client.notify("session/cancel", {"sessionId": target})
        turn = await agent.take_turn(client, session)
        _require_no_answer_to_notifications(client)
        normal = turn.answer.result is not None and turn.stop_reason != "cancelled"
        require(normal, f"the prompt after it ended with {_end(turn)}", turn.answer.entry)


@probe(
    "A54",
    MUST,
    "a cancel while permission is asked for ends the turn as cancelled, and the tool does not run",
    "tool-calls#requesting-permission",
    "After all ongoing operations have been successfully aborted and pending updates "
    "have been sent, the Agent MUST respond to the original `session/prompt` request "
    "with the `cancelled` stop reason.",
)
async def cancelled_question(agent: Candidate) -> None:
    async with agent.conversation() as (client, session):
        await _cancel_question(agent, client, session)


@probe(
    "A55",
    MUST,
    "$/cancel_request for a prompt leaves it with exactly one answer, and is ignored for an unknown id",
    "cancellation",
    "The implementation MUST send one of these responses for the original request: a "
    "valid response with appropriate data, or an error response with code `-32800` "
    "(Request Cancelled).",
)
async def cancelled_request(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        prompt = await start_slow_turn(agent, client, session)
        client.notify("$/cancel_request", {"requestId": prompt})
        answer = await _end_at_last(client, session, prompt)
        fits = isinstance(answer.result, dict) or answer.code == CANCELLED
        require(fits, f"the prompt was answered with {describe(answer)}", answer.entry)
        for unknown in (prompt, 987_654, "no-such-request"):
            client.notify("$/cancel_request", {"requestId": unknown})
        turn = await agent.take_turn(client, session)
        _require_no_answer_to_notifications(client)
        require(turn.answer.result is not None, f"the next prompt ended with {_end(turn)}", turn.answer.entry)


async def cancel_and_watch(
    client: ScriptedClient, session: str, prompt: int
) -> tuple[ScriptedTurn, list[TraceEntry]]:
    """Cancel a turn and wait for its end; returns also the updates that show that it went on.

    A request follows the cancel. Once it is answered, the agent has read both.
    """
    begin = len(client.trace.entries)
    client.notify("session/cancel", {"sessionId": session})
    client.ask(BARRIER, {})
    turn = await client.end_of_turn(session, prompt)
    return turn, goes_on(client.trace, session, client.trace.entries[begin], turn.answer.entry)


async def _cancel_at_once(
    agent: Candidate, client: ScriptedClient, session: str
) -> tuple[ScriptedTurn, list[TraceEntry]]:
    """Send a prompt and its cancel in one write: the only way to interrupt a very fast agent."""
    prompt = {"id": 987_654, "method": "session/prompt", "params": prompt_params(session, agent.slow_prompt)}
    cancel = {"method": "session/cancel", "params": {"sessionId": session}}
    begin = len(client.trace.entries)
    lines = (json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in (prompt, cancel))
    client.write("".join(lines).encode())
    turn = await client.end_of_turn(session, 987_654, begin)
    return turn, goes_on(client.trace, session, client.trace.entries[begin + 1], turn.answer.entry)


async def _cancel_question(agent: Candidate, client: ScriptedClient, session: str) -> None:
    client.desk.services[PERMISSION] = hold
    prompt = await begin_asking(agent, client, session)
    client.notify("session/cancel", {"sessionId": session})
    client.desk.services[PERMISSION] = cancel
    client.answer_held(PERMISSION)
    answered = len(client.trace.entries)
    turn = await client.end_of_turn(session, prompt)
    require(turn.stop_reason == "cancelled", f"the turn ended with {_end(turn)}", turn.answer.entry)
    for question in client.trace.exchanges(PERMISSION, "agent"):
        signs = signs_of_running(client.trace, question)
        require(not signs, "the tool ran although the turn was cancelled", question.request, *signs)
    for entry in client.trace.entries[answered:]:
        acts = entry.sender == "agent" and entry.method in ("fs/write_text_file", "terminal/create")
        require(not acts, f"the cancelled turn went on with {entry.method}", entry)


async def _end_at_last(client: ScriptedClient, session: str, prompt: int) -> RequestAnswer:
    """Wait for the prompt's answer. An agent may ignore $/cancel_request; then the turn is cancelled."""
    try:
        return await client.answer(prompt, within=min(2.0, client.timeout))
    except ScriptError as error:
        if error.kind != "silent":
            raise
    client.notify("session/cancel", {"sessionId": session})
    return (await client.end_of_turn(session, prompt)).answer


def _require_no_answer_to_notifications(client: ScriptedClient) -> None:
    if stray := client.trace.stray_answers:
        raise Fault("there is an answer that belongs to no open request", *stray)


def _end(turn: ScriptedTurn) -> str:
    return shown(turn.stop_reason) if turn.answer.result is not None else describe(turn.answer)
