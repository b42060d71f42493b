"""Converts events to and from what the store keeps: a kind, a key and a body.

Text is kept as text, so that the pieces of a message can be joined without being parsed; everything else is
JSON. What the user sent is kept byte for byte, because it is replayed as it was sent.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, NamedTuple

import msgspec
from msgspec import UNSET, Raw, Struct

from coupler.events.events import (
    Compaction,
    CompactionSummary,
    Content,
    Notice,
    Plan,
    Text,
    Thought,
    ToolOutput,
    ToolUpdate,
)
from coupler.schema import v1
from coupler.schema.decoding import DecodingError, decode
from coupler.wire.messages import encode

TEXT = "text"
THOUGHT = "thought"
OUTPUT = "output"
USER = "user"
STOP = "stop"
HIDDEN = "hidden"
TOOL = "tool"

_HIDDEN_KEY = re.compile(r"\d+/[\d,]*/[\d,]*")
"""Keys of changes of what is replayed: the turn of the change, turns that it hides, turns that it shows."""

JOINED = frozenset({TEXT, THOUGHT, OUTPUT})
"""Kinds whose bodies are text; neighbours with one key are pieces of one."""


class StoredEvent(NamedTuple):
    """An event as the store keeps it."""

    kind: str
    key: str
    body: bytes


class UserMessage(Struct, frozen=True):
    """A prompt of the user: its blocks as they came."""

    message_id: str
    blocks: tuple[Raw, ...]


class TurnEnd(Struct, frozen=True):
    """The end of a turn: a stop reason, or an error."""

    reason: str | None = None
    error: str | None = None


class TurnsHidden(Struct, frozen=True):
    """Turns that the user has taken back, which are not replayed, or has asked for again."""

    hidden: tuple[int, ...] = ()
    shown: tuple[int, ...] = ()


RecordedEvent = (
    Text | Thought | Content | Plan | ToolUpdate | ToolOutput | Notice | Compaction | CompactionSummary
)

_KINDS: dict[type, str] = {
    Content: "content",
    Plan: "plan",
    ToolUpdate: TOOL,
    ToolOutput: "item",
    Notice: "notice",
    Compaction: "compaction",
    CompactionSummary: "summary",
}
_TYPES: dict[str, type[Struct]] = {
    **{kind: event for event, kind in _KINDS.items()},
    STOP: TurnEnd,
    HIDDEN: TurnsHidden,
}


def text_piece(event: object) -> tuple[str, str, str] | None:
    """Kind, key and text of an event that is a piece of text; None for any other."""
    match event:
        case Text(text, message_id):
            return TEXT, message_id or "", text
        case Thought(text, message_id):
            return THOUGHT, message_id or "", text
        case ToolOutput(id) if event.text is not None:
            return OUTPUT, id, event.text
    return None


def to_record(event: RecordedEvent) -> StoredEvent:
    """Convert an event that is not a piece of text."""
    return StoredEvent(_KINDS[type(event)], _key(event), encode(event))


def end_record(end: TurnEnd) -> StoredEvent:
    """Convert a turn's end."""
    return StoredEvent(STOP, "", msgspec.json.encode(end))


def hidden_record(number: int, change: TurnsHidden) -> StoredEvent:
    """Convert a change of what is replayed, made in a turn; its key has all of it, for `hidden_turns`."""
    hidden, shown = (",".join(map(str, turns)) for turns in (change.hidden, change.shown))
    return StoredEvent(HIDDEN, f"{number}/{hidden}/{shown}", encode(change))


def hidden_turns(keys: Iterable[str]) -> frozenset[int]:
    """Return the turns that are hidden, by the keys of all changes."""
    hidden: set[int] = set()
    known = (key for key in keys if _HIDDEN_KEY.fullmatch(key))  # any other is a newer version's
    changes = [[[int(each) for each in part.split(",") if each] for part in key.split("/")] for key in known]
    for _, gone, back in sorted(changes):
        hidden = hidden.union(gone).difference(back)
    return frozenset(hidden)


def _key(event: Any) -> str:
    for name in ("id", "message_id"):
        value = getattr(event, name, UNSET)
        if isinstance(value, str):
            return value
    return ""


def from_record(
    kind: str, key: str, body: bytes
) -> RecordedEvent | UserMessage | TurnEnd | TurnsHidden | None:
    """Convert a record back; None for what a newer version wrote, or a broken disk."""
    try:
        if kind in JOINED:
            return _from_text(kind, key, body.decode())
        if kind == USER:
            return UserMessage(key, msgspec.json.decode(body, type=tuple[Raw, ...]))
        if kind in _TYPES:
            return decode(_TYPES[kind], body, "client")  # type: ignore[return-value]
    except (DecodingError, msgspec.DecodeError, ValueError, RecursionError, AttributeError, TypeError):
        return None
    return None


def _from_text(kind: str, key: str, text: str) -> RecordedEvent:
    if kind == OUTPUT:
        return ToolOutput(key, v1.Content(v1.TextContent(text)))
    return Thought(text, key or None) if kind == THOUGHT else Text(text, key or None)
