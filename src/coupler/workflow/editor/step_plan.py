"""The plan of a turn: the top-level steps of a workflow, and below each what its agents plan themselves.

A client knows one plan, and each is told whole. So an agent's plan takes a place in it while its step lasts.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import get_args

from coupler.events import Plan
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus
from coupler.workflow.editor.wording import title_of_step
from coupler.workflow.engine.interpreter import kind_of
from coupler.workflow.engine.titles import plain_title, visible
from coupler.workflow.journal.happenings import (
    ApprovalGiven,
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

MOST_STEPS = 100
"""Steps that have an entry each; of more it is those around the last that has begun or ended.

Each plan is told whole, and there is one for each step that begins or ends: their length counts twice.
"""

MOST_BEFORE = 20
"""How many of these stand before it, if there are more."""

_UNKNOWN = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
"""What is not known before its step begins, and is no text to read."""

_STATUSES = frozenset(get_args(PlanEntryStatus))
_PRIORITIES = frozenset(get_args(PlanEntryPriority))


class StepPlan:
    """Changes with its steps; each change is told as the whole plan."""

    def __init__(self, workflow: Workflow) -> None:
        self._titles = {
            step.id: _line(title_of_step(step.id, kind_of(step), _UNKNOWN.sub("…", plain_title(step))))
            for step in workflow.steps
        }
        self._numbers = {step: number for number, step in enumerate(self._titles)}
        self._last = 0
        """The number of the step that has begun or ended last."""
        self._statuses: dict[str, PlanEntryStatus] = dict.fromkeys(self._titles, "pending")
        self._marks: dict[str, Status] = {}
        """How steps ended that did not end well: for a plan they are completed, so words have to tell it."""
        self._of_agents: dict[Place, tuple[PlanEntry, ...]] = {}
        self._denied: set[Place] = set()
        """Steps that somebody said no to: one that ends the run by that was not merely cancelled."""

    def __bool__(self) -> bool:
        return bool(self._titles)

    def learn(self, happening: Happening) -> bool:
        """Something happens in the run; whether that changes the plan."""
        match happening:
            case StepStarted(place=Place() as place):
                return self._begin(place, title_of_step(happening.id, happening.kind, happening.title))
            case ApprovalGiven(place=Place() as place, approved=approved, call=None):
                (self._denied.discard if approved else self._denied.add)(place)
                return False
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
        self._last = self._numbers[place.path]
        self._titles[place.path] = _line(title)
        self._statuses[place.path] = "in_progress"
        self._marks.pop(place.path, None)
        return True

    def _end(self, place: Place, result: Result) -> bool:
        if place.path not in self._titles:
            return False
        self._last = self._numbers[place.path]
        self._statuses[place.path] = "completed"
        is_denied = place in self._denied or (result.error is not None and result.error.kind == "denied")
        status: Status = "denied" if is_denied else result.status
        if status != "success":
            self._marks[place.path] = status
        return True

    def _leave_out(self) -> bool:
        """All went well without these: a `goto` went past them, or a `stop` came before them."""
        left = [step for step, status in self._statuses.items() if status == "pending"]
        self._statuses.update(dict.fromkeys(left, "completed"))
        self._marks.update(dict.fromkeys(left, "skipped"))
        return bool(left)

    def _entries(self) -> Iterator[PlanEntry]:
        below: dict[str, list[PlanEntry]] = {}
        for place, entries in self._of_agents.items():
            below.setdefault(_outermost(place), []).extend(entries)
        steps = [*self._titles]
        start = max(min(self._last - MOST_BEFORE, len(steps) - MOST_STEPS), 0)
        end = start + MOST_STEPS
        yield from self._sum_of(steps[:start], "before")
        for step in steps[start:end]:
            yield PlanEntry(self._words(step), "medium", self._statuses[step])
            yield from below.pop(step, ())
        yield from self._sum_of(steps[end:], "more")
        for entries_beside in below.values():
            yield from entries_beside

    def _sum_of(self, steps: Sequence[str], which: str) -> Iterator[PlanEntry]:
        """One entry for steps that have none."""
        if steps:
            is_done = all(self._statuses[step] == "completed" for step in steps)
            status: PlanEntryStatus = "completed" if is_done else "pending"
            yield PlanEntry(f"… {len(steps):,} {which}", "medium", status)

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
    line = visible(" ".join(text.split())) or "step"
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 1]}…"
