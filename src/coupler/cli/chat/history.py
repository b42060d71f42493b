"""What was typed before in this directory, for this user's eyes only.

A line that begins with a space is not kept, as shells have it.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

from coupler.runtime.directories import NoHomeError, data_directory

MOST_ENTRIES = 1_000
MOST_BYTES = 4 * 1024 * 1024
"""Above this the file is written anew with its last entries."""


class History:
    """The entries of one directory. What cannot be read or written costs nobody the conversation."""

    def __init__(self, file: Path | None) -> None:
        """Without a file nothing is kept."""
        self._file = file

    @classmethod
    def of(cls, directory: str) -> History:
        """The history of a directory, in the user's own data."""
        try:
            place = data_directory()
        except NoHomeError:
            return cls(None)
        name = hashlib.sha256(os.path.realpath(directory).encode(errors="surrogateescape")).hexdigest()[:32]
        return cls(Path(place, "chat", f"{name}.jsonl"))

    def entries(self) -> list[str]:
        """What was typed, the oldest first."""
        if self._file is None:
            return []
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [entry for line in lines[-MOST_ENTRIES:] if (entry := _entry(line))]

    def add(self, entry: str) -> None:
        """Keep what was typed."""
        if self._file is None or not entry.strip() or entry.startswith(" "):
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._file, [entry], os.O_APPEND)
            if self._file.stat().st_size > MOST_BYTES:
                _write(self._file, self.entries()[-MOST_ENTRIES // 2 :], os.O_TRUNC)


def _write(file: Path, entries: list[str], how: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | how, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write("".join(f"{json.dumps(entry)}\n" for entry in entries))


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, str) else None
