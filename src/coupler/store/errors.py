"""The errors of the store, with what to do about each.

Imports no sqlite3, so that whoever only catches these errors does not pay for it.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    import sqlite3

StoreErrorKind = Literal["locked", "full", "newer", "unusable", "held", "cursor"]

# SQLite's result codes; the extended ones carry the plain code in their lowest byte.
_BUSY, _LOCKED, _FULL = 5, 6, 13
_NOT_A_DATABASE, _CORRUPT = 26, 11
_NO_ROOM_FOR_SHARED_MEMORY = 10 | 19 << 8


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
    if code & 0xFF == _FULL or code == _NO_ROOM_FOR_SHARED_MEMORY:
        return StoreError("full", f"the disk is full: free some space in {os.path.dirname(path) or path}")
    if code & 0xFF in (_NOT_A_DATABASE, _CORRUPT):
        return not_ours(path)
    return unusable(path, str(error))


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
