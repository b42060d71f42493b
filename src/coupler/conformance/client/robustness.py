"""Asserts that clients cope with noise on stdout, early updates, bursts, huge lines, crashes and errors."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator

from coupler.conformance.assertion import PLAIN_TURN, TASTE, Case, fault_unless, rule, scenario
from coupler.conformance.candidate import KILLED
from coupler.conformance.client.open_world import LAST_WORDS, begin, ending, finish, survives
from coupler.conformance.scripted_agent import ScriptedAgent
from coupler.recording.traces import INTERNAL_ERROR, Trace

BURST = 2_000
"""Number of updates in one write."""

HUGE = 20 * 1024 * 1024
"""Characters of the text in one line."""


@scenario(
    "early-update",
    "An update comes before the answer to session/new that tells its session.",
    "X09",
    needs_connection=True,
)
async def early_update(agent: ScriptedAgent) -> None:
    agent.held.add("session/new")
    request = await agent.take("session/new", within=60)
    opened = agent.open_session(request.params if isinstance(request.params, dict) else {})
    agent.notify(
        "session/update",
        {
            "sessionId": agent.session_id,
            "update": {"sessionUpdate": "available_commands_update", "availableCommands": []},
        },
    )
    agent.held.discard("session/new")
    agent.answer(request, opened)
    turn = await begin(agent)
    await finish(agent, turn)


@scenario(
    "noise",
    "Lines on stdout that are no messages: a banner, a warning, JSON that is none of ours.",
    "X10",
    needs_connection=True,
)
async def noise(agent: ScriptedAgent) -> None:
    agent.pipe.write(b"Welcome to the agent!\n\n")
    turn = await begin(agent)
    agent.pipe.write(b'DeprecationWarning: noise\n{"level": "info"}\n[1, 2]\n\xff\xfe\n')
    await finish(agent, turn)


@scenario(
    "burst",
    f"{BURST} updates and the answer to the prompt arrive in one write.",
    "X11",
    look=f"The numbers go up to {BURST - 1}, and the last words are there.",
)
async def burst(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    updates = [_chunk_line(agent, f"{number} ") for number in range(BURST)]
    answer = {"jsonrpc": "2.0", "id": turn.request.message.get("id"), "result": {"stopReason": "end_turn"}}
    last = [_chunk_line(agent, LAST_WORDS), json.dumps(answer).encode() + b"\n"]
    agent.pipe.write(b"".join(updates + last))


@scenario(
    "huge-line",
    f"One update is a line of {HUGE // 1024 // 1024} MB.",
    "X12",
    needs_connection=True,
)
async def huge_line(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update(
        "tool_call",
        toolCallId="huge",
        title="Huge",
        kind="read",
        status="completed",
        content=[{"type": "content", "content": {"type": "text", "text": "x" * HUGE}}],
    )
    await finish(agent, turn)


@scenario(
    "crash",
    "The agent dies in the middle of a turn.",
    "X13",
    needs_connection=True,
)
async def crash(agent: ScriptedAgent) -> None:
    await begin(agent)
    await agent.quiet(0.1)
    os.write(2, b"coupler check: this agent crashes now\n")
    os._exit(3)


@scenario(
    "error",
    "The prompt is answered with an error.",
    "X14",
    needs_connection=True,
)
async def error(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.fail(INTERNAL_ERROR, "coupler-check: the model is overloaded")


@rule(
    "X01",
    TASTE,
    "a plain turn is gone through to its end, and the client ends with exit code 0",
    "prompt-turn",
    absent="the scenario was not played",
    side="client",
)
def goes_through_a_plain_turn(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, PLAIN_TURN, "a plain turn")


@rule(
    "X09",
    TASTE,
    "an update before the answer to session/new breaks nothing",
    "session-setup",
    absent="the scenario was not played",
    side="client",
)
def takes_an_early_update(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, "early-update", "an update before the answer to session/new")


@rule(
    "X10",
    TASTE,
    "a line on stdout that is no message is passed over",
    "transports",
    absent="the scenario was not played",
    side="client",
)
def passes_over_noise(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, "noise", "lines that are no messages")


@rule(
    "X11",
    TASTE,
    "many updates that arrive at once with the answer are all handled",
    "prompt-turn",
    absent="the scenario was not played",
    side="client",
)
def takes_a_burst(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, "burst", f"{BURST} updates and the answer in one write")


@rule(
    "X12",
    TASTE,
    "a line of 20 MB is read",
    "transports",
    absent="the scenario was not played",
    side="client",
)
def reads_a_huge_line(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, "huge-line", "a line of 20 MB")


@rule(
    "X13",
    TASTE,
    "an agent that dies in mid-turn ends the client's waiting, and is reported as a failure",
    "transports",
    absent="the scenario was not played",
    side="client",
)
def notices_a_crash(trace: Trace) -> Iterator[Case]:
    if trace.label == "crash" and trace.exit_code is not None:
        yield fault_unless(trace.exit_code not in (0, KILLED), f"after the agent's death {ending(trace)}")


@rule(
    "X14",
    TASTE,
    "an error as the answer to a prompt is reported as a failure, in its words",
    "prompt-turn",
    absent="the scenario was not played",
    side="client",
)
def reports_an_error(trace: Trace) -> Iterator[Case]:
    if trace.label == "error" and trace.exit_code is not None:
        yield fault_unless(trace.exit_code not in (0, KILLED), f"after the agent's error {ending(trace)}")
        told = "the model is overloaded" in trace.stderr + trace.stdout
        yield fault_unless(told, "the client does not say what the agent's error said")


def _chunk_line(agent: ScriptedAgent, text: str) -> bytes:
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    params = {"sessionId": agent.session_id, "update": update}
    return json.dumps({"jsonrpc": "2.0", "method": "session/update", "params": params}).encode() + b"\n"
