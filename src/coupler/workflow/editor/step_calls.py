"""Shows the steps of a run as tool calls of a session, and the top-level ones as its plan.

Each step, branch and iteration is announced when it begins. Where a loop goes round too often to be read,
only what people have to see is a call: agents at work, and questions; the rest is a line in the call of its
loop.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

import msgspec
from msgspec import UNSET

from coupler.agent.content import whole_text
from coupler.events import Plan
from coupler.events.fold import text_content
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus, ToolCallLocation
from coupler.workflow.agents.agent_events import bounded
from coupler.workflow.editor.chat_messages import (
    CallOrigin,
    Meta,
    part_line,
    part_number,
    part_title,
    step_call_title,
    with_outcome,
)
from coupler.workflow.engine.front import visible
from coupler.workflow.journal.run_events import (
    AgentEvent,
    ApprovalGiven,
    Happening,
    Place,
    RetryPlanned,
    RunFinished,
    StepFinished,
    StepStarted,
)
from coupler.workflow.language.model import Workflow
from coupler.workflow.steps.kinds import kind_named, kind_of, title_of

if TYPE_CHECKING:
    from coupler.agent.tool_call import Ledger
    from coupler.agent.turn import Turn
    from coupler.workflow.journal.run_events import Failure, PartFinished, PartStarted, Result, Status


MOST_PARTS_OF_BLOCK = 100
"""Most branches or iterations of a step with calls of their own; the others are lines in the step's call."""

MOST_PARTS_OF_TURN = 1000
"""Most branches or iterations with calls of their own in one turn."""

LONGEST_ENTRY = 120
"""Characters of an entry of the plan."""

MOST_PLAN_STEPS = 100
"""Steps that have an entry each; of more, those around the last that has begun or ended.

A plan is always sent whole, and there is one for each step that begins or ends: their length counts twice.
"""

MOST_STEPS_BEFORE = 20
"""Most plan entries before that step."""

_UNKNOWN = re.compile(r"\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
"""Expressions whose values are not known before the step begins."""

_STATUSES = frozenset(get_args(PlanEntryStatus))
_PRIORITIES = frozenset(get_args(PlanEntryPriority))

PartKey = tuple["Place", int | None, int | None]


@dataclass
class StepCall:
    """A step, a branch or an iteration as a tool call, announced or not."""

    wanted_id: str
    name: str
    title: str
    kind: str
    origin: CallOrigin
    around: StepCall | None
    """The call of the step, branch or iteration that contains it."""
    locations: tuple[ToolCallLocation, ...] = ()
    id: str = ""
    """Id of the tool call; empty before it is announced."""
    is_started: bool = False
    """True if it was shown as running."""
    is_asked: bool = False
    is_denied: bool = False
    is_over: bool = False
    is_part: bool = False
    """True if it is a branch or an iteration."""

    def is_in_sight(self) -> bool:
        """Tell whether the step around it was announced."""
        return self.around is None or bool(self.around.id)


class StepCalls:
    """The tool calls of one run in one turn."""

    def __init__(self, turn: Turn, ledger: Ledger, run: str) -> None:
        self._turn = turn
        self._ledger = ledger
        self._run = run
        self._steps: dict[Place, StepCall] = {}
        self._parts: dict[PartKey, StepCall] = {}
        self._parts_told = 0

    def find(self, place: Place | None) -> StepCall | None:
        """Return the call of a step, if it was announced."""
        step = self._steps.get(place) if place is not None else None
        return step if step is not None and step.id else None

    # Steps

    def begin(self, started: StepStarted) -> None:
        """Announce a step that begins, or note another attempt at it."""
        assert started.place is not None
        step = self._steps.get(started.place)
        if step is not None and not step.is_over:
            self._note_attempt(step, started.attempt)
            return
        step = self._steps[started.place] = self._step(started)
        if not step.is_in_sight() and not kind_named(started.kind).is_always_shown:
            return
        self._tell(step)
        # What is asked about first is told in the same breath, and then it does not run yet.
        asyncio.get_running_loop().call_soon(self._start, step)

    def _step(self, started: StepStarted) -> StepCall:
        title = step_call_title(started.id, started.kind, whole_text(started.title or started.id, "a title"))
        if started.attempt > 1:
            title = f"{title} (attempt {started.attempt} of {started.attempts})"
        position = started.position
        return StepCall(
            wanted_id=f"{self._run}/{started.place}",
            name=started.id,
            title=title,
            kind=kind_named(started.kind).call_kind,
            origin=self._origin(started),
            around=self._around(started),
            locations=() if position is None else (ToolCallLocation(position.file, position.line),),
        )

    def _around(self, started: StepStarted) -> StepCall | None:
        if started.parent is None:
            return None
        part = self._parts.get((started.parent, started.branch, started.iteration))
        return part or self._steps.get(started.parent)

    def try_again(self, place: Place, planned: RetryPlanned) -> None:
        """Show that an attempt has failed, and that there will be another."""
        step = self._open(place)
        if step is None:
            return
        which = f"attempt {planned.attempt} of {planned.attempts}"
        self.append(place, f"\n{planned.error.message}\n{which}, in {planned.delay:g} s\n")
        step.origin = msgspec.structs.replace(step.origin, attempt=planned.attempt)
        title = f"{step.title} ({which})"
        self._ledger.update(step.id, status="in_progress", title=title, meta=step.origin.as_meta())

    def ask(self, place: Place, question: str) -> None:
        """Show that somebody is asked about a step: it is announced in any case, and waits."""
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        self._tell(step)
        step.is_asked = True
        if question != step.title:
            self.append(place, f"{question}\n")

    def permit(self, place: Place) -> None:
        """Show that a step was allowed."""
        step = self._steps.get(place)
        if step is not None:
            step.is_asked = False
            self._start(step)

    def deny(self, place: Place) -> None:
        """Note that a step was denied; what becomes of it is shown at its end."""
        step = self._steps.get(place)
        if step is not None:
            step.is_denied = True

    def append(self, place: Place, text: str) -> bool:
        """Show more output of a step; False if it is not shown, or over."""
        step = self._open(place)
        if step is not None and text:
            self._ledger.append(step.id, text_content(whole_text(text, "an output")))
        return step is not None

    def end(self, place: Place, result: Result) -> None:
        """Settle the call of a step that is over."""
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        step.is_over = True
        if not step.id:
            return
        fields: dict[str, Any] = {} if result.output is UNSET else {"raw_output": bounded(result.output)}
        reason = "marked as done" if result.marked_done else None
        self._settle(step, result.status, result.error, fields, reason)

    # Branches and iterations

    def begin_part(self, started: PartStarted) -> None:
        """Announce a branch or an iteration that begins."""
        assert started.place is not None
        block = self._steps.get(started.place)
        attempt = "" if started.attempt == 1 else f"~{started.attempt}"
        number = part_number(started)
        part = StepCall(
            wanted_id=f"{self._run}/{started.place}{attempt}[{number}]",
            name=str(number),
            title=part_title(block.name if block is not None else started.place.path, started),
            kind="other",
            origin=self._origin(started),
            around=block,
            is_part=True,
        )
        self._parts[started.place, started.branch, started.iteration] = part
        if part.is_in_sight() and number < MOST_PARTS_OF_BLOCK and self._parts_told < MOST_PARTS_OF_TURN:
            self._tell(part)

    def end_part(self, finished: PartFinished) -> None:
        """Settle the call of a branch or an iteration, or write a line in the call around it."""
        assert finished.place is not None
        part = self._parts.get((finished.place, finished.branch, finished.iteration))
        if part is None or part.is_over:
            return
        part.is_over = True
        if part.id:
            self._settle(part, finished.status, finished.error, {})
        else:
            self.append(finished.place, part_line(part.title, finished))

    def park(self) -> None:
        """Settle all open calls, because the run waits for the user; they are announced again on resume."""
        for call in reversed([*self._parts.values(), *self._steps.values()]):
            if call.id and not call.is_over:
                call.is_over = True
                meta = with_outcome(call.origin.as_meta(), "parked")
                self._ledger.settle(call.id, "completed", "waits for you", meta=meta)

    # Tool calls

    def announce(self, id: str, title: str, kind: str, meta: Meta, **fields: Any) -> str:
        """Begin a call under an id that is new in the session: a resumed run announces steps again."""
        wanted = first = whole_text(id, "an id")
        number = 1
        while self._ledger.knows(wanted):
            number += 1
            wanted = f"{first}+{number}"
        return self._ledger.announce(
            title, id=wanted, kind=kind, meta=meta, **{"status": "pending", **fields}
        )

    def _origin(self, started: StepStarted | PartStarted) -> CallOrigin:
        return CallOrigin(
            run=self._run,
            step=str(started.place),
            branch=started.branch,
            iteration=started.iteration,
            attempt=started.attempt,
        )

    def _tell(self, call: StepCall) -> None:
        """Announce a call, and those that contain it, unless they are announced already."""
        if call.id:
            return
        if call.around is not None:
            self._tell(call.around)
            self._start(call.around)
            call.origin = msgspec.structs.replace(call.origin, parent=call.around.id)
        self._parts_told += call.is_part
        call.is_started = call.is_part
        call.id = self.announce(
            call.wanted_id,
            call.title,
            call.kind,
            call.origin.as_meta(),
            status="in_progress" if call.is_part else "pending",
            locations=call.locations or UNSET,
        )

    def _start(self, step: StepCall) -> None:
        if not self._turn.is_alive or not step.id:
            return
        if not (step.is_asked or step.is_started or step.is_over):
            step.is_started = True
            self._ledger.update(step.id, status="in_progress")

    def _note_attempt(self, step: StepCall, attempt: int) -> None:
        if step.origin.attempt != attempt:
            step.origin = msgspec.structs.replace(step.origin, attempt=attempt)
            if step.id:
                self._ledger.update(step.id, meta=step.origin.as_meta())

    def _settle(
        self,
        call: StepCall,
        status: Status,
        error: Failure | None,
        fields: dict[str, Any],
        reason: str | None = None,
    ) -> None:
        match status:
            case "success":
                self._ledger.settle(call.id, "completed", reason, **fields)
            case "skipped":
                self._ledger.settle(call.id, "completed", "skipped")
            case "denied":
                self._ledger.settle(call.id, "failed", "denied")
            case "cancelled" if call.is_denied:
                # The run ends here, because somebody wanted that.
                self._ledger.settle(call.id, "failed", "denied")
            case "cancelled":
                meta = with_outcome(call.origin.as_meta(), "cancelled")
                self._ledger.settle(call.id, "failed", "cancelled", meta=meta)
            case "failed":
                reason = "denied" if error is None or error.kind == "denied" else error.message
                self._ledger.settle(call.id, "failed", whole_text(reason, "a reason"), **fields)

    def _open(self, place: Place) -> StepCall | None:
        step = self.find(place)
        return step if step is not None and not step.is_over else None


class StepPlan:
    """The plan of a turn: the top-level steps of a workflow, and below each what its agents plan.

    A client knows one plan, which is always sent whole. So an agent's plan has a place in it while its step
    lasts.
    """

    def __init__(self, workflow: Workflow) -> None:
        self._titles = {
            step.id: _line(step_call_title(step.id, kind_of(step).name, _UNKNOWN.sub("…", title_of(step))))
            for step in workflow.steps
        }
        self._numbers = {step: number for number, step in enumerate(self._titles)}
        self._last = 0
        """The number of the step that has begun or ended last."""
        self._statuses: dict[str, PlanEntryStatus] = dict.fromkeys(self._titles, "pending")
        self._marks: dict[str, str] = {}
        """How steps ended that did not just succeed, to be told in words: in a plan they are completed."""
        self._of_agents: dict[Place, tuple[PlanEntry, ...]] = {}
        self._denied: set[Place] = set()
        """Steps that somebody rejected, so that they are not shown as merely cancelled."""

    def __bool__(self) -> bool:
        return bool(self._titles)

    def learn(self, event: Happening) -> bool:
        """Take in an event of the run; returns whether it changes the plan."""
        match event:
            case StepStarted(place=Place() as place):
                return self._begin(place, step_call_title(event.id, event.kind, event.title))
            case ApprovalGiven(place=Place() as place, approved=approved, call=None):
                (self._denied.discard if approved else self._denied.add)(place)
                return False
            case StepFinished(place=Place() as place, result=result):
                is_changed = self._of_agents.pop(place, None) is not None
                return self._end(place, result) or is_changed
            case RetryPlanned(place=Place() as place):
                return self._of_agents.pop(place, None) is not None
            case AgentEvent(place=Place() as place, event=Plan(entries)):
                self._of_agents[place] = tuple(_entries_of(place, entries))
                return True
            case RunFinished(status="success"):
                return self._leave_out()
        return False

    def as_event(self) -> Plan:
        """Return the whole plan."""
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
        if status != "success" or result.marked_done:
            self._marks[place.path] = "marked as done" if result.marked_done else status
        return True

    def _leave_out(self) -> bool:
        """Mark the steps that a successful run left out, by a `goto` or a `stop`, as skipped."""
        left = [step for step, status in self._statuses.items() if status == "pending"]
        self._statuses.update(dict.fromkeys(left, "completed"))
        self._marks.update(dict.fromkeys(left, "skipped"))
        return bool(left)

    def _entries(self) -> Iterator[PlanEntry]:
        below: dict[str, list[PlanEntry]] = {}
        for place, entries in self._of_agents.items():
            below.setdefault(_outermost(place), []).extend(entries)
        steps = [*self._titles]
        start = max(min(self._last - MOST_STEPS_BEFORE, len(steps) - MOST_PLAN_STEPS), 0)
        end = start + MOST_PLAN_STEPS
        yield from self._sum_of(steps[:start], "before")
        for step in steps[start:end]:
            yield PlanEntry(self._words(step), "medium", self._statuses[step])
            yield from below.pop(step, ())
        yield from self._sum_of(steps[end:], "more")
        for entries_beside in below.values():
            yield from entries_beside

    def _sum_of(self, steps: Sequence[str], which: str) -> Iterator[PlanEntry]:
        """Yield one entry that stands for these steps, if there are any."""
        if steps:
            is_done = all(self._statuses[step] == "completed" for step in steps)
            status: PlanEntryStatus = "completed" if is_done else "pending"
            yield PlanEntry(f"… {len(steps):,} {which}", "medium", status)

    def _words(self, id: str) -> str:
        return f"{self._titles[id]} ({self._marks[id]})" if id in self._marks else self._titles[id]


def _entries_of(place: Place, entries: Iterable[PlanEntry]) -> Iterator[PlanEntry]:
    """An agent's plan entries, each with its step; unknown statuses and priorities become the usual ones."""
    for entry in entries:
        yield PlanEntry(
            _line(f"{place}: {entry.content}"),
            entry.priority if entry.priority in _PRIORITIES else "medium",
            entry.status if entry.status in _STATUSES else "pending",
        )


def _outermost(place: Place) -> str:
    """The id of the top-level step that a step is, or is inside of."""
    return re.split(r"[.\[/~#]", place.path, maxsplit=1)[0]


def _line(text: str) -> str:
    line = visible(" ".join(text.split())) or "step"
    return line if len(line) <= LONGEST_ENTRY else f"{line[: LONGEST_ENTRY - 1]}…"
