"""A session's turns for readers: everything that was kept, in order, complete.

A client that loads a session is shown less: see `history`. Here tool calls carry all of their output, every
plan and notice has its place, and an entry that cannot be read stands as such instead of being left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct

from coupler.agent.ledger import text_content
from coupler.events import (
    Compaction,
    CompactionSummary,
    Content,
    Notice,
    Plan,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
)
from coupler.events.records import JOINED, End, Recorded, UserMessage, from_record
from coupler.schema.v1 import ToolCallContent
from coupler.store.journal import Entry, joined


class Unreadable(Struct, frozen=True):
    """An entry that a newer version wrote, or a broken disk."""

    kind: str
    key: str
    body: bytes


Told: TypeAlias = Text | Thought | Content | Plan | Notice | Compaction | ToolCall | Unreadable


class Happening(Struct, frozen=True):
    """Something that was told, and when it began: milliseconds since 1970."""

    at: int
    event: Told


Outcome: TypeAlias = Literal["ended", "cancelled", "failed", "interrupted", "open"]


class TranscriptTurn(Struct, frozen=True):
    """One prompt, and all that came of it."""

    number: int
    started_at: int
    prompt: tuple[Raw, ...]
    happenings: tuple[Happening, ...]
    end: End | None
    ended_at: int
    is_last: bool

    def outcome(self, *, is_held: bool) -> Outcome:
        """How it ended; without an end it was cut off, unless a process has the session and may be at it."""
        if self.end is None:
            return "open" if is_held and self.is_last else "interrupted"
        if self.end.error is not None:
            return "failed"
        return "cancelled" if self.end.reason == "cancelled" else "ended"


def read_turns(entries_after: Callable[[int], list[Entry]]) -> Iterator[TranscriptTurn]:
    """The turns of a session, one in memory at a time; entries are asked for by the last one's seq."""
    turn: list[Entry] = []
    last = 0
    while batch := entries_after(last):
        last = batch[-1].seq
        for entry in batch:
            if turn and entry.turn != turn[-1].turn:
                yield _turn_of(turn, is_last=False)
                turn = []
            turn.append(_with_bytes(entry))
    if turn:
        yield _turn_of(turn, is_last=True)


def _turn_of(entries: list[Entry], *, is_last: bool) -> TranscriptTurn:
    account = _Account()
    for entry in joined(entries, JOINED):
        account.add(entry)
    return TranscriptTurn(
        number=entries[0].turn,
        started_at=entries[0].at,
        prompt=tuple(account.prompt),
        happenings=account.happenings(),
        end=account.end,
        ended_at=entries[-1].at,
        is_last=is_last,
    )


class _Account:
    """One turn being put together: what has an id stands where it began, as it was in the end."""

    def __init__(self) -> None:
        self.prompt: list[Raw] = []
        self.end: End | None = None
        self._order: list[tuple[int, Told | tuple[str, str]]] = []
        self._calls: dict[str, ToolCall] = {}
        self._outputs: dict[str, list[str | ToolCallContent]] = {}
        self._compactions: dict[str, Compaction] = {}

    def add(self, entry: Entry) -> None:
        match _read(entry):
            case UserMessage(blocks=blocks):
                self.prompt += blocks
            case End() as end:
                self.end = end
            case ToolUpdate() as update:
                self._update(entry.at, update)
            case ToolOutput() as output:
                self._begin_call(entry.at, output.id)
                self._outputs[output.id].append(output.item if output.text is None else output.text)
            case Compaction() as compaction:
                self._compact(entry.at, compaction)
            case CompactionSummary(id, block):
                before = self._compactions.get(id) or Compaction(id, "in_progress")
                self._compact(entry.at, before.extended(block))
            case event:
                self._order.append((entry.at, event))

    def happenings(self) -> tuple[Happening, ...]:
        return tuple(Happening(at, self._final(each)) for at, each in self._order)

    def _update(self, at: int, update: ToolUpdate) -> None:
        self._begin_call(at, update.id)
        if update.content is not UNSET:
            self._outputs[update.id].clear()
        self._calls[update.id] = self._calls[update.id].updated(update)

    def _begin_call(self, at: int, id: str) -> None:
        if id not in self._calls:
            self._calls[id] = ToolCall(id=id)
            self._outputs[id] = []
            self._order.append((at, ("call", id)))

    def _compact(self, at: int, event: Compaction) -> None:
        before = self._compactions.get(event.id)
        if before is None:
            self._order.append((at, ("compaction", event.id)))
        self._compactions[event.id] = before.updated(event) if before is not None else event

    def _final(self, each: Told | tuple[str, str]) -> Told:
        match each:
            case ("call", id):
                call = self._calls[id]
                return msgspec.structs.replace(call, content=(*call.content, *_whole(self._outputs[id])))
            case ("compaction", id):
                return self._compactions[id]
            case Struct() as event:
                return event
        raise AssertionError(each)


def _whole(pieces: list[str | ToolCallContent]) -> Iterator[ToolCallContent]:
    """The items of a call's output, with neighbouring pieces of text in one."""
    texts: list[str] = []
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        if texts:
            yield text_content("".join(texts))
            texts = []
        yield piece
    if texts:
        yield text_content("".join(texts))


def _read(entry: Entry) -> Recorded | UserMessage | End | Unreadable:
    try:
        event = from_record(entry.kind, entry.key, entry.body)
    except (RecursionError, ValueError):
        event = None
    return Unreadable(entry.kind, entry.key, entry.body) if event is None else event


def _with_bytes(entry: Entry) -> Entry:
    """SQLite keeps any type in any column, and a stranger's tool may have changed one."""
    body: object = entry.body
    if isinstance(body, bytes):
        return entry
    return entry._replace(body=str(body).encode("utf-8", "replace"))
