"""Carries the sessions, runs and threads of graphs that this process has open over to another file.

A database that was deleted or replaced while it was open can still be read, because the system keeps its
content as long as somebody has it open. What this process holds is copied aside, and from there into the file
that is at the path now. Everything else stays behind.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from coupler.store.checkpoints import MOST_ITEMS, ensure_thread, thread_number
from coupler.store.leases import LeasedTable, LeaseHolder
from coupler.store.sessions import SessionRecord, SessionTable

log = logging.getLogger("coupler.store")

ROWS_AT_ONCE = 200


class _OwnedTable(NamedTuple):
    name: str
    owner: str
    """The column with the number of the session or the run."""
    of: LeasedTable


OWNED_TABLES = (
    _OwnedTable("states", "session", "sessions"),
    _OwnedTable("entries", "session", "sessions"),
    _OwnedTable("run_entries", "run", "runs"),
)
"""The tables whose rows belong to a session or a run; a further one is added here."""

_LEASED: tuple[LeasedTable, ...] = ("sessions", "runs")


class CarriedNumbers(NamedTuple):
    """The numbers that sessions, by their ids, and runs, by their former numbers, have in the new file."""

    sessions: Mapping[str, int]
    runs: Mapping[int, int]


class OpenWork:
    """Sessions and runs that this process has open, to be carried over when the file is another one."""

    def __init__(
        self,
        holder: LeaseHolder,
        sessions: SessionTable,
        records: Callable[[], Iterable[SessionRecord]],
        renumber: Callable[[CarriedNumbers], None],
    ) -> None:
        """Prepare it; `records` gives the open sessions as they are known in memory."""
        self._holder = holder
        self._sessions = sessions
        self._records = records
        self._renumber = renumber

    def is_alone(self) -> bool:
        """Return whether no other living process uses the database."""
        return self._holder.is_alone()

    def collect(self, old: sqlite3.Connection, kept: sqlite3.Connection) -> None:
        """Copy what this process holds aside; raises sqlite3.Error if the old file cannot be read."""
        for table in _LEASED:
            _copy(old, kept, table, "holder = ?", self._holder.id)
        _copy(old, kept, "held_names", "holder = ?", self._holder.id)
        for name, owner, of in OWNED_TABLES:
            is_held = f"{owner} IN (SELECT number FROM {of} WHERE holder = ?)"
            _copy(old, kept, name, is_held, self._holder.id)

    def restore(self, kept: sqlite3.Connection, new: sqlite3.Connection) -> int:
        """Put what was copied aside into the new file, inside a transaction.

        Returns the number of sessions of which only what is in memory could be kept.
        """
        self._holder.renew()
        tables = {row[0] for row in kept.execute("SELECT name FROM sqlite_master")}
        ids: dict[str, int] = {}
        numbers: dict[LeasedTable, dict[int, int]] = {"sessions": {}, "runs": {}}
        for table in tables.intersection(_LEASED):
            for row in _rows(kept, table):
                number = self._put(new, table, row)
                if number is not None:
                    numbers[table][row["number"]] = number
                    if table == "sessions":
                        ids[row["id"]] = number
        for name, owner, of in OWNED_TABLES:
            for row in _rows(kept, name) if name in tables else ():
                if row[owner] in numbers[of]:
                    _insert(new, name, row | {owner: numbers[of][row[owner]]})
        for row in _rows(kept, "held_names") if "held_names" in tables else ():
            _insert(new, "held_names", row)
        lost = self._make_missing(new, ids)
        self._renumber(CarriedNumbers(ids, numbers["runs"]))
        return lost

    def _put(self, new: sqlite3.Connection, table: LeasedTable, row: dict[str, Any]) -> int | None:
        """Put a session or run there; its number, or None if another living process has it there."""
        query = f"SELECT number, holder, updated_at FROM {table} WHERE id = ?"
        there = new.execute(query, [row["id"]]).fetchone()
        if there is None:
            is_taken = new.execute(f"SELECT 1 FROM {table} WHERE number = ?", [row["number"]]).fetchone()
            return _insert(new, table, row | ({"number": None} if is_taken else {}))
        number, holder, updated_at = there
        if holder != self._holder.id and (owner := self._holder.owner(holder)) is not None:
            log.warning(
                "%s is open in another Coupler process (%d): it does not go on here", row["id"], owner
            )
            return None
        # Another store of this process may have put it there, and gone on with it.
        if row["updated_at"] > updated_at or holder != self._holder.id:
            new.execute(f"DELETE FROM {table} WHERE number = ?", [number])
            if table == "sessions":
                new.execute("DELETE FROM states WHERE session = ?", [number])
            _insert(new, table, row | {"number": number})
        return int(number)

    def _make_missing(self, new: sqlite3.Connection, ids: dict[str, int]) -> int:
        lost = 0
        for record in self._records():
            if record.id not in ids and self._sessions.find(new, record.id) is None:
                self._sessions.create(new, record)
                lost += 1
            if record.id not in ids:
                row = new.execute("SELECT number FROM sessions WHERE id = ?", [record.id]).fetchone()
                ids[record.id] = int(row[0])
        return lost


class OpenThreads:
    """The threads of graphs that this process uses, to be carried over when the file is another one."""

    def __init__(self, ids: Callable[[], Iterable[str]], forget: Callable[[], None]) -> None:
        """Prepare it; `forget` is called if nothing could be read, so that all is stored anew."""
        self._ids = ids
        self._forget = forget

    def is_alone(self) -> bool:
        """True: threads belong to sessions, and who has those open knows whether others do."""
        return True

    def collect(self, old: sqlite3.Connection, kept: sqlite3.Connection) -> None:
        """Copy the threads aside; raises sqlite3.Error if the old file cannot be read."""
        found = [thread_number(old, each) for each in self._ids()]
        among = f"({', '.join(str(number) for number in found if number is not None)})"
        _copy(old, kept, "threads", f"number IN {among}")
        for table in ("checkpoints", "checkpoint_writes"):
            _copy(old, kept, table, f"thread IN {among}")
        _copy(old, kept, "checkpoint_items", f"key / {MOST_ITEMS} IN {among}")

    def restore(self, kept: sqlite3.Connection, new: sqlite3.Connection) -> int:
        """Put the threads into the new file, inside a transaction; what is there already stays."""
        tables = {row[0] for row in kept.execute("SELECT name FROM sqlite_master")}
        if "checkpoint_items" not in tables:
            self._forget()
            return 0
        numbers = {row["number"]: ensure_thread(new, row["id"]) for row in _rows(kept, "threads")}
        for table in ("checkpoints", "checkpoint_writes"):
            for row in _rows(kept, table):
                _insert(new, table, row | {"thread": numbers[row["thread"]]})
        for row in _rows(kept, "checkpoint_items"):
            thread, number = divmod(row["key"], MOST_ITEMS)
            _insert(new, "checkpoint_items", row | {"key": numbers[thread] * MOST_ITEMS + number})
        return 0


def _copy(
    old: sqlite3.Connection, kept: sqlite3.Connection, table: str, condition: str, *values: str
) -> None:
    """Copy rows of a table aside; the copy has the same columns, and no constraints."""
    names = [column[1] for column in old.execute(f"PRAGMA table_info({table})")]
    kept.execute(f"CREATE TABLE {table} ({', '.join(names)})")
    insertion = f"INSERT INTO {table} VALUES ({', '.join('?' * len(names))})"
    rows = old.execute(f"SELECT {', '.join(names)} FROM {table} WHERE {condition}", values)
    while some := rows.fetchmany(ROWS_AT_ONCE):
        kept.executemany(insertion, some)


def _rows(kept: sqlite3.Connection, table: str) -> Iterable[dict[str, Any]]:
    rows = kept.execute(f"SELECT * FROM {table}")
    names = [column[0] for column in rows.description]
    return (dict(zip(names, row, strict=True)) for row in rows)


def _insert(new: sqlite3.Connection, table: str, row: dict[str, Any]) -> int | None:
    """Insert a row, unless it is there already."""
    names = f"{', '.join(row)}"
    values = ", ".join("?" * len(row))
    return new.execute(
        f"INSERT OR IGNORE INTO {table} ({names}) VALUES ({values})", [*row.values()]
    ).lastrowid
