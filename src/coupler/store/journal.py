"""The journals of sessions: how entries are gathered in memory, and how they are read.

A `SessionJournal` only gathers; the `JournalWriter` writes what all journals have gathered, in one
transaction. Rows are never changed: what a message gets after a flush is another row of the same kind and
key, and readers join neighbours.
"""

from __future__ import annotations

import json
import logging
import sqlite3
import zlib
from collections.abc import Callable, Container, Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple

from coupler.store.database import now
from coupler.store.errors import StoreError

if TYPE_CHECKING:
    from coupler.store.journal_writer import Backlog, JournalWriter

log = logging.getLogger("coupler.store")

READ_BYTES = 512 * 1024
"""Bytes of entries that are read at once; their reader is not the only one to be served."""

ROW_COST = 200
"""Cost of an entry besides its body, in bytes that take as long to write."""

FLUSH_AFTER = 0.25
"""Seconds that text waits for more before it is written."""

DATE_EVERY = 250
"""Milliseconds between two dates of a session, each of which is written into three indexes."""

COMPRESSED_FROM, COMPRESSED_TO = 900, 16 * 1024
"""Bytes of bodies that are compressed: from there on SQLite gives a row whole pages of its own.

Longer ones, as the text of a busy turn, fill theirs, and would take too long.
"""

COMPRESSED = b"\xff"
"""Begins a compressed body; no text in UTF-8 and no JSON begins with it."""

COLUMNS = frozenset({"title", "updated_at", "turns", "settings", "usage", "state", "roots"})
"""The columns of a session that change while it lives."""

JournalRow = tuple[int, int, int, int, str, str, bytes]
"""A row of the table: the session's number, and an entry."""

FlushCallback = Callable[[StoreError | None], None]


class JournalEntry(NamedTuple):
    """One thing that happened in a session; `at` is in milliseconds since 1970."""

    seq: int
    turn: int
    at: int
    kind: str
    key: str
    body: bytes


class _OpenText:
    """The unwritten text of one message: what was counted of it, and the pieces that came since."""

    __slots__ = ("at", "closed", "counted", "key", "kind", "pieces")

    def __init__(self, kind: str, key: str, piece: str, closed: Callable[[], None] | None) -> None:
        self.kind = kind
        self.key = key
        self.at = now()
        self.counted: list[str] = []
        self.pieces = [piece]
        self.closed = closed


class SessionJournal:
    """Collects the entries of one session. Used on the event loop's thread only.

    Text is the hot path: a piece that continues the open message costs an append.
    """

    __slots__ = (
        "__weakref__",
        "_changed_at",
        "_columns",
        "_dated_at",
        "_has_shed",
        "_rows",
        "_seq",
        "_size",
        "_text",
        "_text_kinds",
        "_turn",
        "_writer",
        "is_closed",
        "number",
    )

    def __init__(self, number: int, seq: int, turn: int, writer: JournalWriter) -> None:
        self.number = number
        self._seq = seq
        self._turn = turn
        self._writer = writer
        self._text: _OpenText | None = None
        self._changed_at = 0
        self._dated_at = 0
        self._rows: list[JournalRow] = []
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
        """True if something was not yet handed over to be written."""
        return bool(
            self._rows or self._columns or self._text is not None or self._changed_at != self._dated_at
        )

    @property
    def backlog(self) -> Backlog:
        """Tells when no more should be taken now; the same for all journals of a store."""
        return self._writer.backlog

    @property
    def before_showing(self) -> Callable[[int, Callable[[], None]], bool]:
        """To be called before so many bytes are shown to a client; the same for all journals of a store.

        If it returns False they must wait, until what was given with them is called.
        """
        return self._writer.before_showing

    @property
    def is_delayed(self) -> bool:
        """True if what was handed over is still being written, or could not be."""
        return self._writer.is_writing or self._writer.is_in_trouble

    @property
    def has_lost_text(self) -> bool:
        """True if something of this turn was dropped, because it could not be written for too long."""
        return self._has_shed

    def begin_turn(self) -> int:
        """Let the following entries belong to the next turn; returns its number."""
        self._close_text()
        self._has_shed = False
        self._turn += 1
        if self._turn == 1:
            # Only now it is listed, whatever becomes of the turn; otherwise the turn's end is early enough.
            self._changed_at = now()
            self.date()
        return self._turn

    def text(self, kind: str, key: str, piece: str) -> None:
        """Add a piece of a message; written within a quarter of a second."""
        text = self._text
        if text is not None and kind == text.kind and key == text.key:
            text.pieces.append(piece)
        elif piece:
            self._open_text(kind, key, piece, None)
        self._writer.note_text(len(piece))

    def stream(self, kind: str, key: str, piece: str, closed: Callable[[], None]) -> Callable[[str], object]:
        """Add a piece of a message, and return what takes the next ones until `closed` is called.

        That is the method of a list, so that a piece costs next to nothing. What was added is counted when
        `before_showing` is called.
        """
        text = self._text
        if text is not None and kind == text.kind and key == text.key:
            text.pieces.append(piece)
            text.closed = closed
        else:
            text = self._open_text(kind, key, piece, closed)
        return text.pieces.append

    def add(self, kind: str, key: str, body: bytes) -> None:
        """Add something that is whole by itself; written in this tick of the event loop."""
        _refuse_unstorable(key)
        self._append(kind, key, body, now())
        self._writer.expect(self, 0.0)

    def add_prompt(self, kind: str, key: str, body: bytes) -> None:
        """Add the prompt of a turn; written with the turn's end if that comes very soon."""
        _refuse_unstorable(key)
        self._append(kind, key, body, now())
        self._writer.expect_prompt(self)

    def end_turn(self, kind: str, body: bytes, done: FlushCallback) -> None:
        """Add the end of a turn, date the session, make everything so far durable, then call `done`.

        A session that changes many times a second is dated four times a second.
        """
        self._changed_at = at = now()
        self._append(kind, "", body, at)
        if 0 <= at - self._dated_at < DATE_EVERY:
            self._writer.date_later(self)
        else:
            self.date()
        self._writer.flush_turn(self, done)

    def date(self) -> None:
        """Change the session's date and number of turns to what they are, with the next write."""
        self._dated_at = self._changed_at
        self._columns["updated_at"] = self._changed_at
        self._columns["turns"] = self._turn

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
        self._writer.size += len(columns.get("state") or b"")
        self._writer.expect(self, FLUSH_AFTER)

    def flush(self, done: Callable[[StoreError | None], None]) -> None:
        """Make everything so far durable, then call `done`: before this returns if it is little."""
        self._writer.flush(done)

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

    def take_back_turn(self, kind: str) -> None:
        """Undo `begin_turn`, because its prompt, which is of this kind, could not be written."""
        if self.take_back(kind):
            self._turn -= 1
            self._columns["turns"] = self._turn

    def count_text(self) -> int:
        """Count the characters that were added since the last count."""
        text = self._text
        if text is None or not text.pieces:
            return 0
        joined = "".join(text.pieces)
        text.pieces.clear()
        text.counted.append(joined)
        return len(joined)

    def hand_over(self) -> tuple[list[JournalRow], dict[str, Any]]:
        """Hand over what is to be written now; it is the writer's from here on."""
        self._close_text()
        pending = self._rows, self._columns
        self._rows, self._columns, self._size = [], {}, 0
        return pending

    def give_back(self, rows: list[JournalRow], columns: dict[str, Any]) -> None:
        """Take back what could not be written; it stands before everything that came since."""
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

    def _keep(self, rows: list[JournalRow]) -> None:
        self._rows = rows
        self._size = sum(len(row[6]) for row in rows)

    def _append(self, kind: str, key: str, body: bytes, at: int) -> None:
        self._close_text()
        self._seq += 1
        body = compressed(body)
        self._rows.append((self.number, self._seq, self._turn, at, kind, key, body))
        self._size += len(body)
        self._writer.size += len(body) + ROW_COST

    def _open_text(self, kind: str, key: str, piece: str, closed: Callable[[], None] | None) -> _OpenText:
        _refuse_unstorable(key)
        self._close_text()
        text = self._text = _OpenText(kind, key, piece, closed)
        self._text_kinds.add(kind)
        self._writer.size += ROW_COST
        self._writer.expect(self, FLUSH_AFTER)
        return text

    def _close_text(self) -> None:
        text = self._text
        if text is None:
            return
        self._text = None
        if text.closed is not None:
            text.closed()
        body = compressed(_encoded("".join([*text.counted, *text.pieces])))
        if body:
            self._seq += 1
            self._rows.append((self.number, self._seq, self._turn, text.at, text.kind, text.key, body))
            self._size += len(body)


def join_text(entries: Iterable[JournalEntry], text_kinds: Container[str]) -> Iterator[JournalEntry]:
    """Join the entries of each message's text, as far as nothing came in between."""
    whole: JournalEntry | None = None
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


def read_entries(connection: sqlite3.Connection, id: str, after: int, limit: int) -> list[JournalEntry]:
    """Read the entries of a session after one of them."""
    rows = connection.execute(
        "SELECT seq, turn, at, kind, key, body FROM entries WHERE session ="
        " (SELECT number FROM sessions WHERE id = ? AND deleted = 0) AND seq > ? ORDER BY seq LIMIT ?",
        [id, after, limit],
    )
    entries: list[JournalEntry] = []
    size = 0
    for row in rows:
        entry = JournalEntry(*row)
        entries.append(entry._replace(body=decompressed(entry.body)))
        size += len(entries[-1].body)
        if size >= READ_BYTES:
            break
    return entries


def compressed(body: bytes) -> bytes:
    """Compress the body of an entry, if it is long enough and that makes it much shorter."""
    if body[:1] == COMPRESSED:
        return COMPRESSED + zlib.compress(body, 1)
    if not COMPRESSED_FROM <= len(body) <= COMPRESSED_TO:
        return body
    shorter = COMPRESSED + zlib.compress(body, 1)
    return shorter if len(shorter) < 0.8 * len(body) else body


def decompressed(body: bytes) -> bytes:
    """Return the body of an entry as it was; one that is damaged is left as it is."""
    try:
        return zlib.decompress(body[1:]) if body[:1] == COMPRESSED else body
    except zlib.error:
        return body


def read_end(connection: sqlite3.Connection, id: str) -> tuple[int, int, int] | None:
    """The number of a session, and its last entry's seq and turn, from which a journal continues."""
    row: tuple[int, int, int] | None = connection.execute(
        "SELECT number, coalesce(seq, 0), coalesce(turn, 0)"
        " FROM sessions LEFT JOIN entries ON session = number"
        " WHERE id = ? AND deleted = 0 ORDER BY seq DESC LIMIT 1",
        [id],
    ).fetchone()
    return row


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; surrogate pairs are joined, and lone surrogates are replaced."""
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


def _refuse_unstorable(*texts: str) -> None:
    """Raise for lone surrogates, which would make every later flush fail."""
    for text in texts:
        if not text.isascii():
            text.encode()
