"""The tables of remembered permission choices and of files that the user has trusted.

Plain blocking functions on a given connection, like those of the sessions: `Store` decides on which thread.
What a subject and a pattern mean is the permission layer's business.
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b
from typing import TYPE_CHECKING, Literal, NamedTuple

import msgspec

if TYPE_CHECKING:
    import sqlite3

    from coupler.store.database import Database

ChoiceEffect = Literal["allow", "deny"]

DIGEST_SIZE = 32

_COLUMNS = "project, effect, subject, pattern, made_at"


class ChoiceRecord(msgspec.Struct, frozen=True):
    """One remembered answer. The project is its directory's real path; the time milliseconds since 1970."""

    project: str
    effect: ChoiceEffect
    subject: str
    pattern: str
    made_at: int = 0


def remember_choices(connection: sqlite3.Connection, records: tuple[ChoiceRecord, ...]) -> None:
    """Keep choices; one for the same scope replaces the choice before. Dates that are 0 become now."""
    now = int(time.time() * 1000)
    connection.executemany(
        f"INSERT OR REPLACE INTO choices ({_COLUMNS}) VALUES (?,?,?,?,?)",
        [(each.project, each.effect, each.subject, each.pattern, each.made_at or now) for each in records],
    )


def read_choices(connection: sqlite3.Connection, project: str | None = None) -> tuple[ChoiceRecord, ...]:
    """The choices of one project, or of all, the oldest first.

    A row that no version wrote is read as a rejection: whatever it was, it must not allow anything.
    """
    where, values = ("WHERE project = ?", [project]) if project is not None else ("", [])
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM choices {where} ORDER BY made_at, project, subject, pattern", values
    )
    return tuple(
        ChoiceRecord(of, "allow" if effect == "allow" else "deny", subject, pattern, made_at)
        for of, effect, subject, pattern, made_at in rows
    )


def forget_choices(
    connection: sqlite3.Connection, project: str, subject: str | None = None, pattern: str | None = None
) -> int:
    """Delete one choice, those on one subject, or all of a project; returns how many there were."""
    conditions, values = ["project = ?"], [project]
    for column, value in (("subject", subject), ("pattern", pattern)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    return connection.execute(f"DELETE FROM choices WHERE {' AND '.join(conditions)}", values).rowcount


class TrustedFile(NamedTuple):
    """A file with one content that was trusted. The time is milliseconds since 1970."""

    path: str
    digest: bytes
    trusted_at: int

    def has(self, content: bytes) -> bool:
        """Return whether this is the content that was trusted."""
        return self.digest == _digest(content)


class Trust:
    """The trusted files of one database. Every call waits until it is done; a read takes microseconds.

    A file is trusted by its real path and by what was in it then: one that was changed, moved or copied is
    another one, and has to be trusted again.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Return whether the file at this real path was trusted with exactly this content."""
        found = self._database.wait_to_read(
            lambda connection: connection.execute(
                "SELECT 1 FROM trusted_files WHERE path = ? AND digest = ?",
                [os.fsencode(path), _digest(content)],
            ).fetchone()
        )
        return found is not None

    def trust(self, path: str, content: bytes) -> None:
        """Remember that the user trusts the file with this content, besides those trusted before."""
        row = [os.fsencode(path), _digest(content), int(time.time() * 1000)]
        self._database.wait(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO trusted_files (path, digest, trusted_at) VALUES (?, ?, ?)", row
            )
        )

    def distrust(self, path: str) -> bool:
        """Forget the file, with every content; False if it was not trusted."""
        forgotten = self._database.wait(
            lambda connection: (
                connection.execute("DELETE FROM trusted_files WHERE path = ?", [os.fsencode(path)]).rowcount
            )
        )
        return forgotten > 0

    def files(self) -> list[TrustedFile]:
        """All that is trusted, by path, the latest content of each first."""
        rows = self._database.wait_to_read(
            lambda connection: connection.execute(
                "SELECT path, digest, trusted_at FROM trusted_files ORDER BY path, trusted_at DESC"
            ).fetchall()
        )
        return [TrustedFile(os.fsdecode(path), digest, at) for path, digest, at in rows]


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_SIZE).digest()
