"""Sessions that clients keep under a name: in a directory, with one of their agents, under one fingerprint.

Plain blocking functions on a given connection, like those of the choices: `Store` decides on which thread.
What a fingerprint is made of is the client's business.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    import sqlite3


class KeptSession(msgspec.Struct, frozen=True):
    """A session by its name. The directory is a real path; the time is milliseconds since 1970."""

    name: str
    directory: str
    session_id: str
    cwd: str
    fingerprint: str
    kept_at: int = 0


def keep_session(connection: sqlite3.Connection, kept: KeptSession) -> None:
    """Keep a session; it replaces the one that had its name in that directory. A date of 0 becomes now."""
    connection.execute(
        "INSERT OR REPLACE INTO kept_sessions (directory, name, session_id, cwd, fingerprint, kept_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        [
            os.fsencode(kept.directory),
            kept.name,
            kept.session_id,
            os.fsencode(kept.cwd),
            kept.fingerprint,
            kept.kept_at or int(time.time() * 1000),
        ],
    )


def find_kept(connection: sqlite3.Connection, name: str, directory: str) -> KeptSession | None:
    """The session that has this name in this directory."""
    row = connection.execute(
        "SELECT session_id, cwd, fingerprint, kept_at FROM kept_sessions WHERE directory = ? AND name = ?",
        [os.fsencode(directory), name],
    ).fetchone()
    if row is None:
        return None
    session_id, cwd, fingerprint, kept_at = row
    return KeptSession(name, directory, session_id, os.fsdecode(cwd), fingerprint, kept_at)


def forget_kept(connection: sqlite3.Connection, name: str, directory: str) -> bool:
    """Forget the name in this directory; False if there was none."""
    forgotten = connection.execute(
        "DELETE FROM kept_sessions WHERE directory = ? AND name = ?", [os.fsencode(directory), name]
    )
    return forgotten.rowcount > 0
