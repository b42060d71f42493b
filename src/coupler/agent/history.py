"""Journals a session's turns, and reads them again for `session/load` and for transcripts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import msgspec
from msgspec import Raw, Struct

from coupler.agent.errors import agent_failed, store_failed
from coupler.agent.session import StateError, pack_state
from coupler.agent.tool_call import Shown
from coupler.events import (
    Commands,
    Compaction,
    CompactionSummary,
    Content,
    Info,
    Mode,
    Notice,
    Options,
    Plan,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
    Usage,
)
from coupler.events.events import UPDATABLE_FIELDS
from coupler.events.fold import TurnEvents
from coupler.events.records import (
    JOINED,
    OUTPUT,
    STOP,
    TEXT,
    USER,
    RecordedEvent,
    TurnEnd,
    TurnsHidden,
    UserMessage,
    end_record,
    from_record,
    hidden_record,
    text_piece,
    to_record,
)
from coupler.events.v1_codec import EmittedEvent
from coupler.store.errors import StoreError
from coupler.store.journal import ROW_COST, join_text
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.store.journal import JournalEntry, SessionJournal
    from coupler.store.sessions import SessionRecord

ReplayedEvent = Text | Thought | Content | UserMessage | ToolUpdate | Compaction
"""An event of an earlier turn that a client is shown again."""

STORED_TURN_BYTES = 64 * 1024 * 1024
"""Bytes of tool calls, plans and images of one turn that are stored whole; then only what is small is."""

SMALL_ENTRY = 1024
"""Bytes of an entry that is stored of a turn beyond that, such as the end of a tool call."""

NOT_STORED = "{count:,} updates of this turn ({size:,} bytes) were not stored: it is over {limit:,} bytes."

TEXT_WAS_LOST = "a part of what was said could not be kept: the disk took nothing for too long"

TurnOutcome: TypeAlias = Literal["ended", "cancelled", "failed", "interrupted", "open"]


class EventJournal:
    """Journals a session's prompts, events, settings and state. It goes on where an earlier journal ended.

    A turn's prompt is journaled before its code runs, its end is durable before it is answered. What cannot
    be stored fails the turn, and nothing else.
    """

    def __init__(
        self,
        journal: SessionJournal,
        entries_after: Callable[[int], Awaitable[list[JournalEntry]]],
        record: Callable[[], Awaitable[SessionRecord]],
        *,
        state: bytes | None = None,
    ) -> None:
        self.entries_after = entries_after
        """Returns the next journal entries after a seq, in batches."""
        self.record = record
        """Returns what is stored of the session beside its journal."""
        self.backlog = journal.backlog
        self.before_showing = journal.before_showing
        """To be called before so many bytes are sent to the client: prompts that wait are made durable."""
        self._journal = journal
        self._saved_state = state
        self._turn_bytes = self._unstored = self._unstored_bytes = 0

    def keep(self, event: EmittedEvent | ToolOutput) -> None:
        """Journal an event that the client is sent."""
        match event:
            case Usage():
                self._journal.set(usage=msgspec.json.encode(event).decode())
            case Info(title):
                self._journal.set(title=title)
            case Commands() | Mode() | Options():
                pass  # what is offered is declared anew each time, what is chosen is kept with the settings
            case _ if (text := text_piece(event)) is not None:
                if text[0] != OUTPUT or self._is_stored(len(text[2])):
                    self._journal.text(*text)
            case _:
                record = to_record(event)
                if self._is_stored(len(record[2])):
                    self._journal.add(*record)

    def _is_stored(self, size: int) -> bool:
        """Count an entry of its turn, and return whether there is room for it."""
        stored = self._turn_bytes + size + ROW_COST
        if stored <= STORED_TURN_BYTES or (size <= SMALL_ENTRY and stored <= 2 * STORED_TURN_BYTES):
            self._turn_bytes = stored
            return True
        self._unstored += 1
        self._unstored_bytes += size
        return False

    def _note_unstored(self) -> None:
        """Journal how much of the turn was not stored, if anything was not."""
        if self._unstored:
            sentence = NOT_STORED.format(
                count=self._unstored, size=self._unstored_bytes, limit=STORED_TURN_BYTES
            )
            self._journal.add(*to_record(Notice("warning", sentence)))
        self._turn_bytes = self._unstored = self._unstored_bytes = 0

    def stream_text(
        self, text: str, message_id: str | None, closed: Callable[[], None]
    ) -> Callable[[str], object]:
        """Journal a piece of a message, and return what journals the next ones until `closed` is called."""
        return self._journal.stream(TEXT, message_id or "", text, closed)

    def keep_settings(self, settings: dict[str, Any]) -> None:
        """Journal the values of the modes and options."""
        self._journal.set(settings=msgspec.json.encode(settings).decode())

    def keep_roots(self, additional_directories: tuple[str, ...]) -> None:
        """Journal the session's additional directories."""
        self._journal.set(roots=additional_directories)

    def begin_turn(self, message_id: str, params: Raw, cover: Callable[[bytes], bytes] = bytes) -> None:
        """Journal a prompt, which begins a turn, as the user sent it except for what `cover` redacts."""
        self._journal.begin_turn()
        self._journal.add_prompt(USER, message_id, cover(bytes(_prompt_decoder.decode(params).prompt)))

    @property
    def is_delayed(self) -> bool:
        """True if what was journaled so far is still being written, or could not be."""
        return self._journal.is_delayed

    async def until_prompt_stored(self) -> None:
        """Wait until the prompt is durable. If that fails, it is removed from the journal."""
        try:
            await self.until_stored()
        except RpcError:
            self._journal.take_back_turn(USER)
            raise

    @property
    def turn(self) -> int:
        """The number of the turn that is journaled; 0 before the first."""
        return self._journal.turn

    def change_hidden(self, change: TurnsHidden) -> None:
        """Journal which turns are not replayed any more, or are again."""
        self._journal.add(*hidden_record(self.turn, change))

    def end_turn(self, end: TurnEnd, state: Any, done: Callable[[RpcError | None], None]) -> None:
        """Make the turn's end and the agent's state durable, then call `done`.

        `done` gets the error to answer with if the turn cannot be kept after all.
        """
        self._note_unstored()
        failure: RpcError | None = None
        try:
            self.keep_state(state)
        except StateError as error:
            failure = agent_failed(error)
            end = TurnEnd(error=failure.message)
        if self._journal.has_lost_text:
            failure = store_failed(StoreError("full", TEXT_WAS_LOST))
            end = TurnEnd(error=failure.message)

        def flushed(error: StoreError | None) -> None:
            if error is not None:
                self._journal.take_back(STOP)
                self._journal.add(*end_record(TurnEnd(error=str(error))))
            done(failure if error is None else store_failed(error))

        self._journal.end_turn(STOP, msgspec.json.encode(end), flushed)

    async def until_stored(self) -> None:
        """Wait until everything that happened so far is durable."""
        stored: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._journal.flush(lambda error: _settle(stored, error))
        await stored

    def keep_state(self, state: Any) -> None:
        """Journal the agent's state with the next write; raises StateError if it cannot be encoded."""
        packed = pack_state(state)
        if packed != self._saved_state:
            self._saved_state = packed
            self._journal.set(state=packed)


def journal_turn(journal: SessionJournal, happened: Iterable[UserMessage | RecordedEvent]) -> None:
    """Journal a whole turn that happened elsewhere."""
    journal.begin_turn()
    for event in happened:
        if isinstance(event, UserMessage):
            journal.add(USER, event.message_id, msgspec.json.encode(event.blocks))
        elif (text := text_piece(event)) is not None:
            journal.text(*text)
        else:
            journal.add(*to_record(event))
    journal.add(*end_record(TurnEnd(reason="end_turn")))


class _Prompt(msgspec.Struct):
    prompt: Raw


_prompt_decoder = msgspec.json.Decoder(_Prompt)


def _settle(stored: asyncio.Future[None], error: StoreError | None) -> None:
    if stored.done():
        return
    if error is None:
        stored.set_result(None)
    else:
        stored.set_exception(store_failed(error))


class HistoryReplay:
    """Reads journal entries one by one and gives the events of each turn that a client is shown again.

    Messages come as they were said, tool calls once and in their final state, and of plans the last. A turn
    that has no end was cut off by a crash: what it left open is shown as failed. Dialogs and notices were for
    that moment only. Of output it holds what is shown. Turns that the user has taken back are left out.
    """

    def __init__(self, hidden: Container[int] = ()) -> None:
        self._hidden = hidden
        self.plan: Plan | None = None
        self._number: int | None = None
        self._turn = _ReplayedTurn()

    def take(self, entry: JournalEntry) -> Iterator[ReplayedEvent]:
        """Take the next entry; yields the events of the turn before it if this one begins another."""
        if entry.turn in self._hidden:
            return
        if entry.turn != self._number:
            yield from self.rest()
            self._number = entry.turn
        event = from_record(entry.kind, entry.key, entry.body)
        if isinstance(event, Plan):
            self.plan = event
        elif event is not None:
            self._turn.take(event)

    def rest(self) -> Iterator[ReplayedEvent]:
        """Return the events of the last turn."""
        turn, self._turn = self._turn, _ReplayedTurn()
        return turn.events()


class _ReplayedTurn(TurnEvents):
    """Collects the events of one turn that is replayed."""

    def __init__(self) -> None:
        super().__init__(Shown)

    def take(self, event: RecordedEvent | UserMessage | TurnEnd | TurnsHidden) -> None:
        match event:
            case Notice() | TurnEnd() | TurnsHidden():
                return
            case ToolOutput(id=id) if id not in self.calls:
                return
            case CompactionSummary(id=id) if id not in self.compactions:
                return
        self.add(event)

    def events(self) -> Iterator[ReplayedEvent]:
        self.interrupt()
        return (_replayed(event) for _, event in self.entries())


def _replayed(event: Any) -> ReplayedEvent:
    if not isinstance(event, ToolCall):
        return event  # type: ignore[no-any-return]
    fields = {name: value for name in UPDATABLE_FIELDS if (value := getattr(event, name))}
    return ToolUpdate(id=event.id, **fields)


class UnreadableEntry(Struct, frozen=True):
    """An entry that cannot be read: a newer version wrote it, or a broken disk."""

    kind: str
    key: str
    body: bytes


TranscriptEvent: TypeAlias = (
    Text | Thought | Content | Plan | Notice | Compaction | ToolCall | UnreadableEntry
)


class TranscriptEntry(Struct, frozen=True):
    """One event of a transcript, and when it began: milliseconds since 1970."""

    at: int
    event: TranscriptEvent


class TranscriptTurn(Struct, frozen=True):
    """One prompt and everything that followed it, in order."""

    number: int
    started_at: int
    prompt: tuple[Raw, ...]
    entries: tuple[TranscriptEntry, ...]
    end: TurnEnd | None
    ended_at: int
    is_last: bool

    def outcome(self, *, is_held: bool) -> TurnOutcome:
        """Return how the turn ended; without an end it was interrupted, unless a process may still run it."""
        if self.end is None:
            return "open" if is_held and self.is_last else "interrupted"
        if self.end.error is not None:
            return "failed"
        return "cancelled" if self.end.reason == "cancelled" else "ended"


def read_turns(entries_after: Callable[[int], list[JournalEntry]]) -> Iterator[TranscriptTurn]:
    """Read the turns of a session, one in memory at a time; entries are asked for by the last one's seq.

    Unlike `HistoryReplay`, tool calls carry all of their output, every plan and notice has its place, and an
    entry that cannot be read stands as such instead of being left out.
    """
    turn: list[JournalEntry] = []
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


def _turn_of(entries: list[JournalEntry], *, is_last: bool) -> TranscriptTurn:
    builder = _TranscriptBuilder()
    for entry in join_text(entries, JOINED):
        builder.take(entry)
    return TranscriptTurn(
        number=entries[0].turn,
        started_at=entries[0].at,
        prompt=tuple(builder.prompt),
        entries=tuple(TranscriptEntry(at, event) for at, event in builder.entries()),
        end=builder.end,
        ended_at=entries[-1].at,
        is_last=is_last,
    )


class _TranscriptBuilder(TurnEvents):
    """Collects the entries of one turn."""

    def __init__(self) -> None:
        super().__init__()
        self.prompt: list[Raw] = []
        self.end: TurnEnd | None = None

    def take(self, entry: JournalEntry) -> None:
        match _read(entry):
            case UserMessage(blocks=blocks):
                self.prompt += blocks
            case TurnEnd() as end:
                self.end = end
            case TurnsHidden():
                pass  # a transcript has all that happened
            case event:
                self.add(event, entry.at)


def _read(entry: JournalEntry) -> RecordedEvent | UserMessage | TurnEnd | TurnsHidden | UnreadableEntry:
    try:
        event = from_record(entry.kind, entry.key, entry.body)
    except (RecursionError, ValueError):
        event = None
    return UnreadableEntry(entry.kind, entry.key, entry.body) if event is None else event


def _with_bytes(entry: JournalEntry) -> JournalEntry:
    """Convert an entry's body to bytes: SQLite accepts any type, and another program may have changed it."""
    body: object = entry.body
    if isinstance(body, bytes):
        return entry
    return entry._replace(body=str(body).encode("utf-8", "replace"))
