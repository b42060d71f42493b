"""The permission choices that last: what a user always allows or rejects in one project.

Plain blocking functions on a given connection, like those of the sessions: `Store` decides on which thread.
What a subject and a pattern mean is the permission layer's business.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

import msgspec

if TYPE_CHECKING:
    import sqlite3

ChoiceEffect = Literal["allow", "deny"]

_COLUMNS = "project, effect, subject, pattern, made_at"


class ChoiceRecord(msgspec.Struct, frozen=True):
    """One remembered answer. The project is its directory's real path; the time milliseconds since 1970."""

    project: str
    effect: ChoiceEffect
    subject: str
    pattern: str
    made_at: int = 0


def remember_choices(connection: sqlite3.Connection, records: tuple[ChoiceRecord, ...]) -> None:
    """Keep what was chosen; for the same scope it replaces the choice before. Dates that are 0 become now."""
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
    """Withdraw one choice, those on one subject, or all of a project; tells how many there were."""
    conditions, values = ["project = ?"], [project]
    for column, value in (("subject", subject), ("pattern", pattern)):
        if value is not None:
            conditions.append(f"{column} = ?")
            values.append(value)
    return connection.execute(f"DELETE FROM choices WHERE {' AND '.join(conditions)}", values).rowcount
