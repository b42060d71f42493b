"""What .gitignore files leave out, as git reads them."""

# A Path for each of very many files would take longer than to look at them.

from __future__ import annotations

import os
import re
from typing import NamedTuple

from coupler.bridges.langchain.editor.finding.glob import regex

LARGEST = 1_000_000
"""Bytes of such a file that are read."""


class _Pattern(NamedTuple):
    expression: re.Pattern[str]
    is_against: bool
    """Whether it takes back what patterns before it have left out."""
    is_for_directories: bool


class Ignored:
    """The rules that hold in one directory: those of its own file, then those of the directories above."""

    def __init__(self, directory: str, above: Ignored | None) -> None:
        self._start = len(directory.rstrip("/")) + 1
        self._above = above
        self._patterns = _read(os.path.join(directory, ".gitignore"))
        texts = (f"(?:{pattern.expression.pattern})" for pattern in self._patterns)
        self._any = re.compile("|".join(texts), re.DOTALL) if self._patterns else None

    def __contains__(self, entry: tuple[str, bool]) -> bool:
        """Whether a path, and whether that is a directory's, is left out; no directory above it is."""
        rules: Ignored | None = self
        while rules is not None:
            verdict = rules._verdict(*entry)
            if verdict is not None:
                return verdict
            rules = rules._above
        return False

    def _verdict(self, path: str, is_directory: bool) -> bool | None:
        below = path[self._start :]
        if self._any is None or not self._any.fullmatch(below):
            return None
        for pattern in reversed(self._patterns):
            if (is_directory or not pattern.is_for_directories) and pattern.expression.fullmatch(below):
                return not pattern.is_against
        return None


def rules_at(directory: str) -> Ignored:
    """The rules for a directory's entries, with those from above it, up to the root of its repository."""
    above = os.path.dirname(directory)
    is_last = is_repository(directory) or above == directory
    return Ignored(directory, None if is_last else rules_at(above))


def is_repository(directory: str) -> bool:
    """Whether a directory is the root of a repository."""
    return os.path.lexists(os.path.join(directory, ".git"))


def is_in_repository(path: str) -> bool:
    """Whether a directory, or one above it, is such a root."""
    above = os.path.dirname(path)
    return is_repository(path) or (above != path and is_in_repository(above))


def _read(path: str) -> list[_Pattern]:
    try:
        with open(path, "rb") as file:
            text = file.read(LARGEST).decode("utf-8-sig", "replace")
    except OSError:
        return []
    return [pattern for line in text.split("\n") if (pattern := _parsed(line.removesuffix("\r")))]


def _parsed(line: str) -> _Pattern | None:
    line = re.sub(r"(?<!\\) +$", "", line)
    if not line or line.startswith("#"):
        return None
    is_against = line.startswith("!")
    line = line.removeprefix("!")
    is_for_directories = line.endswith("/")
    line = line.removesuffix("/")
    if not line:
        return None
    # With a slash inside, it is a path from here on; without one, a name anywhere below.
    text = regex(line.removeprefix("/")) if "/" in line else f"(?:.*/)?{regex(line)}"
    try:
        return _Pattern(re.compile(text, re.DOTALL), is_against, is_for_directories)
    except re.error:
        return None
