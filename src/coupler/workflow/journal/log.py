"""The log of a run: all its events in one order, kept in the store and sent to any number of followers.

Followers get each piece of text as it comes; the store gets the pieces of a step joined into rows, which
have the number of their last piece. So numbers only grow, and who reads the store sees fewer of them. The
result of a step has the same texts again: it is stored with references to those rows, and read whole.
`append` never waits: neither a slow follower nor a busy disk holds up the run, which waits only in `durable`.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterable, Iterator
from typing import NamedTuple, cast

from coupler.events.events import Text, Thought
from coupler.redaction.masker import StreamMasker
from coupler.store.database import RETRY_AFTER, now
from coupler.store.errors import StoreError
from coupler.store.runs import EntryPart, RunChange, RunEntry, Runs, shared_body
from coupler.workflow.journal.run_events import (
    AgentEvent,
    AnyHappening,
    Happening,
    Logged,
    Place,
    Result,
    RunFinished,
    RunResumed,
    StepFinished,
    StepStarted,
    TextPiece,
    Wrote,
    kind_of,
    logged_in,
    packed,
    with_text,
)
from coupler.workflow.journal.run_secrets import RunSecrets

log = logging.getLogger("coupler.workflow")

FLUSH_AFTER = 0.25
"""Seconds that events wait for more, unless somebody must know that they are durable."""

FLUSH_AT = 64 * 1024
"""Bytes, roughly, of pending events that are written at once."""

LONGEST_LOCK = 60.0
"""Seconds that another program may hold the file before the run gives up."""

MOST_PENDING = 64 * 1024 * 1024
"""Bytes that are kept while they cannot be written; beyond that text is dropped."""

MOST_RECENT = 1024 * 1024
"""Bytes, roughly, that are kept in memory after they were written."""

ENTRY_COST = 200
"""Bytes that an entry costs besides its texts."""

LEAST_SHARED = 1024
"""Bytes of a row's text that a result refers to; a shorter one is stored twice."""

PREFIX = 64
"""Bytes by which the place of a row's text in a result is found."""

MOST_PLACES = 4
"""Most places of a result that are compared with a row's text."""

SEARCHED = 1024 * 1024
"""Bytes of a result in which a row's text is looked for, besides those of rows that were not found."""

PIECE_KINDS = frozenset({"text", "thought", "output"})
"""The kinds of text pieces in the store."""


class RunLog:
    """The log of a run that this process holds. Used on the event loop's thread only."""

    def __init__(self, runs: Runs, id: str, number: int, seq: int, secrecy: RunSecrets) -> None:
        self._runs = runs
        self._id = id
        self._number = number
        self._seq = seq
        self._secrecy = secrecy
        self._redactor = PieceRedactor(secrecy)
        self._joiner = PieceJoiner()
        self._recent = RecentEntries(seq)
        self._rows: list[RunEntry] = []
        self._change: RunChange | None = None
        self._size = 0
        self._due_at = FLUSH_AT
        self._timer: asyncio.TimerHandle | None = None
        self._writing = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._trouble: StoreError | None = None
        self._waits_for_locks = True
        self._is_over = False

    @property
    def seq(self) -> int:
        """The number of the last event; 0 before the first."""
        return self._seq

    def append(self, event: Happening) -> None:
        """Add an event: followers get it now, the store within a quarter of a second."""
        if self._is_over:
            log.debug("after the end of %s: %s", self._id, type(event).__name__)
            return
        match event:
            case Wrote() | AgentEvent(event=Text() | Thought()):
                shown = self._redactor.shown(event)
                if shown is not None:
                    self._add_piece(shown)
            case _:
                self._end_texts(event)
                self._add(event)
        self._schedule_write()
        self._wake()

    async def durable(self) -> None:
        """Wait until everything so far survives the death of this process; raises StoreError if it cannot.

        After that nothing is lost: it is tried again, in its order, by the next call or within a second.
        """
        if self._trouble is not None and not self._waits_for_locks:
            self._write_at_once()
            if self._trouble is not None:
                raise self._trouble
        deadline = time.monotonic() + LONGEST_LOCK
        while True:
            try:
                async with self._writing:
                    await self._write()
                return
            except StoreError as error:
                # Whoever holds the file lets go of it some time, and the run is worth the wait.
                is_worth_it = self._waits_for_locks and time.monotonic() <= deadline
                if error.kind != "locked" or not is_worth_it:
                    raise

    def stop_waiting_for_locks(self) -> None:
        """Try only once more to write a file that others have locked: somebody wants the run to end."""
        self._waits_for_locks = False

    async def _write(self) -> None:
        self._stop_timer()
        rows, change, size = self._take()
        if not rows:
            return
        try:
            await self._runs.write(self._number, rows, change, size)
        except BaseException as error:
            self._give_back(rows, change, size, error)
            raise
        self._note_written()

    async def follow(self, after: int = 0) -> AsyncIterator[Logged]:
        """Yield the events after an entry and those from now on, until the run is over or closed.

        What is too old to be in memory is read from the store, where neighbouring pieces of text are one.
        `after` is 0, or a number that is in the store.
        """
        position = after
        while True:
            while position < self._recent.start:
                until = self._recent.start
                async for logged in self._stored(position, until):
                    yield logged
                position = until
            batch = self._recent.batch_after(position)
            index = 0
            while True:
                while index < len(batch.entries):
                    logged = batch.entries[index]
                    index += 1
                    if logged.seq > position:
                        position = logged.seq
                        yield logged
                if batch.is_sealed:
                    break
                if self._is_over:
                    return
                await self._next_change()

    async def _stored(self, position: int, until: int) -> AsyncIterator[Logged]:
        while entries := await self._runs.entries(self._id, position, until):
            for entry in entries:
                position = entry.seq
                for logged in logged_in(entry):
                    yield logged

    async def close(self) -> None:
        """Write what is left; followers end after it. Raises StoreError if it cannot be written."""
        if not self._is_over:
            self._release_texts(self._redactor.places)
            self._is_over = True
        self._wake()
        try:
            await self.durable()
        finally:
            self._stop_timer()

    def _end_texts(self, event: Happening) -> None:
        """Release the texts of a step that are held back, before its next event; at the end, all of them."""
        self._release_texts([event.place])
        match event:
            case StepFinished():
                self._redactor.forget(event.place)
            case RunFinished():
                self._release_texts(self._redactor.places)
        self._rows += self._joiner.close()

    def _release_texts(self, places: Iterable[Place | None]) -> None:
        for place in places:
            for piece in self._redactor.ended(place):
                self._add_piece(piece)

    def _add_piece(self, piece: TextPiece) -> None:
        at = now()
        self._seq += 1
        self._recent.add(Logged(self._seq, at / 1000, piece), len(piece.text))
        row = self._joiner.add(piece, self._seq, at)
        if row is not None:
            self._rows.append(row)
        self._size += len(piece.text) + ENTRY_COST

    def _add(self, event: Happening) -> None:
        kept = self._secrecy.kept(event)
        at = now()
        row = entry_of(kept, self._seq + 1, at)
        self._seq += 1
        self._recent.add(Logged(self._seq, at / 1000, cast(AnyHappening, kept)), len(row.body))
        if isinstance(kept, StepFinished):
            row = self._joiner.stored.share(row, kept)
        if isinstance(kept, StepFinished | StepStarted):
            self._joiner.stored.forget(kept.place)
        self._rows.append(row)
        self._size += len(row.body) + ENTRY_COST
        match kept:
            case RunResumed():
                self._change = RunChange("running")
            case RunFinished():
                self._change = RunChange(kept.status, kept.exit_code, _storable(kept.message))
                self._is_over = True

    def _schedule_write(self) -> None:
        if self._size >= self._due_at:
            self._write_at_once()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._write_at_once)

    def _write_at_once(self) -> None:
        """Write without waiting; what cannot be written now is tried again later."""
        self._stop_timer()
        if self._writing.locked():
            self._try_again(FLUSH_AFTER)
            return
        rows, change, size = self._take()
        if not rows:
            return
        try:
            is_written = self._runs.write_at_once(self._number, rows, change)
        except StoreError as error:
            self._give_back(rows, change, size, error)
            return
        if is_written:
            self._note_written()
        else:
            self._give_back(rows, change, size, None)

    def _take(self) -> tuple[list[RunEntry], RunChange | None, int]:
        rows = self._rows + self._joiner.close()
        taken = rows, self._change, self._size
        self._recent.seal()
        self._rows, self._change, self._size, self._due_at = [], None, 0, FLUSH_AT
        return taken

    def _give_back(
        self, rows: list[RunEntry], change: RunChange | None, size: int, error: BaseException | None
    ) -> None:
        """Put what could not be written before everything that came since."""
        self._rows[:0] = rows
        self._change = self._change or change
        self._size += size
        if isinstance(error, StoreError):
            if self._trouble is None:
                log.warning("the run %s cannot be stored, trying again: %s", self._id, error)
            self._trouble = error
        if self._size > MOST_PENDING:
            self._drop_text()
        self._due_at = self._size + FLUSH_AT
        self._try_again(FLUSH_AFTER if error is None else RETRY_AFTER)

    def _drop_text(self) -> None:
        log.error(
            "the log of the run %s could not be written for too long: a part of its text is lost", self._id
        )
        stored = self._joiner.stored
        self._rows = [row for row in self._rows if row.kind not in PIECE_KINDS or row.seq in stored.referred]
        stored.forget_all()
        self._size = sum(len(row.body) + ENTRY_COST for row in self._rows)
        self._recent.shrink()

    def _note_written(self) -> None:
        self._trouble = None
        self._recent.shrink()

    def _try_again(self, delay: float) -> None:
        self._due_at = self._size + FLUSH_AT
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(delay, self._write_at_once)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    async def _next_change(self) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(future)
        await future

    def _wake(self) -> None:
        if self._waiting:
            for future in self._waiting:
                if not future.done():
                    future.set_result(None)
            self._waiting.clear()


def _storable(text: str) -> str:
    return text.encode("utf-8", "replace").decode()


class LogBatch:
    """Entries after `start` that are written to the store in one go; more may come until it is sealed."""

    __slots__ = ("end", "entries", "is_sealed", "size", "start")

    def __init__(self, start: int) -> None:
        self.start = start
        self.end = start
        self.entries: list[Logged] = []
        self.size = 0
        self.is_sealed = False


class RecentEntries:
    """The last part of a log, in memory, so that a follower who keeps up never reads the store.

    It consists of batches, the oldest first; the last one is open. Text is joined on its way to the store,
    but never across the end of a batch: there a follower can change from memory to the store and back. A
    follower holds on to the batch that it reads, so forgetting one disturbs nobody, and a slow follower costs
    one batch.
    """

    def __init__(self, seq: int) -> None:
        self._batches = [LogBatch(seq)]
        self._size = 0

    @property
    def start(self) -> int:
        """The number of the entry before the first that is in memory."""
        return self._batches[0].start

    def add(self, logged: Logged, size: int) -> None:
        batch = self._batches[-1]
        batch.entries.append(logged)
        batch.end = logged.seq
        batch.size += size + ENTRY_COST
        self._size += size + ENTRY_COST

    def seal(self) -> None:
        """Close the open batch, because what comes now is written another time."""
        batch = self._batches[-1]
        if batch.entries:
            batch.is_sealed = True
            self._batches.append(LogBatch(batch.end))

    def shrink(self) -> None:
        """Keep the latest of what was written, which is all that is sealed."""
        count = 0
        while self._size > MOST_RECENT and count < len(self._batches) - 1:
            self._size -= self._batches[count].size
            count += 1
        del self._batches[:count]

    def batch_after(self, seq: int) -> LogBatch:
        """Return the batch with the entry after this one, which must not be older than `start`."""
        return self._batches[bisect_right(self._batches, seq, key=lambda batch: batch.start) - 1]


def entry_of(event: Happening, seq: int, at: int) -> RunEntry:
    """Return an event as an entry of the store."""
    place = event.place
    path, visit = ("", 0) if place is None else (place.path, place.visit)
    return RunEntry(seq, at, kind_of(event), path, visit, packed(event))


class PieceRedactor:
    """Redacts secrets in text that comes in pieces, also those that were cut in two."""

    def __init__(self, secrecy: RunSecrets) -> None:
        self._secrecy = secrecy
        self._streams: dict[Place | None, dict[str, tuple[StreamMasker, TextPiece]]] = {}

    def shown(self, piece: TextPiece) -> TextPiece | None:
        """Return what may be shown now; None if that is nothing yet."""
        streams = self._streams.setdefault(piece.place, {})
        known = streams.get(_line_of(piece))
        if known is None:
            stream = self._secrecy.stream()
            if stream is None:
                return piece
            known = streams[_line_of(piece)] = stream, with_text(piece, "")
        text = known[0].feed(piece.text)
        if text is piece.text:
            return piece
        return with_text(piece, text) if text else None

    def ended(self, place: Place | None) -> Iterator[TextPiece]:
        """Yield what was held back of a step's texts, because something else comes now."""
        for stream, piece in self._streams.get(place, {}).values():
            text = stream.end()
            if text:
                yield with_text(piece, text)

    def forget(self, place: Place | None) -> None:
        """Forget the texts of a step that is over."""
        self._streams.pop(place, None)

    @property
    def places(self) -> list[Place | None]:
        """The steps that have texts and are not over."""
        return [*self._streams]


class _JoinedPieces:
    """Neighbouring pieces of one text."""

    __slots__ = ("at", "line", "seq", "start", "texts")

    def __init__(self, piece: TextPiece, seq: int, at: int) -> None:
        self.start = piece
        self.line = _line_of(piece)
        self.seq = seq
        self.at = at
        self.texts = [piece.text]

    def piece(self) -> TextPiece:
        return with_text(self.start, "".join(self.texts))


class PieceJoiner:
    """Joins the pieces of each step into rows; pieces of concurrent steps do not part them."""

    def __init__(self) -> None:
        self.stored = StoredTexts()
        self._of_places: dict[Place | None, _JoinedPieces] = {}

    def add(self, piece: TextPiece, seq: int, at: int) -> RunEntry | None:
        """Add a piece; returns the row of the text that it does not continue, if there is one."""
        gathered = self._of_places.get(piece.place)
        if gathered is not None and gathered.line == _line_of(piece):
            gathered.texts.append(piece.text)
            gathered.seq = seq
            return None
        self._of_places[piece.place] = _JoinedPieces(piece, seq, at)
        return None if gathered is None else self._row(gathered)

    def close(self) -> list[RunEntry]:
        """Return all rows; what comes now begins another one."""
        rows = [self._row(gathered) for gathered in self._of_places.values()]
        self._of_places.clear()
        return rows

    def _row(self, gathered: _JoinedPieces) -> RunEntry:
        piece = gathered.piece()
        row = entry_of(piece, gathered.seq, gathered.at)
        self.stored.add(piece, row)
        return row


class StoredText(NamedTuple):
    """The text at the end of a row's body, as it is found again in the body of a result."""

    part: EntryPart
    prefix: bytes
    digest: bytes


class StoredTexts:
    """The rows of text of the steps that are not over: their results refer to them.

    What a result has that no row has, as a reference in the place of a secret, stays in it.
    """

    def __init__(self) -> None:
        self.referred: set[int] = set()
        """The numbers of all rows that results refer to."""
        self._of_places: dict[Place | None, dict[str, list[StoredText]]] = {}

    def add(self, piece: TextPiece, row: RunEntry) -> None:
        """Note a row that ends with the text of a piece."""
        line = _line_of(piece)
        text = piece.text.encode("utf-8", "surrogatepass")
        if len(text) < LEAST_SHARED or line not in Result.__struct_fields__ or not row.body.endswith(text):
            return
        part = EntryPart(row.seq, len(row.body) - len(text), len(text))
        lines = self._of_places.setdefault(piece.place, {})
        lines.setdefault(line, []).append(StoredText(part, text[:PREFIX], _digest(text)))

    def share(self, row: RunEntry, finished: StepFinished) -> RunEntry:
        """Return the row of a result with references to the rows that have parts of it."""
        body = memoryview(row.body)
        lines = self._of_places.get(finished.place, {})
        parts: list[bytes | EntryPart] = []
        end = missed = 0
        # In the order in which the result has them.
        for line in filter(lines.__contains__, Result.__struct_fields__):
            for text in lines[line]:
                start = _position(text, row.body, end, end + text.part.length + missed + SEARCHED)
                if start is None:
                    missed += 2 * text.part.length
                    continue
                parts += [bytes(body[end:start]), text.part]
                end, missed = start + text.part.length, 0
                self.referred.add(text.part.seq)
        if not parts:
            return row
        return row._replace(body=shared_body([*parts, bytes(body[end:])]))

    def forget(self, place: Place | None) -> None:
        """Forget the texts of a step that is over, or of an earlier attempt."""
        self._of_places.pop(place, None)

    def forget_all(self) -> None:
        """Forget all texts, because their rows are not stored."""
        self._of_places.clear()


def _position(text: StoredText, body: bytes, start: int, end: int) -> int | None:
    """Return where a body has a text, between two positions; None if it is not found there."""
    for _ in range(MOST_PLACES):
        start = body.find(text.prefix, start, end)
        if start < 0:
            break
        if _digest(memoryview(body)[start : start + text.part.length]) == text.digest:
            return start
        start += 1
    return None


def _digest(text: bytes | memoryview) -> bytes:
    return hashlib.blake2b(text, digest_size=16).digest()


def _line_of(piece: TextPiece) -> str:
    """Return the stream or kind of a piece, by which the texts of a step are told apart."""
    return piece.stream if isinstance(piece, Wrote) else kind_of(piece)
