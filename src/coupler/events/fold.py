"""Folds the events of a session into what stands: messages, tool calls, compactions, and what is open.

State without I/O, for everybody who follows events: replies, histories, transcripts, relays, runs. How much
of a tool call's content is kept is up to the follower, which gives the type that keeps it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET

from coupler.events.events import (
    Compaction,
    CompactionSummary,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
    plain_text_of,
)
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import TextContent, ToolCallContent

JOIN_AFTER = 1024
"""Pieces of a text after which they are joined, if they are short: each takes memory besides its text."""

SHORT_PIECE = 256
"""Characters of a piece below which joining saves memory."""

BLANK_LINE = "\n\n"
"""Separates two messages of one reply."""

INTERRUPTED = "interrupted"
"""The error of a tool call or compaction whose end was not recorded."""

MessagePiece: TypeAlias = Text | Thought


def text_content(text: str) -> ToolContent:
    """Text as tool calls carry it."""
    return ToolContent(TextContent(text))


class TextPieces:
    """The pieces of a text. Short ones are joined by and by."""

    __slots__ = ("_done", "_length", "pieces")

    def __init__(self, first: str = "") -> None:
        self.pieces = [first]
        self._length = len(first)
        self._done = 0

    def __len__(self) -> int:
        return self._length

    def append(self, piece: str) -> None:
        """Add the next piece."""
        self._length += len(piece)
        self.pieces.append(piece)
        if len(self.pieces) - self._done >= JOIN_AFTER:
            text = "".join(self.pieces[self._done :])
            if len(text) < JOIN_AFTER * SHORT_PIECE:
                self.pieces[self._done :] = [text]
            self._done = len(self.pieces)

    def joined(self) -> str:
        """Return the whole text."""
        return "".join(self.pieces)


class MessageStarts:
    """Tells where messages begin among pieces of text of one role.

    A piece with a message's id belongs to that message. One without goes on with the message before it,
    unless something else came between.
    """

    __slots__ = ("_current", "_is_interrupted")

    def __init__(self) -> None:
        self._current: str | None = None
        self._is_interrupted = True

    def begins(self, piece: MessagePiece) -> bool:
        """Take the next piece; returns whether it begins a message."""
        message_id = piece.message_id
        begins = self._is_interrupted if message_id is None else message_id != self._current
        if begins:
            self._current = message_id
        self._is_interrupted = False
        return begins

    def interrupt(self) -> None:
        """Begin a message with the next piece that has no id."""
        self._is_interrupted = True


class Messages(MessageStarts):
    """The messages of one role in one reply, with blank lines between them."""

    __slots__ = ("_messages",)

    def __init__(self) -> None:
        super().__init__()
        self._messages: list[TextPieces] = []

    def add(self, piece: MessagePiece) -> str:
        """Take the next piece; returns it with the blank line that parts it from the message before it."""
        text, message_id = piece.text, piece.message_id
        if message_id == self._current and (message_id is not None or not self._is_interrupted):
            self._is_interrupted = False  # nearly all of a stream
            self._messages[-1].append(text)
            return text
        if not self.begins(piece):
            self._messages[-1].append(text)
            return text
        self._messages.append(TextPieces(text))
        return text if len(self._messages) == 1 else BLANK_LINE + text

    def joined(self) -> str:
        """Return the text of all messages."""
        return BLANK_LINE.join(message.joined() for message in self._messages)


class CallContent(Protocol):
    """Keeps the content of one tool call, all of it or a part."""

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        """Add an item. Text goes on where the text before it ended, unless it is to stand apart."""

    def clear(self) -> None:
        """Remove all items."""

    def content(self) -> tuple[ToolCallContent, ...]:
        """Return the items."""
        ...


C = TypeVar("C", bound=CallContent)


class WholeContent:
    """Keeps all content of a tool call."""

    __slots__ = ("_items",)

    def __init__(self) -> None:
        self._items: list[TextPieces | ToolCallContent] = []

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        text = None if apart else plain_text_of(item)
        if text is None:
            self._items.append(item)
            return
        last = self._items[-1] if self._items else None
        if isinstance(last, TextPieces):
            last.append(text)
        else:
            self._items.append(TextPieces(text))

    def clear(self) -> None:
        self._items.clear()

    def content(self) -> tuple[ToolCallContent, ...]:
        return tuple(
            text_content(item.joined()) if isinstance(item, TextPieces) else item for item in self._items
        )


class NoContent:
    """Keeps nothing of a tool call's content."""

    __slots__ = ()

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        return

    def clear(self) -> None:
        return

    def content(self) -> tuple[ToolCallContent, ...]:
        return ()


class FoldedCall(Generic[C]):
    """One tool call: its fields, and its content as far as that is kept."""

    __slots__ = ("call", "shown")

    def __init__(self, id: str, shown: C) -> None:
        self.call = ToolCall(id=id)
        """The call, without content that was added to it."""
        self.shown = shown

    @property
    def is_open(self) -> bool:
        """True while the call waits or runs."""
        return self.call.is_open

    def announce(self, call: ToolCall) -> None:
        """Take the call as it stands."""
        self._show_instead(call.content)
        self.call = msgspec.structs.replace(call, content=())

    def update(self, update: ToolUpdate) -> None:
        """Change the call. Content takes the place of all content so far."""
        if update.content is not UNSET:
            self._show_instead(update.content)
            update = msgspec.structs.replace(update, content=UNSET)
        self.call = self.call.updated(update)

    def _show_instead(self, content: tuple[ToolCallContent, ...]) -> None:
        self.shown.clear()
        for index, item in enumerate(content):
            # The first may go on later; texts that came apart stay apart.
            self.shown.add(item, apart=index > 0)

    def append(self, output: ToolOutput) -> None:
        """Add to the content of the call."""
        self.shown.add(output.item, apart=output.apart)

    def interrupt(self) -> None:
        """Fail the call if it is open, because nothing more will be heard of it."""
        if self.is_open:
            self.shown.add(text_content(INTERRUPTED), apart=True)
            self.call = self.call.updated(ToolUpdate(id=self.call.id, status="failed"))

    def whole(self) -> ToolCall:
        """Return the call with its content."""
        return msgspec.structs.replace(self.call, content=self.shown.content())


class ToolCalls(Generic[C]):
    """Tool calls by their ids. The first update of an id announces the call."""

    def __init__(self, keep: Callable[[], C]) -> None:
        """`keep` makes what keeps the content of one call."""
        self._keep = keep
        self._calls: dict[str, FoldedCall[C]] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._calls

    def __iter__(self) -> Iterator[FoldedCall[C]]:
        return iter(self._calls.values())

    def __len__(self) -> int:
        return len(self._calls)

    def take(self, event: ToolCall | ToolUpdate | ToolOutput) -> FoldedCall[C]:
        """Fold an event, and return its call."""
        folded = self._calls.get(event.id)
        if folded is None:
            folded = self._calls[event.id] = FoldedCall(event.id, self._keep())
        match event:
            case ToolCall():
                folded.announce(event)
            case ToolUpdate():
                folded.update(event)
            case ToolOutput():
                folded.append(event)
        return folded

    def drop(self, id: str) -> None:
        """Forget a call."""
        self._calls.pop(id, None)

    def clear(self) -> None:
        """Forget all calls."""
        self._calls.clear()


class Compactions:
    """Compactions by their ids, as they stand."""

    def __init__(self) -> None:
        self._compactions: dict[str, Compaction] = {}

    def __contains__(self, id: object) -> bool:
        return id in self._compactions

    def __getitem__(self, id: str) -> Compaction:
        return self._compactions[id]

    def take(self, event: Compaction | CompactionSummary) -> Compaction:
        """Fold an event, and return its compaction."""
        before = self._compactions.get(event.id)
        if isinstance(event, CompactionSummary):
            after = (before or Compaction(event.id, "in_progress")).extended(event.block)
        else:
            after = event if before is None else before.updated(event)
        self._compactions[event.id] = after
        return after

    def interrupt(self) -> None:
        """Fail those that are open, because nothing more will be heard of them."""
        for compaction in [*self._compactions.values()]:
            if compaction.status == "in_progress":
                failed = Compaction(compaction.id, "failed", UNSET, INTERRUPTED)
                self._compactions[compaction.id] = failed


class TurnEvents:
    """The events of one turn, in order. Tool calls and compactions stand where they began."""

    def __init__(self, keep: Callable[[], CallContent] = WholeContent) -> None:
        self.calls = ToolCalls(keep)
        self.compactions = Compactions()
        self._order: list[tuple[int, msgspec.Struct | FoldedCall[CallContent] | str]] = []
        """When each began, and the event, the call, or the id of the compaction."""

    def add(self, event: msgspec.Struct, at: int = 0) -> None:
        """Fold an event that happened at this time."""
        match event:
            case ToolUpdate(id=id) | ToolOutput(id=id):
                is_new = id not in self.calls
                call = self.calls.take(event)
                if is_new:
                    self._order.append((at, call))
            case Compaction(id=id) | CompactionSummary(id=id):
                if id not in self.compactions:
                    self._order.append((at, id))
                self.compactions.take(event)
            case _:
                self._order.append((at, event))

    def interrupt(self) -> None:
        """Fail what is open, because nothing more will be heard of it."""
        for call in self.calls:
            call.interrupt()
        self.compactions.interrupt()

    def entries(self) -> Iterator[tuple[int, Any]]:
        """Yield the events, each with the time at which it began."""
        for at, each in self._order:
            if isinstance(each, FoldedCall):
                yield at, each.whole()
            else:
                yield at, self.compactions[each] if isinstance(each, str) else each
