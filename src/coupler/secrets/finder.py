"""Where secrets are in a text: whole ones, and one that the text breaks off in.

All spellings are looked for at once by their first few characters, which is what makes a text without secrets
cost next to nothing; what follows is compared only where such a beginning was found.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import NamedTuple

LONGEST_BEGINNING = 4
"""Characters that make a text look like the beginning of a secret."""


class Region(NamedTuple):
    """A part of a text that is covered by secrets, each overlapping the next; named after its first."""

    start: int
    end: int
    name: str


class Found(NamedTuple):
    """What was found in a text."""

    regions: list[Region]
    """All regions in order; a character outside of them belongs to no secret that is here in full."""

    unfinished: int
    """Where the first secret starts that goes on after the end of the text; else the length of the text."""


class Finder:
    """Finds the spellings of secrets. Never changes, so it can be used by any thread."""

    def __init__(self, names: Mapping[str, str]) -> None:
        """`names` gives the name of the secret for each spelling; it is not to be changed any more."""
        self._names = names
        self.shortest = min(map(len, names), default=0)
        """Characters of the shortest spelling, 0 if there is none."""

    # Both are made on use: who learns of a thousand secrets one after the other needs only the last finder.

    @cached_property
    def search(self) -> Callable[..., re.Match[str] | None]:
        """Finds the first beginning of a spelling in a text, from a position on if one is given."""
        return _search_for(self._by_beginning)

    @cached_property
    def _by_beginning(self) -> dict[str, tuple[str, ...]]:
        return _by_beginning(self._names)

    def find(self, text: str, *, is_over: bool = False) -> Found:
        """Everything that is secret in this text; if it is over, also what breaks off in the middle."""
        regions: list[Region] = []
        unfinished = size = len(text)
        beginning = self.search(text)
        while beginning is not None:
            start = beginning.start()
            broken_off: Region | None = None
            # The longest comes first, so that the first one found here is the one that covers the others.
            for spelling in self._by_beginning[beginning.group()]:
                if text.startswith(spelling, start):
                    _cover(regions, Region(start, start + len(spelling), self._names[spelling]))
                    break
                if size < start + len(spelling) and spelling.startswith(text[start:]):
                    unfinished = min(unfinished, start)
                    if is_over and broken_off is None and _is_most_of(size - start, spelling):
                        broken_off = Region(start, size, self._names[spelling])
            if broken_off is not None:
                _cover(regions, broken_off)
            beginning = self.search(text, start + 1)
        return Found(regions, unfinished)

    def goes_on(self, text: str) -> bool:
        """Whether the whole of this text is the beginning of a longer spelling, and enough of it to tell."""
        for size in range(1, LONGEST_BEGINNING + 1):
            spellings = self._by_beginning.get(text[:size], ())
            if any(len(spelling) > len(text) and spelling.startswith(text) for spelling in spellings):
                return True
        return False


def beginning_of(spelling: str) -> str:
    """As much of a spelling as makes a text look like it: never more than half, so that most stays hidden."""
    return spelling[: min(LONGEST_BEGINNING, (len(spelling) + 1) // 2)]


def _is_most_of(size: int, spelling: str) -> bool:
    return size >= LONGEST_BEGINNING and 2 * size > len(spelling)


def _by_beginning(spellings: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """The spellings by how they begin, longest first. No key is the beginning of another."""
    beginnings: set[str] = set()
    for beginning in sorted({beginning_of(spelling) for spelling in spellings}, key=len):
        if not any(beginning[:size] in beginnings for size in range(1, len(beginning))):
            beginnings.add(beginning)
    grouped: dict[str, list[str]] = {}
    for spelling in sorted(spellings, key=lambda spelling: (-len(spelling), spelling)):
        for size in range(1, LONGEST_BEGINNING + 1):
            if spelling[:size] in beginnings:
                grouped.setdefault(spelling[:size], []).append(spelling)
                break
    return {beginning: tuple(group) for beginning, group in grouped.items()}


def _search_for(beginnings: Iterable[str]) -> Callable[..., re.Match[str] | None]:
    rests: dict[str, list[str]] = {}
    for beginning in sorted(beginnings):
        rests.setdefault(beginning[0], []).append(re.escape(beginning[1:]))
    if not rests:
        return _find_nothing
    # Grouped by the first character, because alternatives are tried one after the other.
    return re.compile(
        "|".join(f"{re.escape(first)}(?:{'|'.join(rest)})" for first, rest in rests.items())
    ).search


def _find_nothing(text: str, position: int = 0) -> None:
    return None


def _cover(regions: list[Region], found: Region) -> None:
    if not regions or found.start >= regions[-1].end:
        regions.append(found)
    elif found.end > regions[-1].end:
        regions[-1] = Region(regions[-1].start, found.end, regions[-1].name)
