"""Takes and gives back leases: a session, a run or a kept session's name belongs to one process at a time.

A process shows that it lives by a lock on a file of its own, which the kernel drops when it dies, however it
dies. It is a POSIX record lock because that is not inherited by children, which may live longer. It has a
trap: closing any descriptor of the file drops it, so a process never opens its own file again, and has one
holder for each database.

What a killed process had started may live a little longer, until its guard has ended it. That long nobody
takes its leases: two agents would work on the same files. A second file, which the guard locks, tells.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar

from coupler.runtime.guard import is_locked_by_guard, lock_while_guarding, stop_locking
from coupler.store.database import IN_MEMORY, make_private_directory
from coupler.store.errors import EndingError, HeldError

if TYPE_CHECKING:
    import sqlite3

    from coupler.store.database import Database
    from coupler.store.store_thread import DatabaseWork

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

T = TypeVar("T")

log = logging.getLogger("coupler.store")

ENDING_PATIENCE = 10.0
"""Seconds in which what a killed process had started must have ended; its guard takes three at the most."""

ENDING_PAUSE = 0.02
"""Seconds between two looks whether it has."""

LeasedTable: TypeAlias = Literal["sessions", "runs"]
"""A table whose rows have a `number` and a `holder`."""

_holders: dict[tuple[int, str], LeaseHolder] = {}
_registry = threading.Lock()


class LeaseHolder:
    """The identity of this process for leases on sessions, runs and names."""

    def __init__(self, path: str) -> None:
        self.id = f"{os.getpid()}-{os.urandom(6).hex()}"
        self._path = path
        self._directory = f"{path}.holders"
        self._users = 0
        self._descriptor: int | None = None
        if path != IN_MEMORY:
            self._descriptor = self._lock_own_file()

    @classmethod
    def of(cls, path: str) -> LeaseHolder:
        """The holder of this process for a database; every user releases it once."""
        if path == IN_MEMORY:
            return cls(path)
        path = os.path.realpath(path)
        with _registry:
            # A forked child is another process, with its parent's registry.
            holder = _holders.get((os.getpid(), path))
            if holder is None:
                holder = _holders[os.getpid(), path] = cls(path)
                holder._remove_dead()
                lock_while_guarding(holder._guard_file(holder.id))
            holder._users += 1
            return holder

    def release(self) -> None:
        """Release one use; with the last, all that this process holds is free."""
        if self._descriptor is None or os.getpid() != pid_of(self.id):
            return  # what a forked child has is a copy of its parent's
        with _registry:
            self._users -= 1
            if self._users > 0:
                return
            _holders.pop((os.getpid(), self._path), None)
            stop_locking(self._guard_file(self.id))
            # First the name, so that nobody finds a file which is free but not gone.
            _remove(os.path.join(self._directory, self.id))
            os.close(self._descriptor)
            self._descriptor = None

    def renew(self) -> None:
        """Lock the files of this process and its guard again if somebody has deleted them.

        Without them others would think that it is dead, and that its programs are.
        """
        if self._descriptor is None or os.path.exists(os.path.join(self._directory, self.id)):
            return
        with _registry:
            deleted, self._descriptor = self._descriptor, self._lock_own_file()
            os.close(deleted)
            lock_while_guarding(self._guard_file(self.id))

    def is_alive(self, id: str) -> bool:
        """Return whether the process with this holder's id still runs; what a dead one left is removed."""
        if id == self.id:
            return True
        if self._path == IN_MEMORY or not _is_id(id):
            return False
        file = os.path.join(self._directory, id)
        try:
            descriptor = os.open(file, os.O_RDWR | getattr(os, "O_CLOEXEC", 0))
        except FileNotFoundError:
            return False
        except PermissionError:
            return True
        try:
            is_alive = not _try_lock(descriptor, shared=True)
        finally:
            os.close(descriptor)
        if not is_alive and not is_locked_by_guard(self._guard_file(id)):
            _remove(self._guard_file(id))
            _remove(file)
        return is_alive

    def is_alone(self) -> bool:
        """Return whether no other living process uses the database."""
        if self._descriptor is None:
            return True
        try:
            names = os.listdir(self._directory)
        except FileNotFoundError:
            return True
        return not any(self.is_alive(name) for name in names if name != self.id)

    def owner(self, lease: str | None) -> int | None:
        """The living process that has this lease; None if nobody has it."""
        return pid_of(lease) if lease is not None and self.is_alive(lease) else None

    def check_ended(self, lease: str | None) -> None:
        """Raise EndingError while something of the dead process that had this lease is being ended."""
        if self._path == IN_MEMORY or lease is None or lease == self.id or not _is_id(lease):
            return
        if is_locked_by_guard(self._guard_file(lease)):
            raise EndingError(pid_of(lease))

    def _guard_file(self, id: str) -> str:
        return os.path.join(self._directory, f".{id}.guard")

    def take(self, connection: sqlite3.Connection, table: LeasedTable, number: int) -> None:
        """Take the lease on a session or a run, which must be free."""
        connection.execute(f"UPDATE {table} SET holder = ? WHERE number = ?", [self.id, number])

    def give_back(self, connection: sqlite3.Connection, table: LeasedTable, number: int) -> None:
        """Give back the lease on a session or a run, if this process has it."""
        connection.execute(
            f"UPDATE {table} SET holder = NULL WHERE number = ? AND holder = ?", [number, self.id]
        )

    def _lock_own_file(self) -> int:
        make_private_directory(self._directory)
        # Under another name until it is locked, or it would look like a dead one's.
        draft = os.path.join(self._directory, f".{self.id}")
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | getattr(os, "O_CLOEXEC", 0)
        descriptor = os.open(draft, flags, 0o600)
        try:
            os.chmod(draft, 0o600)  # the umask may have taken too much
            if not _try_lock(descriptor, shared=False):
                raise OSError(f"the file {draft} cannot be locked")
            os.rename(draft, os.path.join(self._directory, self.id))
        except BaseException:
            os.close(descriptor)
            _remove(draft)
            raise
        return descriptor

    def _remove_dead(self) -> None:
        for name in os.listdir(self._directory):
            self.is_alive(name)


async def when_ended(database: Database, take: DatabaseWork[T]) -> T:
    """Take a lease, once all that a killed process had started is ended; raises EndingError if it stays."""
    deadline = time.monotonic() + ENDING_PATIENCE
    is_told = False
    while True:
        try:
            return await database.attempt(take)
        except EndingError as error:
            if time.monotonic() > deadline:
                raise
            if not is_told:
                log.warning(
                    "the process %d was killed: waiting until the programs that it had started have ended",
                    error.pid,
                )
            is_told = True
            # A blocking lock would need a thread that nobody can end.
            await asyncio.sleep(ENDING_PAUSE)


def hold_name(connection: sqlite3.Connection, holder: LeaseHolder, name: str, directory: str) -> None:
    """Take a name in a directory; raises HeldError if somebody has it, in this process or another.

    A name is used by one process at a time, and in that by one user. Like sessions, names are held for as
    long as the process lives: one that was killed holds nothing.
    """
    place = [os.fsencode(directory), name]
    row = connection.execute(
        "SELECT holder FROM held_names WHERE directory = ? AND name = ?", place
    ).fetchone()
    if row is not None and (owner := holder.owner(row[0])) is not None:
        raise HeldError(name, owner)
    holder.check_ended(row[0] if row is not None else None)
    connection.execute(
        "INSERT OR REPLACE INTO held_names (directory, name, holder) VALUES (?, ?, ?)", [*place, holder.id]
    )


def release_name(connection: sqlite3.Connection, holder: LeaseHolder, name: str, directory: str) -> None:
    """Release the name for others."""
    connection.execute(
        "DELETE FROM held_names WHERE directory = ? AND name = ? AND holder = ?",
        [os.fsencode(directory), name, holder.id],
    )


def pid_of(id: str) -> int:
    """The process that a holder's id belongs to."""
    return int(id.partition("-")[0])


def _is_id(name: str) -> bool:
    pid, dash, nonce = name.partition("-")
    return pid.isdecimal() and bool(dash) and nonce.isalnum()


def _remove(file: str) -> None:
    try:
        os.remove(file)
    except FileNotFoundError:
        return
    except PermissionError:
        return  # on Windows somebody looks at it just now; the next one removes it


if sys.platform == "win32":

    def _try_lock(descriptor: int, *, shared: bool) -> bool:
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def _try_lock(descriptor: int, *, shared: bool) -> bool:
        """Lock the file; those who only look share it, so that they do not take each other for the owner."""
        try:
            fcntl.lockf(descriptor, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True
