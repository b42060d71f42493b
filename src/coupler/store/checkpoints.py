"""The tables of LangGraph's threads: checkpoints, the writes of unfinished steps, and the items they share.

A checkpoint is small: the messages of a conversation, and whatever else is large in a state, are items. An
item is stored once and never changed; checkpoints and writes refer to it by its number. Plain blocking
functions on a given connection, like those of the sessions. What a body means is the saver's business.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from coupler.store.errors import translate_error

PURGE_BYTES = 512 * 1024
"""Bytes of items, roughly, that are removed in one transaction: other writers wait for milliseconds."""

MOST_ITEMS = 1 << 32
"""Numbers that each thread has for its items; the key of an item is made of the thread's and its own."""

Range = tuple[int, int]
"""The first and the last of neighbouring numbers."""

_CHECKPOINT = "namespace, id, parent, depth, items, body, metadata"
_WRITE = "namespace, checkpoint, task, position, path, channel, items, body"

_ranges = msgspec.msgpack.Decoder(list[Range])


EARLIER_SUFFIX = ".langgraph"
"""Suffix of the file beside the database in which version 0.1 stored threads, every state whole."""

EARLIER_TIMEOUT = 5.0
"""Seconds to wait for a process of that version that writes."""


class StoredItem(NamedTuple):
    """A part of a state, serialized."""

    number: int
    format: str
    body: bytes


class StoredCheckpoint(NamedTuple):
    """A state of a graph, or of a graph inside of it (`namespace`), without its items.

    It can be read with as many checkpoints before it as `depth` says; `items` are packed ranges.
    """

    namespace: str
    id: str
    parent: str | None
    depth: int
    items: bytes
    body: bytes
    metadata: bytes


class StoredWrite(NamedTuple):
    """A value that a task has written into a channel, before its step is over."""

    namespace: str
    checkpoint: str
    task: str
    position: int
    path: str
    channel: str
    items: bytes
    body: bytes


def pack_ranges(ranges: Iterable[Range]) -> bytes:
    """Pack the numbers of items that a checkpoint or a write refers to."""
    return msgspec.msgpack.encode(join_ranges(ranges))


def join_ranges(ranges: Iterable[Range]) -> list[Range]:
    """Return the same numbers in order, in as few ranges as possible."""
    joined: list[Range] = []
    for first, last in sorted(ranges):
        if joined and first <= joined[-1][1] + 1:
            joined[-1] = joined[-1][0], max(joined[-1][1], last)
        else:
            joined.append((first, last))
    return joined


def thread_number(connection: sqlite3.Connection, id: str) -> int | None:
    """The number under which a thread's checkpoints are stored; None if there are none."""
    row = connection.execute("SELECT number FROM threads WHERE id = ?", [id]).fetchone()
    return int(row[0]) if row is not None else None


def last_item(connection: sqlite3.Connection, thread_id: str) -> int:
    """The highest number of a thread's items; 0 if it has none."""
    thread = thread_number(connection, thread_id)
    if thread is None:
        return 0
    row = connection.execute(
        "SELECT max(key) FROM checkpoint_items WHERE key BETWEEN ? AND ?", _keys(thread, 0, MOST_ITEMS - 1)
    ).fetchone()
    return row[0] % MOST_ITEMS if row[0] is not None else 0


def write_checkpoint(
    connection: sqlite3.Connection,
    thread_id: str,
    checkpoint: StoredCheckpoint,
    items: Iterable[StoredItem],
    kept: str | None,
) -> None:
    """Store a checkpoint with the items that it needs.

    If `kept` is the id of the checkpoint that the last turn ended at, those between the two are removed
    unless this one depends on them: nobody goes back to them.
    """
    thread = ensure_thread(connection, thread_id)
    _insert_items(connection, thread, items)
    connection.execute(
        f"INSERT OR REPLACE INTO checkpoints (thread, {_CHECKPOINT}) VALUES (?,?,?,?,?,?,?,?)",
        [thread, *checkpoint],
    )
    if kept is not None:
        _remove_before(connection, thread, checkpoint, kept)


def write_writes(
    connection: sqlite3.Connection,
    thread_id: str,
    writes: Sequence[StoredWrite],
    items: Iterable[StoredItem],
    *,
    replace: bool,
) -> None:
    """Store what a task has written; what is there already is replaced or left as it is."""
    thread = ensure_thread(connection, thread_id)
    _insert_items(connection, thread, items)
    connection.executemany(
        f"INSERT OR {'REPLACE' if replace else 'IGNORE'} INTO checkpoint_writes (thread, {_WRITE})"
        " VALUES (?,?,?,?,?,?,?,?,?)",
        [(thread, *write) for write in writes],
    )


def find_checkpoint(
    connection: sqlite3.Connection, thread: int, namespace: str, id: str | None
) -> StoredCheckpoint | None:
    """The checkpoint with this id, or the latest in the namespace."""
    chosen, values = ("AND id = ?", [id]) if id is not None else ("ORDER BY id DESC LIMIT 1", [])
    row = connection.execute(
        f"SELECT {_CHECKPOINT} FROM checkpoints WHERE thread = ? AND namespace = ? {chosen}",
        [thread, namespace, *values],
    ).fetchone()
    return StoredCheckpoint(*row) if row is not None else None


def find_writes(
    connection: sqlite3.Connection, thread: int, namespace: str, checkpoint: str
) -> list[StoredWrite]:
    """Find what tasks have written since a checkpoint, in the order in which LangGraph applies it."""
    rows = connection.execute(
        f"SELECT {_WRITE} FROM checkpoint_writes WHERE thread = ? AND namespace = ? AND checkpoint = ?"
        " ORDER BY path, task, position",
        [thread, namespace, checkpoint],
    )
    return [StoredWrite(*row) for row in rows]


def list_checkpoints(
    connection: sqlite3.Connection, thread_id: str | None, namespace: str | None, before: str | None
) -> list[tuple[str, StoredCheckpoint]]:
    """The checkpoints of a thread, or of all, with their threads, the latest first."""
    conditions, values = ["threads.id IS NOT NULL"], list[str]()
    for condition, value in (
        ("threads.id = ?", thread_id),
        ("namespace = ?", namespace),
        ("checkpoints.id < ?", before),
    ):
        if value is not None:
            conditions.append(condition)
            values.append(value)
    columns = ", ".join(f"checkpoints.{name}" for name in _CHECKPOINT.split(", "))
    rows = connection.execute(
        f"SELECT threads.id, {columns} FROM checkpoints JOIN threads ON thread = number"
        f" WHERE {' AND '.join(conditions)} ORDER BY checkpoints.id DESC",
        values,
    )
    return [(row[0], StoredCheckpoint(*row[1:])) for row in rows]


def read_items(connection: sqlite3.Connection, thread: int, ranges: Iterable[Range]) -> list[StoredItem]:
    """Read some of a thread's items."""
    found: list[StoredItem] = []
    for first, last in ranges:
        rows = connection.execute(
            "SELECT key, format, body FROM checkpoint_items WHERE key BETWEEN ? AND ?",
            _keys(thread, first, last),
        )
        found += [StoredItem(row[0] % MOST_ITEMS, *row[1:]) for row in rows]
    return found


def keep_only(
    connection: sqlite3.Connection, thread_id: str, checkpoint: str, *, with_tasks: bool
) -> tuple[list[Range], int]:
    """Remove a thread's other checkpoints: those before this one, and those after it without an answer.

    Graphs inside of this one that have a memory of their own (`compile(checkpointer=True)`) keep what they
    knew then: they are named without the task that they ran in, and ids grow with time. Those of tasks stay
    if one of them waits for an answer (`with_tasks`). Returns the items that are still needed, and the
    highest number that an item has.
    """
    thread = thread_number(connection, thread_id)
    if thread is None:
        return [], 0
    found: dict[str, list[tuple[str, int]]] = {}
    for namespace, *named in connection.execute(
        "SELECT namespace, id, depth FROM checkpoints WHERE thread = ? ORDER BY id DESC", [thread]
    ):
        found.setdefault(namespace, []).append((named[0], named[1]))
    for namespace, of_namespace in found.items():
        if ":" in namespace:
            needed = of_namespace if with_tasks else []
        else:
            known = [each for each in of_namespace if each[0] <= checkpoint]
            needed = known[: known[0][1] + 1] if known else []
        connection.executemany(
            "DELETE FROM checkpoints WHERE thread = ? AND namespace = ? AND id = ?",
            [(thread, namespace, each[0]) for each in of_namespace if each not in needed],
        )
    connection.execute(
        "DELETE FROM checkpoint_writes WHERE thread = ? AND NOT EXISTS (SELECT 1 FROM checkpoints AS kept"
        " WHERE kept.thread = checkpoint_writes.thread AND kept.namespace = checkpoint_writes.namespace"
        " AND kept.id = checkpoint_writes.checkpoint)",
        [thread],
    )
    return _needed_items(connection, thread), last_item(connection, thread_id)


def remove_items(connection: sqlite3.Connection, thread_id: str, until: int, needed: Sequence[Range]) -> bool:
    """Remove some of the items up to a number that nothing needs; False if there were none.

    What is still needed must have been found when `until` was the last number: later items are not looked at.
    """
    thread = thread_number(connection, thread_id)
    if thread is None:
        return False
    first = 1
    for start, end in (*needed, (until + 1, until + 1)):
        if first < start and _remove_some_items(connection, thread, first, min(start - 1, until)):
            return True
        first = end + 1
    return False


def copy_thread(connection: sqlite3.Connection, source_id: str, target_id: str) -> None:
    """Copy all of a thread; nothing, if there is no such thread."""
    source = thread_number(connection, source_id)
    if source is None:
        return
    target = ensure_thread(connection, target_id)
    for table, columns in (("checkpoints", _CHECKPOINT), ("checkpoint_writes", _WRITE)):
        connection.execute(
            f"INSERT OR REPLACE INTO {table} (thread, {columns})"
            f" SELECT ?, {columns} FROM {table} WHERE thread = ?",
            [target, source],
        )
    connection.execute(
        "INSERT OR REPLACE INTO checkpoint_items SELECT key + ?, format, body FROM checkpoint_items"
        " WHERE key BETWEEN ? AND ?",
        [(target - source) * MOST_ITEMS, *_keys(source, 0, MOST_ITEMS - 1)],
    )


def delete_thread(connection: sqlite3.Connection, id: str) -> bool:
    """Let nobody find a thread any more; a purge removes what is left of it. False if there is none."""
    return connection.execute("UPDATE threads SET id = NULL WHERE id = ?", [id]).rowcount > 0


def measure_thread(connection: sqlite3.Connection, session: int) -> int:
    """Measure the items of a session's thread."""
    row = connection.execute("SELECT id FROM sessions WHERE number = ?", [session]).fetchone()
    thread = None if row is None else thread_number(connection, row[0])
    if thread is None:
        return 0
    [size] = connection.execute(
        "SELECT sum(length(body)) FROM checkpoint_items WHERE key BETWEEN ? AND ?",
        _keys(thread, 0, MOST_ITEMS - 1),
    ).fetchone()
    return size or 0


def has_deleted_threads(connection: sqlite3.Connection) -> bool:
    """Return whether something is left to purge."""
    return connection.execute("SELECT 1 FROM threads WHERE id IS NULL LIMIT 1").fetchone() is not None


def purge_threads(connection: sqlite3.Connection) -> bool:
    """Remove a part of a deleted thread, at last the thread itself; False if there was none."""
    row = connection.execute("SELECT number FROM threads WHERE id IS NULL LIMIT 1").fetchone()
    if row is None:
        return False
    if not _remove_some_items(connection, row[0], 0, MOST_ITEMS - 1):
        connection.execute("DELETE FROM checkpoints WHERE thread = ?", row)
        connection.execute("DELETE FROM checkpoint_writes WHERE thread = ?", row)
        connection.execute("DELETE FROM threads WHERE number = ?", row)
    return True


class EarlierCheckpoint(NamedTuple):
    """A whole state as version 0.1 stored it, with what tasks had written since."""

    namespace: str
    id: str
    parent: str | None
    format: str
    body: bytes
    metadata: bytes
    writes: list[tuple[str, str, int, str, str, bytes]]
    """Task, path, position, channel, format and value of each."""


def has_earlier(path: str) -> bool:
    """Return whether there is a file of version 0.1 beside a database."""
    return os.path.isfile(f"{path}{EARLIER_SUFFIX}")


def read_earlier(path: str, thread_id: str, checkpoint: str | None) -> list[EarlierCheckpoint]:
    """Read what the file of version 0.1 has of a thread that can still be gone back to, the oldest first.

    That is the checkpoint of the last answer and the latest of each namespace, with those that they are the
    difference to.
    """
    with _earlier(path) as connection:
        if connection is None:
            return []
        rows = connection.execute(
            "SELECT checkpoint_ns, checkpoint_id, metadata FROM checkpoints WHERE thread_id = ?"
            " ORDER BY checkpoint_id DESC",
            [thread_id],
        ).fetchall()
        latest = {row[0]: row[1] for row in reversed(rows)}
        is_difference = any(
            b"counters_since_delta_snapshot" in bytes(metadata or b"") for *_, metadata in rows
        )
        return [
            _earlier_checkpoint(connection, thread_id, namespace, named)
            for namespace, named, _ in reversed(rows)
            if is_difference or named in (checkpoint, latest[namespace])
        ]


def remove_earlier(path: str, threads: Iterable[str]) -> None:
    """Remove threads from the file of version 0.1; the file goes with the last of them."""
    is_empty = False
    with _earlier(path) as connection:
        if connection is None:
            return
        removed = 0
        with connection:
            for thread in threads:
                for table in ("checkpoints", "writes"):
                    removed += connection.execute(
                        f"DELETE FROM {table} WHERE thread_id = ?", [thread]
                    ).rowcount
        is_empty = connection.execute("SELECT 1 FROM checkpoints LIMIT 1").fetchone() is None
        if removed and not is_empty:
            connection.execute("VACUUM")
    if is_empty:
        for suffix in ("", "-wal", "-shm"):
            with contextlib.suppress(FileNotFoundError):
                os.remove(f"{path}{EARLIER_SUFFIX}{suffix}")


def remove_earlier_orphans(path: str, kept: Callable[[Sequence[str]], set[str]]) -> None:
    """Remove threads of deleted sessions from the file of version 0.1; `kept` says which are not deleted."""
    with _earlier(path) as connection:
        if connection is None:
            return
        threads = [row[0] for row in connection.execute("SELECT DISTINCT thread_id FROM checkpoints")]
    orphans = {*threads} - kept(threads)
    if orphans or not threads:
        remove_earlier(path, orphans)


@contextlib.contextmanager
def _earlier(path: str) -> Iterator[sqlite3.Connection | None]:
    """Open the file of version 0.1, if there is one."""
    if not has_earlier(path):
        yield None
        return
    file = f"{path}{EARLIER_SUFFIX}"
    try:
        with contextlib.closing(sqlite3.connect(file, timeout=EARLIER_TIMEOUT)) as connection:
            tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
            yield connection if {"checkpoints", "writes"} <= tables else None
    except sqlite3.Error as error:
        raise translate_error(error, file) from error


def _earlier_checkpoint(
    connection: sqlite3.Connection, thread_id: str, namespace: str, id: str
) -> EarlierCheckpoint:
    place = [thread_id, namespace, id]
    parent, kind, body, metadata = connection.execute(
        "SELECT parent_checkpoint_id, type, checkpoint, metadata FROM checkpoints"
        " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ?",
        place,
    ).fetchone()
    names = [row[1] for row in connection.execute("PRAGMA table_info(writes)")]
    path = "task_path" if "task_path" in names else "''"
    writes = connection.execute(
        f"SELECT task_id, {path}, idx, channel, type, value FROM writes"
        " WHERE thread_id = ? AND checkpoint_ns = ? AND checkpoint_id = ? ORDER BY 2, 1, 3",
        place,
    )
    return EarlierCheckpoint(namespace, id, parent, kind, body, metadata or b"{}", writes.fetchall())


def _keys(thread: int, first: int, last: int) -> list[int]:
    return [thread * MOST_ITEMS + first, thread * MOST_ITEMS + last]


def ensure_thread(connection: sqlite3.Connection, id: str) -> int:
    """Return the number of a thread, which is made if there is none."""
    found = thread_number(connection, id)
    if found is not None:
        return found
    made = connection.execute("INSERT INTO threads (id) VALUES (?)", [id]).lastrowid
    assert made is not None
    return made


def _insert_items(connection: sqlite3.Connection, thread: int, items: Iterable[StoredItem]) -> None:
    # One that is there already is the same: it came with another write, whose end was not yet known.
    connection.executemany(
        "INSERT OR IGNORE INTO checkpoint_items VALUES (?,?,?)",
        [(thread * MOST_ITEMS + item.number, item.format, item.body) for item in items],
    )


def _remove_before(
    connection: sqlite3.Connection, thread: int, checkpoint: StoredCheckpoint, kept: str
) -> None:
    place = [thread, checkpoint.namespace]
    oldest = checkpoint.id
    if checkpoint.depth:
        row = connection.execute(
            "SELECT id FROM checkpoints WHERE thread = ? AND namespace = ? ORDER BY id DESC LIMIT 1 OFFSET ?",
            [*place, checkpoint.depth],
        ).fetchone()
        if row is None:
            return
        oldest = row[0]
    for table, named in (("checkpoints", "id"), ("checkpoint_writes", "checkpoint")):
        connection.execute(
            f"DELETE FROM {table} WHERE thread = ? AND namespace = ? AND {named} > ? AND {named} < ?",
            [*place, kept, oldest],
        )


def _needed_items(connection: sqlite3.Connection, thread: int) -> list[Range]:
    """The items that checkpoints and writes refer to, as ranges in order."""
    packed = connection.execute(
        "SELECT items FROM checkpoints WHERE thread = ?"
        " UNION SELECT items FROM checkpoint_writes WHERE thread = ?",
        [thread, thread],
    )
    return join_ranges(each for (items,) in packed for each in _ranges.decode(items))


def _remove_some_items(connection: sqlite3.Connection, thread: int, first: int, last: int) -> int:
    """Remove items of a range, the first of them, as many as are quickly removed; returns how many."""
    keys: list[tuple[int]] = []
    size = 0
    for key, length in connection.execute(
        "SELECT key, length(body) FROM checkpoint_items WHERE key BETWEEN ? AND ?", _keys(thread, first, last)
    ):
        keys.append((key,))
        size += length + 100
        if size >= PURGE_BYTES:
            break
    connection.executemany("DELETE FROM checkpoint_items WHERE key = ?", keys)
    return len(keys)
