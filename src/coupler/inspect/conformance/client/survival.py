"""Whether a client lives on after something odd: what every rule about robustness asks."""

from __future__ import annotations

from collections.abc import Iterator

from coupler.inspect.conformance.assertion import Case, fault_unless
from coupler.inspect.conformance.client_candidate import KILLED
from coupler.inspect.scripted_agent import ScriptedAgent, Turn
from coupler.inspect.trace import Trace

FIRST_WORDS = "coupler-check: first words. "
LAST_WORDS = "coupler-check: last words."

BARRIER = "_coupler/are_you_there"


async def begin(agent: ScriptedAgent) -> Turn:
    """Begin a turn with words that show whether this client prints what it is told."""
    turn = await agent.begin_turn()
    turn.say(FIRST_WORDS)
    return turn


async def finish(agent: ScriptedAgent, turn: Turn, stop_reason: str = "end_turn") -> None:
    """Say the last words and end the turn. A client in a chat does not end: it is asked whether it lives."""
    turn.say(LAST_WORDS)
    if agent.is_watched:
        await agent.answer_to(agent.ask(BARRIER, {}))
    turn.end(stop_reason)


def survives(trace: Trace, label: str, what: str) -> Iterator[Case]:
    """A case if this is the scenario: good if the client ended well and showed everything that was said."""
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
    """How the client ended."""
    if trace.exit_code == KILLED:
        return "the client did not end by itself and was killed"
    last_line = (trace.stderr.strip().splitlines() or ["nothing on stderr"])[-1]
    return f"the client ended with exit code {trace.exit_code}: {last_line[:300]}"
