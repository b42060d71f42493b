"""Asserts how agents cancel turns and requests."""

from __future__ import annotations

import json
from typing import Any

from coupler.conformance.agent.prompting import is_over, start_slow_turn, too_short
from coupler.conformance.agent.tool_calls import PERMISSION, begin_asking, signs_of_running
from coupler.conformance.assertion import MUST, ROBUST, Fault, Skip, probe, require
from coupler.conformance.candidate import NO_SUCH_SESSION, Candidate, describe
from coupler.conformance.peers import RequestRefused, ScriptError, Service, cancel, hold
from coupler.conformance.scripted_client import RequestAnswer, ScriptedClient, ScriptedTurn, prompt_params
from coupler.recording.traces import CANCELLED


@probe(
    "A52",
    MUST,
    "a cancelled turn ends with the stop reason cancelled, neither with an error nor as if it were done",
    "prompt-turn#cancellation",
)
async def cancelled_turn(agent: Candidate) -> None:
    agent.need_working("session/prompt")
    async with agent.conversation() as (client, session):
        prompt = await start_slow_turn(agent, client, session)
        was_over = is_over(client, prompt)
        client.notify("session/cancel", {"sessionId": session})
        turn = await client.end_of_turn(session, prompt)
        if turn.stop_reason == "end_turn" and (was_over or not agent.has_slow_prompt):
            turn = await _cancel_at_once(agent, client, session)
            if turn.stop_reason == "end_turn":
                raise Skip(too_short("it could be cancelled"))
        require(turn.stop_reason == "cancelled", f"the turn ended with {_end(turn)}", turn.answer.entry)


@probe(
    "A53",
    ROBUST,
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
)
async def cancelled_question(agent: Candidate) -> None:
    for answer in (cancel, take_back):
        async with agent.conversation() as (client, session):
            await _cancel_question(agent, client, session, answer)


@probe(
    "A55",
    MUST,
    "$/cancel_request for a prompt leaves it with exactly one answer, and is ignored for an unknown id",
    "cancellation",
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


def take_back(params: dict[str, Any]) -> dict[str, Any]:
    """Refuse a request as cancelled (-32800), as a client may when its agent cancels a request."""
    raise RequestRefused(CANCELLED, "the request was cancelled")


async def _cancel_at_once(agent: Candidate, client: ScriptedClient, session: str) -> ScriptedTurn:
    """Send a prompt and its cancel in one write: the only way to interrupt a very fast agent."""
    prompt = {"id": 987_654, "method": "session/prompt", "params": prompt_params(session, agent.slow_prompt)}
    cancel = {"method": "session/cancel", "params": {"sessionId": session}}
    begin = len(client.trace.entries)
    lines = (json.dumps({"jsonrpc": "2.0", **message}) + "\n" for message in (prompt, cancel))
    client.write("".join(lines).encode())
    return await client.end_of_turn(session, 987_654, begin)


async def _cancel_question(agent: Candidate, client: ScriptedClient, session: str, answer: Service) -> None:
    client.desk.services[PERMISSION] = hold
    prompt = await begin_asking(agent, client, session)
    client.notify("session/cancel", {"sessionId": session})
    client.desk.services[PERMISSION] = answer
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
    return repr(turn.stop_reason) if turn.answer.result is not None else describe(turn.answer)
