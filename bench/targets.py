"""What Coupler promises, and whether the results keep it."""

from dataclasses import dataclass

from figures import (
    CANCEL_SLOW,
    CLIENT_TURN,
    DAY_COMPACTIONS,
    DAY_CPU_GROWTH,
    DAY_FAILURES,
    DAY_KEPT_GROWTH,
    DAY_LEAVE,
    DAY_LOST,
    DELTA_SLOW,
    FIRST_START,
    ITERATED,
    KEPT_SHARE,
    LATER_START,
    LONG_TURN_BYTES,
    LONG_TURN_GROWTH,
    LONG_TURN_NEXT,
    MEMORY,
    NEW_SESSION,
    RECEIVED,
    RECEIVING_GROWTH,
    ROUND_TRIP,
    ROUND_TRIP_KEPT,
    SENDING_GROWTH,
    SENT,
    SESSION_LIST,
    STEP_ADDED,
    Figure,
)
from peers import COUPLER, PYTHON, TYPESCRIPT
from results import Results


@dataclass(frozen=True)
class Target:
    """A limit on a figure of Coupler's: on the value itself, or on its ratio to another peer's."""

    figure: Figure
    limit: float
    against: str | None = None

    def describe(self) -> str:
        sign = "≥" if self.figure.higher_is_better else "≤"
        if self.against is None:
            return f"{sign} {self.figure.show(self.limit)}"
        return f"{sign} {self.limit:g}× {self.against}"

    def is_kept(self, results: Results, peer: str = COUPLER) -> bool | None:
        """Whether it is kept; None when it cannot be judged for lack of a value."""
        value = (
            results.best(peer, self.figure)
            if self.against is None
            else results.ratio(peer, self.against, self.figure)
        )
        if value is None:
            return None
        return value >= self.limit if self.figure.higher_is_better else value <= self.limit


TARGETS = [
    Target(FIRST_START, 0.20, PYTHON),
    Target(FIRST_START, 0.60, TYPESCRIPT),
    Target(LATER_START, 0.20, PYTHON),
    Target(LATER_START, 0.60, TYPESCRIPT),
    Target(SENT, 6.0, PYTHON),
    Target(SENT, 2.5, TYPESCRIPT),
    Target(RECEIVED, 4.0, PYTHON),
    Target(ITERATED, 4.0, PYTHON),
    Target(CLIENT_TURN, 1.0, PYTHON),
    Target(ROUND_TRIP, 0.6, PYTHON),
    Target(NEW_SESSION, 0.050),
    Target(MEMORY, 30e6),
    Target(SENDING_GROWTH, 1.25),
    Target(RECEIVING_GROWTH, 1.25),
    Target(KEPT_SHARE, 0.9),
    Target(ROUND_TRIP_KEPT, 1.0, PYTHON),
    Target(SESSION_LIST, 0.050),
    Target(CANCEL_SLOW, 0.200),
    Target(STEP_ADDED, 0.010),
    Target(DELTA_SLOW, 0.100),
    *(Target(LONG_TURN_BYTES[steps], 3.0) for steps in (100, 1_000)),
    *(Target(LONG_TURN_GROWTH[steps], 1.3) for steps in (100, 1_000)),
    *(Target(figure, 0.050) for figure in LONG_TURN_NEXT.values()),
]

DAY_TARGETS = [
    Target(DAY_LOST, 0),
    Target(DAY_COMPACTIONS, 3),
    Target(DAY_FAILURES, 0),
    Target(DAY_LEAVE, 2.0),
    Target(DAY_CPU_GROWTH, 1.3),
    Target(DAY_KEPT_GROWTH, 1.5),
]
"""Limits for a day of the coder, on every wire."""
