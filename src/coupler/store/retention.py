"""Deletes the sessions and runs that the user's rules do not keep, the oldest first, and tells how many.

A `RetentionSweep` does it in slices of milliseconds, each inside a transaction of the caller's. It never
deletes what a living process has, nor a run that is parked. What it has deleted is noted in the same
transactions: for `coupler doctor`, and until a command has told its user.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable, Generator, Iterator
from typing import Literal, NamedTuple

import msgspec

from coupler.config.shapes import KeepRule
from coupler.store.database import now
from coupler.store.runs import RunTable, measure_run
from coupler.store.sessions import SessionTable, measure_session
from coupler.store.space import read_space

log = logging.getLogger("coupler.store")

ROWS_AT_ONCE = 500
"""Sessions or runs that are looked at in one slice."""

SIZES_LAST = 3600
"""Seconds for which it is not measured again how large all is: it takes a second for each gigabyte."""

_LAST, _UNTOLD, _MEASURED = "retention last", "retention untold", "retention measured"
"""Keys in the table `meta`."""


class RetentionRules(NamedTuple):
    """The user's rules; None keeps everything."""

    sessions: KeepRule | None = None
    runs: KeepRule | None = None


NO_RULES = RetentionRules()


class RetentionReport(msgspec.Struct, frozen=True):
    """Counts of what the rules have deleted; `at` is the time, in milliseconds since 1970."""

    sessions: int = 0
    runs: int = 0
    bytes: int = 0
    at: int = 0

    def plus(self, other: RetentionReport) -> RetentionReport:
        """Both together."""
        return RetentionReport(
            self.sessions + other.sessions, self.runs + other.runs, self.bytes + other.bytes, other.at
        )


def last_report(connection: sqlite3.Connection) -> RetentionReport | None:
    """Read when the rules have last deleted something, and how much."""
    return _read(connection, _LAST)


def untold_report(connection: sqlite3.Connection) -> RetentionReport | None:
    """Read what the rules have deleted that no command has told yet."""
    return _read(connection, _UNTOLD)


def mark_told(connection: sqlite3.Connection) -> None:
    """Note that the user has been told."""
    connection.execute("DELETE FROM meta WHERE key = ?", [_UNTOLD])


def _read(connection: sqlite3.Connection, key: str) -> RetentionReport | None:
    row = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchone()
    try:
        return None if row is None else msgspec.json.decode(row[0], type=RetentionReport)
    except msgspec.DecodeError:
        return None  # a newer version wrote it


def _write(connection: sqlite3.Connection, key: str, value: object) -> None:
    connection.execute("INSERT OR REPLACE INTO meta VALUES (?, ?)", [key, msgspec.json.encode(value)])


class _Row(NamedTuple):
    updated_at: int
    number: int


class _Kind(NamedTuple):
    """Sessions, or runs: which there are, and how one is measured and deleted."""

    name: Literal["sessions", "runs"]
    rule: KeepRule
    condition: str
    measure: Callable[[Callable[[], sqlite3.Connection], int], Iterator[int]]
    discard: Callable[[sqlite3.Connection, int, int], bool]


class RetentionSweep:
    """Applies the rules once, a slice at a time."""

    def __init__(self, rules: RetentionRules, sessions: SessionTable, runs: RunTable) -> None:
        self._kinds: list[_Kind] = []
        if rules.sessions is not None:
            self._kinds.append(
                _Kind("sessions", rules.sessions, "deleted = 0", measure_session, sessions.discard)
            )
        if rules.runs is not None:
            self._kinds.append(_Kind("runs", rules.runs, "status != 'parked'", measure_run, runs.discard))
        self._connection: sqlite3.Connection
        self._deleted = RetentionReport()
        self._slices = self._apply()

    def do_some(self, connection: sqlite3.Connection) -> bool:
        """Do a slice, inside a transaction; False if nothing is left to do."""
        self._connection = connection
        try:
            next(self._slices)
        except StopIteration:
            return False
        return True

    def _apply(self) -> Iterator[None]:
        """Apply one rule after the other; a slice ends with each yield."""
        for kind in self._kinds:
            rows = yield from self._rows_of(kind)
            beyond = yield from self._beyond_size(kind, rows)
            limit = 0 if kind.rule.age is None else now() - kind.rule.age * 1000
            too_old = sum(row.updated_at < limit for row in rows)
            for row in rows[: max(beyond, too_old)]:
                yield from self._delete(kind, row)
        if self._deleted.at:
            told = (self._deleted.sessions, self._deleted.runs, self._deleted.bytes)
            log.info("deleted, as the rules of [store] say: sessions: %d, runs: %d, bytes: %d", *told)

    def _rows_of(self, kind: _Kind) -> Generator[None, None, list[_Row]]:
        """All sessions or runs, the oldest first."""
        rows: list[_Row] = []
        query = (
            f"SELECT updated_at, number FROM {kind.name} WHERE number > ? AND {kind.condition}"
            " ORDER BY number LIMIT ?"
        )
        while True:
            after = rows[-1].number if rows else 0
            page = self._connection.execute(query, [after, ROWS_AT_ONCE]).fetchall()
            rows += [_Row(*row) for row in page]
            if len(page) < ROWS_AT_ONCE:
                return sorted(rows)
            yield

    def _beyond_size(self, kind: _Kind, rows: list[_Row]) -> Generator[None, None, int]:
        """Count the oldest ones that are too much; the newest is never one of them."""
        most = kind.rule.size
        if most is None or read_space(self._connection).used_bytes <= most or self._is_measured(kind):
            return 0
        total, beyond = 0, 0
        for place in reversed(range(len(rows))):
            total += yield from self._measure(kind, rows[place])
            if total > most and place < len(rows) - 1:
                beyond = place + 1
                break
        self._note_measured(kind)
        return beyond

    def _measure(self, kind: _Kind, row: _Row) -> Generator[None, None, int]:
        size = 0
        for part in kind.measure(lambda: self._connection, row.number):
            size += part
            yield
        return size

    def _delete(self, kind: _Kind, row: _Row) -> Iterator[None]:
        size = yield from self._measure(kind, row)
        if kind.discard(self._connection, row.number, row.updated_at):
            is_session = kind.name == "sessions"
            deleted = RetentionReport(int(is_session), int(not is_session), size, now())
            self._deleted = self._deleted.plus(deleted)
            _write(self._connection, _LAST, self._deleted)
            untold = untold_report(self._connection) or RetentionReport()
            _write(self._connection, _UNTOLD, untold.plus(deleted))
        yield

    def _is_measured(self, kind: _Kind) -> bool:
        """Return whether all was measured for this rule not long ago."""
        query = "SELECT value FROM meta WHERE key = ?"
        row = self._connection.execute(query, [f"{_MEASURED} {kind.name}"]).fetchone()
        try:
            words, at = msgspec.json.decode(row[0], type=tuple[str, int]) if row is not None else ("", 0)
        except msgspec.DecodeError:
            return False
        return words == kind.rule.words and 0 <= now() - at < SIZES_LAST * 1000

    def _note_measured(self, kind: _Kind) -> None:
        _write(self._connection, f"{_MEASURED} {kind.name}", (kind.rule.words, now()))
