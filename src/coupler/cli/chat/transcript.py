"""The conversation as it is seen: observations go in, parts that are done come out, and a tail that is not.

It does no I/O and knows no terminal. Parts come in the order in which they were done: text when its block is
whole, a tool call when it has ended, the plan when its turn is over.
"""

from __future__ import annotations

from msgspec import UNSET, Struct

from coupler.cli.chat.open_text import OpenText
from coupler.cli.chat.parts import Answer, Asked, Called, Musing, Numbered, Part, Planned, Remark, Shown
from coupler.cli.sessions.passages import of_block, spoken_compaction, title_of
from coupler.cli.sessions.wording import clean, one_line
from coupler.client.observation import Observation, PermissionDecided, PromptSent, Received, TurnFinished
from coupler.client.policy import Decision
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    Usage,
)
from coupler.schema.v1 import PlanEntry, TextContent

MOST_IN_TAIL = 16_384
"""Characters of open text that are looked at for the tail."""

STOPS = {
    "cancelled": "The turn was cancelled.",
    "refusal": "The agent refused to go on.",
    "max_tokens": "The agent reached its limit of tokens.",
    "max_turn_requests": "The agent reached its limit of requests in one turn.",
}


class Tail(Struct, frozen=True):
    """What is not done yet: shown at the bottom, and drawn again as it changes."""

    answer: str = ""
    thought: str = ""
    calls: tuple[Called, ...] = ()
    plan: tuple[PlanEntry, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.answer or self.thought or self.calls or self.plan)


class Transcript:
    """One session's conversation, from its opening on."""

    def __init__(self) -> None:
        self.title: str | None = None
        self.usage: Usage | None = None
        self.mode: str | None = None
        """The mode that the user knows of; another one is remarked upon."""
        self.is_muted = False
        """While a session is opened again whose history stands on the screen already."""
        self._done: list[Part] = []
        self._answer = OpenText()
        self._answer_id: str | None = None
        self._thought: list[str] = []
        self._asked: list[str] = []
        self._calls: dict[str, Called] = {}
        self._open_calls: dict[str, None] = {}
        self._numbered: list[Numbered] = []
        self._compactions: dict[str, Compaction] = {}
        self._plan: tuple[PlanEntry, ...] = ()
        self._plan_is_new = False
        self._shown_plan: tuple[PlanEntry, ...] = ()
        self._is_in_turn = False

    def successor(self) -> Transcript:
        """For another session, whose parts are numbered on: those of before can still be looked at."""
        later = Transcript()
        later._numbered = self._numbered
        return later

    def notice(self, observation: Observation) -> None:
        """Take in what happened."""
        match observation:
            case Received(event=event) if not self.is_muted:
                self._received(event)
            case PromptSent():
                self.settle()
                self._is_in_turn = True
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                self._close_messages()
                self._done.append(_refused(decision))
            case TurnFinished(reply=reply, error=error):
                self._is_in_turn = False
                self.settle()
                if error is None and reply is not None and not reply.is_complete:
                    sentence = STOPS.get(reply.stop_reason, f"The turn ended: {one_line(reply.stop_reason)}.")
                    self._done.append(Remark(sentence, severity="warning"))

    def remark(self, part: Part) -> None:
        """Something that Coupler itself has to say, or was asked for."""
        self._close_messages()
        self._done.append(part)

    def settle(self) -> None:
        """Nothing goes on any more: what was open is done as it stands."""
        self._close_messages()
        self._done.extend(self._calls[call] for call in self._open_calls)
        self._open_calls.clear()
        self._close_plan()

    def take(self) -> list[Part]:
        """The parts that are done and were not taken before."""
        self._answered(self._answer.take_whole())
        done, self._done = self._done, []
        return done

    def tail(self) -> Tail:
        """What is not done, after `take`."""
        return Tail(
            self._answer.end(MOST_IN_TAIL),
            clean("".join(self._thought)[-MOST_IN_TAIL:]),
            tuple(self._calls[call] for call in self._open_calls),
            self._plan if self._plan_is_new and self._plan != self._shown_plan else (),
        )

    def numbered(self, number: int | None = None) -> Numbered | None:
        """A part to be looked at again; without a number the last tool call."""
        if number is None:
            return next((part for part in reversed(self._numbered) if isinstance(part, Called)), None)
        return self._numbered[number - 1] if 0 < number <= len(self._numbered) else None

    def _received(self, event: Event) -> None:
        match event:
            case Text(text, message_id):
                self._close_asked()
                self._close_thought()
                if message_id is not None and self._answer_id not in (None, message_id):
                    self._close_answer()
                self._answer_id = message_id
                self._answer.add(text)
            case Thought(text):
                self._close_asked()
                self._close_answer()
                self._thought.append(text)
            case ToolCall():
                self._close_messages()
                self._called(event)
            case Content(block, "user"):
                self._user_said(block)
            case Content(block, "agent"):
                self._close_messages()
                self._done.append(_shown(block))
            case Plan(entries):
                self._planned(entries)
            case _:
                self._told_of_session(event)

    def _told_of_session(self, event: Event) -> None:
        match event:
            case Usage():
                self.usage = event
            case Info(title) if title is not UNSET:
                self.title = None if title is None else one_line(title)
            case Mode(id) if id != self.mode:
                self.mode = id
                self.remark(Remark(f"The mode is now {one_line(id)}."))
            case Notice(severity, title, description):
                self.remark(Remark(one_line(title), clean(description or ""), severity))
            case Compaction():
                self._compacted(event)
            case CompactionSummary(id, block):
                if id in self._compactions:
                    self._compactions[id] = self._compactions[id].extended(block)

    def _called(self, call: ToolCall) -> None:
        known = self._calls.get(call.id)
        number = len(self._numbered) + 1 if known is None else known.number
        called = self._calls[call.id] = Called(number, call)
        if known is None:
            self._numbered.append(called)
        else:
            self._numbered[number - 1] = called
        if call.is_open:
            self._open_calls[call.id] = None
        elif known is None or call.id in self._open_calls:
            self._open_calls.pop(call.id, None)
            self._done.append(called)

    def _planned(self, entries: tuple[PlanEntry, ...]) -> None:
        """A plan is shown when it is made; the tail tells how far it has come."""
        if not self._plan_is_new:
            self._close_messages()
            self._done.append(Planned(entries))
            self._shown_plan = entries
        self._plan, self._plan_is_new = entries, bool(entries)

    def _close_plan(self) -> None:
        """At the end of a turn: a word if all was done, else the plan as it stands, if that is news."""
        if not self._plan_is_new:
            return
        self._plan_is_new = False
        if all(entry.status == "completed" for entry in self._plan):
            self._done.append(Remark(f"All {len(self._plan)} steps of the plan are done."))
        elif self._plan != self._shown_plan:
            self._done.append(Planned(self._plan))

    def _compacted(self, event: Compaction) -> None:
        known = self._compactions.get(event.id)
        compaction = self._compactions[event.id] = event if known is None else known.updated(event)
        if compaction.status == "in_progress":
            self.remark(Remark("The earlier conversation is being summarized."))
        else:
            self.remark(Remark(spoken_compaction(compaction)))

    def _user_said(self, block: object) -> None:
        """What the user sent is on the screen already, unless it is told again by a session of before."""
        if self._is_in_turn:
            return
        self._close_answer()
        self._close_thought()
        if not self._asked:
            self.settle()
        self._asked.append(block.text if isinstance(block, TextContent) else f" [{of_block(block).note}] ")

    def _close_messages(self) -> None:
        self._close_asked()
        self._close_thought()
        self._close_answer()

    def _close_answer(self) -> None:
        self._answered(self._answer.take_all())
        self._answer_id = None

    def _answered(self, blocks: list[str]) -> None:
        self._done.extend(Answer(block) for block in blocks if block.strip())

    def _close_thought(self) -> None:
        text = clean("".join(self._thought)).strip()
        self._thought.clear()
        if text:
            musing = Musing(len(self._numbered) + 1, text)
            self._numbered.append(musing)
            self._done.append(musing)

    def _close_asked(self) -> None:
        if self._asked:
            self._done.append(Asked(clean("".join(self._asked)).strip()))
            self._asked.clear()


def _shown(block: object) -> Part:
    passage = of_block(block)
    return Answer(passage.text) if passage.text else Shown(passage.note)


def _refused(decision: Decision) -> Remark:
    return Remark(f"Not allowed: {title_of(decision.tool_call)}", clean(decision.remedy or ""), "warning")
