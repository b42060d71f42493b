"""The tables of sessions, and of the names that clients keep them under.

Plain blocking functions on a given connection, each to be called inside a transaction if it writes: `Store`
decides on which thread.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import sqlite3
import struct
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec

from coupler.store.checkpoints import delete_thread, has_deleted_threads, measure_thread, purge_threads
from coupler.store.database import now
from coupler.store.errors import CursorError, HeldError
from coupler.store.leases import LeaseHolder
from coupler.store.space import delete_some, measure_some

_COLUMNS = "id, agent, cwd, roots, title, created_at, updated_at, turns, settings, usage"
_POSITION = struct.Struct(">qq")
_SIGNATURE_SIZE = 16


class SessionRecord(msgspec.Struct, frozen=True):
    """A session as it is kept, besides its entries. Times are milliseconds since 1970."""

    id: str
    agent: str
    cwd: str
    roots: tuple[str, ...] = ()
    title: str | None = None
    created_at: int = 0
    updated_at: int = 0
    turns: int = 0
    settings: str = "{}"
    usage: str | None = None
    state: bytes | None = None


class SessionPage(NamedTuple):
    """A part of a list: records without their states, and where it continues."""

    records: tuple[SessionRecord, ...]
    next_cursor: str | None


class SessionQuery(NamedTuple):
    """The filters of a list; a cursor is valid for one query only."""

    agent: str | None
    cwd: str | None
    include_empty: bool


class PagePosition(NamedTuple):
    """The place of the last session of a page."""

    updated_at: int
    number: int


class SessionTable:
    """The sessions of one database, as one process sees them."""

    def __init__(self, signer: CursorSigner, holder: LeaseHolder) -> None:
        self._signer = signer
        self._holder = holder

    def create(self, connection: sqlite3.Connection, record: SessionRecord) -> SessionRecord:
        """Keep a new session, held by this process; dates that are 0 become now."""
        moment = now()
        record = msgspec.structs.replace(
            record, created_at=record.created_at or moment, updated_at=record.updated_at or moment
        )
        try:
            number = connection.execute(
                f"INSERT INTO sessions ({_COLUMNS}, made_by, holder) VALUES (?,?,?,?,?,?,?,?,?,?,?,?)",
                [*_as_row(record), self._holder.id, self._holder.id],
            ).lastrowid
        except sqlite3.IntegrityError:
            raise ValueError(f"there is a session {record.id!r} already: make a new id") from None
        write_state(connection, number, record.state)
        return record

    def find(self, connection: sqlite3.Connection, id: str) -> SessionRecord | None:
        """The session with this id, unless it was deleted."""
        row = connection.execute(
            f"SELECT {_COLUMNS}, state FROM sessions LEFT JOIN states ON session = number"
            " WHERE id = ? AND deleted = 0",
            [id],
        ).fetchone()
        return _as_record(row) if row is not None else None

    def find_bare(self, connection: sqlite3.Connection, id: str) -> SessionRecord | None:
        """The session with this id without its state, which may be large."""
        row = connection.execute(
            f"SELECT {_COLUMNS}, NULL FROM sessions WHERE id = ? AND deleted = 0", [id]
        ).fetchone()
        return _as_record(row) if row is not None else None

    def page(
        self, connection: sqlite3.Connection, query: SessionQuery, cursor: str | None, limit: int
    ) -> SessionPage:
        """The next sessions, the newest first.

        One that never had a turn is listed only for the process that made it: an editor that opens a session
        and leaves it makes no clutter.
        """
        condition, values = self._condition(query)
        if cursor is not None:
            condition += " AND (updated_at, number) < (?, ?)"
            values += self._signer.position(cursor, query)
        rows = connection.execute(
            f"SELECT {_COLUMNS}, NULL, number FROM sessions WHERE {condition}"
            " ORDER BY updated_at DESC, number DESC LIMIT ?",
            [*values, limit + 1],
        ).fetchall()
        records = tuple(_as_record(row[:-1]) for row in rows[:limit])
        if len(rows) <= limit:
            return SessionPage(records, None)
        last = PagePosition(records[-1].updated_at, rows[limit - 1][-1])
        return SessionPage(records, self._signer.cursor(last, query))

    def hold(self, connection: sqlite3.Connection, id: str) -> bool:
        """Take a session for this process; raises if another one that lives has it.

        False if there is no such session. One that this process holds already stays held.
        """
        found = self._number_unless_held(connection, id)
        if found is None:
            return False
        [lease] = connection.execute("SELECT holder FROM sessions WHERE number = ?", [found]).fetchone()
        self._holder.check_ended(lease)
        self._holder.take(connection, "sessions", found)
        return True

    def release(self, connection: sqlite3.Connection, id: str) -> None:
        """Release a session that this process holds for others."""
        number = number_of(connection, id)
        if number is not None:
            self._holder.give_back(connection, "sessions", number)

    def held_by(self, connection: sqlite3.Connection, id: str) -> int | None:
        """The other process that has a session open, if one that lives has."""
        try:
            self._number_unless_held(connection, id)
        except HeldError as error:
            return error.pid
        return None

    def delete(self, connection: sqlite3.Connection, id: str, agent: str | None) -> bool:
        """Mark a session as deleted: nobody finds it any more, and a purge removes it.

        False if there is none, or it is another agent's.
        """
        found = self._number_unless_held(connection, id, agent)
        if found is None:
            return False
        _mark_deleted(connection, found, id)
        return True

    def discard(self, connection: sqlite3.Connection, number: int, updated_at: int) -> bool:
        """Mark a session as deleted, unless something has happened in it since, or a process has it open."""
        row = connection.execute(
            "SELECT id, holder FROM sessions WHERE number = ? AND updated_at = ? AND deleted = 0",
            [number, updated_at],
        ).fetchone()
        if row is None or self._holder.owner(row[1]) is not None:
            return False
        _mark_deleted(connection, number, row[0])
        return True

    def copy(
        self, connection: sqlite3.Connection, source_id: str, new: SessionRecord, until: str
    ) -> SessionRecord | None:
        """Make a new session of another's entries up to the last of a kind; None if that is missing."""
        source = self.find(connection, source_id)
        if source is None:
            return None
        number = number_of(connection, source_id)
        seq, turn = connection.execute(
            "SELECT seq, turn FROM entries WHERE session = ? AND kind = ? ORDER BY seq DESC LIMIT 1",
            [number, until],
        ).fetchone() or (0, 0)
        record = self.create(
            connection,
            msgspec.structs.replace(
                new,
                title=new.title if new.title is not None else source.title,
                turns=turn,
                settings=source.settings,
                usage=source.usage,
                state=source.state,
            ),
        )
        connection.execute(
            "INSERT INTO entries SELECT ?, seq, turn, at, kind, key, body FROM entries"
            " WHERE session = ? AND seq <= ?",
            [number_of(connection, new.id), number, seq],
        )
        return record

    def _condition(self, query: SessionQuery) -> tuple[str, list[Any]]:
        condition, values = "deleted = 0", list[Any]()
        if query.agent is not None:
            condition += " AND agent = ?"
            values.append(query.agent)
        if query.cwd is not None:
            condition += " AND cwd = ?"
            values.append(query.cwd)
        if not query.include_empty:
            condition += " AND (turns > 0 OR made_by = ?)"
            values.append(self._holder.id)
        return condition, values

    def _number_unless_held(
        self, connection: sqlite3.Connection, id: str, agent: str | None = None
    ) -> int | None:
        row = connection.execute(
            "SELECT number, holder FROM sessions WHERE id = ? AND deleted = 0 AND agent = coalesce(?, agent)",
            [id, agent],
        ).fetchone()
        if row is None:
            return None
        number, holder = row
        if holder != self._holder.id and (owner := self._holder.owner(holder)) is not None:
            raise HeldError(id, owner)
        return int(number)


def number_of(connection: sqlite3.Connection, id: str) -> int | None:
    """The number under which a session's entries are kept."""
    row = connection.execute("SELECT number FROM sessions WHERE id = ? AND deleted = 0", [id]).fetchone()
    return int(row[0]) if row is not None else None


def kept_sessions(connection: sqlite3.Connection, ids: Sequence[str]) -> set[str]:
    """Return which of these sessions there are."""
    return {each for each in ids if number_of(connection, each) is not None}


def _mark_deleted(connection: sqlite3.Connection, number: int, id: str) -> None:
    connection.execute("UPDATE sessions SET deleted = 1, holder = NULL WHERE number = ?", [number])
    delete_thread(connection, id)


def write_state(connection: sqlite3.Connection, number: int | None, state: bytes | None) -> None:
    """Keep the state that an agent wants to remember of a session; None deletes it."""
    if state is None:
        connection.execute("DELETE FROM states WHERE session = ?", [number])
    else:
        connection.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", [number, state])


def has_deleted(connection: sqlite3.Connection) -> bool:
    """Return whether something is left to purge."""
    row = connection.execute("SELECT 1 FROM sessions WHERE deleted = 1 LIMIT 1").fetchone()
    return row is not None or has_deleted_threads(connection)


def purge_slice(connection: sqlite3.Connection) -> bool:
    """Remove some of what a deleted session has left, at last the session itself; False if there was none."""
    row = connection.execute("SELECT number FROM sessions WHERE deleted = 1 LIMIT 1").fetchone()
    if row is None:
        return purge_threads(connection)
    if delete_some(connection, "entries", "session", row[0]):
        write_state(connection, row[0], None)
        connection.execute("DELETE FROM sessions WHERE number = ?", row)
    return True


def measure_session(read: Callable[[], sqlite3.Connection], number: int) -> Iterator[int]:
    """Measure what `purge_slice` removes of a session, some of it at a time.

    Each part may be read by another connection, which `read` gives.
    """
    row = read().execute("SELECT length(state) FROM states WHERE session = ?", [number]).fetchone()
    yield 0 if row is None else row[0]
    after: int | None = 0
    while after is not None:
        size, after = measure_some(read(), "entries", "session", number, after)
        yield size
    yield measure_thread(read(), number)


class KeptSession(msgspec.Struct, frozen=True):
    """A session that a client keeps under a name.

    The directory is a real path; the time is milliseconds since 1970. What a fingerprint is made of is the
    client's business.
    """

    name: str
    directory: str
    session_id: str
    cwd: str
    fingerprint: str
    kept_at: int = 0
    tokens: dict[str, int] | None = None
    """The tokens that the agent has reported last, of agents that report sums."""


def keep_session(connection: sqlite3.Connection, kept: KeptSession) -> None:
    """Keep a session; it replaces the one that had its name in that directory. A date of 0 becomes now."""
    connection.execute(
        "INSERT OR REPLACE INTO kept_sessions (directory, name, session_id, cwd, fingerprint, kept_at, "
        "tokens) VALUES (?, ?, ?, ?, ?, ?, ?)",
        [
            os.fsencode(kept.directory),
            kept.name,
            kept.session_id,
            os.fsencode(kept.cwd),
            kept.fingerprint,
            kept.kept_at or int(time.time() * 1000),
            None if kept.tokens is None else msgspec.json.encode(kept.tokens).decode(),
        ],
    )


def find_kept(connection: sqlite3.Connection, name: str, directory: str) -> KeptSession | None:
    """The session that has this name in this directory."""
    row = connection.execute(
        "SELECT session_id, cwd, fingerprint, kept_at, tokens FROM kept_sessions "
        "WHERE directory = ? AND name = ?",
        [os.fsencode(directory), name],
    ).fetchone()
    if row is None:
        return None
    session_id, cwd, fingerprint, kept_at, tokens = row
    reported = None if tokens is None else msgspec.json.decode(tokens, type=dict[str, int])
    return KeptSession(name, directory, session_id, os.fsdecode(cwd), fingerprint, kept_at, reported)


def forget_kept(connection: sqlite3.Connection, name: str, directory: str) -> bool:
    """Forget the name in this directory; False if there was none."""
    forgotten = connection.execute(
        "DELETE FROM kept_sessions WHERE directory = ? AND name = ?", [os.fsencode(directory), name]
    )
    return forgotten.rowcount > 0


def _as_row(record: SessionRecord) -> list[Any]:
    return [
        record.id,
        record.agent,
        record.cwd,
        json.dumps(record.roots),
        record.title,
        record.created_at,
        record.updated_at,
        record.turns,
        record.settings,
        record.usage,
    ]


def _as_record(row: tuple[Any, ...]) -> SessionRecord:
    columns = list(row)
    columns[3] = _roots(row[3])
    return SessionRecord(*columns)


def _roots(text: str) -> tuple[str, ...]:
    """The directories of a row; none if it is broken, so that one row does not cost the list of all."""
    try:
        return tuple(json.loads(text))
    except (ValueError, TypeError):
        return ()


class CursorSigner:
    """Makes and reads cursors with the key of one database.

    A cursor says where the next page of a list begins; it is signed, so that only those of this store are
    taken.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key

    def cursor(self, position: PagePosition, query: SessionQuery) -> str:
        """A cursor for what follows this position."""
        packed = _POSITION.pack(*position)
        return _as_text(packed + self._signature(packed, query))

    def position(self, cursor: str, query: SessionQuery) -> PagePosition:
        """Read a cursor; raises CursorError if it was not made here for this query."""
        try:
            content = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
        except ValueError:
            raise CursorError from None
        packed = content[: _POSITION.size]
        # Several texts can decode to the same bytes, and only one of them was given out.
        if len(packed) != _POSITION.size or _as_text(content) != cursor:
            raise CursorError
        if not hmac.compare_digest(content[_POSITION.size :], self._signature(packed, query)):
            raise CursorError
        return PagePosition(*_POSITION.unpack(packed))

    def _signature(self, packed: bytes, query: SessionQuery) -> bytes:
        content = packed + msgspec.json.encode(query)
        return hashlib.blake2b(content, key=self._key, digest_size=_SIGNATURE_SIZE).digest()


def _as_text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).decode().rstrip("=")
