"""The errors of the store, with what to do about each.

Imports no sqlite3, so that whoever only catches these errors does not pay for it.
"""

from __future__ import annotations

import contextlib
import errno
import os
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sqlite3

StoreErrorKind = Literal["locked", "full", "newer", "unusable", "held", "cursor"]

# SQLite's result codes; the extended ones carry the plain code in their lowest byte.
_BUSY, _LOCKED, _IO_ERROR, _FULL = 5, 6, 10, 13
_NOT_A_DATABASE, _CORRUPT = 26, 11
_NO_ROOM_FOR_SHARED_MEMORY = 10 | 19 << 8

NEAR_LIMIT = 64 * 1024
"""Bytes by which a file that was kept from growing is smaller than the limit of its size, at the most."""

SMALLEST_STORE = 1024 * 1024
"""Bytes of a file that every store needs at some time."""

PROBE_BYTES = 64 * 1024
"""Bytes that are written to see what keeps files from being written."""


class StoreError(Exception):
    """The store cannot do what was asked; the message says what to do about it."""

    def __init__(self, kind: StoreErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: StoreErrorKind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[StoreError], tuple[Any, ...]]:
        return StoreError, (self.kind, self.message)


class HeldError(StoreError):
    """A session belongs to another process that is alive."""

    def __init__(self, session: str, pid: int) -> None:
        super().__init__(
            "held",
            f"the session {session} is open in another Coupler process ({pid}): close it there first",
        )
        self.session = session
        self.pid = pid

    def __reduce__(self) -> tuple[type[StoreError], tuple[Any, ...]]:
        return HeldError, (self.session, self.pid)


class EndingError(HeldError):
    """A process that was killed had it, and what that had started is still being ended."""

    def __init__(self, pid: int) -> None:
        StoreError.__init__(
            self,
            "held",
            f"the process {pid}, which had it open, was killed, and programs that it had started still run: "
            "try again when they have ended",
        )
        self.pid = pid

    def __reduce__(self) -> tuple[type[StoreError], tuple[Any, ...]]:
        return EndingError, (self.pid,)


class CursorError(StoreError):
    """A cursor was not made by this store for this query."""

    def __init__(self) -> None:
        super().__init__("cursor", "the cursor belongs to no page of this list: list again without a cursor")

    def __reduce__(self) -> tuple[type[StoreError], tuple[Any, ...]]:
        return CursorError, ()


def translate_error(error: sqlite3.Error, path: str) -> StoreError:
    """Make a StoreError of an error of SQLite."""
    code = getattr(error, "sqlite_errorcode", None) or 0
    if code & 0xFF in (_BUSY, _LOCKED):
        return StoreError("locked", f"another program holds {path}: wait until it is done, or end it")
    if code & 0xFF in (_IO_ERROR, _FULL) and (obstacle := _obstacle(path)) is not None:
        return StoreError("full", obstacle)
    if code & 0xFF == _FULL or code == _NO_ROOM_FOR_SHARED_MEMORY:
        return _disk_full(path)
    if code & 0xFF in (_NOT_A_DATABASE, _CORRUPT):
        return not_ours(path)
    return unusable(path, str(error))


def _obstacle(path: str) -> str | None:
    """Find out what keeps the file from growing; SQLite does not tell it apart from other failures."""
    limit = file_size_limit()
    if limit is not None:
        sizes = [_size(f"{path}{suffix}") for suffix in ("", "-wal", "-shm")]
        if limit < max(SMALLEST_STORE, max(sizes) + NEAR_LIMIT):
            return (
                f"{path} cannot grow: this process may write no file of more than {limit:,} bytes "
                "(`ulimit -f`): raise that limit where it is started"
            )
    directory = os.path.dirname(path) or "."
    match _error_of_writing(directory):
        case errno.ENOSPC:
            return _disk_full(path).message
        case errno.EDQUOT:
            return f"your disk quota is used up: free some space in {directory}, or ask for more"
    return None


def file_size_limit() -> int | None:
    """The most bytes that a file of this process may have; None if there is no limit."""
    try:
        import resource
    except ImportError:  # there is none on Windows
        return None
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return None if limit == resource.RLIM_INFINITY else limit


def _size(file: str) -> int:
    try:
        return os.stat(file).st_size
    except OSError:
        return 0


def _error_of_writing(directory: str) -> int | None:
    """Write a file for a moment; the number of the error that keeps it from being written."""
    file = os.path.join(directory, f".coupler-probe-{os.getpid()}-{os.urandom(4).hex()}")
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        return error.errno
    try:
        left = PROBE_BYTES
        while left:
            left -= os.write(descriptor, bytes(left))
    except OSError as error:
        return error.errno
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            os.remove(file)
    return None


def _disk_full(path: str) -> StoreError:
    return StoreError("full", f"the disk is full: free some space in {os.path.dirname(path) or path}")


def not_ours(path: str) -> StoreError:
    """The error for a file that is something else, or damaged."""
    return StoreError(
        "unusable", f"{path} is not a Coupler database, or damaged: move it away, or set COUPLER_HOME"
    )


def written_by_newer(path: str) -> StoreError:
    """The error for a file that a later version has changed."""
    return StoreError("newer", f"{path} was written by a newer Coupler: upgrade Coupler, or set COUPLER_HOME")


def unusable(path: str, reason: str) -> StoreError:
    """The error for a file that cannot be opened, read or written."""
    return StoreError(
        "unusable", f"{path} cannot be used ({reason}): check its permissions, or set COUPLER_HOME"
    )
