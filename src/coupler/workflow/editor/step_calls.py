"""The steps of a run as tool calls of a session, and between them the branches and iterations they are in.

Each is announced when it begins. Only of what goes round too often to be read, a call is made of what people
have to see: agents at work, and questions; the rest is a line in the call of its loop.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.content import whole_text
from coupler.agent.tool_call import text_content
from coupler.schema.v1 import ToolCallLocation
from coupler.workflow.agents.telling import bounded
from coupler.workflow.editor.meta import Meta, Origin, with_outcome
from coupler.workflow.editor.wording import line_of_part, number_of, title_of_part, title_of_step

if TYPE_CHECKING:
    from coupler.agent.tool_call import Ledger
    from coupler.agent.turn import Turn
    from coupler.workflow.journal.happenings import (
        PartFinished,
        PartStarted,
        Place,
        RetryPlanned,
        StepStarted,
    )
    from coupler.workflow.journal.result import Failure, Result, Status

KINDS = {"run": "execute", "agent": "think", "converse": "think"}
"""What kind of tool call a step is; the others are of the kind `other`."""

FOR_PEOPLE = frozenset({"agent", "converse", "approve", "ask"})
"""Steps that are calls of their own however often they come."""

MOST_OF_BLOCK = 100
"""Branches or iterations of one step that are calls of their own; the others are lines in its call."""

MOST_OF_TURN = 1000
"""The same of all steps in one turn."""


@dataclass
class StepCall:
    """A step, a branch or an iteration, as the editor was told of it, or may be."""

    wanted_id: str
    name: str
    title: str
    kind: str
    origin: Origin
    around: StepCall | None
    """What it is inside of."""
    locations: tuple[ToolCallLocation, ...] = ()
    id: str = ""
    """Empty: it was not announced."""
    is_started: bool = False
    """Whether it was said to run."""
    is_asked: bool = False
    is_denied: bool = False
    is_over: bool = False
    is_part: bool = False
    """Whether it is a branch or an iteration."""

    def is_in_sight(self) -> bool:
        """Whether what it is inside of was announced."""
        return self.around is None or bool(self.around.id)


PartKey = tuple["Place", int | None, int | None]


class StepCalls:
    """Of one run, in one turn."""

    def __init__(self, turn: Turn, ledger: Ledger, run: str) -> None:
        self._turn = turn
        self._ledger = ledger
        self._run = run
        self._steps: dict[Place, StepCall] = {}
        self._parts: dict[PartKey, StepCall] = {}
        self._parts_told = 0

    def find(self, place: Place | None) -> StepCall | None:
        """The call of a step, if it was told of."""
        step = self._steps.get(place) if place is not None else None
        return step if step is not None and step.id else None

    # Steps

    def begin(self, started: StepStarted) -> None:
        """A step begins, or another attempt at one."""
        assert started.place is not None
        step = self._steps.get(started.place)
        if step is not None and not step.is_over:
            self._note_attempt(step, started.attempt)
            return
        step = self._steps[started.place] = self._step(started)
        if not step.is_in_sight() and started.kind not in FOR_PEOPLE:
            return
        self._tell(step)
        # What is asked about first is told in the same breath, and then it does not run yet.
        asyncio.get_running_loop().call_soon(self._start, step)

    def _step(self, started: StepStarted) -> StepCall:
        title = title_of_step(started.id, started.kind, whole_text(started.title or started.id, "a title"))
        if started.attempt > 1:
            title = f"{title} (attempt {started.attempt} of {started.attempts})"
        position = started.position
        return StepCall(
            wanted_id=f"{self._run}/{started.place}",
            name=started.id,
            title=title,
            kind=KINDS.get(started.kind, "other"),
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
        """An attempt has failed, and there will be another."""
        step = self._open(place)
        if step is None:
            return
        which = f"attempt {planned.attempt} of {planned.attempts}"
        self.append(place, f"\n{planned.error.message}\n{which}, in {planned.delay:g} s\n")
        step.origin = msgspec.structs.replace(step.origin, attempt=planned.attempt)
        title = f"{step.title} ({which})"
        self._ledger.update(step.id, status="in_progress", title=title, meta=step.origin.as_meta())

    def ask(self, place: Place, question: str) -> None:
        """Somebody is asked about a step: whatever it is, it is in sight now, and waits."""
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        self._tell(step)
        step.is_asked = True
        if question != step.title:
            self.append(place, f"{question}\n")
        if step.is_started:
            step.is_started = False
            self._ledger.update(step.id, status="pending")

    def permit(self, place: Place) -> None:
        """Somebody said yes to it."""
        step = self._steps.get(place)
        if step is not None:
            step.is_asked = False
            self._start(step)

    def deny(self, place: Place) -> None:
        """Somebody said no to it; what becomes of it by that is told with its end."""
        step = self._steps.get(place)
        if step is not None:
            step.is_denied = True

    def append(self, place: Place, text: str) -> bool:
        """Show something more of a step; False if that is not shown, or over."""
        step = self._open(place)
        if step is not None and text:
            self._ledger.append(step.id, text_content(whole_text(text, "an output")))
        return step is not None

    def end(self, place: Place, result: Result) -> None:
        """A step is over."""
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        step.is_over = True
        if not step.id:
            return
        fields: dict[str, Any] = {} if result.output is UNSET else {"raw_output": bounded(result.output)}
        self._settle(step, result.status, result.error, fields)

    # Branches and iterations

    def begin_part(self, started: PartStarted) -> None:
        """A branch or an iteration begins."""
        assert started.place is not None
        block = self._steps.get(started.place)
        attempt = "" if started.attempt == 1 else f"~{started.attempt}"
        number = number_of(started)
        part = StepCall(
            wanted_id=f"{self._run}/{started.place}{attempt}[{number}]",
            name=str(number),
            title=title_of_part(block.name if block is not None else started.place.path, started),
            kind="other",
            origin=self._origin(started),
            around=block,
            is_part=True,
        )
        self._parts[started.place, started.branch, started.iteration] = part
        if part.is_in_sight() and number < MOST_OF_BLOCK and self._parts_told < MOST_OF_TURN:
            self._tell(part)

    def end_part(self, finished: PartFinished) -> None:
        """It is over."""
        assert finished.place is not None
        part = self._parts.get((finished.place, finished.branch, finished.iteration))
        if part is None or part.is_over:
            return
        part.is_over = True
        if part.id:
            self._settle(part, finished.status, finished.error, {})
        else:
            self.append(finished.place, line_of_part(part.title, finished))

    def park(self) -> None:
        """The turn ends before these do: the run waits for somebody, and then they come again."""
        for call in reversed([*self._parts.values(), *self._steps.values()]):
            if call.id and not call.is_over:
                call.is_over = True
                meta = with_outcome(call.origin.as_meta(), "parked")
                self._ledger.settle(call.id, "completed", "waits for you", meta=meta)

    # Tool calls

    def announce(self, id: str, title: str, kind: str, meta: Meta, **fields: Any) -> str:
        """Begin a call under an id that no other call of the session has: a resumed run comes by again."""
        wanted = first = whole_text(id, "an id")
        number = 1
        while self._ledger.knows(wanted):
            number += 1
            wanted = f"{first}+{number}"
        return self._ledger.announce(
            title, id=wanted, kind=kind, meta=meta, **{"status": "pending", **fields}
        )

    def _origin(self, started: StepStarted | PartStarted) -> Origin:
        return Origin(
            run=self._run,
            step=str(started.place),
            branch=started.branch,
            iteration=started.iteration,
            attempt=started.attempt,
        )

    def _tell(self, call: StepCall) -> None:
        """Announce it, unless that is done, and before it what it is inside of."""
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

    def _settle(self, call: StepCall, status: Status, error: Failure | None, fields: dict[str, Any]) -> None:
        match status:
            case "success":
                self._ledger.settle(call.id, "completed", **fields)
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
