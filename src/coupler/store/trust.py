"""Which files the user has trusted: by their real path and by what was in them then.

A file that was changed, moved or copied is another one, and has to be trusted again.
"""

from __future__ import annotations

import os
import time
from hashlib import blake2b
from typing import NamedTuple

from coupler.store.database import Database

DIGEST_SIZE = 32


class TrustedFile(NamedTuple):
    """A file with one content that was trusted. The time is milliseconds since 1970."""

    path: str
    digest: bytes
    trusted_at: int

    def has(self, content: bytes) -> bool:
        """Whether this is the content that was trusted."""
        return self.digest == _digest(content)


class Trust:
    """The trusted files of one database. Every call waits until it is done; a read takes microseconds."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def is_trusted(self, path: str, content: bytes) -> bool:
        """Whether the file at this real path was trusted with exactly this content."""
        found = self._database.wait_to_read(
            lambda connection: connection.execute(
                "SELECT 1 FROM trusted_files WHERE path = ? AND digest = ?",
                [os.fsencode(path), _digest(content)],
            ).fetchone()
        )
        return found is not None

    def trust(self, path: str, content: bytes) -> None:
        """Remember that the user trusts the file with this content, besides those trusted before."""
        row = [os.fsencode(path), _digest(content), int(time.time() * 1000)]
        self._database.wait(
            lambda connection: connection.execute(
                "INSERT OR REPLACE INTO trusted_files (path, digest, trusted_at) VALUES (?, ?, ?)", row
            )
        )

    def distrust(self, path: str) -> bool:
        """Forget the file, with every content; False if it was not trusted."""
        forgotten = self._database.wait(
            lambda connection: (
                connection.execute("DELETE FROM trusted_files WHERE path = ?", [os.fsencode(path)]).rowcount
            )
        )
        return forgotten > 0

    def files(self) -> list[TrustedFile]:
        """All that is trusted, by path, the latest content of each first."""
        rows = self._database.wait_to_read(
            lambda connection: connection.execute(
                "SELECT path, digest, trusted_at FROM trusted_files ORDER BY path, trusted_at DESC"
            ).fetchall()
        )
        return [TrustedFile(os.fsdecode(path), digest, at) for path, digest, at in rows]


def _digest(content: bytes) -> bytes:
    return blake2b(content, digest_size=DIGEST_SIZE).digest()
