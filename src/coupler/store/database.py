"""The SQLite file, and the two ways to it: at once on the event loop, or patiently on the store's thread.

The loop's own connection never waits: it does what it is asked, or says at once that the file is locked.
It is the first choice because it is quicker: with 200 busy turns a thread waits up to 5 ms for the
interpreter at every step of SQLite, so that a list of sessions takes 250 ms there and 0.2 ms here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Literal

from coupler.store.errors import StoreError, translated, unusable
from coupler.store.migrations import check_version, migrate
from coupler.store.thread import StoreThread, T, Work

log = logging.getLogger("coupler.store")

PATIENCE = 5.0
"""Seconds that the store's thread waits for a file that another program has locked."""

CHECKPOINT_AT = 4 * 1024 * 1024
"""Bytes by which the write-ahead log grows between two checkpoints."""

LARGEST_LOG = 256 * 1024 * 1024
"""Bytes of the log from which on writers must wait while it is emptied; they may be too busy for less."""

IN_MEMORY = ":memory:"

Synchronous = Literal["normal", "full"]


class Database:
    """One open file. To be used on one thread, that of the event loop or of a command."""

    def __init__(
        self,
        path: str,
        synchronous: Synchronous = "normal",
        *,
        patience: float = PATIENCE,
        most_pages: int | None = None,
    ) -> None:
        self.path = path if path == IN_MEMORY else os.path.realpath(path)
        self._synchronous = synchronous
        self._patience = patience
        self._most_pages = most_pages
        self._has_log = True
        self._log_size_at_checkpoint = 0
        self._inline = self._open()
        self._thread = None if path == IN_MEMORY else StoreThread(self._connect_patiently)

    def close(self, patience: float = 1.0) -> None:
        """Let go of the file; SQLite folds the log into it if nobody else has it open."""
        # First this one: the last to close writes to the disk, and that may take a while.
        self._inline.close()
        if self._thread is not None:
            self._thread.close(patience)

    def transaction(self, work: Work[T]) -> T:
        """Write now, all or nothing; raises at once if another writer is at it."""
        return self._translating(self._write, self._inline, work)

    def read(self, work: Work[T]) -> T:
        """Read now. Without a write-ahead log, or while one is recovered, this too can be locked."""
        return self._translating(_just_do, self._inline, work)

    async def attempt(self, work: Work[T]) -> T:
        """Write now if possible, else as soon as the file is free; what waits already goes first."""
        if not self.has_waiting_work:
            try:
                return self.transaction(work)
            except StoreError as error:
                if error.kind != "locked" or self._thread is None:
                    raise
        return await asyncio.wrap_future(self.submit(work))

    async def attempt_to_read(self, work: Work[T]) -> T:
        """Read now if possible, else as soon as the file is free."""
        try:
            return self.read(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return await asyncio.wrap_future(self._submit(_just_do, work))

    def wait(self, work: Work[T]) -> T:
        """Write, and block until it is done: for commands, which have no event loop."""
        try:
            return self.transaction(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return self.submit(work).result()

    def wait_to_read(self, work: Work[T]) -> T:
        """Read, and block until it is done: for commands, which have no event loop."""
        try:
            return self.read(work)
        except StoreError as error:
            if error.kind != "locked" or self._thread is None:
                raise
        return self._submit(_just_do, work).result()

    def submit(self, work: Work[T], *, chore: bool = False) -> Future[T]:
        """Write on the store's thread; a chore when nothing else waits there."""
        return self._submit(self._write, work, chore=chore)

    @property
    def commits_at_once(self) -> bool:
        """Whether a commit does not wait for the disk itself."""
        return self._thread is None or (self._has_log and self._synchronous == "normal")

    @property
    def has_waiting_work(self) -> bool:
        """Whether writes wait on the store's thread; to keep their order, later ones join them."""
        return self._thread is not None and self._thread.has_work

    def _submit(
        self, way: Callable[[sqlite3.Connection, Work[T]], T], work: Work[T], *, chore: bool = False
    ) -> Future[T]:
        if self._thread is None:
            return _done_at_once(lambda: self._translating(way, self._inline, work))
        return self._thread.submit(lambda connection: self._translating(way, connection, work), chore=chore)

    def _translating(
        self, way: Callable[[sqlite3.Connection, Work[T]], T], connection: sqlite3.Connection, work: Work[T]
    ) -> T:
        try:
            return way(connection, work)
        except (sqlite3.IntegrityError, sqlite3.ProgrammingError):
            raise  # a mistake in this program, nothing that its user can do something about
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _write(self, connection: sqlite3.Connection, work: Work[T]) -> T:
        result = _in_transaction(connection, work)
        self._checkpoint_if_due()
        return result

    def _checkpoint_if_due(self) -> None:
        """Have the log folded into the file when it has grown much.

        The log's file tells its size truly, because each connection truncates it when it starts over.
        """
        if self._thread is None:
            return
        try:
            size = os.stat(f"{self.path}-wal").st_size
        except OSError:
            return
        if size < self._log_size_at_checkpoint:
            self._log_size_at_checkpoint = 0
        if size - self._log_size_at_checkpoint >= CHECKPOINT_AT:
            self._log_size_at_checkpoint = size
            self._thread.submit(_checkpoint if size < LARGEST_LOG else _empty_log, chore=True)

    def _open(self) -> sqlite3.Connection:
        """The inline connection, to a file that exists, is Coupler's and up to date."""
        try:
            if self.path != IN_MEMORY:
                _create_private(self.path)
            connection = self._connect(self._patience)
        except OSError as error:
            raise unusable(self.path, error.strerror or str(error)) from error
        except sqlite3.Error as error:
            raise translated(error, self.path) from error
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
            self._use_log(connection)
        if not is_current:
            _in_transaction(connection, lambda connection: migrate(connection, self.path))
        connection.execute("PRAGMA busy_timeout = 0")

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Turn on the write-ahead log, without which readers and writers wait for each other."""
        deadline = time.monotonic() + self._patience
        while True:
            try:
                mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
                break
            except sqlite3.OperationalError as error:
                if translated(error, self.path).kind != "locked":
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
            return self._connect(self._patience)
        except sqlite3.Error as error:
            raise translated(error, self.path) from error

    def _connect(self, patience: float) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self.path, timeout=patience, isolation_level=None, check_same_thread=False
        )
        try:
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute("PRAGMA wal_autocheckpoint = 0")
            connection.execute("PRAGMA journal_size_limit = 0")
            if self._most_pages is not None:
                connection.execute(f"PRAGMA max_page_count = {self._most_pages}")
        except BaseException:
            connection.close()
            raise
        return connection


def _just_do(connection: sqlite3.Connection, work: Work[T]) -> T:
    return work(connection)


def _in_transaction(connection: sqlite3.Connection, work: Work[T]) -> T:
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
        log.warning("the write-ahead log could not be folded into the database: %s", error)


def _empty_log(connection: sqlite3.Connection) -> None:
    _checkpoint(connection, "TRUNCATE")


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
