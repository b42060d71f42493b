"""A run as the tool calls, messages and plan of one turn.

It follows the run's log, so the editor sees what `coupler run` shows and what is kept. A slow editor slows
nobody but itself: the log waits for no follower. Whoever asks something waits until all that happened before
the question is shown.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.ledger import cancelled_meta, text_content
from coupler.agent.text import pieces, whole_text
from coupler.events import Text
from coupler.events import Thought as Thinking
from coupler.permission.action import KINDS
from coupler.schema.v1 import PermissionToolCall, ToolCallLocation
from coupler.workflow.agents.telling import bounded
from coupler.workflow.editor.meta import Meta, Origin
from coupler.workflow.editor.step_plan import StepPlan
from coupler.workflow.journal.happenings import (
    AnyHappening,
    ApprovalAsked,
    ApprovalGiven,
    Noted,
    Place,
    RetryPlanned,
    Said,
    StepFinished,
    StepStarted,
    Thought,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
    Wrote,
)
from coupler.workflow.journal.record import happening_in

if TYPE_CHECKING:
    from coupler.agent.ledger import Ledger
    from coupler.agent.turn import Turn
    from coupler.store.store import Store
    from coupler.workflow.journal.result import Result
    from coupler.workflow.journal.runs import Run
    from coupler.workflow.language.definition import Workflow

STEP_KINDS = {"run": "execute", "agent": "think", "converse": "think"}
"""What kind of tool call a step is; the others are of the kind `other`."""

STATUSES = frozenset({"pending", "in_progress"})
"""Those that an agent's call may be said to have while it goes on."""


@dataclass
class _Step:
    """A step as the editor was told of it."""

    id: str
    title: str
    kind: str
    origin: Origin
    is_started: bool = False
    """Whether it was said to run."""
    is_asked: bool = False
    is_over: bool = False
    messages: dict[type, str] = field(default_factory=dict)
    """The messages that its agent is in the midst of, by their kind."""


class Projection:
    """Of one run, in one turn."""

    def __init__(self, turn: Turn, run: Run, workflow: Workflow) -> None:
        self._turn = turn
        self._outlet = turn.session.outlet
        self._run = run
        self._plan = StepPlan(workflow)
        self._steps: dict[Place, _Step] = {}
        self._calls: dict[str, str] = {}
        self._shown = 0
        self._is_over = False
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []

    async def follow(self, after: int = 0) -> None:
        """Show everything after an entry of the log until the run is over, or the turn is."""
        self._shown = after
        try:
            if self._plan:
                self._send_plan()
            async for logged in self._run.log.follow(after):
                if not self._turn.is_alive:
                    return
                self._show(logged.happening)
                self._note_shown(logged.seq)
                if not self._outlet.has_room():
                    await self._outlet.wait_for_room()
        finally:
            self._is_over = True
            self._note_shown(self._shown)

    async def recall(self, store: Store) -> None:
        """Take up what an earlier turn has shown of the plan."""
        kinds = ("step_started", "step_finished")
        for entry in await store.runs.entries(self._run.id, kinds=kinds, is_whole=True):
            match happening_in(entry.body):
                case StepStarted() as started:
                    self._plan.begin(started)
                case StepFinished(place=Place() as place, result=result):
                    self._plan.end(place, result.status)

    async def until_shown(self) -> None:
        """Wait until everything that has happened by now is shown."""
        seq = self._run.log.seq
        if self._shown < seq and not self._is_over:
            shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((seq, shown))
            await shown

    def call_of(self, place: Place, question: str) -> PermissionToolCall:
        """The tool call of a step, as somebody is asked about it."""
        question = self.mask(question)
        step = self._steps.get(place)
        if step is None:  # what asks was never told: it is asked for all the same
            return PermissionToolCall(f"{self._run.id}/{place}", status="pending", title=question)
        title, _, details = question.partition("\n")
        # Editors show one line of a title, and nobody may agree to what is hidden.
        asked = (text_content(question),) if details else ()
        return PermissionToolCall(
            step.id,
            kind=step.kind,  # type: ignore[arg-type]
            status="pending",
            title=title,
            content=(*asked, *self._ledger.content(step.id)) or UNSET,
            meta=step.origin.as_meta(),
        )

    def mask(self, text: str) -> str:
        """A text of the run as people may see it."""
        return whole_text(self._run.secrecy.masker.mask(text), "a text")

    def _note_shown(self, seq: int) -> None:
        self._shown = seq
        waiting, self._waiting = self._waiting, []
        for wanted, future in waiting:
            if future.done():
                continue
            if self._is_over or wanted <= seq:
                future.set_result(None)
            else:
                self._waiting.append((wanted, future))

    def _show(self, happening: AnyHappening) -> None:
        match happening:
            case Said(place=Place() as place, text=text):
                self._say(Text, place, text)
            case Thought(place=Place() as place, text=text):
                self._say(Thinking, place, text)
            case Wrote(place=Place() as place, text=text):
                self._append(place, text)
            case StepStarted(place=Place()):
                self._begin(happening)
            case StepFinished(place=Place() as place):
                revealed = self._run.secrecy.revealed(happening.result)
                self._end(place, self._run.secrecy.masked(revealed))
            case ToolStarted() | ToolProgressed() | ToolEnded():
                self._show_call(happening)
            case _:
                self._show_rarer(happening)

    def _show_rarer(self, happening: AnyHappening) -> None:
        match happening:
            case RetryPlanned(place=Place() as place):
                self._try_again(place, happening)
            case ApprovalAsked(place=Place() as place, question=question, call=None):
                self._ask(place, question)
            case ApprovalGiven(place=Place() as place, approved=True, call=None):
                self._permit(place)
            case Noted(place=Place() as place, text=text) if self._is_open(place):
                self._append(place, f"{text}\n")
            case Noted(text=text):
                self._send(Text, text, self._outlet.new_message_id())
                self._turn.begin_new_message()

    # Steps

    def _begin(self, started: StepStarted) -> None:
        assert started.place is not None
        step = self._steps.get(started.place)
        if step is not None and not step.is_over:
            self._go_on(step, started)
            return
        parent = self._steps.get(started.parent) if started.parent is not None else None
        origin = Origin(
            run=self._run.id,
            step=str(started.place),
            branch=started.branch,
            iteration=started.iteration,
            attempt=started.attempt,
            parent=None if parent is None else parent.id,
        )
        step = self._announce_step(started, origin)
        self._steps[started.place] = step
        if self._plan.begin(started):
            self._send_plan()
        # What is asked about first is told in the same breath, and then it does not run yet.
        asyncio.get_running_loop().call_soon(self._start, step)

    def _announce_step(self, started: StepStarted, origin: Origin) -> _Step:
        kind = STEP_KINDS.get(started.kind, "other")
        title = whole_text(started.title or started.id, "a title")
        if started.attempt > 1:
            title = f"{title} (attempt {started.attempt} of {started.attempts})"
        known_as = self._announce(f"{self._run.id}/{started.place}", title, kind, origin.as_meta())
        return _Step(known_as, title, kind, origin)

    def _go_on(self, step: _Step, started: StepStarted) -> None:
        """Another attempt at a step."""
        if step.origin.attempt != started.attempt:
            step.origin = msgspec.structs.replace(step.origin, attempt=started.attempt)
            self._ledger.update(step.id, meta=step.origin.as_meta())

    def _start(self, step: _Step) -> None:
        if self._turn.is_alive and not (step.is_asked or step.is_started or step.is_over):
            step.is_started = True
            self._ledger.update(step.id, status="in_progress")

    def _permit(self, place: Place) -> None:
        step = self._steps.get(place)
        if step is not None:
            step.is_asked = False
            self._start(step)

    def _try_again(self, place: Place, planned: RetryPlanned) -> None:
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        step.origin = msgspec.structs.replace(step.origin, attempt=planned.attempt)
        which = f"attempt {planned.attempt} of {planned.attempts}"
        self._append(place, f"\n{planned.error.message}\n{which}, in {planned.delay:g} s\n")
        title = f"{step.title} ({which})"
        self._ledger.update(step.id, status="in_progress", title=title, meta=step.origin.as_meta())

    def _ask(self, place: Place, question: str) -> None:
        step = self._steps.get(place)
        if step is None or step.is_over:
            return
        step.is_asked = True
        if question != step.title:
            self._append(place, f"{question}\n")
        if step.is_started:
            step.is_started = False
            self._ledger.update(step.id, status="pending")

    def _end(self, place: Place, result: Result) -> None:
        step = self._steps.get(place)
        if step is not None and not step.is_over:
            step.is_over = True
            self._settle(step, result)
        if self._plan.end(place, result.status):
            self._send_plan()

    def _settle(self, step: _Step, result: Result) -> None:
        self._begin_new_message(step)
        fields: dict[str, Any] = {} if result.output is UNSET else {"raw_output": bounded(result.output)}
        match result.status:
            case "success" | "skipped":
                self._ledger.settle(step.id, "completed", **fields)
            case "denied":
                self._ledger.settle(step.id, "failed", "denied")
            case "cancelled":
                meta = cancelled_meta(step.origin.as_meta())
                self._ledger.settle(step.id, "failed", "cancelled", meta=meta)
            case _:
                error = result.error
                is_denied = error is not None and error.kind == "denied"
                reason = "denied" if is_denied or error is None else error.message
                self._ledger.settle(step.id, "failed", whole_text(reason, "a reason"), **fields)

    # What agents do in steps

    def _show_call(self, happening: ToolStarted | ToolProgressed | ToolEnded) -> None:
        if isinstance(happening, ToolStarted):
            self._begin_call(happening)
        known_as = self._calls.get(happening.call)
        if known_as is None or isinstance(happening, ToolStarted):
            return
        if happening.text:
            self._ledger.append(known_as, text_content(whole_text(happening.text, "an output")))
        if isinstance(happening, ToolEnded):
            output = UNSET if happening.output is None else happening.output
            self._ledger.settle(known_as, happening.status, raw_output=output)
            del self._calls[happening.call]
            return
        status = happening.status if happening.status in STATUSES else UNSET
        title = whole_text(happening.title, "a title") if happening.title else UNSET
        if status is not UNSET or title is not UNSET:
            self._ledger.update(known_as, status=status, title=title)

    def _begin_call(self, started: ToolStarted) -> None:
        step = self._steps.get(started.place) if started.place is not None else None
        if step is not None:
            self._begin_new_message(step)
            meta = msgspec.structs.replace(step.origin, parent=step.id).as_meta()
        else:
            meta = Origin(run=self._run.id, step=str(started.place or "")).as_meta()
        self._calls[started.call] = self._announce(
            f"{self._run.id}/{started.place}/{started.call}",
            whole_text(started.title or "Tool", "a title"),
            started.kind if started.kind in KINDS else "other",
            meta,
            status="in_progress",
            name=started.name or UNSET,
            raw_input=UNSET if started.input is None else started.input,
            locations=tuple(map(ToolCallLocation, started.locations)) or UNSET,
        )

    def _say(self, kind: type[Text | Thinking], place: Place, text: str) -> None:
        step = self._steps.get(place)
        if step is None:
            return
        if kind not in step.messages:
            # A thought between two texts parts them.
            self._begin_new_message(step)
            step.messages[kind] = self._outlet.new_message_id()
        self._send(kind, text, step.messages[kind])

    def _send(self, kind: type[Text | Thinking], text: str, message_id: str) -> None:
        for piece in pieces(whole_text(text, "a text")):
            self._outlet.send(kind(piece, message_id))

    def _begin_new_message(self, step: _Step) -> None:
        if step.messages:
            step.messages.clear()
            self._turn.begin_new_message()

    # Tool calls

    def _announce(self, id: str, title: str, kind: str, meta: Meta, **fields: Any) -> str:
        """Begin a call under an id that no other call of the session has: a resumed run comes by again."""
        wanted = first = whole_text(id, "an id")
        number = 1
        while self._ledger.knows(wanted):
            number += 1
            wanted = f"{first}+{number}"
        return self._ledger.announce(
            title, id=wanted, kind=kind, meta=meta, **{"status": "pending", **fields}
        )

    def _append(self, place: Place, text: str) -> None:
        step = self._steps.get(place)
        if step is not None and not step.is_over and text:
            self._ledger.append(step.id, text_content(whole_text(text, "an output")))

    def _is_open(self, place: Place) -> bool:
        step = self._steps.get(place)
        return step is not None and not step.is_over

    def _send_plan(self) -> None:
        self._outlet.send(self._plan.as_event())

    @property
    def _ledger(self) -> Ledger:
        return self._outlet.ledger
