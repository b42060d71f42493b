"""What tests of the store are made of."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any

from coupler.store.sessions import SessionRecord


@contextlib.contextmanager
def locked(path: str) -> Iterator[sqlite3.Connection]:
    """Somebody else writes to the file, and does not come to an end."""
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield connection
    finally:
        connection.close()


def record(id: str = "one", **fields: Any) -> SessionRecord:
    return SessionRecord(**{"id": id, "agent": "coder", "cwd": "/project", **fields})
