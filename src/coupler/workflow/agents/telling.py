"""What an agent does during one prompt, as happenings of the run, each once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import msgspec

from coupler.client.observation import Observation, PermissionDecided, Received
from coupler.events import Notice, Plan, Text, ToolCall
from coupler.events import Thought as Thinking
from coupler.events.tool_call import plain_text_of
from coupler.schema.v1 import Diff
from coupler.workflow.journal.happenings import (
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

LEFT_OPEN = "it was not ended when the agent's turn was over"


class Telling:
    """Of one prompt. `name_call` makes an agent's id of a call one that is unique in the run."""

    def __init__(self, emit: Callable[[Happening], None], name_call: Callable[[str], str]) -> None:
        self._emit = emit
        self._name_call = name_call
        self._text, self._thoughts = _Messages(), _Messages()
        self._calls: dict[str, _Call] = {}
        self._names: dict[str, str] = {}

    @property
    def text(self) -> str:
        """All that the agent has said so far."""
        return "".join(self._text.pieces)

    @property
    def is_too_much(self) -> bool:
        """Whether the agent goes on and on: nobody reads that, and memory has an end."""
        return self._text.length + self._thoughts.length > MOST_SAID

    def notice(self, observation: Observation) -> None:
        """Something happened in the agent's session; what comes late is told by nobody."""
        match observation:
            case Received(event=event, late=False):
                self._received(event)
            case PermissionDecided(decision=decision) if not decision.is_allowed:
                call = decision.tool_call
                denied = f"denied: {_line(call.title or call.name or call.kind)}"
                self._emit(Noted(text="; ".join(filter(None, [denied, decision.remedy]))))

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
            case Plan(entries=entries):
                told = tuple(
                    {
                        "content": _line(each.content),
                        "priority": _line(each.priority),
                        "status": _line(each.status),
                    }
                    for each in entries[:MOST_LISTED]
                )
                self._emit(Planned(entries=told))
            case Notice(title=title, description=description):
                said = ": ".join(filter(None, [title, description]))
                self._emit(Noted(text=shortened(said, MOST_SHOWN)))

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

    def _emit_if_news(self, happening: Happening | None) -> None:
        if happening is not None:
            self._emit(happening)


class _Call:
    """A call as far as it was told."""

    def __init__(self, name: str, event: ToolCall) -> None:
        self.name = name
        self.is_over = False
        self._title = _line(event.title)
        self._status = event.status
        self._text = ""
        self._told = 0

    def progress(self, event: ToolCall) -> ToolProgressed | None:
        text = self._news(event)
        status = event.status if event.status != self._status else None
        named = _line(event.title)
        title = named if named != self._title else None
        self._title, self._status = named, event.status
        if text is None and status is None and title is None:
            return None
        return ToolProgressed(call=self.name, status=status, title=title, text=text)

    def end(self, event: ToolCall) -> ToolEnded:
        self.is_over = True
        status: Literal["completed", "failed"] = "completed" if event.status == "completed" else "failed"
        return ToolEnded(
            call=self.name, status=status, text=self._news(event), output=bounded(event.raw_output)
        )

    def _news(self, event: ToolCall) -> str | None:
        """What the call shows that was not told yet."""
        shown = shown_text(event)
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
        title=_line(event.title or event.name or event.kind),
        kind=_line(event.kind),
        name=None if event.name is None else _line(event.name),
        input=bounded(event.raw_input),
        locations=tuple(_line(location.path) for location in event.locations[:MOST_LISTED]),
    )


def _line(text: str) -> str:
    return shortened(str(text), LONGEST_LINE)


def shown_text(event: ToolCall) -> str:
    """What a call shows, as text."""
    shown: list[str] = []
    for item in event.content:
        if isinstance(item, Diff):
            shown.append(f"{'new file' if item.old_text is None else 'changed'}: {item.path}")
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
