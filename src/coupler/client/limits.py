"""Limits what an agent can make its client hold: the text and items of a turn, and what a session keeps.

A `TurnIntake` decides at receipt what of a turn is taken; what is over a limit is left out for everybody who
looks on, and counted in a `Cut`. Agents of ours have it for the programs and models that they speak for, too.
A session holds its newest tool calls, weighed by `HeldCalls`, and its newest events, in an `EventRecord`.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Literal, TypeVar, cast

from msgspec import Struct, json
from msgspec.structs import replace

from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Notice,
    Text,
    Thought,
    ToolCall,
    ToolUpdate,
)
from coupler.events.fold import TextPieces

AFTER_CANCEL_BYTES = 1024 * 1024
"""Bytes of updates that are still taken of a turn that was cancelled; the rest is dropped."""

ITEM_BYTES = 1024
"""Bytes that are counted for a tool call or an event besides what it took on the wire."""

REWEIGH_AFTER = 64 * 1024
"""Bytes of updates after which a tool call is weighed again: later ones replace what earlier ones said."""

TakenEvent = TypeVar("TakenEvent", bound=Event | ToolUpdate)

LimitName = Literal["characters", "items", "held_bytes"]


class Limits(Struct, frozen=True, kw_only=True):
    """Limits on what an agent can make its client hold. What is over one is cut, and `Reply.cut` says so."""

    characters: int = 16 * 1024 * 1024
    """Characters of messages and thoughts in one turn."""
    items: int = 20_000
    """Messages, tool calls, images and notices in one turn."""
    held_bytes: int = 32 * 1024 * 1024
    """Bytes of tool calls, and of events in `record`, that a session holds; the oldest are dropped."""
    unread_bytes: int = 8 * 1024 * 1024
    """Bytes of events that whoever iterates a prompt has not read, at which the agent has to wait."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"the limit {name}= is a whole number, not {value!r}")
            if value < 1:
                raise ValueError(f"the limit {name}= is 1 at least, not {value!r}")


class Cut(Struct, frozen=True, kw_only=True):
    """Counts what is missing in a reply because its turn was over a limit; `limits` names those limits."""

    characters: int = 0
    """Characters of messages and thoughts."""
    updates: int = 0
    """Updates of other kinds: new tool calls, images, notices."""
    tool_calls: int = 0
    """Tool calls that were received, but are held no longer."""
    permissions: int = 0
    """Decisions that were made, but are held no longer."""
    limits: tuple[str, ...] = ()

    @property
    def is_endless(self) -> bool:
        """True if the agent went on beyond what one turn may have, and not only beyond what is held of it."""
        return self.characters > 0 or self.updates > 0

    def __add__(self, later: Cut) -> Cut:
        return Cut(
            characters=self.characters + later.characters,
            updates=self.updates + later.updates,
            tool_calls=self.tool_calls + later.tool_calls,
            permissions=self.permissions + later.permissions,
            limits=tuple(dict.fromkeys((*self.limits, *later.limits))),
        )

    def __str__(self) -> str:
        counts = {
            "characters": self.characters,
            "updates": self.updates,
            "tool calls": self.tool_calls,
            "permission requests": self.permissions,
        }
        missing = ", ".join(f"{count:,} {what}" for what, count in counts.items() if count)
        return f"{missing} left out, over the limit {' and '.join(self.limits)}"


class TurnIntake:
    """Decides which updates of a turn are taken, and counts those that are not.

    What comes between two turns counts for the one before it.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.begin_turn()

    def begin_turn(self) -> None:
        """Begin to count anew."""
        self.cut: Cut | None = None
        self._characters = 0
        self._items = 0
        self._content_bytes = 0
        self._bytes_after_cancel = 0
        self._message: tuple[type[Event], str | None] | None = None

    @property
    def has_no_room(self) -> bool:
        """True if nothing new can begin in this turn."""
        return self._items >= self._limits.items

    def taken(self, event: TakenEvent, size: int, *, is_known: bool) -> TakenEvent | None:
        """Return an update of `size` bytes, or the part of it that is taken; None if nothing is.

        `is_known` says that it is about a tool call that was taken before.
        """
        if isinstance(event, Text | Thought):
            return cast("TakenEvent | None", self._text(event))
        if isinstance(event, ToolCall | ToolUpdate):
            self._message = None
            return event if is_known or self._is_item_taken() else None
        if not isinstance(event, Content | Notice | Compaction | CompactionSummary):
            return event  # it takes the place of the one before
        if self._content_bytes >= self._limits.held_bytes:
            self.leave_out("held_bytes", updates=1)
            return None
        if not self._is_item_taken():
            return None
        self._content_bytes += size
        return event

    @property
    def is_endless(self) -> bool:
        """True if something was not taken of this turn."""
        return self.cut is not None and self.cut.is_endless

    @property
    def ignores_cancel(self) -> bool:
        """True if more came after a cancel than an agent has to say that stops."""
        return self._bytes_after_cancel > AFTER_CANCEL_BYTES

    def takes_after_cancel(self, size: int) -> bool:
        """Return whether an update of a cancelled turn is still taken."""
        self._bytes_after_cancel += size
        return not self.ignores_cancel

    def leave_out(
        self,
        limit: LimitName,
        *,
        characters: int = 0,
        updates: int = 0,
        tool_calls: int = 0,
        permissions: int = 0,
    ) -> None:
        """Count something that is left out."""
        more = Cut(
            characters=characters,
            updates=updates,
            tool_calls=tool_calls,
            permissions=permissions,
            limits=(f"{limit} = {getattr(self._limits, limit):,}",),
        )
        self.cut = more if self.cut is None else self.cut + more

    def _text(self, event: Text | Thought) -> Text | Thought | None:
        room = self._limits.characters - self._characters
        length = len(event.text)
        message = (event.__class__, event.message_id)
        if message != self._message and length:
            if not self._is_item_taken(characters=length):
                return None
            self._message = message
        if length <= room:
            self._characters += length
            return event
        self.leave_out("characters", characters=length - room)
        self._characters += room
        return replace(event, text=event.text[:room]) if room else None

    def _is_item_taken(self, characters: int = 0) -> bool:
        if self.has_no_room:
            self.leave_out("items", characters=characters, updates=0 if characters else 1)
            return False
        self._items += 1
        return True


class HeldCalls:
    """Weighs the tool calls that a session holds, and names those to drop: the ones of oldest news."""

    def __init__(self, most: int) -> None:
        self._most = most
        # A plain dict would look for its first key behind all that were dropped.
        self._weights: OrderedDict[str, int] = OrderedDict()
        self._weighed: dict[str, int] = {}
        self._total = 0

    def weigh(self, call: ToolCall, size: int) -> int:
        """Count an update of `size` bytes to a call; returns what the call weighs by now."""
        before = self._weights.pop(call.id, 0)
        weight = before + size + (0 if before else ITEM_BYTES)
        if weight > 2 * self._weighed.get(call.id, 0) + REWEIGH_AFTER:
            weight = self._weighed[call.id] = len(json.encode(call)) + ITEM_BYTES
        self._weights[call.id] = weight
        self._total += weight - before
        return weight

    def excess(self) -> Iterator[str]:
        """Return the ids of the calls to drop, so that the others are not too much."""
        while self._total > self._most and len(self._weights) > 1:
            dropped, weight = self._weights.popitem(last=False)
            self._weighed.pop(dropped, None)
            self._total -= weight
            yield dropped


class EventRecord:
    """Keeps the newest events of a session in order: one entry a message, one a tool call as it stands."""

    def __init__(self, most: int) -> None:
        """Prepare a record of at most so many bytes."""
        self.left_out = 0
        """Entries that were dropped, the oldest first."""
        self._most = most
        self._entries: dict[int, tuple[Event, bool]] = {}
        self._weights: dict[int, int] = {}
        self._total = 0
        self._first = self._next = 0
        self._calls: dict[str, int] = {}
        self._open: tuple[type[Event], str | None, bool] | None = None
        self._text: TextPieces | None = None

    def add_text(self, event: Text | Thought, late: bool) -> None:
        """Add a chunk of text; `late` says that its turn was over."""
        key = (event.__class__, event.message_id, late)
        if self._text is not None and key == self._open and event.meta is None:
            self._text.append(event.text)
            self._weigh(self._next - 1, len(event.text))
            return
        self.close_text()
        self._append(event, late, len(event.text))
        if event.meta is None:
            self._open, self._text = key, TextPieces(event.text)

    def add(self, event: Event, late: bool, size: int) -> None:
        """Add any other event of `size` bytes; of a tool call it is all that the call takes by now."""
        self.close_text()
        if isinstance(event, ToolCall) and event.id in self._calls:
            place = self._calls[event.id]
            self._entries[place] = (event, self._entries[place][1] or late)
            self._weigh(place, size + ITEM_BYTES - self._weights[place])
            return
        if isinstance(event, ToolCall):
            self._calls[event.id] = self._next
        self._append(event, late, size)

    def entries(self) -> tuple[tuple[Event, bool], ...]:
        """Return the events so far, each with whether it was late."""
        self._join_text()
        return tuple(self._entries.values())

    def close_text(self) -> None:
        """Let the next text begin a new entry, as at the beginning of a turn, whatever its message id."""
        self._join_text()
        self._open = self._text = None

    def _append(self, event: Event, late: bool, size: int) -> None:
        self._entries[self._next] = (event, late)
        self._weights[self._next] = 0
        self._next += 1
        self._weigh(self._next - 1, size + ITEM_BYTES)

    def _weigh(self, place: int, more: int) -> None:
        self._weights[place] += more
        self._total += more
        while self._total > self._most and len(self._entries) > 1:
            event, _ = self._entries.pop(self._first)
            self._total -= self._weights.pop(self._first)
            self._first += 1
            if isinstance(event, ToolCall):
                del self._calls[event.id]
            self.left_out += 1

    def _join_text(self) -> None:
        if self._text is not None and len(self._text.pieces) > 1:
            place = self._next - 1
            last, late = self._entries[place]
            assert isinstance(last, Text | Thought)
            self._text = TextPieces(self._text.joined())
            self._entries[place] = (type(last)(self._text.joined(), last.message_id), late)
