"""The SQLite file, its schema and migrations, and how it is read and written.

A `Database` has two connections. That of the event loop never waits: it does what it is asked, or says at
once that the file is locked. It is the first choice because it is quicker: with 200 busy turns a thread waits
up to 5 ms for the interpreter at every step of SQLite, so that a list of sessions takes 250 ms there and 0.2
ms here. That of the `StoreThread` waits patiently. What was deleted leaves free pages, which `reclaim_space`
gives back to the file system. A file that was deleted or replaced while it was open is noticed before the
next use; then the one at the path is opened, with what was open in the old one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from functools import partial
from typing import Any, Literal, NamedTuple, Protocol, TypeVar

from coupler.store.errors import StoreError, translate_error, unusable
from coupler.store.migrations import check_version, is_new, migrate
from coupler.store.space import (
    LONGEST_REWRITE,
    MOST_FREE,
    RECLAIM_FROM,
    allow_shrinking,
    read_space,
    rewrite,
    shrink_some,
    was_interrupted,
)
from coupler.store.store_thread import DatabaseWork
from coupler.store.store_thread import StoreThread as StoreThread

log = logging.getLogger("coupler.store")

LOCK_TIMEOUT = 5.0
"""Seconds that the store's thread waits for a file that another program has locked."""

CHECKPOINT_AT = 4 * 1024 * 1024
"""Bytes by which the write-ahead log grows between two checkpoints."""

LOOK_AT_LOG_EVERY = 16
"""Writes between two looks at the size of the write-ahead log."""

IDLE_AFTER = 1.0
"""Seconds without a write after which the write-ahead log is emptied."""

LARGEST_LOG = 64 * 1024 * 1024
"""Bytes of the log from which on writers must wait while it is emptied: they leave no moment for it.

They wait for the disk, which writes what was folded since: in proportion to this.
"""

ROUNDS_BEFORE_EMPTYING = 2
"""Rounds in which most of a large log is folded while others write."""

RETRY_AFTER = 1.0
"""Seconds between a write that has failed and the next try."""

OPEN_TRIES = 10
"""Tries to open a file that somebody deletes or replaces in the same moment."""

LOOK_EVERY = 1.0
"""Seconds between two looks whether the files at the path are still those that are open."""

CHORE_REST, COMMAND_REST = 3.0, 1.0
"""Rests between two slices of a chore, and of what somebody waits for, as shares of a slice's time.

Others that wait for the file look at it now and then, and must find it free.
"""

FOLD_TRIES, FOLD_PAUSE = 8, 0.25
"""Tries to empty the write-ahead log after space was given back, and the seconds between two of them.

Somebody who reads just then keeps it from being emptied, and nobody is made to wait for readers.
"""

IN_MEMORY = ":memory:"

Synchronous = Literal["normal", "full"]

T = TypeVar("T")


class Statement:
    """Work that is one statement: SQLite makes a transaction of it by itself."""

    __slots__ = ("sql", "values")

    def __init__(self, sql: str, values: Sequence[Any]) -> None:
        self.sql = sql
        self.values = values

    def __call__(self, connection: sqlite3.Connection) -> sqlite3.Cursor:
        return connection.execute(self.sql, self.values)


def now() -> int:
    """The time as the store keeps it: milliseconds since 1970."""
    return time.time_ns() // 1_000_000


class CarriedWork(Protocol):
    """Open sessions, runs and the like of a database, carried over when the file is another one."""

    def is_alone(self) -> bool:
        """Return whether no other living process uses the database."""
        ...

    def collect(self, old: sqlite3.Connection, kept: sqlite3.Connection) -> None:
        """Copy it aside; raises sqlite3.Error if the old file cannot be read."""
        ...

    def restore(self, kept: sqlite3.Connection, new: sqlite3.Connection) -> int:
        """Put it into the new file, inside a transaction; returns how much could not be read before."""
        ...


class _Lost(NamedTuple):
    """A file that was deleted or replaced: how, and what was open in it."""

    sentence: str
    kept: sqlite3.Connection
    is_other_file: bool
    """False if only a file beside it was lost."""


class Database:
    """One open file. To be used on one thread, that of the event loop or of a command."""

    def __init__(
        self,
        path: str,
        synchronous: Synchronous = "normal",
        *,
        patience: float = LOCK_TIMEOUT,
        most_pages: int | None = None,
    ) -> None:
        self.path = path if path == IN_MEMORY else os.path.realpath(path)
        self._synchronous = synchronous
        self._patience = patience
        self._most_pages = most_pages
        self._has_log = True
        self._log_size_at_checkpoint = 0
        self._writes = 0
        self._idle_since: int | None = None
        """The number of writes when it was last looked whether nothing is written; None: nobody looks."""
        # The only connection to a database in memory serves all threads.
        self._turns = threading.RLock() if path == IN_MEMORY else nullcontext()
        self.open_work: list[CarriedWork] = []
        """The open work that goes on in another file if this one is deleted or replaced."""
        self.is_closed = False
        self.on_replaced: Callable[[str], None] | None = None
        """Called on the store's thread with a sentence when the file was deleted or replaced."""
        self._deleting = threading.Lock()
        self._deletions: list[DatabaseWork[bool]] = []
        self._opened: tuple[int, int] | None = None
        self._looked_at = time.monotonic()
        self._is_misplaced = False
        self._was_locked = False
        """True if what the store's thread did last found the file locked until its patience ended."""
        self._lost: _Lost | None = None
        self._inline, self._files = self._open_in_place()
        self._thread = None if path == IN_MEMORY else StoreThread(self._connect_patiently)

    def close(self, patience: float = 1.0) -> None:
        """Close the file; SQLite folds the log into it if nobody else has it open."""
        self.is_closed = True
        # First this one: the last to close writes to the disk, and that may take a while.
        if not self._is_misplaced:
            self._inline.close()
        if self._thread is not None:
            self._thread.close(patience)
        self._inline.close()  # which the thread may have used

    def transaction(self, work: DatabaseWork[T]) -> T:
        """Write now, all or nothing; raises at once if another writer is at it."""
        return self._do_at_once(self._write, work)

    def read(self, work: DatabaseWork[T]) -> T:
        """Read now. Without a write-ahead log, or while one is recovered, this too can be locked."""
        return self._do_at_once(_just_do, work)

    def _do_at_once(
        self, way: Callable[[sqlite3.Connection, DatabaseWork[T]], T], work: DatabaseWork[T]
    ) -> T:
        self._refuse_if_misplaced()
        try:
            return self._translating(way, self._inline, work)
        except StoreError:
            self._refuse_if_misplaced()  # it was lost just now, and nothing was done in it
            raise

    async def attempt(self, work: DatabaseWork[T]) -> T:
        """Write now if possible, else as soon as the file is free; what waits already goes first."""
        if not self.has_waiting_work:
            try:
                return self.transaction(work)
            except StoreError as error:
                if error.kind != "locked" or self._thread is None:
                    raise
        return await asyncio.wrap_future(self.submit(work))

    async def attempt_to_read(self, work: DatabaseWork[T]) -> T:
        """Read now if possible, else as soon as the file is free."""
        try:
            return self.read(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return await asyncio.wrap_future(self._submit(_just_do, work))

    def wait(self, work: DatabaseWork[T]) -> T:
        """Write, and block until it is done: for commands, which have no event loop."""
        try:
            return self.transaction(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return self.submit(work).result()

    def wait_to_read(self, work: DatabaseWork[T]) -> T:
        """Read, and block until it is done: for commands, which have no event loop."""
        try:
            return self.read(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return self._submit(_just_do, work).result()

    def submit(self, work: DatabaseWork[T]) -> Future[T]:
        """Write on the store's thread."""
        return self._submit(self._write, work)

    def submit_until_done(self, work: DatabaseWork[object]) -> None:
        """Write when nothing else waits on the store's thread; try each second until it succeeds."""

        def try_again(future: Future[object]) -> None:
            if not future.cancelled() and isinstance(future.exception(), StoreError):
                self.submit_until_done(work)

        self._submit(self._write, work, chore=True, after=RETRY_AFTER).add_done_callback(try_again)

    def submit_to_read(self, work: DatabaseWork[T]) -> Future[T]:
        """Read on the store's thread: for what is too much to be read on the event loop."""
        return self._submit(_just_do, work)

    def reclaim_space(
        self, delete_some: DatabaseWork[bool] = lambda connection: False, *, after: float = 0.0
    ) -> None:
        """Delete slice by slice, beside everything else, and give the space back to the file system.

        `delete_some` deletes a slice, and says whether more is left. Without it, the space that is free
        already is given back. It begins after so many seconds.
        """
        if self._thread is None:
            while self.transaction(delete_some):
                pass
            return
        with self._deleting:
            if delete_some in self._deletions[1:]:
                return  # it has not begun yet, and finds what is to be deleted now
            self._deletions.append(delete_some)
            is_under_way = len(self._deletions) > 1
        if not is_under_way:
            self._next_slice(after)

    def reclaim_left_space(self, *, after: float = 0.0) -> None:
        """Give space back that an earlier process has left free, if it is much."""
        if self._thread is not None:
            space = self.wait_to_read(read_space)
            if space.free_bytes >= RECLAIM_FROM and space.is_reclaimable:
                self.reclaim_space(after=after)

    def wait_to_reclaim_space(
        self, delete_some: DatabaseWork[bool] = lambda connection: False, *, is_alone: bool
    ) -> int:
        """Do the same, and block until it is done: for commands. Returns the bytes that stay free.

        A large file of an earlier version is made smaller only if no other process has to wait for that.
        """
        thread = self._thread
        if thread is None:
            self.reclaim_space(delete_some)
            return 0
        while True:
            began = time.monotonic()
            if not self._submit(_just_do, partial(self._reclaim_some, delete_some)).result():
                break
            time.sleep(0.0 if is_alone else (time.monotonic() - began) * COMMAND_REST)
        self._submit(_just_do, lambda connection: _make_shrinkable(connection, is_alone=is_alone)).result()
        for _ in range(FOLD_TRIES):
            if thread.submit(self._empty_folded_log).result():
                break
            time.sleep(FOLD_PAUSE)
        return self.wait_to_read(read_space).free_bytes

    def look_again(self) -> None:
        """Look before the next use whether the file is still the one at its path."""
        self._looked_at = 0.0

    def open_if_replaced(self, patience: float) -> None:
        """Open the file that is at the path now, if it is another one, for so many seconds."""
        self.look_again()
        if self._thread is not None and not self._is_in_place():
            try:
                self.submit(lambda connection: None).result(patience)
            except (StoreError, TimeoutError) as error:
                log.error("what was open in %s is lost: %s", self.path, error)

    @property
    def commits_at_once(self) -> bool:
        """True if a commit does not wait for the disk itself."""
        return self._thread is None or (self._has_log and self._synchronous == "normal")

    @property
    def has_waiting_work(self) -> bool:
        """True if writes wait on the store's thread; to keep their order, later ones join them."""
        return self._thread is not None and self._thread.has_work

    def _submit(
        self,
        way: Callable[[sqlite3.Connection, DatabaseWork[T]], T],
        work: DatabaseWork[T],
        *,
        chore: bool = False,
        after: float = 0.0,
    ) -> Future[T]:
        if self._thread is None:
            return _done_at_once(lambda: self._translating(way, self._inline, work))
        in_time = partial(self._do_patiently, way, work, time.monotonic() + after)
        return self._thread.submit(in_time, chore=chore, after=after)

    def _do_patiently(
        self,
        way: Callable[[sqlite3.Connection, DatabaseWork[T]], T],
        work: DatabaseWork[T],
        since: float,
        connection: sqlite3.Connection,
    ) -> T:
        """Do the work on the store's thread, and wait for a locked file.

        The time that it has waited behind others which found the file locked counts: of many that wait for
        the same lock none waits longer than the first.
        """
        connection = self._placed_with_patience(connection)
        was_locked, self._was_locked = self._was_locked, False
        if was_locked:
            _set_patience(connection, max(0.0, since + self._patience - time.monotonic()))
        try:
            return self._translating(way, connection, work)
        except StoreError as error:
            self._was_locked = error.kind == "locked"
            if self._was_locked or self._is_in_place():
                raise
        finally:
            if was_locked:
                _set_patience(connection, self._patience)
        # The file was lost just now, perhaps after it was opened: nothing was done in it.
        return self._translating(way, self._placed_with_patience(connection), work)

    def _placed_with_patience(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The thread's connection to the file at the path, also if that is lost while it is opened."""
        for _ in range(OPEN_TRIES):
            try:
                return self._placed(connection)
            except StoreError as error:
                if error.kind == "locked":
                    raise
        return self._placed(connection)

    def _translating(
        self,
        way: Callable[[sqlite3.Connection, DatabaseWork[T]], T],
        connection: sqlite3.Connection,
        work: DatabaseWork[T],
    ) -> T:
        try:
            with self._turns:
                return way(connection, work)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a mistake in this program, nothing that its user can do something about
        except sqlite3.Error as error:
            self.look_again()
            raise translate_error(error, self.path) from error

    def _write(self, connection: sqlite3.Connection, work: DatabaseWork[T]) -> T:
        result = _in_transaction(connection, work)
        self._checkpoint_if_due()
        return result

    def _checkpoint_if_due(self) -> None:
        """Have the log folded into the file when it has grown much.

        The log's file tells its size truly once that is more than `CHECKPOINT_AT`: to so much each connection
        truncates it when it starts over. What is below is not freed, because to allocate it again costs more
        than to overwrite it.
        """
        self._writes += 1
        if self._thread is None or self._writes % LOOK_AT_LOG_EVERY:
            return
        try:
            size = os.stat(f"{self.path}-wal").st_size
        except OSError:
            self.look_again()
            return
        if size < self._log_size_at_checkpoint:
            self._log_size_at_checkpoint = 0
        if size > CHECKPOINT_AT and size - self._log_size_at_checkpoint >= CHECKPOINT_AT:
            self._log_size_at_checkpoint = size
            self._thread.submit(_checkpoint if size < LARGEST_LOG else _empty_log, chore=True)
        if self._idle_since is None:
            self._fold_when_idle(self._thread)

    def _fold_when_idle(self, thread: StoreThread) -> None:
        """Empty the log when nothing was written for a while: it may be larger than what is kept."""
        self._idle_since = self._writes

        def go_on(future: Future[None]) -> None:
            if future.cancelled() or future.exception() is not None:
                self._idle_since = None
            elif self._idle_since != self._writes:
                self._fold_when_idle(thread)
            else:
                self._idle_since = None
                self._fold_log()

        thread.submit(lambda connection: None, chore=True, after=IDLE_AFTER).add_done_callback(go_on)

    def _refuse_if_misplaced(self) -> None:
        """Raise as if the file were locked if it is not the one at its path: the thread opens that one."""
        if self._thread is not None and not self._is_in_place():
            raise StoreError("locked", f"{self.path} was deleted or replaced: try again")

    def _is_in_place(self) -> bool:
        """Return whether the open files are those at the path; looks at most once a second."""
        if self._is_misplaced:
            return False
        moment = time.monotonic()
        if moment - self._looked_at >= LOOK_EVERY:
            self._looked_at = moment
            self._is_misplaced = _files_at(self.path) != self._files
        return not self._is_misplaced

    def _placed(self, connection: sqlite3.Connection) -> sqlite3.Connection:
        """The thread's connection, to the file that is at the path now; on the store's thread."""
        if not self._is_misplaced:
            return connection
        assert self._thread is not None
        try:
            self._exchange_files(connection)
            return self._thread.reconnect()
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error
        except StoreError:
            self._is_misplaced = True
            raise

    def _exchange_files(self, connection: sqlite3.Connection | None) -> None:
        """Open the files at the path in place of those that are open, and put there what is open here."""
        if self._lost is not None:  # and closed: what is at the path could not be opened then
            self._take_up(self._lost, *self._open_in_place())
            return
        lost = self._lost = self._copy_open_work()
        is_other_file = lost.is_other_file or self._copy_for_others()
        try:
            if is_other_file:
                # Whoever else has lost the same file waits until there is a new one.
                _lock_if_possible(self._inline, self._patience)
                self._remove_old_log()
                inline, files = self._open_in_place()
        finally:
            for each in (connection, self._inline):
                if each is not None:
                    each.close()
        if not is_other_file:
            # Only now, because the connections of a process to one file share what is beside it.
            inline, files = self._open_in_place()
        self._take_up(lost, inline, files)

    def _copy_open_work(self) -> _Lost:
        """Copy aside what is open in files that are not those at the path."""
        found = _files_at(self.path)
        kept = sqlite3.connect("", check_same_thread=False)
        lost = _Lost(_how_lost(self.path, self._files, found), kept, found.database != self._files.database)
        try:
            for work in self.open_work:
                work.collect(self._inline, kept)
        except sqlite3.Error as error:
            log.warning("what was open in %s cannot be read any more: %s", self.path, error)
        if lost.is_other_file or _file_at(f"{self.path}-wal") in (None, self._files.log):
            # So that a file that was moved away is whole, and nothing is lost of one that is in its place,
            # unless others use that with another log by now.
            _checkpoint(self._inline, "TRUNCATE")
        return lost

    def _copy_for_others(self) -> bool:
        """Put a copy into the file's place if others use it too, and a file beside it was lost.

        They still use the lost one: two processes with different logs would damage the file. So they go on in
        what is no longer at the path, until they notice. False if nobody else uses it.
        """
        if all(work.is_alone() for work in self.open_work):
            return False
        draft = f"{self.path}.copy-{os.getpid()}"
        try:
            _create_private(draft)
            with contextlib.closing(sqlite3.connect(draft)) as copy:
                self._inline.backup(copy)
            _lock_if_possible(self._inline, self._patience)
            if _file_at(self.path) == self._files.database:
                for suffix in ("-wal", "-shm"):
                    with contextlib.suppress(FileNotFoundError):
                        os.remove(f"{self.path}{suffix}")
                os.replace(draft, self.path)
        except (sqlite3.Error, OSError) as error:
            log.warning("%s could not be copied for its other users: %s", self.path, error)
            return False
        finally:
            with contextlib.suppress(OSError):
                os.remove(draft)
        return True

    def _remove_old_log(self) -> None:
        """Remove the log of the former file from beside the new one, which it would damage."""
        for suffix, ours in (("-wal", self._files.log), ("-shm", self._files.shared_memory)):
            if ours is not None and _file_at(f"{self.path}{suffix}") == ours:
                with contextlib.suppress(OSError):
                    os.remove(f"{self.path}{suffix}")

    def _restore_work(self, kept: sqlite3.Connection, new: sqlite3.Connection) -> int:
        return sum(work.restore(kept, new) for work in self.open_work)

    def _take_up(self, lost: _Lost, inline: sqlite3.Connection, files: _Files) -> None:
        """Put what was open in the former file into the new one, and use that from now on."""
        sentence = lost.sentence
        try:
            if self.open_work:
                with contextlib.closing(self._connect(self._patience)) as new:
                    incomplete = _in_transaction(new, partial(self._restore_work, lost.kept))
                sentence += " Of some only what was still in memory." if incomplete else ""
        except BaseException:
            inline.close()
            raise
        lost.kept.close()
        self._inline, self._files, self._lost = inline, files, None
        self._log_size_at_checkpoint = 0
        self._is_misplaced = False
        self.look_again()
        log.warning("%s", sentence)
        if self.on_replaced is not None:
            self.on_replaced(sentence)

    def _next_slice(self, after: float = 0.0) -> None:
        """Do a slice of what is to be deleted, the next one after a rest, and so on until nothing is left.

        One at a time, whoever has deleted something: rests help others only if nobody works in them.
        """
        assert self._thread is not None
        began = 0.0

        def do(connection: sqlite3.Connection) -> bool:
            nonlocal began
            began = time.monotonic()
            work = partial(self._reclaim_some, self._deletions[0])
            if self._do_patiently(_just_do, work, began, connection):
                return True
            with self._deleting:
                del self._deletions[0]
                return bool(self._deletions)

        def go_on(future: Future[bool]) -> None:
            if future.cancelled():
                return
            error = future.exception()
            if error is not None:
                # Whatever is left is done by a later start, as if the store had been closed meanwhile.
                log.debug("what was deleted is not yet removed from the file: %s", error)
                with self._deleting:
                    self._deletions.clear()
            elif future.result():
                self._next_slice((time.monotonic() - began) * CHORE_REST)
            else:
                self._fold_log()

        self._thread.submit(do, chore=True, after=after).add_done_callback(go_on)

    def _reclaim_some(self, delete_some: DatabaseWork[bool], connection: sqlite3.Connection) -> bool:
        """Delete some rows, or give some free pages back; False if nothing is left to do."""
        space = read_space(connection)
        may_delete = not space.can_shrink or space.free_bytes < MOST_FREE
        if may_delete and self._write(connection, delete_some):
            return True
        space = read_space(connection)
        if not space.is_reclaimable:
            return False
        if space.can_shrink:
            return self._write(connection, shrink_some) or not may_delete
        return rewrite(connection, LONGEST_REWRITE)

    def _fold_log(self, tries: int = FOLD_TRIES) -> None:
        """Empty the write-ahead log: until then the space has only moved from the file to its log."""
        assert self._thread is not None

        def try_again(future: Future[bool]) -> None:
            if tries > 1 and not future.cancelled() and future.exception() is None and not future.result():
                self._fold_log(tries - 1)

        after = 0.0 if tries == FOLD_TRIES else FOLD_PAUSE
        self._thread.submit(self._empty_folded_log, chore=True, after=after).add_done_callback(try_again)

    def _empty_folded_log(self, connection: sqlite3.Connection) -> bool:
        """Fold the log into the file and empty it; False if somebody else uses it just now."""
        _checkpoint(connection)  # while others write; they wait only for what comes after it
        _set_patience(connection, 0.0)
        try:
            is_busy = bool(connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0])
        except sqlite3.Error as error:
            log.debug("the write-ahead log could not be emptied: %s", error)
            is_busy = True
        finally:
            _set_patience(connection, self._patience)
        return not is_busy

    def _open_in_place(self) -> tuple[sqlite3.Connection, _Files]:
        """Open the inline connection, and tell which files it has open: certainly those at the path."""
        for _ in range(OPEN_TRIES):
            connection = self._open()
            files = _files_at(self.path)
            has_all = files.database is not None and (not self._has_log or None not in files)
            if self.path == IN_MEMORY or (has_all and files.database == self._opened):
                return connection, files
            connection.close()
        raise unusable(self.path, "it is deleted again and again")

    def _open(self) -> sqlite3.Connection:
        """Open the inline connection, to a file that exists, is Coupler's and up to date."""
        try:
            if self.path != IN_MEMORY:
                _create_private(self.path)
                self._opened = _file_at(self.path)
            connection = self._connect(self._patience)
        except OSError as error:
            raise unusable(self.path, error.strerror or str(error)) from error
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error
        try:
            self._translating(_just_do, connection, self._prepare)
        except BaseException:
            connection.close()
            raise
        return connection

    def _prepare(self, connection: sqlite3.Connection) -> None:
        # Before anything is written: a newer file must stay as it is.
        is_current = check_version(connection, self.path)
        if self.path != IN_MEMORY:
            if not is_current and is_new(connection):
                allow_shrinking(connection)
            self._use_log(connection)
        if not is_current:
            _in_transaction(connection, lambda connection: migrate(connection, self.path))
        _set_patience(connection, 0.0)

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log, without which readers and writers wait for each other."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if translate_error(error, self.path).kind != "locked":
                    mode = str(error)
                    break
                # Two processes that open a new file at once refuse each other without any patience.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
        self._has_log = mode == "wal"
        if not self._has_log:
            log.warning(
                "no write-ahead log is possible at %s (%s): sessions are stored more slowly", self.path, mode
            )

    def _connect_patiently(self) -> sqlite3.Connection:
        try:
            if self._is_misplaced:
                self._exchange_files(None)
            return self._connect(self._patience)
        except OSError as error:
            raise unusable(self.path, error.strerror or str(error)) from error
        except sqlite3.Error as error:
            raise translate_error(error, self.path) from error

    def _connect(self, patience: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute(f"PRAGMA journal_size_limit = {CHECKPOINT_AT}")
            if self._most_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {self._most_pages}")
        except BaseException:
            connection.close()
            raise
        return connection


class _Files(NamedTuple):
    """The device and inode of a database's file, of its log and of what its users share; None: not there."""

    database: tuple[int, int] | None
    log: tuple[int, int] | None
    shared_memory: tuple[int, int] | None


def _files_at(path: str) -> _Files:
    return _Files(*(_file_at(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")))


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _how_lost(path: str, before: _Files, found: _Files) -> str:
    if found.database is None:
        kept = "The sessions and runs that are open are kept in a new one; all others are gone."
        return f"{path} was deleted while it was open. {kept}"
    if found.database != before.database:
        kept = "The new file is used, and the sessions and runs that are open are kept in it."
        return f"{path} was replaced while it was open. {kept}"
    return f"A file beside {path} was deleted or replaced while it was open. The store was opened again."


def _lock_if_possible(connection: sqlite3.Connection, patience: float) -> None:
    """Keep others from writing until the connection is closed; a file that is damaged cannot be locked."""
    try:
        if not connection.in_transaction:
            _set_patience(connection, patience)
            connection.execute("BEGIN IMMEDIATE")
    except sqlite3.Error as error:
        log.debug("the former database could not be locked: %s", error)


def _set_patience(connection: sqlite3.Connection, seconds: float) -> None:
    """Let the connection wait so long for a file that another one has locked."""
    connection.execute(f"PRAGMA busy_timeout = {round(seconds * 1000)}")


def _just_do(connection: sqlite3.Connection, work: DatabaseWork[T]) -> T:
    return work(connection)


def _in_transaction(connection: sqlite3.Connection, work: DatabaseWork[T]) -> T:
    is_transaction = isinstance(work, Statement)
    if is_transaction:
        return work(connection)
    connection.execute("BEGIN IMMEDIATE")
    try:
        result = work(connection)
        connection.execute("COMMIT")
    except BaseException:
        # After some failures, such as a full disk, SQLite has done this by itself.
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return result


def _checkpoint(connection: sqlite3.Connection, mode: str = "PASSIVE") -> None:
    try:
        connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
    except sqlite3.Error as error:
        if not was_interrupted(error):
            log.warning("the write-ahead log could not be folded into the database: %s", error)


def _empty_log(connection: sqlite3.Connection) -> None:
    """Fold the log into the file and empty it.

    Writers wait for the last round alone. If others write meanwhile, SQLite leaves it to that round to have
    the system write everything to the disk: that is done before, while nobody waits for it.
    """
    for _ in range(ROUNDS_BEFORE_EMPTYING):
        _checkpoint(connection)
        _write_to_disk(connection)
    _checkpoint(connection, "TRUNCATE")


_descriptors: dict[tuple[int, int], int] = {}
"""Descriptors of database files, never closed: that would drop the locks that connections have on them."""


def _write_to_disk(connection: sqlite3.Connection) -> None:
    """Have the system write the database's file to the disk now, as far as it can."""
    path = connection.execute("PRAGMA database_list").fetchone()[2]
    if not path or (file := _file_at(path)) is None:
        return
    try:
        if file not in _descriptors:
            _descriptors[file] = os.open(path, os.O_RDWR)
        os.fsync(_descriptors[file])
    except OSError as error:
        log.debug("%s could not be written to the disk: %s", path, error)


def _make_shrinkable(connection: sqlite3.Connection, *, is_alone: bool) -> None:
    """Write a file of an earlier version anew, if it is small, or if it pays and nobody else has to wait."""
    space = read_space(connection)
    if space.can_shrink or not space.free_pages:
        return
    if space.is_cheap_to_rewrite or (space.is_worth_rewriting and is_alone):
        rewrite(connection)


def _done_at_once(work: Callable[[], T]) -> Future[T]:
    future: Future[T] = Future()
    try:
        future.set_result(work())
    except Exception as error:
        future.set_exception(error)
    return future


def _create_private(path: str) -> None:
    """Make the file, if it is new, for its owner's eyes only; SQLite gives its log the same mode.

    A file that exists is not opened here: closing it would drop the locks that another connection of this
    process has on it.
    """
    make_private_directory(os.path.dirname(path))
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        if os.name == "posix" and os.stat(path).st_mode & 0o077:
            os.chmod(path, 0o600)
        return
    try:
        if os.name == "posix":
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)


def make_private_directory(directory: str) -> None:
    """Make a directory and those above it that are missing, for their owner's eyes only."""
    if os.path.isdir(directory):
        return
    make_private_directory(os.path.dirname(directory))
    try:
        os.mkdir(directory, 0o700)
        os.chmod(directory, 0o700)  # the umask may have taken too much
    except FileExistsError:
        if not os.path.isdir(directory):
            raise
