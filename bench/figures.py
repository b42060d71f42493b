"""The rows of the table: what each figure is called, how it is shown, and which way is better."""

from collections.abc import Callable
from dataclasses import dataclass

# A request that waits longer than this is no longer waited for.
PATIENCE_SECONDS = 10.0


@dataclass(frozen=True)
class Figure:
    name: str
    show: Callable[[float], str]
    higher_is_better: bool = False

    def best(self, values: list[float]) -> float:
        return max(values) if self.higher_is_better else min(values)


def milliseconds(seconds: float) -> str:
    if seconds >= PATIENCE_SECONDS:
        return f"over {PATIENCE_SECONDS:.0f} s"
    return f"{1e3 * seconds:.0f} ms"


def tenths(seconds: float) -> str:
    return f"{1e3 * seconds:.1f} ms"


def microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.1f} µs" if seconds < 1e-4 else f"{1e6 * seconds:.0f} µs"


def thousands(rate: float) -> str:
    return f"{rate / 1e3:.0f} k/s"


def megabytes(size: float) -> str:
    return f"{size / 1e6:.0f} MB"


def factor(ratio: float) -> str:
    return f"{ratio:.2f}×"


def count(number: float) -> str:
    return f"{number:,.0f}"


FIRST_START = Figure("cold start to `initialize`, a target's first", milliseconds)
LATER_START = Figure("cold start to `initialize`, its later ones", milliseconds)
SENT = Figure("updates sent", thousands, higher_is_better=True)
RECEIVED = Figure("updates received, awaiting the reply", thousands, higher_is_better=True)
ITERATED = Figure("updates received, iterating over events", thousands, higher_is_better=True)
CLIENT_TURN = Figure("a turn of one chunk, as its client has it, p50", microseconds)
ROUND_TRIP = Figure("prompt round trip, p50", microseconds)
ROUND_TRIP_ACROSS_CORES = Figure("prompt round trip across cores, p50", microseconds)
NEW_SESSION = Figure("`session/new` beside 200 chatty turns, slowest", milliseconds)
MEMORY = Figure("memory after `initialize`", megabytes)
SENDING_COST = {
    1_000: Figure("cost of an update sent, of 1 k", microseconds),
    10_000: Figure("cost of an update sent, of 10 k", microseconds),
    100_000: Figure("cost of an update sent, of 100 k", microseconds),
    1_000_000: Figure("cost of an update sent, of 1 M", microseconds),
}
RECEIVING_COST = {
    1_000: Figure("cost of an update received, of 1 k", microseconds),
    100_000: Figure("cost of an update received, of 100 k", microseconds),
    1_000_000: Figure("cost of an update received, of 1 M", microseconds),
}
SENT_KEPT = Figure("updates sent, sessions kept", thousands, higher_is_better=True)
SENT_UNKEPT = Figure("updates sent, with `--no-store`", thousands, higher_is_better=True)
# What keeping the sessions leaves of the throughput.
KEPT_SHARE = Figure("updates sent, kept against not kept", factor, higher_is_better=True)
ROUND_TRIP_KEPT = Figure("prompt round trip, sessions kept, p50", microseconds)
ROUND_TRIP_UNKEPT = Figure("prompt round trip, with `--no-store`, p50", microseconds)
SESSION_LIST = Figure("`session/list` over 10,000 sessions, p50", tenths)
CANCEL = Figure("cancel of asyncio code, p50", tenths)
CANCEL_SLOW = Figure("cancel of asyncio code, p99", tenths)
STEP = Figure("a `run` step of a workflow, of 1,000 in a loop", tenths)
STEP_ADDED = Figure("what Coupler adds to such a step's shell", tenths)
DECISION = Figure("a permission request that rules decide", tenths)
LONG_DECISION = Figure("a permission request about a line of 2.4 KB", tenths)
DELTA = Figure("text of a step's agent to the editor, p50", tenths)
DELTA_SLOW = Figure("text of a step's agent to the editor, p95", tenths)

LONG_TURN_BYTES = {
    steps: Figure(f"bytes kept of a turn of {steps:,} reads, against its last request", factor)
    for steps in (10, 100, 1_000)
}
LONG_TURN_STEP = {
    steps: Figure(f"processor time of step {steps:,} of the coder", tenths) for steps in (10, 100, 1_000)
}
# How much dearer the last step of a long turn is than its tenth.
LONG_TURN_GROWTH = {
    steps: Figure(f"growth of the cost of a step, at step {steps:,}", factor) for steps in (100, 1_000)
}
LONG_TURN_NEXT = {
    steps: Figure(f"the next prompt after {steps:,} reads, to the model", milliseconds)
    for steps in (10, 100, 1_000)
}

DAY_CALLS = Figure("model calls", count, higher_is_better=True)
DAY_ANSWERED = Figure("prompts that were answered", count, higher_is_better=True)
DAY_FAULTS = Figure("faults and kills after which the session went on", count, higher_is_better=True)
DAY_LOST = Figure("sessions that could not go on", count)
DAY_COMPACTIONS = Figure("compactions", count, higher_is_better=True)
DAY_FAILURES = Figure("what should not have happened", count)
DAY_CALL = Figure("processor time of a model call, with starts and commands", milliseconds)
DAY_STEP = Figure("the same of the agent's process alone, while it runs", milliseconds)
DAY_PEAK = Figure("memory at most", megabytes)
DAY_LEAVE = Figure("time to leave at the end", milliseconds)
DAY_CPU_GROWTH = Figure("growth of the cost of a call, in conversations of like size", factor)
DAY_KEPT_GROWTH = Figure("growth of the bytes kept of a prompt, the last third against the first", factor)

# How much dearer an update of the longest turn is than one of the cheapest.
SENDING_GROWTH = Figure("growth of the cost of an update sent", factor)
RECEIVING_GROWTH = Figure("growth of the cost of an update received", factor)

ROWS = [
    FIRST_START,
    LATER_START,
    SENT,
    RECEIVED,
    ITERATED,
    CLIENT_TURN,
    ROUND_TRIP,
    ROUND_TRIP_ACROSS_CORES,
    NEW_SESSION,
    MEMORY,
    *SENDING_COST.values(),
    SENDING_GROWTH,
    *RECEIVING_COST.values(),
    RECEIVING_GROWTH,
    SENT_KEPT,
    SENT_UNKEPT,
    KEPT_SHARE,
    ROUND_TRIP_KEPT,
    ROUND_TRIP_UNKEPT,
    SESSION_LIST,
    CANCEL,
    CANCEL_SLOW,
    STEP,
    STEP_ADDED,
    DELTA,
    DELTA_SLOW,
    DECISION,
    LONG_DECISION,
    *LONG_TURN_BYTES.values(),
    *LONG_TURN_STEP.values(),
    *LONG_TURN_GROWTH.values(),
    *LONG_TURN_NEXT.values(),
]

DAY_ROWS = [
    DAY_CALLS,
    DAY_ANSWERED,
    DAY_FAULTS,
    DAY_LOST,
    DAY_COMPACTIONS,
    DAY_FAILURES,
    DAY_CALL,
    DAY_STEP,
    DAY_PEAK,
    DAY_LEAVE,
    DAY_CPU_GROWTH,
    DAY_KEPT_GROWTH,
]
"""The rows of the table of a day of the coder."""
