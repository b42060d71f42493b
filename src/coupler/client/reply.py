"""What an agent answered to one prompt, gathered as it came."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.events import Event, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.schema.v1 import PlanEntry

if TYPE_CHECKING:
    from coupler.schema.unstable import Usage as TokenUsage


class Reply(Struct, frozen=True):
    """A whole turn. Messages of one turn are set apart by blank lines."""

    text: str
    stop_reason: str
    thoughts: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    plan: tuple[PlanEntry, ...] = ()
    usage: Usage | None = None
    tokens: TokenUsage | None = None


class ReplyInProgress:
    """Gathers events; holds what has come so far at any time."""

    def __init__(self) -> None:
        self._text = _Messages()
        self._thoughts = _Messages()
        self._tool_calls: dict[str, ToolCall] = {}
        self._plan: tuple[PlanEntry, ...] = ()
        self._usage: Usage | None = None

    def add(self, event: Event) -> None:
        """Take an event in."""
        match event:
            case Text():
                self._text.add(event)
                self._thoughts.interrupt()
            case Thought():
                self._thoughts.add(event)
            case ToolCall():
                self._tool_calls[event.id] = event
                self._text.interrupt()
                self._thoughts.interrupt()
            case Plan():
                self._plan = event.entries
            case Usage():
                self._usage = event

    def finished(self, stop: Stop) -> Reply:
        """The reply, once its turn is over."""
        return Reply(
            self._text.joined(),
            stop.reason,
            self._thoughts.joined(),
            tuple(self._tool_calls.values()),
            self._plan,
            self._usage,
            stop.usage,
        )


class _Messages:
    """Pieces of text, parted where a new message begins."""

    def __init__(self) -> None:
        self._messages: list[list[str]] = []
        self._current_id: str | None = None
        self._interrupted = True

    def add(self, piece: Text | Thought) -> None:
        begins = self._interrupted if piece.message_id is None else piece.message_id != self._current_id
        if begins or not self._messages:
            self._messages.append([])
            self._current_id = piece.message_id
        self._messages[-1].append(piece.text)
        self._interrupted = False

    def interrupt(self) -> None:
        """Without message ids, what comes after something else is a new message."""
        self._interrupted = True

    def joined(self) -> str:
        return "\n\n".join("".join(pieces) for pieces in self._messages)
