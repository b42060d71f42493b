"""Shows a run as the tool calls, messages and plan of one turn.

It follows the run's log, so the editor sees what `coupler run` shows and what is kept. A slow editor slows
nobody but itself: the log waits for no follower. Whoever asks something waits until all that happened before
the question is shown.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import UNSET

from coupler.agent.content import pieces, whole_text
from coupler.events import Text, Thought, ToolCall, ToolOutput, ToolUpdate
from coupler.events.events import OPEN_STATUSES, plain_text_of
from coupler.events.fold import text_content
from coupler.permission.action import KINDS
from coupler.schema.v1 import Diff, PermissionToolCall, ToolCallContent
from coupler.workflow.editor.chat_messages import CallOrigin, Meta, with_outcome
from coupler.workflow.editor.step_calls import StepCalls, StepPlan
from coupler.workflow.engine.front import visible
from coupler.workflow.journal.run_events import (
    AgentEvent,
    AnyHappening,
    ApprovalAsked,
    ApprovalGiven,
    Noted,
    PartFinished,
    PartStarted,
    Place,
    RetryPlanned,
    StepFinished,
    StepStarted,
    Wrote,
)

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.workflow.journal.runs import OpenRun
    from coupler.workflow.language.model import Workflow


ENDED_STATUSES = frozenset({"completed", "failed"})

SPEAKER_PAUSE = 1.0
"""Seconds without text after which another agent may speak."""

MessageType = type[Text | Thought]


class RunProjection:
    """Shows one run in one turn."""

    def __init__(self, turn: Turn, run: OpenRun, workflow: Workflow) -> None:
        self._turn = turn
        self._outlet = turn.session.outlet
        self._ledger = turn.session.outlet.ledger
        self._run = run
        self._plan = StepPlan(workflow)
        self._steps = StepCalls(turn, self._ledger, run.id)
        self._calls: dict[str, tuple[str, Meta]] = {}
        """The ids of agents' calls here, with their `_meta`, by their names in the run."""
        self._messages = AgentMessages(turn)
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
            if self._turn.is_alive:
                self._messages.end()
            self._is_over = True
            self._note_shown(self._shown)

    def recall(self) -> None:
        """Restore in the plan how the steps before this turn ended, as far as that still counts."""
        for event in self._run.journal.noted:
            self._plan.learn(event)

    async def until_shown(self) -> None:
        """Wait until everything that has happened by now is shown."""
        seq = self._run.log.seq
        if self._shown < seq and not self._is_over:
            shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((seq, shown))
            await shown

    def park(self) -> None:
        """Settle the open tool calls, because the run waits for the user and the turn ends."""
        if self._turn.is_alive:
            self._steps.park()

    def call_of(self, place: Place, question: str) -> PermissionToolCall:
        """Return the tool call of a step, for a permission request about it."""
        question = self.mask(question)
        step = self._steps.find(place)
        if step is None:  # what asks was never told: it is asked for all the same
            return PermissionToolCall(f"{self._run.id}/{place}", status="pending", title=question)
        title, _, details = question.partition("\n")
        shown = self._ledger.content(step.id)
        # Editors show one line of a title, and nobody may agree to what is hidden.
        is_shown = any(question in (plain_text_of(item) or "") for item in shown)
        asked = (text_content(question),) if details and not is_shown else ()
        return PermissionToolCall(
            step.id,
            kind=step.kind,  # type: ignore[arg-type]
            status=self._ledger.status_when_asked(step.id),
            title=title,
            content=(*asked, *shown) or UNSET,
            meta=step.origin.as_meta(),
        )

    def known_call(self, place: Place, call: str | None) -> tuple[str, Meta] | None:
        """Return the id and `_meta` of a call of a step's agent, or of the step; None if neither is shown."""
        step = self._steps.find(place)
        if step is None:
            return None
        known = self._calls.get(call) if call is not None else None
        return known or (step.id, step.origin.as_meta())

    def mask(self, text: str) -> str:
        """Redact a text of the run for people."""
        return visible(whole_text(self._run.secrecy.masker.mask(text), "a text"))

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

    def _show(self, event: AnyHappening) -> None:
        match event:
            case AgentEvent():
                self._show_agent_event(event)
            case Wrote(place=Place() as place, text=text):
                self._steps.append(place, text)
            case StepStarted(place=Place()):
                self._messages.notice(event)
                self._steps.begin(event)
            case StepFinished(place=Place() as place, result=result):
                self._messages.finish(place)
                self._steps.end(place, self._run.secrecy.masked(self._run.secrecy.revealed(result)))
            case PartStarted(place=Place()):
                self._steps.begin_part(event)
            case PartFinished(place=Place()):
                self._steps.end_part(event)
            case _:
                self._show_rarer(event)
        if self._plan.learn(event):
            self._send_plan()

    def _show_agent_event(self, happened: AgentEvent) -> None:
        match happened.place, happened.event:
            case Place() as place, Text(text) if not happened.typed:
                self._messages.say(Text, place, text)
            case Place() as place, Text(text):
                # An answer that is data is for the next step: it stands in the step's call, not in the chat.
                self._steps.append(place, text)
            case Place() as place, Thought(text):
                self._messages.say(Thought, place, text)
            case place, ToolCall() as call:
                self._begin_call(call, place)
            case _, (ToolUpdate() | ToolOutput()) as event:
                self._show_call(event)

    def _show_rarer(self, event: AnyHappening) -> None:
        match event:
            case RetryPlanned(place=Place() as place):
                self._steps.try_again(place, event)
            case ApprovalAsked(place=Place() as place, question=question, call=None):
                self._messages.interrupt(place)
                self._steps.ask(place, question)
            case ApprovalGiven(place=Place() as place, approved=approved, call=None):
                (self._steps.permit if approved else self._steps.deny)(place)
            case Noted(place=place, text=text):
                if place is None or not self._steps.append(place, f"{text}\n"):
                    self._messages.say_apart(text)

    def _send_plan(self) -> None:
        self._outlet.send(self._plan.as_event())

    # What agents do in steps

    def _show_call(self, event: ToolUpdate | ToolOutput) -> None:
        known = self._calls.get(event.id)
        if known is None:
            return
        known_as, meta = known
        if isinstance(event, ToolOutput):
            self._ledger.append(known_as, _showable(event.item))
            return
        if event.content is not UNSET:
            self._ledger.replace(known_as, tuple(map(_showable, event.content)))
        fields: dict[str, Any] = {"raw_output": event.raw_output}
        if event.status in ENDED_STATUSES:
            is_cancelled = event.meta is not UNSET
            if is_cancelled:
                fields["meta"] = with_outcome(meta, "cancelled")
            reason = "cancelled" if is_cancelled else None
            self._ledger.settle(known_as, str(event.status), reason, **fields)
            del self._calls[event.id]
            return
        status = event.status if event.status in OPEN_STATUSES else UNSET
        title = whole_text(event.title, "a title") if event.title else UNSET
        if status is not UNSET or title is not UNSET:
            self._ledger.update(known_as, status=status, title=title)

    def _begin_call(self, call: ToolCall, place: Place | None) -> None:
        step = self._steps.find(place)
        if step is not None and place is not None:
            self._messages.interrupt(place)
            meta = msgspec.structs.replace(step.origin, parent=step.id).as_meta()
        else:
            meta = CallOrigin(run=self._run.id, step=str(place or "")).as_meta()
        known_as = self._steps.announce(
            f"{self._run.id}/{place}/{call.id}",
            whole_text(call.title or "Tool", "a title"),
            call.kind if call.kind in KINDS else "other",
            meta,
            status=call.status,
            name=call.name or UNSET,
            raw_input=UNSET if call.raw_input is None else call.raw_input,
            locations=call.locations or UNSET,
        )
        self._calls[call.id] = known_as, meta
        for item in call.content:
            self._ledger.append(known_as, _showable(item))


def _showable(item: ToolCallContent) -> ToolCallContent:
    """Return an item of a call's content whose texts can be sent."""
    if isinstance(item, Diff):
        old = whole_text(item.old_text, "a text") if item.old_text else None
        return Diff(whole_text(item.path, "a path"), whole_text(item.new_text, "a text"), old)
    text = plain_text_of(item)
    return item if text is None else text_content(whole_text(text, "an output"))


class AgentMessages:
    """Sends what the agents of a run say and think as chat messages, one agent at a time.

    Clients begin a new message when another one goes on. So of agents that run concurrently the first one
    speaks until its message is over, or until it pauses; what the others say is held back, and then follows.
    """

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._outlet = turn.session.outlet
        self._inside: set[Place] = set()
        """The steps that are inside of others."""
        self._speaker: Place | None = None
        self._message: tuple[MessageType, str] | None = None
        self._named: Place | None = None
        """The step whose agent spoke last, so that its name need not be repeated."""
        self._last_word = 0.0
        self._held: dict[Place, list[tuple[MessageType, list[str]]]] = {}
        """Texts of other agents that wait for their turn; the pieces of one text are sent as one."""
        self._finished: set[Place] = set()
        """The steps that are over while their texts still wait: none of them keeps the word."""
        self._timer: asyncio.TimerHandle | None = None

    def notice(self, started: StepStarted) -> None:
        """Note that a step begins; what is said in a step inside of another one is headed by its name."""
        if started.place is not None and started.parent is not None:
            self._inside.add(started.place)
        if started.place is not None:
            self._finished.discard(started.place)

    def say(self, kind: MessageType, place: Place, text: str) -> None:
        """Take a piece of what the agent of a step says or thinks."""
        if self._speaker in (None, place):
            self._speak(kind, place, text)
            return
        held = self._held.setdefault(place, [])
        if not held or held[-1][0] is not kind:
            held.append((kind, []))
        held[-1][1].append(text)
        self._wait(SPEAKER_PAUSE)

    def say_apart(self, text: str) -> None:
        """Send a message of its own that is no agent's."""
        self._end_message()
        self._named = None
        self._send(Text, text, self._outlet.new_message_id())
        self._turn.begin_new_message()

    def interrupt(self, place: Place) -> None:
        """Send what was said in a step before something else of it is shown."""
        if place in self._held:
            self._end_message()
            self._release(place)
        if self._speaker == place:
            self._hand_over()

    def finish(self, place: Place) -> None:
        """Note that a step is over: who waits speaks if it had the word, and no other message is cut."""
        if place in self._held:
            self._finished.add(place)
        if self._speaker == place:
            self._hand_over()

    def end(self) -> None:
        """Send what was held back, because nothing more comes."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._held:
            self._hand_over()

    def _hand_over(self) -> None:
        """End the message, and send the texts of those that have waited longest, up to one that goes on."""
        self._end_message()
        for waiting in [*self._held]:
            self._release(waiting)
            if waiting not in self._finished:
                return
            self._finished.discard(waiting)
            self._end_message()

    def _release(self, place: Place) -> None:
        for kind, texts in self._held.pop(place):
            self._speak(kind, place, "".join(texts))

    def _speak(self, kind: MessageType, place: Place, text: str) -> None:
        if self._message is None or self._message[0] is not kind:
            # Blank lines part what an agent says before and after a tool call; here that does.
            text = text.lstrip("\n")
            if not text:
                return
            # A thought between two texts parts them.
            self._end_message()
            self._message = kind, self._outlet.new_message_id()
            self._speaker = place
            if kind is Text and place in self._inside and self._named != place:
                text = f"**{place}**\n\n{text}"
                self._named = place
        self._last_word = asyncio.get_running_loop().time()
        self._send(kind, text, self._message[1])

    def _send(self, kind: MessageType, text: str, message_id: str) -> None:
        for piece in pieces(whole_text(text, "a text")):
            self._outlet.send(kind(piece, message_id))

    def _end_message(self) -> None:
        if self._message is not None:
            self._turn.begin_new_message()
        self._speaker = self._message = None

    def _wait(self, seconds: float) -> None:
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(seconds, self._look)

    def _look(self) -> None:
        """Let another agent speak if the current one has paused while others wait."""
        self._timer = None
        if not self._held or not self._turn.is_alive:
            return
        silent = asyncio.get_running_loop().time() - self._last_word
        if silent < SPEAKER_PAUSE:
            self._wait(SPEAKER_PAUSE - silent)
            return
        self._hand_over()
        if self._held:
            self._wait(SPEAKER_PAUSE)
