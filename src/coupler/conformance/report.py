"""Holds the results of an examination, one an assertion, and the verdict over all of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from coupler.conformance.assertion import Assertion, Level
from coupler.recording.traces import Side, Trace, TraceEntry

ResultOutcome: TypeAlias = Literal["passed", "failed", "skipped"]

Standing: TypeAlias = Literal["failed", "warned", "noted", "passed", "skipped"]
"""The outcome of a result, with what failed as its level weighs it."""

STANDINGS: dict[Level, Standing] = {Level.MUST: "failed", Level.SHOULD: "warned", Level.TASTE: "noted"}

ORDER: tuple[Standing, ...] = ("failed", "warned", "noted", "passed", "skipped")
"""All standings, the gravest first."""

NEEDED_FIRST = ("A08", "A01", "A02", "A12", "A21", "A41", "A44", "X01", "X03", "X04")
"""Assertions that nothing else works without, in the order in which a peer meets them."""

SHOWN_ENTRIES = 40
SHOWN_CHARACTERS = 2_000
"""Most messages of a failure that are shown, and most characters of each."""


@dataclass(frozen=True)
class ReportFrame:
    """A line as a report shows it, cut if it is long. `is_cause` marks what a finding is about."""

    at: float
    sender: Side
    text: str
    is_cause: bool = False


@dataclass(frozen=True)
class AssertionResult:
    """The result of one assertion. `level` may be milder than the assertion's own."""

    assertion: Assertion
    outcome: ResultOutcome
    level: Level
    message: str = ""
    notes: tuple[str, ...] = ()
    frames: tuple[ReportFrame, ...] = ()
    stderr: str = ""
    seconds: float = 0.0

    @property
    def standing(self) -> Standing:
        return STANDINGS[self.level] if self.outcome == "failed" else self.outcome

    @property
    def is_mandatory_failure(self) -> bool:
        return self.standing == "failed"


@dataclass
class ConformanceReport:
    """The results of one examination, in the order of their ids.

    `obstacle` says why whole parts of the protocol were out of reach, such as all that needs a session.
    """

    subject: str
    side: Side
    results: list[AssertionResult] = field(default_factory=list)
    seconds: float = 0.0
    obstacle: str = ""

    @property
    def has_judged(self) -> bool:
        """True if anything was judged at all."""
        return any(result.outcome != "skipped" for result in self.results)

    @property
    def fails(self) -> bool:
        """True if a mandatory assertion fails."""
        return any(result.is_mandatory_failure for result in self.results)

    @property
    def is_obstructed(self) -> bool:
        """True if something was skipped and whole parts of the protocol were out of reach."""
        return bool(self.obstacle) and any(result.outcome == "skipped" for result in self.results)

    @property
    def passes(self) -> bool:
        """True if everything wanted was within reach, something was judged, and nothing mandatory fails."""
        return self.has_judged and not self.fails and not self.is_obstructed

    def count(self) -> dict[str, int]:
        """Count the results by their standing."""
        counts = Counter(result.standing for result in self.results)
        return {name: counts[name] for name in ("passed", "failed", "warned", "noted", "skipped")}

    def with_standing(self, standing: Standing) -> list[AssertionResult]:
        """Return the results of one standing; of faults those first that nothing else works without."""
        found = [result for result in self.results if result.standing == standing]
        if standing not in STANDINGS.values():
            return found
        return sorted(found, key=lambda result: _place(result.assertion.id))

    def verdict(self) -> str:
        """Return the verdict on one line, for a badge or a log."""
        counts = self.count()
        parts = ", ".join(f"{number} {name}" for name, number in counts.items() if number)
        return f"ACP v1 {self.side}: {self._word()} ({parts})"

    def _word(self) -> str:
        if self.fails:
            return "does not conform"
        if not self.has_judged:
            return "nothing was judged"
        return "was judged only in part" if self.is_obstructed else "conforms"


def _place(id: str) -> int:
    return NEEDED_FIRST.index(id) if id in NEEDED_FIRST else len(NEEDED_FIRST)


def frames_of(trace: Trace, causes: tuple[TraceEntry, ...] = ()) -> tuple[ReportFrame, ...]:
    """Return the messages that explain a failure: the causes, and what was said around and before them."""
    last = max((entry.number for entry in causes), default=len(trace.entries) - 1)
    shown = trace.entries[max(0, last + 1 - SHOWN_ENTRIES) : last + 3]
    shown = [entry for entry in causes if entry not in shown] + shown
    return tuple(ReportFrame(entry.at, entry.sender, _text(entry), entry in causes) for entry in shown)


def _text(entry: TraceEntry) -> str:
    text = entry.line.decode(errors="backslashreplace")
    if len(text) > SHOWN_CHARACTERS:
        text = f"{text[:SHOWN_CHARACTERS]}… ({len(entry.line)} bytes)"
    return text
