"""The top-level steps of a workflow as the plan of a turn."""

from __future__ import annotations

from coupler.events import Plan
from coupler.schema.v1 import PlanEntry, PlanEntryStatus
from coupler.workflow.engine.titles import plain_title
from coupler.workflow.journal.happenings import Place, StepStarted
from coupler.workflow.journal.result import Status
from coupler.workflow.language.definition import Workflow

LONGEST = 120
"""Characters of an entry."""

MARKS: dict[Status, str] = {
    "skipped": "skipped",
    "denied": "denied",
    "failed": "failed",
    "cancelled": "cancelled",
}
"""Plans know no other ends than completed: the others are told in words."""


class StepPlan:
    """Changes with its steps; each change is told as the whole plan."""

    def __init__(self, workflow: Workflow) -> None:
        self._titles = {step.id: _line(plain_title(step)) for step in workflow.steps}
        self._statuses: dict[str, PlanEntryStatus] = dict.fromkeys(self._titles, "pending")
        self._marks: dict[str, str] = {}

    def __bool__(self) -> bool:
        return bool(self._titles)

    def begin(self, started: StepStarted) -> bool:
        """A step begins; False if it is none of these."""
        if started.place is None or not self.has(started.place):
            return False
        self._titles[started.place.path] = _line(started.title)
        self._marks.pop(started.place.path, None)
        return self._change(started.place.path, "in_progress")

    def end(self, place: Place, status: Status) -> bool:
        """A step is over; False if it is none of these."""
        if not self.has(place):
            return False
        if status in MARKS:
            self._marks[place.path] = MARKS[status]
        return self._change(place.path, "completed")

    def has(self, place: Place) -> bool:
        return place.path in self._titles

    def as_event(self) -> Plan:
        """All of it."""
        return Plan(
            tuple(PlanEntry(self._words(step), "medium", self._statuses[step]) for step in self._titles)
        )

    def _words(self, id: str) -> str:
        return f"{self._titles[id]} ({self._marks[id]})" if id in self._marks else self._titles[id]

    def _change(self, id: str, status: PlanEntryStatus) -> bool:
        self._statuses[id] = status
        return True


def _line(text: str) -> str:
    line = " ".join(text.split()) or "step"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
