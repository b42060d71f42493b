"""Defines an attack's input and its outcome: tries, failures with what repeats them, worst figures."""

from __future__ import annotations

import random
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

MOST_FAILURES = 10
"""An attack that has failed so often has shown what it can show."""

LONGEST_ERROR = 1500
"""Characters of an error that are told."""

Run = Callable[["Effort", "Outcome"], None]


@dataclass(frozen=True)
class Attack:
    """One kind of attack; `usual` and `short` are how many tries it makes unless told otherwise."""

    name: str
    run: Run
    unit: str
    usual: int
    short: int
    promise: str


@dataclass
class Effort:
    """Limits an attack and gives it random numbers: the same seed and number make the same try."""

    seed: int
    most: int
    place: Path
    seconds: float | None = None
    is_short: bool = False
    began: float = field(default_factory=time.monotonic)

    def chance(self, name: str) -> random.Random:
        """The chance of one try, whatever was tried before."""
        return random.Random(f"{self.seed}/{name}")

    @property
    def is_over(self) -> bool:
        return self.seconds is not None and time.monotonic() - self.began > self.seconds

    def left(self, outcome: Outcome) -> int:
        """How many tries are left; none when the time is over or enough has failed."""
        if self.is_over or len(outcome.failures) >= MOST_FAILURES:
            return 0
        return max(0, self.most - outcome.tries)

    def numbers(self, outcome: Outcome) -> Iterator[int]:
        """The numbers of tries that are counted one by one."""
        while self.left(outcome):
            yield outcome.tries
            outcome.tries += 1

    def directory(self, name: str) -> Path:
        """An empty directory for one try."""
        path = self.place / name
        path.mkdir(parents=True)
        return path


@dataclass
class Outcome:
    """What came of an attack."""

    tries: int = 0
    failures: list[str] = field(default_factory=list)
    figures: dict[str, tuple[float, str]] = field(default_factory=dict)
    seconds: float = 0.0

    def fail(self, what: str, reproduction: str = "") -> None:
        self.failures.append(f"{what}\n{reproduction}".strip())

    def fail_by(self, error: Exception, what: str, reproduction: str) -> None:
        """A failed assertion, with the line it is in."""
        frame = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(frame.filename).name}:{frame.lineno}: {frame.line}"
        self.fail(f"{what}: {type(error).__name__}: {str(error)[:LONGEST_ERROR]} ({place})", reproduction)

    def worst(self, name: str, value: float, unit: str) -> None:
        """Keep a figure if it is the largest of its name."""
        if name not in self.figures or value > self.figures[name][0]:
            self.figures[name] = (value, unit)

    def count(self, name: str, more: float) -> None:
        """Add to a figure."""
        self.figures[name] = (self.figures.get(name, (0.0, ""))[0] + more, "")

    @property
    def shown_figures(self) -> str:
        return ", ".join(
            f"{name} {_rounded(value)} {unit}".strip() for name, (value, unit) in self.figures.items()
        )


def _rounded(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"
