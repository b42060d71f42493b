"""What was found in files: lines, or the files themselves."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

LONGEST_TEXT = 25_000
"""Characters of what was found that a model gets at once."""


class Hit(NamedTuple):
    """A file, or a line in it."""

    path: str
    line: int
    text: str
    is_match: bool = True
    """Whether the line fits, or only stands near one that does."""


class Found(NamedTuple):
    """What was found, in the order of paths and lines."""

    hits: list[Hit]
    total: int
    """How much there is, or that there is more than `hits` has."""

    @property
    def matches(self) -> int:
        """How many lines, or files, were found and not only stand near."""
        return sum(hit.is_match for hit in self.hits)

    @property
    def is_cut(self) -> bool:
        """Whether there is more."""
        return self.total > self.matches

    def renamed(self, name: Callable[[str], str]) -> Found:
        """The same with other paths."""
        return Found([hit._replace(path=name(hit.path)) for hit in self.hits], self.total)

    def without(self, paths: Collection[str]) -> Found:
        """The same without some files."""
        kept = Found([hit for hit in self.hits if hit.path not in paths], 0)
        return kept._replace(total=self.total - self.matches + kept.matches)

    def joined(self, other: Found, most: int) -> Found:
        """Both, in order, and no more than are wanted."""
        hits = sorted((*self.hits, *other.hits), key=lambda hit: (hit.path.split("/"), hit.line))
        total = self.total + other.total
        left = most
        for index, hit in enumerate(hits):
            left -= hit.is_match
            if left < 0:
                return Found(hits[:index], total)
        return Found(hits, total)


def in_lines(found: Found, context: int) -> list[str]:
    """The lines as `grep` writes them: those near a match are marked, and what is apart is kept apart."""
    lines: list[str] = []
    last: Hit | None = None
    for hit in found.hits:
        is_next = last is not None and last.path == hit.path and last.line + 1 == hit.line
        if context and last is not None and not is_next:
            lines.append("--")
        mark = ":" if hit.is_match else "-"
        lines.append(f"{hit.path}{mark}{hit.line}{mark} {hit.text}")
        last = hit
    return lines


def that_fit(lines: list[str]) -> tuple[str, bool]:
    """As many lines as a model gets at once, and whether they are all."""
    size = 0
    for index, line in enumerate(lines):
        size += len(line) + 1
        if size > LONGEST_TEXT:
            return "\n".join(lines[:index]), False
    return "\n".join(lines), True
