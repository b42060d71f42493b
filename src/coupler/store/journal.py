"""A journal: everything that happened in one session, in order.

It only gathers; the `Scribe` writes what all journals have gathered. Text is the hot path: a piece that
continues the open message costs an append. Rows are never changed: what a message gets after a flush is
another row of the same kind and key, and readers join neighbours.
"""

from __future__ import annotations

import json
import logging
import sqlite3
from collections.abc import Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.store.clock import now
from coupler.store.errors import StoreError

if TYPE_CHECKING:
    from coupler.store.scribe import Backlog, Scribe

log = logging.getLogger("coupler.store")

ENOUGH = 512 * 1024
"""Bytes of entries that are read at once; their reader is not the only one to be served."""

ROW_COST = 200
"""What an entry costs besides its body, in bytes that take as long to write."""

COLUMNS = frozenset({"title", "updated_at", "turns", "settings", "usage", "state", "roots"})
"""What of a session changes while it lives."""

Row = tuple[int, int, int, int, str, str, bytes]
"""The session's number, and an entry."""


class Entry(NamedTuple):
    """One thing that happened; `at` is in milliseconds since 1970."""

    seq: int
    turn: int
    at: int
    kind: str
    key: str
    body: bytes


class Journal:
    """What happens in one session. Used on the event loop's thread only."""

    __slots__ = (
        "__weakref__",
        "_at",
        "_columns",
        "_has_shed",
        "_key",
        "_kind",
        "_pieces",
        "_rows",
        "_scribe",
        "_seq",
        "_size",
        "_text_kinds",
        "_turn",
        "is_closed",
        "number",
    )

    def __init__(self, number: int, seq: int, turn: int, scribe: Scribe) -> None:
        self.number = number
        self._seq = seq
        self._turn = turn
        self._scribe = scribe
        self._kind: str | None = None
        self._key = ""
        self._at = 0
        self._pieces: list[str] = []
        self._rows: list[Row] = []
        self._size = 0
        self._columns: dict[str, Any] = {}
        self._text_kinds: set[str] = set()
        self._has_shed = False
        self.is_closed = False

    @property
    def turn(self) -> int:
        """The number of the turn that entries belong to; 0 before the first."""
        return self._turn

    @property
    def is_pending(self) -> bool:
        """Whether something was not yet handed on to be written."""
        return bool(self._rows or self._columns or self._kind is not None)

    @property
    def backlog(self) -> Backlog:
        """Whether more should be taken now; the same for all journals of a store."""
        return self._scribe.backlog

    @property
    def is_delayed(self) -> bool:
        """Whether what was handed on is still being written, or could not be."""
        return self._scribe.is_writing or self._scribe.is_in_trouble

    @property
    def has_lost_text(self) -> bool:
        """Whether something of this turn was dropped, because it could not be written for too long."""
        return self._has_shed

    def begin_turn(self) -> int:
        """Let the following entries belong to the next turn; returns its number."""
        self._close_text()
        self._has_shed = False
        self._turn += 1
        return self._turn

    def text(self, kind: str, key: str, piece: str) -> None:
        """A piece of a message; written within a quarter of a second."""
        if kind == self._kind and key == self._key:
            self._pieces.append(piece)
            scribe = self._scribe
            scribe.size += len(piece)
            if scribe.size >= scribe.due_at:
                scribe.take_note_of_size()
        elif piece:
            self._open_text(kind, key, piece)

    def add(self, kind: str, key: str, body: bytes) -> None:
        """Something that is whole by itself; written in this tick of the event loop."""
        _refuse_unstorable(kind, key)
        self._close_text()
        self._seq += 1
        self._rows.append((self.number, self._seq, self._turn, now(), kind, key, body))
        self._size += len(body)
        self._scribe.size += len(body) + ROW_COST
        self._scribe.expect(self, soon=True)

    def set(self, **columns: Any) -> None:
        """Change the session's own record, together with the entries so far.

        `settings` and `usage` are JSON, `state` is bytes or None, `roots` paths.
        """
        unknown = columns.keys() - COLUMNS
        if unknown:
            raise TypeError(f"a session has no {', '.join(sorted(unknown))} to change")
        if "roots" in columns:
            columns["roots"] = json.dumps(tuple(columns["roots"]))
        for name, value in columns.items():
            if isinstance(value, bytes) and name != "state":
                columns[name] = value.decode()
        _refuse_unstorable(*(value for value in columns.values() if isinstance(value, str)))
        self._columns.update(columns)
        self._scribe.size += len(columns.get("state") or b"")
        self._scribe.expect(self)

    def flush(self, done: Callable[[StoreError | None], None]) -> None:
        """Make everything so far durable, then call `done`: before this returns if it is little."""
        self._scribe.flush(done)

    def take_back(self, kind: str) -> bool:
        """Remove the newest entry if it is of this kind and was not written.

        For an end that could not be stored: the client was told so, and must not find it there later.
        """
        self._close_text()
        if not self._rows or self._rows[-1][4] != kind:
            return False
        self._size -= len(self._rows.pop()[6])
        self._seq -= 1
        return True

    def hand_over(self) -> tuple[list[Row], dict[str, Any]]:
        """What is to be written now; it is the scribe's from here on."""
        self._close_text()
        pending = self._rows, self._columns
        self._rows, self._columns, self._size = [], {}, 0
        return pending

    def give_back(self, rows: list[Row], columns: dict[str, Any]) -> None:
        """What could not be written stands before everything that came since."""
        self._rows[:0] = rows
        self._columns = columns | self._columns
        self._size += sum(len(row[6]) for row in rows)

    def shed(self, limit: int) -> int:
        """Drop text if there is more than this to keep in memory; returns the size of what stays."""
        self._close_text()
        if self._size > limit:
            self._keep([row for row in self._rows if row[4] not in self._text_kinds])
            if self._size > limit:
                self._keep([])
            if not self._has_shed:
                log.error("a session's journal could not be written for too long: a part of it is lost")
                self._has_shed = True
        return self._size

    def _keep(self, rows: list[Row]) -> None:
        self._rows = rows
        self._size = sum(len(row[6]) for row in rows)

    def _open_text(self, kind: str, key: str, piece: str) -> None:
        _refuse_unstorable(kind, key)
        self._close_text()
        self._kind, self._key, self._at = kind, key, now()
        self._pieces = [piece]
        self._seq += 1
        self._text_kinds.add(kind)
        self._scribe.size += len(piece) + ROW_COST
        self._scribe.expect(self)

    def _close_text(self) -> None:
        if self._kind is None:
            return
        body = _encoded("".join(self._pieces))
        self._rows.append((self.number, self._seq, self._turn, self._at, self._kind, self._key, body))
        self._size += len(body)
        self._kind = None
        self._pieces = []


def joined(entries: Iterable[Entry], text_kinds: Container[str]) -> Iterator[Entry]:
    """The entries with each message's text in one piece, as far as nothing came in between."""
    whole: Entry | None = None
    pieces: list[bytes] = []
    for entry in entries:
        if whole is not None and entry.kind in text_kinds and entry[3:5] == whole[3:5]:
            pieces.append(entry.body)
            continue
        if whole is not None:
            yield whole._replace(body=b"".join(pieces))
        whole, pieces = entry, [entry.body]
    if whole is not None:
        yield whole._replace(body=b"".join(pieces))


def read_keys(connection: sqlite3.Connection, id: str, kind: str) -> set[str]:
    """The keys of a session's entries of one kind."""
    rows = connection.execute(
        "SELECT DISTINCT key FROM entries JOIN sessions ON number = session WHERE id = ? AND kind = ?",
        (id, kind),
    )
    return {key for (key,) in rows}


def read_entries(connection: sqlite3.Connection, id: str, after: int, limit: int) -> list[Entry]:
    """What happened in a session after an entry."""
    rows = connection.execute(
        "SELECT seq, turn, at, kind, key, body FROM entries WHERE session ="
        " (SELECT number FROM sessions WHERE id = ? AND deleted = 0) AND seq > ? ORDER BY seq LIMIT ?",
        [id, after, limit],
    )
    entries: list[Entry] = []
    size = 0
    for row in rows:
        entries.append(Entry(*row))
        size += len(row[-1])
        if size >= ENOUGH:
            break
    return entries


def read_end(connection: sqlite3.Connection, id: str) -> tuple[int, int, int] | None:
    """The number of a session, and its last entry's seq and turn, from which a journal goes on."""
    row: tuple[int, int, int] | None = connection.execute(
        "SELECT number, coalesce(seq, 0), coalesce(turn, 0)"
        " FROM sessions LEFT JOIN entries ON session = number"
        " WHERE id = ? AND deleted = 0 ORDER BY seq DESC LIMIT 1",
        [id],
    ).fetchone()
    return row


def _encoded(text: str) -> bytes:
    """In UTF-8; halves of a surrogate pair are put together, and one that is alone is replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _refuse_unstorable(*texts: str) -> None:
    """Half a surrogate pair would make every later flush fail; better that its author hears of it."""
    for text in texts:
        if not text.isascii():
            text.encode()
