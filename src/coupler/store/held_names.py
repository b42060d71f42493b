"""Names of kept sessions that are in use: each by one process, and in that by one user, at a time.

Like sessions, names are held by a process for as long as it lives: one that was killed holds nothing. Plain
blocking functions on a given connection: `Store` decides on which thread.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coupler.store.errors import HeldError
from coupler.store.holder import Holder, pid_of

if TYPE_CHECKING:
    import sqlite3


def hold_name(connection: sqlite3.Connection, holder: Holder, name: str, directory: str) -> None:
    """Take a name in a directory; raises HeldError if somebody has it, in this process or another."""
    place = [os.fsencode(directory), name]
    row = connection.execute(
        "SELECT holder FROM held_names WHERE directory = ? AND name = ?", place
    ).fetchone()
    if row is not None and holder.is_alive(row[0]):
        raise HeldError(name, pid_of(row[0]))
    connection.execute(
        "INSERT OR REPLACE INTO held_names (directory, name, holder) VALUES (?, ?, ?)", [*place, holder.id]
    )


def release_name(connection: sqlite3.Connection, holder: Holder, name: str, directory: str) -> None:
    """Let others take the name."""
    connection.execute(
        "DELETE FROM held_names WHERE directory = ? AND name = ? AND holder = ?",
        [os.fsencode(directory), name, holder.id],
    )
