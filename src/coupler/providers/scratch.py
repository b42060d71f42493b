"""Files that a program needs for one turn: readable by nobody else, and gone afterwards."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from typing import Any, Self

import msgspec


class Scratch:
    """A directory that is made when the first file is written; a context manager that removes it."""

    def __init__(self) -> None:
        self._directory: Path | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *reason: object) -> None:
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def write(self, name: str, text: str) -> str:
        """The path of a new file with this text."""
        if self._directory is None:
            self._directory = Path(tempfile.mkdtemp(prefix="coupler-"))
        path = self._directory / name
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="replace") as file:
            file.write(text)
        return str(path)

    def write_json(self, name: str, value: Any) -> str:
        """The path of a new file with this value."""
        return self.write(name, msgspec.json.encode(value).decode())
