"""Asserts that clients cope with noise, bursts, crashes, and whatever is unknown, early or malformed."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import partial

from coupler.conformance.assertion import PLAIN_TURN, SHOULD, TASTE, Case, client_rule, fault_unless, scenario
from coupler.conformance.candidate import KILLED
from coupler.conformance.scripted_agent import HeldPrompt, ScriptedAgent
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
    await play_turn(agent)


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


@client_rule(
    "X13",
    TASTE,
    "an agent that dies in mid-turn ends the client's waiting, and is reported as a failure",
    "transports",
)
def notices_a_crash(trace: Trace) -> Iterator[Case]:
    if trace.label == "crash" and trace.exit_code is not None:
        yield fault_unless(trace.exit_code not in (0, KILLED), f"after the agent's death {ending(trace)}")


@client_rule(
    "X14",
    TASTE,
    "an error as the answer to a prompt is reported as a failure, in its words",
    "prompt-turn",
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


UNKNOWN_UPDATE = "unknown-update"
MALFORMED_UPDATE = "malformed-update"
BAD_ITEMS = "bad-items"
UNKNOWN_STOP_REASON = "unknown-stop-reason"

FIRST_WORDS = "coupler-check: first words. "
LAST_WORDS = "coupler-check: last words."

GOOD_ITEMS = ("good one", "good two")
"""Entries of a plan, before and after one that is malformed. A client that shows one can show the other."""

BARRIER = "_coupler/are_you_there"


@scenario(
    UNKNOWN_UPDATE,
    "Updates of a kind, with content and with a notification that nobody knows.",
    "C11",
    look="Nothing odd is shown, and the last words are there.",
)
async def unknown_update(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update("hologram", scene={"objects": []})
    turn.update("agent_message_chunk", content={"type": "hologram", "scene": {}})
    agent.notify("_coupler/news", {"any": "thing"})
    agent.notify("$/news", {})
    await finish(agent, turn)


@scenario(
    MALFORMED_UPDATE,
    "Updates without what they must have, with wrong types, and for a session that does not exist.",
    "C11",
    look="Nothing odd is shown, and the last words are there.",
)
async def malformed_update(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    turn.update("agent_message_chunk")
    turn.update("tool_call", toolCallId=7, title=None)
    turn.update("tool_call_update", toolCallId="never introduced", status="completed")
    agent.notify("session/update", {"sessionId": agent.session_id})
    agent.notify("session/update", {"sessionId": agent.session_id, "update": []})
    agent.notify("session/update", [])
    agent.notify("session/update", {**turn.update_params("plan", entries=[]), "sessionId": "no such session"})
    await finish(agent, turn)


@scenario(
    BAD_ITEMS,
    "Lists in which one item is malformed and the others are good.",
    "C12",
    look="The plan has the two entries “good one” and “good two”; there is a command /good.",
)
async def bad_items(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    good = {"priority": "high", "status": "pending"}
    entries = [{"content": content, **good} for content in GOOD_ITEMS]
    turn.update("plan", entries=[entries[0], {"content": 7}, entries[1]])
    turn.update(
        "available_commands_update", availableCommands=[{"name": "good", "description": "Is good"}, "bad", {}]
    )
    turn.update(
        "tool_call",
        toolCallId="call_1",
        title="Has a bad location and bad content",
        kind="a kind that is unknown",
        status="completed",
        locations=[{"path": 7}, {"path": "/good"}],
        content=[{"type": "hologram"}, {"type": "content", "content": {"type": "text", "text": "good"}}],
    )
    await finish(agent, turn)


@scenario(
    UNKNOWN_STOP_REASON,
    "The turn ends for a reason that nobody knows.",
    "X05",
    look="The turn is over, and the last words are there.",
)
async def unknown_stop_reason(agent: ScriptedAgent) -> None:
    turn = await begin(agent)
    await finish(agent, turn, stop_reason="out_of_breath")


@client_rule(
    "C11",
    TASTE,
    "an unknown or malformed update is dropped, and the session lives on",
    "extensibility",
    absent="the scenarios were not played",
)
def drops_what_it_does_not_know(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, UNKNOWN_UPDATE, "updates of unknown kinds")
    yield from survives(trace, MALFORMED_UPDATE, "malformed updates")


@client_rule(
    "C12",
    SHOULD,
    "bad items of a list and bad values of a flag do no harm, and the good items beside them are shown",
    "schema",
    "`entries`, `availableCommands`, `locations`, `content`: `x-deserialize-skip-invalid-items`: true",
    absent="the scenarios were not played",
)
def passes_over_bad_items(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, BAD_ITEMS, "lists with bad items")
    if trace.label == BAD_ITEMS:
        shown = [item for item in GOOD_ITEMS if item in trace.stdout]
        hidden = ", ".join(item for item in GOOD_ITEMS if item not in shown)
        message = f"beside a bad item the client shows {', '.join(shown)}, and not {hidden}"
        yield fault_unless(not shown or not hidden, message)
    yield from survives(trace, "malformed-flags", "capabilities of wrong types")


async def play_turn(agent: ScriptedAgent) -> None:
    """Play a turn in which the agent says its first and its last words."""
    await finish(agent, await begin(agent))


async def begin(agent: ScriptedAgent) -> HeldPrompt:
    """Begin a turn with words that show whether this client prints what it receives."""
    turn = await agent.begin_turn()
    turn.say(FIRST_WORDS)
    return turn


async def finish(agent: ScriptedAgent, turn: HeldPrompt, stop_reason: str = "end_turn") -> None:
    """Say the last words and end the turn.

    A client in a chat does not exit, so it is asked first whether it still answers.
    """
    turn.say(LAST_WORDS)
    if agent.is_watched:
        await agent.answer_to(agent.ask(BARRIER, {}))
    turn.end(stop_reason)


def survives(trace: Trace, label: str, what: str) -> Iterator[Case]:
    """Yield cases if this is the scenario: the client ended well and printed all, or still answers."""
    if trace.label != label:
        return
    if trace.exit_code is None:
        for exchange in trace.exchanges(BARRIER, "agent"):
            yield fault_unless(exchange.answer, f"the client fell silent after {what}", exchange.request)
        return
    yield fault_unless(trace.exit_code == 0, f"after {what} {ending(trace)}")
    if FIRST_WORDS.strip() in trace.stdout:
        said = "the client printed the first words of the turn and not the last, after"
        yield fault_unless(LAST_WORDS in trace.stdout, f"{said} {what}")


def ending(trace: Trace) -> str:
    """Describe how the client ended."""
    if trace.exit_code == KILLED:
        return "the client did not end by itself and was killed"
    last_line = (trace.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
    return f"the client ended with exit code {trace.exit_code}: {last_line[:300]}"


SURVIVED = (
    (
        "X01",
        "prompt-turn",
        PLAIN_TURN,
        "a plain turn",
        "a plain turn is gone through to its end, and the client ends with exit code 0",
    ),
    (
        "X05",
        "prompt-turn",
        UNKNOWN_STOP_REASON,
        "an unknown stop reason",
        "an unknown stop reason does not lose the turn",
    ),
    (
        "X09",
        "session-setup",
        "early-update",
        "an update before the answer to session/new",
        "an update before the answer to session/new breaks nothing",
    ),
    (
        "X10",
        "transports",
        "noise",
        "lines that are no messages",
        "a line on stdout that is no message is passed over",
    ),
    (
        "X11",
        "prompt-turn",
        "burst",
        f"{BURST} updates and the answer in one write",
        "many updates that arrive at once with the answer are all handled",
    ),
    ("X12", "transports", "huge-line", "a line of 20 MB", "a line of 20 MB is read"),
)
"""Assertions that a client survives a scenario: id, section, scenario, what happens in it, sentence."""

for _id, _section, _label, _what, _sentence in SURVIVED:
    client_rule(_id, TASTE, _sentence, _section)(partial(survives, label=_label, what=_what))
