"""Finds files by name, and lines by a regular expression: a program of its own, of the standard library only.

A pattern that a model has written can take for ever to match, and Python cannot be interrupted meanwhile: so
this runs in a process that can be ended. It reads what to do from stdin and writes what it found to stdout,
both as JSON. Links are not followed, so nothing outside of the directory is seen.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SKIPPED = frozenset(
    {".git", ".hg", ".svn", "node_modules", ".venv", "venv", "__pycache__", ".mypy_cache", ".ruff_cache"}
    | {".pytest_cache", ".tox", ".nox", ".idea", "dist", "build", "target"}
)
"""Directories in which nobody looks for their own work."""

LARGEST = 2_000_000
"""Bytes of a file that is searched."""

LONGEST_LINE = 300
"""Characters of a line that are shown."""


def main() -> None:
    """Do what stdin says."""
    task = json.load(sys.stdin)
    entries = _entries(Path(task["directory"]), _glob(task["glob"]), task["pattern"])
    found = [entry for _, entry in zip(range(task["most"] + 1), entries, strict=False)]
    json.dump([found[: task["most"]], len(found) > task["most"]], sys.stdout)


def _entries(directory: Path, names: re.Pattern[str], pattern: str | None) -> Iterator[tuple[str, int, str]]:
    expression = re.compile(pattern) if pattern is not None else None
    for path in _files(directory):
        below = path.relative_to(directory).as_posix()
        if not names.fullmatch(below) and not names.fullmatch(path.name):
            continue
        if expression is None:
            yield str(path), 0, ""
        else:
            yield from _lines(path, expression)


def _files(directory: Path) -> Iterator[Path]:
    if directory.is_file():
        yield directory
        return
    for parent, directories, files in os.walk(directory):
        directories[:] = sorted(name for name in directories if name not in SKIPPED)
        for name in sorted(files):
            path = Path(parent, name)
            if not path.is_symlink() and path.is_file():
                yield path


def _lines(path: Path, expression: re.Pattern[str]) -> Iterator[tuple[str, int, str]]:
    try:
        content = path.read_bytes() if path.stat().st_size <= LARGEST else b"\0"
    except OSError:
        return
    if b"\0" in content:
        return
    for number, line in enumerate(content.decode("utf-8", "replace").splitlines(), 1):
        if expression.search(line):
            yield str(path), number, line[:LONGEST_LINE]


def _glob(pattern: str) -> re.Pattern[str]:
    """A pattern of file names: `*` stays in one directory, `**` does not."""
    words: dict[str | Any, str] = {"**/": "(?:[^/]+/)*", "**": ".*", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*\*|\*|\?)", pattern)
    return re.compile("".join(words.get(part, re.escape(part)) for part in parts), re.DOTALL)


if __name__ == "__main__":
    main()
