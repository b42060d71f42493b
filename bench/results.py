"""What was measured: every value of every round, and the best of them."""

import statistics
from collections import defaultdict

from figures import (
    KEPT_SHARE,
    RECEIVING_COST,
    RECEIVING_GROWTH,
    SENDING_COST,
    SENDING_GROWTH,
    Figure,
)


class Results:
    def __init__(self) -> None:
        self._values: dict[tuple[str, str], list[float]] = defaultdict(list)
        self.failures: list[str] = []

    def add(self, peer: str, figure: Figure, value: float) -> None:
        self._values[peer, figure.name].append(value)

    def best(self, peer: str, figure: Figure) -> float | None:
        """The best value of the rounds; None when the peer has none."""
        if figure is SENDING_GROWTH:
            return self._growth(peer, SENDING_COST)
        if figure is RECEIVING_GROWTH:
            return self._growth(peer, RECEIVING_COST)
        values = self._values.get((peer, figure.name))
        if figure is KEPT_SHARE and values:
            # Each is the ratio of two turns side by side; the best one would only be the luckiest.
            return statistics.median(values)
        return figure.best(values) if values else None

    def ratio(self, peer: str, other: str, figure: Figure) -> float | None:
        """The peer's value as a multiple of the other's."""
        value, base = self.best(peer, figure), self.best(other, figure)
        return value / base if value is not None and base else None

    def _growth(self, peer: str, costs: dict[int, Figure]) -> float | None:
        known = [cost for figure in costs.values() if (cost := self.best(peer, figure)) is not None]
        return known[-1] / min(known) if len(known) > 1 else None
