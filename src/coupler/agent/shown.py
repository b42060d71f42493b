"""What a client is shown of one tool call's content, and how often it may be told.

Version 1 of the protocol replaces a call's content whole with every update. Long text is therefore shown as
its head and its tail, and the content is stated again only while all statements together stay in proportion
to the output. The whole output is in the store.
"""

from __future__ import annotations

from collections import deque

import msgspec

from coupler.events.events import plain_text_of
from coupler.schema.v1 import Content, TextContent, ToolCallContent

HEAD = 16 * 1024
TAIL = 16 * 1024
"""Bytes at the beginning and at the end of a text that are shown."""

ALLOWANCE = 256 * 1024
"""Bytes that may be sent beyond twice the output: so much of a call is shown without any delay."""

STATEMENT_BYTES = 256
"""What an update costs beside the items in it, about."""

ITEM_BYTES = 64
"""What an item costs beside its text, about."""


class Shown:
    """The items that a call shows; neighbouring texts are one. Of text it holds no more than it shows."""

    def __init__(self) -> None:
        self.has_news = False
        self._items: list[_Text | ToolCallContent] = []
        self._open_text: _Text | None = None
        # All sizes are bytes. What is stated of the open text changes, so it is not counted with the others.
        self._stated = STATEMENT_BYTES
        self._output = 0
        self._sent = 0

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        """Show something more. Text goes on where the text before it ended, unless it is to stand apart."""
        self.has_news = True
        text = plain_text_of(item)
        if text is None:
            self._close_text()
            self._add_whole(item)
            return
        if apart:
            self._close_text()
        self._output += self._text_to_go_on().add(text)
        if apart:
            self._close_text()

    def clear(self) -> None:
        """Show nothing of what was added; what was sent of it stays counted."""
        self.has_news = True
        self._items.clear()
        self._open_text = None
        self._stated = STATEMENT_BYTES

    def content(self) -> tuple[ToolCallContent, ...]:
        """The items as a client gets them."""
        return tuple(item.as_content() if isinstance(item, _Text) else item for item in self._items)

    def is_due(self) -> bool:
        """Whether stating it all once more keeps what was sent in proportion to the output."""
        return self._sent + self._size_of_statement() <= 2 * self._output + ALLOWANCE

    def sent(self) -> None:
        """It was stated as it stands."""
        self.has_news = False
        self._sent += self._size_of_statement()

    def _text_to_go_on(self) -> _Text:
        if self._open_text is None:
            self._open_text = _Text()
            self._items.append(self._open_text)
        return self._open_text

    def _close_text(self) -> None:
        if self._open_text is not None:
            self._stated += self._open_text.size
            self._open_text = None

    def _add_whole(self, item: ToolCallContent) -> None:
        size = _size_of_item(item)
        self._items.append(item)
        self._stated += size
        self._output += size

    def _size_of_statement(self) -> int:
        return self._stated + (self._open_text.size if self._open_text is not None else 0)


class _Text:
    """A text of any length: its beginning, its end, and how much lies between them."""

    def __init__(self) -> None:
        self._head: list[str] = []
        self._head_size = 0
        self._head_is_full = False
        self._tail: deque[tuple[str, int]] = deque()
        self._tail_size = 0
        self._left_out = 0

    @property
    def size(self) -> int:
        """Bytes that it takes in a statement, about."""
        return ITEM_BYTES + self._head_size + min(self._tail_size, TAIL)

    def add(self, text: str) -> int:
        """Go on with this text; returns its size."""
        size = _size_of_text(text)
        if self._head_is_full:
            self._add_to_tail(text, size)
        elif self._head_size + size <= HEAD:
            self._head.append(text)
            self._head_size += size
        else:
            self._fill_head(text, size)
        return size

    def as_content(self) -> Content:
        head, tail = "".join(self._head), "".join(piece for piece, _ in self._tail)
        left_out = self._left_out
        if self._tail_size > TAIL:
            tail = _last_bytes(tail, TAIL)
            left_out += self._tail_size - _size_of_text(tail)
        between = f"\n… {_readable(left_out)} left out …\n" if left_out else ""
        return Content(TextContent(f"{head}{between}{tail}"))

    def _fill_head(self, text: str, size: int) -> None:
        last_of_head = _first_bytes(text, HEAD - self._head_size)
        last_size = _size_of_text(last_of_head)
        self._head = ["".join(self._head), last_of_head]
        self._head_size += last_size
        self._head_is_full = True
        self._add_to_tail(text[len(last_of_head) :], size - last_size)

    def _add_to_tail(self, text: str, size: int) -> None:
        if size > TAIL:
            text = _last_bytes(text, TAIL)
            kept = _size_of_text(text)
            # What stood before it does not adjoin it any more, and a cut between characters leaves a gap.
            self._left_out += self._tail_size + size - kept
            self._tail.clear()
            self._tail_size, size = 0, kept
        self._tail.append((text, size))
        self._tail_size += size
        # Whole pieces are dropped as soon as those after them fill the tail.
        while self._tail_size - self._tail[0][1] >= TAIL:
            dropped = self._tail.popleft()[1]
            self._tail_size -= dropped
            self._left_out += dropped


def _size_of_item(item: ToolCallContent) -> int:
    try:
        return ITEM_BYTES + len(msgspec.json.encode(item))
    except UnicodeEncodeError:
        # Half a surrogate pair, which is replaced when it is sent.
        return ITEM_BYTES + _size_of_text(str(msgspec.to_builtins(item)))


def _size_of_text(text: str) -> int:
    return len(text) if text.isascii() else len(_encoded(text))


def _first_bytes(text: str, limit: int) -> str:
    """As many whole characters of the beginning as fit."""
    encoded = _encoded(text[:limit])
    end = min(limit, len(encoded))
    while end < len(encoded) and _is_inside_character(encoded[end]):
        end -= 1
    return encoded[:end].decode("utf-8", "surrogatepass")


def _last_bytes(text: str, limit: int) -> str:
    """As many whole characters of the end as fit."""
    encoded = _encoded(text[-limit:])
    start = max(len(encoded) - limit, 0)
    while start < len(encoded) and _is_inside_character(encoded[start]):
        start += 1
    return encoded[start:].decode("utf-8", "surrogatepass")


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def _is_inside_character(byte: int) -> bool:
    return byte & 0xC0 == 0x80


def _readable(size: int) -> str:
    if size < 1000:
        return f"{size} B"
    return f"{size / 1000:.1f} KB" if size < 999_950 else f"{size / 1_000_000:.1f} MB"
