"""The tables of workflow runs and of what happened in each, in order.

`RunTable` has plain blocking functions on a given connection, like those of the sessions; `Runs` and
`BlockingRuns` decide on which thread. What an entry's body means is the workflow's business; what several
bodies have in common can be stored once, and readers get each of them whole.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import msgspec

from coupler.store.database import Database, now
from coupler.store.errors import StoreError
from coupler.store.leases import LeaseHolder, when_ended
from coupler.store.space import delete_some, measure_some

INLINE_LIMIT = 1024 * 1024
"""Bytes that are written on the event loop, in 2 to 10 ms."""

READ_BYTES = 512 * 1024
"""Bytes of entries that are read at once; their reader is not the only one to be served."""

SHARING = b"\xc1\xc1"
"""Begins a stored body that has parts in common with earlier ones; no other body begins so."""

RunStatus = Literal["running", "success", "failed", "cancelled", "parked"]

_COLUMNS = (
    "id, workflow, file, digest, cwd, session_id, status, exit_code, message, created_at, updated_at, holder"
)
_WHOLE = f"{_COLUMNS}, inputs, sources"


class RunRecord(msgspec.Struct, frozen=True, kw_only=True):
    """A run as it is kept, besides its entries. Times are milliseconds since 1970."""

    id: str
    workflow: str
    file: str
    digest: str
    cwd: str
    session_id: str | None = None
    status: RunStatus = "running"
    exit_code: int | None = None
    message: str = ""
    created_at: int = 0
    updated_at: int = 0
    pid: int | None = None
    """The process that has the run, if one that lives has."""
    inputs: bytes = b""
    """The inputs that it was started with; like `sources`, its files, empty in lists."""
    sources: bytes = b""

    @property
    def is_interrupted(self) -> bool:
        """True if its process died before the run was over."""
        return self.status == "running" and self.pid is None


class RunEntry(NamedTuple):
    """One thing that happened in a run; `at` is in milliseconds since 1970.

    What is about no step has no path.
    """

    seq: int
    at: int
    kind: str
    path: str
    visit: int
    body: bytes


class EntryPart(NamedTuple):
    """Bytes of the body of an earlier entry of the same run."""

    seq: int
    start: int
    length: int


class RunChange(NamedTuple):
    """A run's new status."""

    status: RunStatus
    exit_code: int | None = None
    message: str = ""


class Runs:
    """The runs of a store, for the event loop; `blocking` is the same for commands."""

    def __init__(self, database: Database, holder: LeaseHolder) -> None:
        self._database = database
        self._table = RunTable(holder)
        self.blocking = BlockingRuns(database, self._table)

    async def create(self, record: RunRecord) -> int | None:
        """Keep a new run, held by this process; its number, or None if the id is taken."""
        return await self._database.attempt(lambda connection: self._table.create(connection, record))

    def renumber(self, numbers: Mapping[int, int]) -> None:
        """Let open runs go on under the numbers that they have in another file."""
        known = {first: numbers.get(last, last) for first, last in self._table.renumbered.items()}
        self._table.renumbered = {**numbers, **known}

    async def find(self, id: str) -> RunRecord | None:
        """The run with this id."""
        return await self._database.attempt_to_read(lambda connection: self._table.find(connection, id))

    async def ids(self) -> list[str]:
        """The ids of all runs, the newest first."""
        return await self._database.attempt_to_read(self._table.ids)

    async def hold(self, id: str) -> tuple[int, int] | int | None:
        """Take a run for this process: its number, and the seq of its last entry.

        Just a number is the process that has it; that can be this one. None: there is no such run.
        """
        return await when_ended(self._database, lambda connection: self._table.hold(connection, id))

    async def release(self, number: int) -> None:
        """Release a run that this process holds for others; if the store cannot be written now, later."""

        def release(connection: sqlite3.Connection) -> None:
            self._table.release(connection, number)

        self._database.look_again()
        try:
            await self._database.attempt(release)
        except StoreError:
            self._database.submit_until_done(release)
            raise

    async def write(
        self, number: int, entries: Sequence[RunEntry], change: RunChange | None, size: int = 0
    ) -> None:
        """Make entries durable: now if they are small and the file is free, else on the store's thread."""
        if size < INLINE_LIMIT:
            await self._database.attempt(
                lambda connection: self._table.write(connection, number, entries, change)
            )
        else:
            future = self._database.submit(
                lambda connection: self._table.write(connection, number, entries, change)
            )
            await asyncio.wrap_future(future)

    def write_at_once(self, number: int, entries: Sequence[RunEntry], change: RunChange | None) -> bool:
        """The same if it can be done without waiting; False if the file is locked just now."""
        if self._database.has_waiting_work:
            return False
        try:
            self._database.transaction(
                lambda connection: self._table.write(connection, number, entries, change)
            )
        except StoreError as error:
            if error.kind != "locked":
                raise
            return False
        return True

    async def entries(
        self,
        id: str,
        after: int = 0,
        until: int | None = None,
        kinds: Sequence[str] = (),
        *,
        is_whole: bool = False,
    ) -> list[RunEntry]:
        """Read the entries of a run after one of them; some of them, unless all are wanted."""
        return await self._database.attempt_to_read(
            lambda connection: read_run_entries(connection, id, after, until, kinds, is_whole=is_whole)
        )


class BlockingRuns:
    """The runs for commands, which wait for what they ask."""

    def __init__(self, database: Database, table: RunTable) -> None:
        self._database = database
        self._table = table

    def find(self, id: str) -> RunRecord | None:
        """The run with this id."""
        return self._database.wait_to_read(lambda connection: self._table.find(connection, id))

    def find_all(self) -> list[RunRecord]:
        """The runs, the newest first, without what they were started with."""
        return self._database.wait_to_read(self._table.find_all)

    def ids(self) -> list[str]:
        """The ids of all runs, the newest first."""
        return self._database.wait_to_read(self._table.ids)

    def entries(self, id: str, after: int = 0, kinds: Sequence[str] = ()) -> list[RunEntry]:
        """Read some of the entries of a run after one of them."""
        return self._database.wait_to_read(
            lambda connection: read_run_entries(connection, id, after, None, kinds)
        )

    def end_unheld(self, id: str, kind: str, body: bytes, change: RunChange) -> bool:
        """End a run that no living process has, with a last entry; False if one has, or if it is over."""
        return self._database.wait(
            lambda connection: self._table.end_unheld(connection, id, kind, body, change)
        )

    def delete(self, id: str) -> bool:
        """Delete a run, at once for all who look for it; the store's `purge` removes its entries.

        False if there is none. Raises StoreError if a living process has it.
        """
        return self._database.wait(lambda connection: self._table.delete(connection, id))


class RunTable:
    """The runs of one database, as one process sees them."""

    def __init__(self, holder: LeaseHolder) -> None:
        self._holder = holder
        self.renumbered: dict[int, int] = {}
        """Numbers of runs that are open here and have another one since: the database was replaced."""

    def create(self, connection: sqlite3.Connection, record: RunRecord) -> int | None:
        """Keep a new run, held by this process; its number, or None if the id is taken."""
        moment = now()
        try:
            return connection.execute(
                f"INSERT INTO runs ({_WHOLE}) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
                [
                    record.id,
                    record.workflow,
                    os.fsencode(record.file),
                    record.digest,
                    os.fsencode(record.cwd),
                    record.session_id,
                    record.status,
                    record.exit_code,
                    record.message,
                    record.created_at or moment,
                    record.updated_at or moment,
                    self._holder.id,
                    record.inputs,
                    record.sources,
                ],
            ).lastrowid
        except sqlite3.IntegrityError:
            return None

    def find(self, connection: sqlite3.Connection, id: str) -> RunRecord | None:
        """The run with this id."""
        row = connection.execute(f"SELECT {_WHOLE} FROM runs WHERE id = ?", [id]).fetchone()
        return None if row is None else self._as_record(row)

    def find_all(self, connection: sqlite3.Connection) -> list[RunRecord]:
        """The runs, the newest first, without what they were started with."""
        rows = connection.execute(f"SELECT {_COLUMNS} FROM runs ORDER BY number DESC")
        return [self._as_record(row) for row in rows]

    def ids(self, connection: sqlite3.Connection) -> list[str]:
        """The ids of all runs, the newest first."""
        return [row[0] for row in connection.execute("SELECT id FROM runs ORDER BY number DESC")]

    def hold(self, connection: sqlite3.Connection, id: str) -> tuple[int, int] | int | None:
        """Take a run for this process: its number, and the seq of its last entry.

        Just a number is the process that has it; that can be this one. None: there is no such run.
        """
        row = connection.execute("SELECT number, holder FROM runs WHERE id = ?", [id]).fetchone()
        if row is None:
            return None
        number, holder = row
        if (owner := self._holder.owner(holder)) is not None:
            return owner
        self._holder.check_ended(holder)
        self._holder.take(connection, "runs", number)
        return number, last_seq(connection, number)

    def release(self, connection: sqlite3.Connection, number: int) -> None:
        """Release a run that this process holds for others."""
        self._holder.give_back(connection, "runs", self.renumbered.get(number, number))

    def write(
        self,
        connection: sqlite3.Connection,
        number: int,
        entries: Sequence[RunEntry],
        change: RunChange | None,
    ) -> None:
        """Add entries to a run that this process holds, and say how it stands.

        An entry that is there already is the same one, from a try that succeeded and did not know.
        """
        number = self.renumbered.get(number, number)
        held = connection.execute(
            "UPDATE runs SET updated_at = ? WHERE number = ? AND holder = ?", [now(), number, self._holder.id]
        )
        if not held.rowcount:
            raise StoreError("held", "another process has taken this run: nothing more of it is kept here")
        _insert(connection, number, entries)
        if change is not None:
            _update(connection, number, change)

    def end_unheld(
        self, connection: sqlite3.Connection, id: str, kind: str, body: bytes, change: RunChange
    ) -> bool:
        """End a run that no living process has, with a last entry; False if one has, or if it is over."""
        row = connection.execute(
            "SELECT number, holder FROM runs WHERE id = ? AND status IN ('running', 'parked')", [id]
        ).fetchone()
        if row is None or self._holder.owner(row[1]) is not None:
            return False
        number = row[0]
        entry = RunEntry(last_seq(connection, number) + 1, now(), kind, "", 0, body)
        _insert(connection, number, [entry])
        _update(connection, number, change)
        connection.execute("UPDATE runs SET updated_at = ?, holder = NULL WHERE number = ?", [now(), number])
        return True

    def delete(self, connection: sqlite3.Connection, id: str) -> bool:
        """Delete a run, whose entries a purge removes; False if there is none.

        Raises StoreError if a living process has it.
        """
        row = connection.execute("SELECT number, holder FROM runs WHERE id = ?", [id]).fetchone()
        if row is None:
            return False
        if (owner := self._holder.owner(row[1])) is not None:
            raise StoreError(
                "held",
                f"the run {id} is running in the process {owner}: end it there first, "
                f"or with `coupler runs cancel {id}`",
            )
        connection.execute("INSERT INTO deleted_runs VALUES (?)", row[:1])
        connection.execute("DELETE FROM runs WHERE number = ?", row[:1])
        return True

    def discard(self, connection: sqlite3.Connection, number: int, updated_at: int) -> bool:
        """Delete a run, unless something has happened in it since, it waits, or a process works on it."""
        row = connection.execute(
            "SELECT id, holder FROM runs WHERE number = ? AND updated_at = ? AND status != 'parked'",
            [number, updated_at],
        ).fetchone()
        return row is not None and self._holder.owner(row[1]) is None and self.delete(connection, row[0])

    def _as_record(self, row: Sequence[Any]) -> RunRecord:
        columns: dict[str, Any] = dict(zip(_WHOLE.split(", "), row, strict=False))
        holder = columns.pop("holder")
        columns["file"] = os.fsdecode(columns["file"])
        columns["cwd"] = os.fsdecode(columns["cwd"])
        return RunRecord(**columns, pid=self._holder.owner(holder))


def has_deleted_runs(connection: sqlite3.Connection) -> bool:
    """Return whether something of a deleted run is left to purge."""
    return connection.execute("SELECT 1 FROM deleted_runs LIMIT 1").fetchone() is not None


def purge_run_slice(connection: sqlite3.Connection) -> bool:
    """Remove some entries of a deleted run; False if there was none."""
    row = connection.execute("SELECT number FROM deleted_runs LIMIT 1").fetchone()
    if row is None:
        return False
    if delete_some(connection, "run_entries", "run", row[0]):
        connection.execute("DELETE FROM deleted_runs WHERE number = ?", row)
    return True


def measure_run(read: Callable[[], sqlite3.Connection], number: int) -> Iterator[int]:
    """Measure what a purge removes of a run, some of it at a time, like `measure_session`."""
    query = "SELECT length(sources) + length(inputs) FROM runs WHERE number = ?"
    row = read().execute(query, [number]).fetchone()
    yield 0 if row is None else row[0]
    after: int | None = 0
    while after is not None:
        size, after = measure_some(read(), "run_entries", "run", number, after)
        yield size


def read_run_entries(
    connection: sqlite3.Connection,
    id: str,
    after: int = 0,
    until: int | None = None,
    kinds: Sequence[str] = (),
    *,
    is_whole: bool = False,
) -> list[RunEntry]:
    """Read the entries of a run after one of them; some of them, unless all are wanted."""
    chosen = f" AND kind IN ({','.join('?' * len(kinds))})" if kinds else ""
    rows = connection.execute(
        "SELECT seq, at, kind, path, visit, body, run FROM run_entries WHERE run ="
        f" (SELECT number FROM runs WHERE id = ?) AND seq > ? AND seq <= ?{chosen} ORDER BY seq",
        [id, after, 2**62 if until is None else until, *kinds],
    )
    entries: list[RunEntry] = []
    size = 0
    for seq, at, kind, path, visit, stored, number in rows:
        body = _whole_body(connection, number, stored)
        entries.append(RunEntry(seq, at, kind, path, visit, body))
        size += len(body) + 200
        if size >= READ_BYTES and not is_whole:
            break
    return entries


def shared_body(parts: Sequence[bytes | EntryPart]) -> bytes:
    """Return a body to be stored of which some parts stand in earlier entries; readers get it whole."""
    return SHARING + msgspec.msgpack.encode(parts)


def _whole_body(connection: sqlite3.Connection, number: int, body: bytes) -> bytes:
    """Return a body with the parts that others have; unreadable, as it is stored, if one of them is gone."""
    if not body.startswith(SHARING):
        return body
    found: list[bytes] = []
    for part in msgspec.msgpack.decode(body[len(SHARING) :], type=list[bytes | EntryPart]):
        if isinstance(part, bytes):
            found.append(part)
            continue
        row = connection.execute(
            "SELECT substr(body, ?, ?) FROM run_entries WHERE run = ? AND seq = ?",
            [part.start + 1, part.length, number, part.seq],
        ).fetchone()
        if row is None or len(row[0]) != part.length:
            return body
        found.append(row[0])
    return b"".join(found)


def last_seq(connection: sqlite3.Connection, number: int) -> int:
    """The seq of a run's last entry; 0 if it has none."""
    row = connection.execute("SELECT max(seq) FROM run_entries WHERE run = ?", [number]).fetchone()
    return row[0] or 0


def _insert(connection: sqlite3.Connection, number: int, entries: Sequence[RunEntry]) -> None:
    connection.executemany(
        "INSERT OR IGNORE INTO run_entries VALUES (?,?,?,?,?,?,?)", [(number, *entry) for entry in entries]
    )


def _update(connection: sqlite3.Connection, number: int, change: RunChange) -> None:
    connection.execute(
        "UPDATE runs SET status = ?, exit_code = ?, message = ? WHERE number = ?", [*change, number]
    )
