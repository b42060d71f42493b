"""Gives the free pages of a database file back to the file system, and deletes rows in slices.

Plain blocking functions on a given connection: `Database` decides on which thread, and rests between two
slices. Whoever else writes to the file, in other processes too, waits for each slice, so each takes
milliseconds. A file that an earlier version made cannot shrink before it was written anew once; that takes as
long as it takes, so it is done when it pays and is cheap, or when nobody would have to wait for it.
"""

from __future__ import annotations

import logging
import sqlite3
import time
from typing import NamedTuple

log = logging.getLogger("coupler.store")

LONGEST_SLICE = 0.004
"""Seconds after which a slice ends that gives pages back."""

SLICE_ROWS, SLICE_BYTES = 1000, 1024 * 1024
"""Rows, and bytes of their bodies, that are deleted in one slice."""

MEASURED_ROWS = 4000
"""Rows that are measured in one slice."""

ROW_BYTES = 100
"""Bytes of the file that a row takes besides its body, roughly."""

REWRITE_FROM = 16 * 1024 * 1024
"""Free bytes from which on it pays to write a file anew; they must also be a quarter of it."""

LARGEST_REWRITE = 64 * 1024 * 1024
"""Bytes of a file, without its free pages, that are written anew beside the work.

Other processes cannot write meanwhile, and wait for 5 s at the most; this takes a quarter of a second on a
usual disk.
"""

LONGEST_REWRITE = 1.0
"""Seconds after which writing a file anew beside the work is given up."""

MOST_FREE = 8 * 1024 * 1024
"""Free bytes at which pages are given back before more is deleted.

SQLite looks through the list of free pages for each page that it gives back: with a long list the work would
grow with its square.
"""

RECLAIM_FROM = 1024 * 1024
"""Free bytes that are worth giving back when a file is opened."""

_PAGES_BETWEEN_LOOKS = 16
_STEPS_BETWEEN_LOOKS = 20_000


class FileSpace(NamedTuple):
    """The pages of a database, used and free."""

    page_size: int
    pages: int
    free_pages: int
    can_shrink: bool
    """False for files of earlier versions, until they are written anew."""

    @property
    def free_bytes(self) -> int:
        """The bytes that the file has and does not need."""
        return self.free_pages * self.page_size

    @property
    def used_bytes(self) -> int:
        """The bytes that the file would have without its free pages."""
        return (self.pages - self.free_pages) * self.page_size

    @property
    def is_cheap_to_rewrite(self) -> bool:
        """True if the file can be written anew while others wait for it."""
        return self.used_bytes <= LARGEST_REWRITE

    @property
    def is_worth_rewriting(self) -> bool:
        """True if the file gets much smaller by being written anew."""
        return self.free_bytes >= REWRITE_FROM and self.free_pages * 4 >= self.pages

    @property
    def is_reclaimable(self) -> bool:
        """True if free pages can be given back beside the work."""
        is_rewritten = self.is_cheap_to_rewrite and self.is_worth_rewriting
        return self.free_pages > 0 and (self.can_shrink or is_rewritten)


def read_space(connection: sqlite3.Connection) -> FileSpace:
    """Read how many pages the file has, and how many of them are free."""
    names = ("page_size", "page_count", "freelist_count", "auto_vacuum")
    size, pages, free, mode = (connection.execute(f"PRAGMA {name}").fetchone()[0] for name in names)
    return FileSpace(size, pages, free, bool(mode))


def allow_shrinking(connection: sqlite3.Connection) -> None:
    """Let a file without tables shrink later; one that has tables must be written anew after this."""
    connection.execute("PRAGMA auto_vacuum = INCREMENTAL")


def shrink_some(connection: sqlite3.Connection) -> bool:
    """Move pages from the end of the file into free ones, inside a transaction; False if none is free."""
    end = time.monotonic() + LONGEST_SLICE
    while connection.execute("PRAGMA freelist_count").fetchone()[0]:
        if time.monotonic() > end:
            return True
        for _ in range(_PAGES_BETWEEN_LOOKS):
            # One page a statement: of a statement that moves more, Python does only the first step.
            connection.execute("PRAGMA incremental_vacuum(1)").fetchone()
    return False


def rewrite(connection: sqlite3.Connection, longest: float | None = None) -> bool:
    """Write the file anew, without free pages and so that it can shrink; False if it took too long."""
    end = None if longest is None else time.monotonic() + longest
    allow_shrinking(connection)
    connection.set_progress_handler(
        lambda: int(end is not None and time.monotonic() > end), _STEPS_BETWEEN_LOOKS
    )
    try:
        connection.execute("VACUUM")
    except sqlite3.OperationalError as error:
        if not was_interrupted(error):
            raise
        log.debug("the database was not written anew: that took too long")
        return False
    finally:
        connection.set_progress_handler(None, 0)
    return True


def was_interrupted(error: sqlite3.Error) -> bool:
    """Return whether a statement was broken off, because it took too long or the store was closed."""
    return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_INTERRUPT


def measure_some(
    connection: sqlite3.Connection, table: str, owner: str, number: int, after: int = 0
) -> tuple[int, int | None]:
    """Measure some rows of a session or a run after one of them: their bytes, and the last; None at the end.

    The table is as for `delete_some`.
    """
    size, count, last = connection.execute(
        f"SELECT coalesce(sum(length(body)), 0), count(*), max(seq) FROM (SELECT seq, body FROM {table}"
        f" WHERE {owner} = ? AND seq > ? ORDER BY seq LIMIT ?)",
        [number, after, MEASURED_ROWS],
    ).fetchone()
    return size + count * ROW_BYTES, last if count == MEASURED_ROWS else None


def delete_some(connection: sqlite3.Connection, table: str, owner: str, number: int) -> bool:
    """Delete rows of a session or a run, as many as fit a slice; True if none is left.

    The table has the columns `seq` and `body`; `owner` is the one with the number of what is deleted.
    """
    rows = connection.execute(
        f"SELECT seq, length(body) FROM {table} WHERE {owner} = ? ORDER BY seq LIMIT ?", [number, SLICE_ROWS]
    )
    last = size = count = 0
    for seq, length in rows:
        last, size, count = seq, size + length, count + 1
        if size >= SLICE_BYTES:
            break
    connection.execute(f"DELETE FROM {table} WHERE {owner} = ? AND seq <= ?", [number, last])
    return count < SLICE_ROWS and size < SLICE_BYTES
