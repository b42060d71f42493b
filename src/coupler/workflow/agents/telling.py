"""What an agent does during one prompt, as happenings of the run, each once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from coupler.client.observation import Observation, PermissionDecided, Received
from coupler.events import Notice, Plan, Text, ToolCall
from coupler.events import Thought as Thinking
from coupler.events.events import plain_text_of
from coupler.schema.v1 import Diff, PlanEntry
from coupler.workflow.engine.titles import visible
from coupler.workflow.journal.happenings import (
    Change,
    Happening,
    Noted,
    Planned,
    Said,
    Thought,
    ToolEnded,
    ToolProgressed,
    ToolStarted,
)

MOST_SHOWN = 64 * 1024
"""Characters of what one tool call shows, takes or returns; of more, the beginning and the end are kept."""

LONGEST_LINE = 1000
"""Characters of a title, a path or an id."""

MOST_LISTED = 100
"""Paths of a call, and entries of a plan."""

MOST_SAID = 64 * 1024 * 1024
"""Characters of all that an agent says and thinks in one prompt; who says more is stopped."""

MOST_DONE = 256 * 1024 * 1024
"""Characters of all that its tool calls and plans are in one prompt, told or not: the session holds them."""

UPDATE_COST = 100
"""Characters that each update of the agent counts for besides: also the shortest needs room."""

LEFT_OPEN = "it was not ended when the agent's turn was over"


class Telling:
    """Of one prompt. `name_call` makes an agent's id of a call one that is unique in the run."""

    def __init__(self, emit: Callable[[Happening], None], name_call: Callable[[str], str]) -> None:
        self._emit = emit
        self._name_call = name_call
        self._text, self._thoughts = _Messages(), _Messages()
        self._calls: dict[str, _Call] = {}
        self._weights: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._plan: tuple[dict[str, str], ...] = ()
        self._done = 0

    @property
    def text(self) -> str:
        """All that the agent has said so far."""
        return "".join(self._text.pieces)

    @property
    def is_too_much(self) -> bool:
        """Whether the agent goes on and on: nobody reads that, and memory has an end."""
        return self._text.length + self._thoughts.length > MOST_SAID or self._done > MOST_DONE

    @property
    def excess(self) -> str:
        """What was too much."""
        if self._done > MOST_DONE:
            return "the agent's messages, tool calls and plans were too many, and it was stopped"
        return f"the agent said more than {MOST_SAID:,} characters, and was stopped"

    def notice(self, observation: Observation) -> None:
        """Something happened in the agent's session; what comes late is told by nobody."""
        match observation:
            case Received(event=event, late=False):
                self._received(event)
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                call = decision.tool_call
                denied = f"denied: {_line(call.title or call.name or call.kind)}"
                self._emit(Noted(text="; ".join(filter(None, [denied, decision.remedy]))))

    def called(self, event: ToolCall) -> None:
        """A tool call as it stands now."""
        call = self._calls.get(event.id)
        if call is None:
            call = self._calls[event.id] = _Call(self.call_named(event.id), event)
            self._emit(_started(call.name, event))
        elif call.is_over:
            return
        elif event.is_open:
            self._emit_if_news(call.progress(event))
        if not event.is_open:
            self._emit(call.end(event))

    def knows(self, id: str) -> bool:
        """Whether a call of the agent was told of."""
        return id in self._calls

    def call_named(self, id: str) -> str:
        """What a call of the agent is called in the run."""
        if id not in self._names:
            self._names[id] = self._name_call(id)
        return self._names[id]

    def settle(self) -> None:
        """The turn is over: calls that are still open have failed."""
        for call in self._calls.values():
            if not call.is_over:
                call.is_over = True
                self._emit(ToolEnded(call=call.name, status="failed", text=LEFT_OPEN))

    def _received(self, event: object) -> None:
        self._done += UPDATE_COST
        match event:
            case Text():
                self._thoughts.interrupt()
                if text := self._text.taken(event):
                    self._emit(Said(text=text))
            case Thinking():
                if text := self._thoughts.taken(event):
                    self._emit(Thought(text=text))
            case ToolCall():
                self._text.interrupt()
                self._thoughts.interrupt()
                self.called(event)
                self._weigh(event)
            case Plan(entries=entries):
                self._planned(entries)
            case Notice(title=title, description=description):
                said = ": ".join(filter(None, [title, description]))
                self._emit(Noted(text=shortened(said, MOST_SHOWN)))

    def _planned(self, entries: Sequence[PlanEntry]) -> None:
        plan = tuple(
            {"content": _title(each.content), "priority": _line(each.priority), "status": _line(each.status)}
            for each in entries[:MOST_LISTED]
        )
        if plan != self._plan:
            self._plan = plan
            self._done += sum(len(each["content"]) for each in plan)
            self._emit(Planned(entries=plan))

    def _weigh(self, call: ToolCall) -> None:
        weight = _weight(call)
        self._done += weight - self._weights.get(call.id, 0)
        self._weights[call.id] = weight

    def _emit_if_news(self, happening: Happening | None) -> None:
        if happening is not None:
            self._emit(happening)


class _Call:
    """A call as far as it was told."""

    def __init__(self, name: str, event: ToolCall) -> None:
        self.name = name
        self.is_over = False
        self._title = _title(event.title)
        self._status = event.status
        self._text = ""
        self._told = 0
        self._changes = _changes_in(event)

    def progress(self, event: ToolCall) -> ToolProgressed | None:
        text = self._news(event)
        status = event.status if event.status != self._status else None
        named = _title(event.title)
        title = named if named != self._title else None
        # Of a change that grows while it is written, the beginning and the end are enough.
        changes = () if self._changes else self._new_changes(event)
        self._title, self._status = named, event.status
        if text is None and status is None and title is None and not changes:
            return None
        return ToolProgressed(call=self.name, status=status, title=title, text=text, changes=changes)

    def end(self, event: ToolCall) -> ToolEnded:
        self.is_over = True
        status: Literal["completed", "failed"] = "completed" if event.status == "completed" else "failed"
        return ToolEnded(
            call=self.name,
            status=status,
            text=self._news(event),
            output=bounded(event.raw_output),
            changes=self._new_changes(event),
        )

    def _new_changes(self, event: ToolCall) -> tuple[Change, ...]:
        told, self._changes = self._changes, _changes_in(event)
        return tuple(change for change in self._changes if change not in told)

    def _news(self, event: ToolCall) -> str | None:
        """What the call shows that was not told yet."""
        shown = _shown_text(event)
        news = shown[len(self._text) :] if shown.startswith(self._text) else shown
        self._text = shown
        if not news or self._told >= MOST_SHOWN:
            return None
        news = shortened(news, MOST_SHOWN - self._told)
        self._told += len(news)
        return news


class _Messages:
    """Pieces of text, parted by a blank line where a new message begins, as replies are."""

    def __init__(self) -> None:
        self.pieces: list[str] = []
        self.length = 0
        self._current: str | None = None
        self._is_interrupted = True

    def taken(self, piece: Text | Thinking) -> str:
        if not piece.text:
            return ""
        begins = self._is_interrupted if piece.message_id is None else piece.message_id != self._current
        told = f"\n\n{piece.text}" if begins and self.pieces else piece.text
        self._current, self._is_interrupted = piece.message_id, False
        self.pieces.append(told)
        self.length += len(told)
        return told

    def interrupt(self) -> None:
        self._is_interrupted = True


def _started(name: str, event: ToolCall) -> ToolStarted:
    return ToolStarted(
        call=name,
        title=_title(event.title or event.name or event.kind),
        kind=_line(event.kind),
        name=None if event.name is None else _line(event.name),
        input=bounded(event.raw_input),
        locations=tuple(_line(location.path) for location in event.locations[:MOST_LISTED]),
        changes=_changes_in(event),
    )


def _line(text: str) -> str:
    return shortened(str(text), LONGEST_LINE)


def _title(text: str) -> str:
    return visible(_line(text))


def _weight(call: ToolCall) -> int:
    return len(call.title) + sum(map(_length, (call.content, call.raw_input, call.raw_output)))


def _length(value: Any) -> int:
    try:
        return len(msgspec.json.encode(value)) if value else 0
    except (TypeError, ValueError, RecursionError):
        return 0  # it came as JSON, so this is half a character at most


def _changes_in(event: ToolCall) -> tuple[Change, ...]:
    """What a call changes in files, as far as that is short enough to be kept."""
    changes: list[Change] = []
    room = MOST_SHOWN
    for item in event.content[:MOST_LISTED]:
        if isinstance(item, Diff):
            length = len(item.new_text) + len(item.old_text or "")
            if length <= room:
                room -= length
                changes.append(_change(item))
    return tuple(changes)


def _change(diff: Diff) -> Change:
    return Change(_line(diff.path), diff.new_text, diff.old_text or None)


def _shown_text(event: ToolCall) -> str:
    """What a call shows, as text; of changes in files those that are too long to be told whole."""
    shown: list[str] = []
    told = _changes_in(event)
    for item in event.content:
        if isinstance(item, Diff):
            if _change(item) not in told:
                shown.append(f"{'changed' if item.old_text else 'new file'}: {item.path}")
        elif text := plain_text_of(item):
            shown.append(text)
    return "\n".join(shown)


def bounded(value: Any) -> Any:
    """What a tool takes or returns; of what is too long, the beginning and the end as text."""
    if value is None:
        return None
    try:
        encoded = msgspec.json.encode(value)
    except (TypeError, ValueError, RecursionError):
        return shortened(repr(value), 1000)
    if len(encoded) <= MOST_SHOWN:
        return value
    return shortened(encoded.decode(errors="replace"), MOST_SHOWN)


def shortened(text: str, most: int) -> str:
    """The text without its middle if it is longer than that."""
    if len(text) <= most:
        return text
    half = max(most // 2 - 2, 1)
    return f"{text[:half]}\n…\n{text[-half:]}"
