"""Writes what the journals of a store have gathered, in batches, and tells who waits for it.

What is little is written on the event loop, what is much or finds the file locked on the store's thread. What
tells of a prompt that is not durable yet must wait: `JournalWriter.before_showing`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from itertools import chain
from typing import Any, NamedTuple

from coupler.store.database import RETRY_AFTER, Database, Statement
from coupler.store.errors import StoreError, unusable
from coupler.store.journal import FLUSH_AFTER, FlushCallback, JournalEntry, JournalRow, SessionJournal
from coupler.store.sessions import write_state

log = logging.getLogger("coupler.store")

PROMPT_WAITS = 0.02
"""Seconds that a prompt waits for its turn's end, to be written with it in one transaction."""

FLUSH_AT = 64 * 1024
"""Pending bytes, roughly, at which text is written earlier."""

FLUSH_MORE = 4 * 1024
"""Pending bytes for each further session: the end of each one's journal is on a page of its own."""

LARGEST_FLUSH = 512 * 1024
"""Pending bytes at which text is written however many sessions it is of."""

INLINE_LIMIT = 1024 * 1024
"""Bytes that are written on the event loop, in 2 to 10 ms.

Much more than what makes a flush due: while 200 turns are busy the store's thread gets so little of the
interpreter that, once a flush is left to it, more text comes than it can write.
"""

CATCH_UP_LIMIT = 4 * INLINE_LIMIT
"""Bytes that are written on the event loop after the thread's turn, to get back to small flushes."""

MOST_PENDING = 64 * 1024 * 1024
"""Bytes that all journals together keep while they cannot be written."""

BACKLOG_FULL_AT = 2 * INLINE_LIMIT
"""Bytes that may be pending before those who can wait should."""

NEVER = float("inf")

_ROWS_OF_ONE_STATEMENT = 1000
_ROWS_OF_ANY_STATEMENT = 100  # every SQLite takes as many values
_WHOLE_ROW = "SELECT * FROM entries WHERE session = ? AND seq = ?"
_WIDTH = len(JournalEntry._fields) + 1


class _Part(NamedTuple):
    """The rows and columns that one journal has handed over."""

    journal: SessionJournal
    rows: list[JournalRow]
    columns: dict[str, Any]

    def numbered_rows(self) -> list[JournalRow]:
        """The rows with the number that the session has now: the database may be another one since."""
        number = self.journal.number
        if not self.rows or self.rows[0][0] == number == self.rows[-1][0]:
            return self.rows
        return [(number, *row[1:]) for row in self.rows]


class _Batch(NamedTuple):
    """The parts that are written in one transaction, and who waits for it."""

    parts: list[_Part]
    waiting: list[FlushCallback]
    size: int
    has_prompts: bool
    """True if nothing may be shown of the turns whose prompts are in it, before it is durable."""

    def write(self, connection: sqlite3.Connection) -> None:
        _insert(connection, [row for part in self.parts for row in part.numbered_rows()])
        for part in self.parts:
            if part.columns:
                _update(connection, part.journal.number, part.columns)


class Backlog:
    """Tells whether too much is unwritten: a plain flag, because it is read very often."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        self.is_full = False


class JournalWriter:
    """Writes what all journals of a store have gathered. Used on the event loop's thread only.

    It writes a quarter of a second after the first text, at 64 KiB, in the same tick for everything else, and
    when somebody must know that it is durable. After a failure nothing is lost: it stays in its order and is
    tried again.
    """

    def __init__(self, database: Database) -> None:
        self.size = 0
        self._uncounted = 0
        self._due_at = FLUSH_AT
        self.backlog = Backlog()
        self._database = database
        self._commits_at_once = database.commits_at_once
        self._journals: dict[SessionJournal, None] = {}
        self._waiting: list[FlushCallback] = []
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._within = NEVER
        self._undated: dict[SessionJournal, None] = {}
        self._has_prompts = False
        self._held: dict[Callable[[], None], None] = {}
        self._under_way: tuple[_Batch, Future[None]] | None = None
        self._has_failed = False
        self._is_closed = False

    @property
    def is_writing(self) -> bool:
        """True while something is under way on the store's thread."""
        return self._under_way is not None

    def attach(self, loop: asyncio.AbstractEventLoop) -> None:
        """Use this event loop from now on; alarms of an earlier one will not ring any more."""
        if loop is not self._loop:
            self._loop, self._timer, self._soon, self._within = loop, None, None, NEVER

    def expect(self, journal: SessionJournal, within: float) -> None:
        """Note that a journal has something to write, within so many seconds; 0 is in this tick."""
        if journal.is_closed or self._is_closed:
            journal.hand_over()
            return
        if journal not in self._journals:
            if self._journals and self._due_at < LARGEST_FLUSH:
                self._due_at += FLUSH_MORE
            self._journals[journal] = None
        if self.size >= self._due_at:
            self._take_note_of_size()
        # What is under way ends with the next write; after a failure the alarm is set already.
        elif self._under_way is None and not self._has_failed:
            if within:
                self._set_alarm(within)
            elif self._soon is None:
                self._soon = asyncio.get_running_loop().call_soon(self._write)

    def expect_prompt(self, journal: SessionJournal) -> None:
        """Note that a journal has a prompt to write: very soon, or before anything is shown of its turn."""
        self._has_prompts = True
        self.expect(journal, PROMPT_WAITS)

    def before_showing(self, size: int, resume: Callable[[], None]) -> bool:
        """Write the prompts that wait, because so many bytes, which may be of their turns, are to be shown.

        Also take note of the text that is among the bytes. Returns False if a prompt is not durable yet, as
        while another process has locked the file. `resume` is called when it is, or could not be written:
        then the end of its turn will tell.
        """
        if self._has_prompts and not self._has_failed:
            self._write()
        self.note_text(size)
        if self._under_way is None or not (self._under_way[0].has_prompts or self._has_prompts):
            return True
        self._held[resume] = None
        return False

    def note_text(self, most: int) -> None:
        """Take note that some text was added, of so many bytes at most; write when it is much."""
        self._uncounted += most
        if self.size + self._uncounted >= self._due_at:
            self._uncounted = 0
            self.size += sum([journal.count_text() for journal in self._journals])
            if self.size >= self._due_at:
                self._take_note_of_size()

    def date_later(self, journal: SessionJournal) -> None:
        """Date a session within a quarter of a second."""
        if not journal.is_closed and not self._is_closed:
            self._undated[journal] = None
            self._set_alarm(FLUSH_AFTER)

    def write_dates(self) -> None:
        """Write the dates of the sessions that have changed since they were dated."""
        if self._undated:
            self._date_all()
            self._write()

    def _take_note_of_size(self) -> None:
        """Write what is pending, because it is much; if that is impossible, drop text to bound the memory."""
        self._due_at = self.size + FLUSH_AT
        if self._under_way is None and not self._has_failed:
            self._write()
        else:
            self.size = self._shed()
            self._due_at = self.size + FLUSH_AT
            # After a failure waiting would not help.
            self.backlog.is_full = self.size >= BACKLOG_FULL_AT and not self._has_failed

    def flush(self, done: FlushCallback) -> None:
        """Write everything so far, then call `done`."""
        self._date_all()
        self._flush(done)

    def flush_turn(self, journal: SessionJournal, done: FlushCallback) -> None:
        """Write everything so far but dates that can wait, then call `done`."""
        if journal.is_closed:
            journal.hand_over()
        else:
            self._journals[journal] = None
        self._flush(done)

    def _flush(self, done: FlushCallback) -> None:
        if self._is_closed:
            done(StoreError("unusable", "the store is closed: what happens now is not kept"))
            return
        if self._under_way is not None and not self._journals:
            # Everything so far is in there; after its failure nobody should have to wait for another.
            self._under_way[0].waiting.append(done)
            return
        self._waiting.append(done)
        self._write()

    def forget(self, journal: SessionJournal) -> None:
        """Write nothing more of a journal: its session was deleted."""
        journal.is_closed = True
        journal.hand_over()
        self._journals.pop(journal, None)
        self._undated.pop(journal, None)

    def close(self, patience: float) -> None:
        """Write what is left, blocking; what is then still unwritten is lost, and logged."""
        self._date_all()
        self._cancel_alarms()
        self._is_closed = True
        deadline = time.monotonic() + patience
        error: StoreError | None = None
        if self._under_way is not None:
            batch, future = self._under_way
            self._under_way = None
            error = self._outcome(future, patience)
            _tell(batch, error)
        rest = self._collect()
        # What comes after a gap is not written: a journal has a true beginning or nothing.
        if rest.parts and error is None:
            error = self._outcome(self._write_last(rest), max(0.0, deadline - time.monotonic()))
        _tell(rest, error)
        with contextlib.suppress(RuntimeError):  # the event loop may have ended
            self._let_go()
        if error is not None:
            log.error("the end of some sessions could not be stored: %s", error)

    def _write_last(self, batch: _Batch) -> Future[None]:
        future: Future[None] = Future()
        try:
            future.set_result(self._database.transaction(batch.write))
        except StoreError as error:
            if error.kind == "locked":
                return self._database.submit(batch.write)
            future.set_exception(error)
        return future

    def _outcome(self, future: Future[None], patience: float) -> StoreError | None:
        try:
            error = future.exception(patience)
        except TimeoutError:
            path = self._database.path
            return StoreError(
                "locked", f"{path} takes too long: its disk is slow, or another program holds it"
            )
        return self._explained(error) if error is not None else None

    @property
    def is_in_trouble(self) -> bool:
        """True if the last try to write has failed."""
        return self._has_failed

    def _write(self, inline_limit: int = INLINE_LIMIT) -> None:
        if self._under_way is not None:
            return
        if self._soon is not None:
            self._soon.cancel()
            self._soon = None
        batch = self._collect()
        if not batch.parts:
            _tell(batch, None)
        elif batch.size < inline_limit and self._commits_at_once and not self._database.has_waiting_work:
            self._write_inline(batch)
        else:
            self._send(batch)

    def _write_inline(self, batch: _Batch) -> None:
        try:
            self._commit(batch)
        except StoreError as error:
            if error.kind == "locked":
                self._send(batch)
            else:
                self._fail(batch, error)
        except Exception as error:
            self._fail(batch, self._explained(error))
        else:
            self._succeed(batch)

    def _commit(self, batch: _Batch) -> None:
        [part, *others] = batch.parts
        if not others and not part.columns and len(part.rows) <= _ROWS_OF_ANY_STATEMENT:
            # The end of most turns: without BEGIN and COMMIT it takes a tenth less.
            try:
                self._database.transaction(_insertion(part.numbered_rows()))
                return
            except sqlite3.IntegrityError:
                pass  # some of it is there already
        self._database.transaction(batch.write)

    def _send(self, batch: _Batch) -> None:
        """Submit the batch to the store's thread; meanwhile the journals collect more."""
        loop = asyncio.get_running_loop()
        future = self._database.submit(batch.write)
        self._under_way = batch, future
        future.add_done_callback(lambda future: _call_in(loop, self._hear_of, batch, future))

    def _hear_of(self, batch: _Batch, future: Future[None]) -> None:
        if self._under_way is None or self._under_way[0] is not batch:
            return  # the store was closed meanwhile
        self._under_way = None
        error = future.exception()
        if error is None:
            self._succeed(batch)
        else:
            self._fail(batch, self._explained(error))
        if self._waiting or (self._journals and not self._has_failed):
            self._write(CATCH_UP_LIMIT)
        self._let_go()

    def _let_go(self) -> None:
        """Have those try again who were not to show anything; one that still has to wait will be told so."""
        held, self._held = self._held, {}
        for resume in held:
            resume()

    def _succeed(self, batch: _Batch) -> None:
        self._has_failed = False
        _tell(batch, None)

    def _fail(self, batch: _Batch, error: StoreError) -> None:
        if not self._has_failed:
            log.warning("sessions cannot be stored, trying again: %s", error)
        self._has_failed = True
        self.backlog.is_full = False
        later = self._journals
        self._journals = {}
        for journal, rows, columns in batch.parts:
            if not journal.is_closed:
                journal.give_back(rows, columns)
                self._journals[journal] = None
        self._journals |= later
        self.size = self._shed()
        self._due_at = self.size + FLUSH_AT
        self._set_alarm(RETRY_AFTER)
        _tell(batch, error)

    def _shed(self) -> int:
        """Drop text so that what cannot be written does not fill the memory.

        Returns the size of what stays.
        """
        share = MOST_PENDING // max(len(self._journals), 1)
        return sum([journal.shed(share) for journal in self._journals])

    def _explained(self, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        log.error("a flush failed in an unforeseen way", exc_info=error)
        return unusable(self._database.path, str(error))

    def _collect(self) -> _Batch:
        parts: list[_Part] = []
        for journal in self._journals:
            rows, columns = journal.hand_over()
            if rows or columns:
                parts.append(_Part(journal, rows, columns))
        batch = _Batch(parts, self._waiting, self.size, self._has_prompts)
        self._journals, self._waiting = {}, []
        self.size, self._uncounted, self._due_at = 0, 0, FLUSH_AT
        self.backlog.is_full = self._has_prompts = False
        return batch

    def _date_all(self) -> None:
        for journal in self._undated:
            journal.date()
            self._journals[journal] = None
        self._undated.clear()

    def _set_alarm(self, within: float) -> None:
        """Have everything written in so many seconds, or earlier.

        An alarm is not cancelled when everything was written otherwise: it costs less to have it ring in vain
        than to set another one each turn.
        """
        if within < self._within:
            if self._timer is not None:
                self._timer.cancel()
            self._within = within
            self._timer = asyncio.get_running_loop().call_later(within, self._ring)

    def _ring(self) -> None:
        self._timer, self._within = None, NEVER
        self._date_all()
        self._write()

    def _cancel_alarms(self) -> None:
        for alarm in (self._timer, self._soon):
            if alarm is not None:
                alarm.cancel()
        self._timer = self._soon = None


def _tell(batch: _Batch, error: StoreError | None) -> None:
    for done in batch.waiting:
        try:
            done(error)
        except Exception:
            log.exception("the end of a flush could not be handled")


def _call_in(loop: asyncio.AbstractEventLoop, call: Callable[..., None], *values: Any) -> None:
    try:
        loop.call_soon_threadsafe(call, *values)
    except RuntimeError:
        log.debug("the event loop ended before the store did")


def _insert(connection: sqlite3.Connection, rows: list[JournalRow]) -> None:
    """Insert many rows with few steps: on a thread each step may wait for the interpreter."""
    most = _ROWS_OF_ANY_STATEMENT
    if len(rows) > most:
        most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // _WIDTH
        most = min(most, _ROWS_OF_ONE_STATEMENT)
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        try:
            _insertion(some)(connection)
        except sqlite3.IntegrityError:
            _insert_missing(connection, some)


def _insert_missing(connection: sqlite3.Connection, rows: list[JournalRow]) -> None:
    """Insert the rows that are not there yet.

    A row that is there already is the same one, from a try that succeeded and did not know. Any other is the
    work of somebody who has the session as well, and must not be lost.
    """
    for row in rows:
        session, seq = row[:2]
        there = connection.execute(_WHOLE_ROW, [session, seq]).fetchone()
        if there is None:
            _insertion([row])(connection)
        elif there != row:
            raise StoreError("unusable", "another process has written into this session: load it again")


def _insertion(rows: list[JournalRow]) -> Statement:
    return Statement(_insertion_of(len(rows)), [*chain.from_iterable(rows)])


@lru_cache(128)
def _insertion_of(count: int) -> str:
    return "INSERT INTO entries VALUES " + ",".join(["(?,?,?,?,?,?,?)"] * count)


def _update(connection: sqlite3.Connection, number: int, columns: dict[str, Any]) -> None:
    plain = {name: value for name, value in columns.items() if name != "state"}
    if plain:
        names = ", ".join(f"{name} = ?" for name in plain)
        connection.execute(f"UPDATE sessions SET {names} WHERE number = ?", [*plain.values(), number])
    if "state" in columns:
        write_state(connection, number, columns["state"])
