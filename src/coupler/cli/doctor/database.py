"""A database that is only looked at: no file is made beside it, and nothing in it is changed or mended."""

from __future__ import annotations

import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

STEPS_BETWEEN_LOOKS = 100_000
"""Steps of SQLite between two looks at the clock."""

LONGEST_LOCK = 1.0
"""Seconds that another program may hold the file."""


def opened(path: Path, patience: float) -> sqlite3.Connection:
    """For reading. Without a log nobody else has it open, and then nothing needs to be made beside it."""
    how = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    address = f"file:{quote(str(path.absolute()))}?{how}"
    connection = sqlite3.connect(address, uri=True, timeout=min(LONGEST_LOCK, patience))
    end = time.monotonic() + patience
    connection.set_progress_handler(lambda: int(time.monotonic() > end), STEPS_BETWEEN_LOOKS)
    return connection


class SeenTrust:
    """Which files the user has trusted, as the store says. What cannot be read is not trusted."""

    def __init__(self, store: Path | None, patience: float) -> None:
        self._store = store
        self._patience = patience

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Whether the file at this real path was trusted with exactly this content."""
        from coupler.store.choices import TrustedFile

        if self._store is None or not self._store.is_file():
            return False
        query = "SELECT digest, trusted_at FROM trusted_files WHERE path = ?"
        try:
            with closing(opened(self._store, self._patience)) as connection:
                rows = connection.execute(query, [os.fsencode(path)]).fetchall()
        except sqlite3.Error:
            return False  # told of the store
        return any(TrustedFile(path, *row).has(content) for row in rows)


def trust_of(store: str | None, patience: float) -> SeenTrust:
    """What is kept in the store that the user has set, else in the usual one."""
    from coupler.runtime.directories import NoHomeError, store_file

    try:
        return SeenTrust(Path(store or store_file()), patience)
    except NoHomeError:
        return SeenTrust(None, patience)
