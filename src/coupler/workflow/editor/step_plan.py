"""The plan of a turn: the top-level steps of a workflow, and below each what its agents plan themselves.

A client knows one plan, and each is told whole. So an agent's plan takes a place in it while its step lasts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from coupler.events import Plan
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus
from coupler.workflow.engine.titles import plain_title
from coupler.workflow.journal.happenings import (
    Happening,
    Place,
    Planned,
    RetryPlanned,
    RunFinished,
    StepFinished,
    StepStarted,
)
from coupler.workflow.journal.result import Result, Status
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

_STATUSES = frozenset(get_args(PlanEntryStatus))
_PRIORITIES = frozenset(get_args(PlanEntryPriority))


class StepPlan:
    """Changes with its steps; each change is told as the whole plan."""

    def __init__(self, workflow: Workflow) -> None:
        self._titles = {step.id: _line(plain_title(step)) for step in workflow.steps}
        self._statuses: dict[str, PlanEntryStatus] = dict.fromkeys(self._titles, "pending")
        self._marks: dict[str, str] = {}
        self._of_agents: dict[Place, tuple[PlanEntry, ...]] = {}

    def __bool__(self) -> bool:
        return bool(self._titles)

    def learn(self, happening: Happening) -> bool:
        """Something happens in the run; whether that changes the plan."""
        match happening:
            case StepStarted(place=Place() as place, title=title):
                return self._begin(place, title)
            case StepFinished(place=Place() as place, result=result):
                is_changed = self._of_agents.pop(place, None) is not None
                return self._end(place, result) or is_changed
            case RetryPlanned(place=Place() as place):
                return self._of_agents.pop(place, None) is not None
            case Planned(place=Place() as place, entries=entries):
                self._of_agents[place] = tuple(_entries_of(place, entries))
                return True
            case RunFinished(status="success"):
                return self._leave_out()
        return False

    def as_event(self) -> Plan:
        """All of it."""
        return Plan(tuple(self._entries()))

    def _begin(self, place: Place, title: str) -> bool:
        if place.path not in self._titles:
            return False
        self._titles[place.path] = _line(title)
        self._statuses[place.path] = "in_progress"
        self._marks.pop(place.path, None)
        return True

    def _end(self, place: Place, result: Result) -> bool:
        if place.path not in self._titles:
            return False
        self._statuses[place.path] = "completed"
        is_denied = result.error is not None and result.error.kind == "denied"
        status = "denied" if is_denied else result.status
        if status in MARKS:
            self._marks[place.path] = MARKS[status]
        return True

    def _leave_out(self) -> bool:
        """All went well without these: a `goto` went past them, or a `stop` came before them."""
        left = [step for step, status in self._statuses.items() if status == "pending"]
        self._statuses.update(dict.fromkeys(left, "completed"))
        self._marks.update(dict.fromkeys(left, MARKS["skipped"]))
        return bool(left)

    def _entries(self) -> Iterator[PlanEntry]:
        below: dict[str, list[PlanEntry]] = {}
        for place, entries in self._of_agents.items():
            below.setdefault(_outermost(place), []).extend(entries)
        for step in self._titles:
            yield PlanEntry(self._words(step), "medium", self._statuses[step])
            yield from below.pop(step, ())
        for entries_beside in below.values():
            yield from entries_beside

    def _words(self, id: str) -> str:
        return f"{self._titles[id]} ({self._marks[id]})" if id in self._marks else self._titles[id]


def _entries_of(place: Place, entries: Iterable[Mapping[str, str]]) -> Iterator[PlanEntry]:
    """What an agent plans, each with the step that it works in; words that no plan has are taken as usual."""
    for entry in entries:
        status, priority = entry.get("status"), entry.get("priority")
        yield PlanEntry(
            _line(f"{place}: {entry.get('content', '')}"),
            priority if priority in _PRIORITIES else "medium",  # type: ignore[arg-type]
            status if status in _STATUSES else "pending",  # type: ignore[arg-type]
        )


def _outermost(place: Place) -> str:
    """The id of the top-level step that a step is, or is inside of."""
    return re.split(r"[.\[/~#]", place.path, maxsplit=1)[0]


def _line(text: str) -> str:
    line = " ".join(text.split()) or "step"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
