"""Asserts that clients ignore what is unknown or malformed, and that the session goes on."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.conformance.assertion import SHOULD, TASTE, Case, fault_unless, rule, scenario
from coupler.conformance.candidate import KILLED
from coupler.conformance.scripted_agent import HeldPrompt, ScriptedAgent
from coupler.recording.traces import Trace

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


@rule(
    "C11",
    TASTE,
    "an unknown or malformed update is dropped, and the session lives on",
    "extensibility",
    absent="the scenarios were not played",
    side="client",
)
def drops_what_it_does_not_know(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, UNKNOWN_UPDATE, "updates of unknown kinds")
    yield from survives(trace, MALFORMED_UPDATE, "malformed updates")


@rule(
    "C12",
    SHOULD,
    "bad items of a list and bad values of a flag do no harm, and the good items beside them are shown",
    "schema",
    "`entries`, `availableCommands`, `locations`, `content`: `x-deserialize-skip-invalid-items`: true",
    absent="the scenarios were not played",
    side="client",
)
def passes_over_bad_items(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, BAD_ITEMS, "lists with bad items")
    if trace.label == BAD_ITEMS:
        shown = [item for item in GOOD_ITEMS if item in trace.stdout]
        hidden = ", ".join(item for item in GOOD_ITEMS if item not in shown)
        message = f"beside a bad item the client shows {', '.join(shown)}, and not {hidden}"
        yield fault_unless(not shown or not hidden, message)
    yield from survives(trace, "malformed-flags", "capabilities of wrong types")


@rule(
    "X05",
    TASTE,
    "an unknown stop reason does not lose the turn",
    "prompt-turn",
    absent="the scenario was not played",
    side="client",
)
def takes_an_unknown_stop_reason(trace: Trace) -> Iterator[Case]:
    yield from survives(trace, UNKNOWN_STOP_REASON, "an unknown stop reason")


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
