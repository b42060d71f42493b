"""The scribe: writes what all journals have gathered, in one transaction.

A quarter of a second after the first text, at 64 KiB, in the same tick for everything else, and when somebody
must know that it is durable. After a failure nothing is lost: it stays in its order and is tried again.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import lru_cache
from typing import Any, NamedTuple

from coupler.store.database import Database
from coupler.store.errors import StoreError, unusable
from coupler.store.journal import Entry, Journal, Row
from coupler.store.sessions import write_state

log = logging.getLogger("coupler.store")

FLUSH_AFTER = 0.25
"""Seconds that text waits for more."""

FLUSH_AT = 64 * 1024
"""Bytes, roughly, that are pending before text is written earlier."""

INLINE_LIMIT = 1024 * 1024
"""Bytes that are written on the event loop, in 2 to 10 ms.

Much more than what makes a flush due: while 200 turns are busy the store's thread gets so little of the
interpreter that, once a flush is left to it, more text comes than it can write.
"""

CATCH_UP_LIMIT = 4 * INLINE_LIMIT
"""Bytes that are written on the event loop after the thread's turn, to get back to small flushes."""

MOST_PENDING = 64 * 1024 * 1024
"""Bytes that all journals together keep while they cannot be written."""

ROOM = 2 * INLINE_LIMIT
"""Bytes that may be pending before those who can wait should."""

RETRY_AFTER = 1.0
"""Seconds between a failure and the next try."""

_ROWS_OF_ONE_STATEMENT = 1000
_WHOLE_ROW = "SELECT * FROM entries WHERE session = ? AND seq = ?"
_WIDTH = len(Entry._fields) + 1

Done = Callable[[StoreError | None], None]


class _Part(NamedTuple):
    """What one journal has handed over."""

    journal: Journal
    rows: list[Row]
    columns: dict[str, Any]


class _Batch(NamedTuple):
    """What is written in one transaction, and who waits for it."""

    parts: list[_Part]
    waiting: list[Done]
    size: int

    def write(self, connection: sqlite3.Connection) -> None:
        _insert(connection, [row for part in self.parts for row in part.rows])
        for part in self.parts:
            if part.columns:
                _update(connection, part.journal.number, part.columns)


class Backlog:
    """What is not written yet, as those see it who could wait: a plain flag, because they look very often."""

    __slots__ = ("is_full",)

    def __init__(self) -> None:
        self.is_full = False


class Scribe:
    """Writes for all sessions of a store. Used on the event loop's thread only."""

    def __init__(self, database: Database) -> None:
        self.size = 0
        self.due_at = FLUSH_AT
        self.backlog = Backlog()
        self._database = database
        self._journals: dict[Journal, None] = {}
        self._waiting: list[Done] = []
        self._timer: asyncio.TimerHandle | None = None
        self._soon: asyncio.Handle | None = None
        self._under_way: tuple[_Batch, Future[None]] | None = None
        self._has_failed = False
        self._is_closed = False

    @property
    def is_writing(self) -> bool:
        """Whether something is under way on the store's thread."""
        return self._under_way is not None

    def expect(self, journal: Journal, *, soon: bool = False) -> None:
        """A journal has something to write."""
        if journal.is_closed or self._is_closed:
            journal.hand_over()
            return
        self._journals[journal] = None
        if self.size >= self.due_at:
            self.take_note_of_size()
        # What is under way ends with the next write; after a failure the timer is set already.
        elif self._under_way is None and not self._has_failed:
            self._set_alarm(soon)

    def take_note_of_size(self) -> None:
        """Much is pending: write it, or if that is impossible see to it that memory suffices."""
        self.due_at = self.size + FLUSH_AT
        if self._under_way is None and not self._has_failed:
            self._write()
        else:
            self.size = self._shed()
            self.due_at = self.size + FLUSH_AT
            # After a failure waiting would not help.
            self.backlog.is_full = self.size >= ROOM and not self._has_failed

    def flush(self, done: Done) -> None:
        """Write everything so far, then call `done`."""
        if self._is_closed:
            done(StoreError("unusable", "the store is closed: what happens now is not kept"))
            return
        if self._under_way is not None and not self._journals:
            # Everything so far is in there; after its failure nobody should have to wait for another.
            self._under_way[0].waiting.append(done)
            return
        self._waiting.append(done)
        self._write()

    def forget(self, journal: Journal) -> None:
        """The session was deleted: nothing of it is written any more."""
        journal.is_closed = True
        journal.hand_over()
        self._journals.pop(journal, None)

    def close(self, patience: float) -> None:
        """Write what is left, blocking; what is then still unwritten is lost and said so."""
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
        """Whether the last try to write has failed."""
        return self._has_failed

    def _write(self, inline_limit: int = INLINE_LIMIT) -> None:
        if self._under_way is not None:
            return
        self._cancel_alarms()
        batch = self._collect()
        if not batch.parts:
            _tell(batch, None)
        elif batch.size < inline_limit and self._can_write_inline():
            self._write_inline(batch)
        else:
            self._send(batch)

    def _can_write_inline(self) -> bool:
        return self._database.commits_at_once and not self._database.has_waiting_work

    def _write_inline(self, batch: _Batch) -> None:
        try:
            self._database.transaction(batch.write)
        except StoreError as error:
            if error.kind == "locked":
                self._send(batch)
            else:
                self._fail(batch, error)
        except Exception as error:
            self._fail(batch, self._explained(error))
        else:
            self._succeed(batch)

    def _send(self, batch: _Batch) -> None:
        """Leave it to the store's thread; meanwhile the journals gather."""
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
        self.due_at = self.size + FLUSH_AT
        self._timer = asyncio.get_running_loop().call_later(RETRY_AFTER, self._write)
        _tell(batch, error)

    def _shed(self) -> int:
        """See to it that what cannot be written does not fill the memory; returns the size of what stays."""
        share = MOST_PENDING // max(len(self._journals), 1)
        return sum([journal.shed(share) for journal in self._journals])

    def _explained(self, error: BaseException) -> StoreError:
        if isinstance(error, StoreError):
            return error
        log.error("a flush failed in an unforeseen way", exc_info=error)
        return unusable(self._database.path, str(error))

    def _collect(self) -> _Batch:
        parts = [_Part(journal, *journal.hand_over()) for journal in self._journals]
        batch = _Batch([part for part in parts if part.rows or part.columns], self._waiting, self.size)
        self._journals, self._waiting = {}, []
        self.size, self.due_at = 0, FLUSH_AT
        self.backlog.is_full = False
        return batch

    def _set_alarm(self, soon: bool) -> None:
        if soon and self._soon is None:
            self._soon = asyncio.get_running_loop().call_soon(self._write)
        elif not soon and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(FLUSH_AFTER, self._write)

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


def _insert(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """Insert many rows with few steps: on a thread each step may wait for the interpreter."""
    most = connection.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) // _WIDTH
    most = min(most, _ROWS_OF_ONE_STATEMENT)
    for start in range(0, len(rows), most):
        some = rows[start : start + most]
        try:
            connection.execute(_insertion(len(some)), [value for row in some for value in row])
        except sqlite3.IntegrityError:
            _insert_missing(connection, some)


def _insert_missing(connection: sqlite3.Connection, rows: list[Row]) -> None:
    """A row that is there already is the same one, from a try that succeeded and did not know.

    Any other is the work of somebody who has the session as well, and must not be lost.
    """
    for row in rows:
        session, seq = row[:2]
        there = connection.execute(_WHOLE_ROW, [session, seq]).fetchone()
        if there is None:
            connection.execute(_insertion(1), row)
        elif there != row:
            raise StoreError("unusable", "another process has written into this session: load it again")


@lru_cache(128)
def _insertion(count: int) -> str:
    return "INSERT INTO entries VALUES " + ",".join(["(?,?,?,?,?,?,?)"] * count)


def _update(connection: sqlite3.Connection, number: int, columns: dict[str, Any]) -> None:
    plain = {name: value for name, value in columns.items() if name != "state"}
    if plain:
        names = ", ".join(f"{name} = ?" for name in plain)
        connection.execute(f"UPDATE sessions SET {names} WHERE number = ?", [*plain.values(), number])
    if "state" in columns:
        write_state(connection, number, columns["state"])
