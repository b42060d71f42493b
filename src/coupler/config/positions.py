"""Where each key of a TOML text is written, which `tomllib` does not tell.

One tolerant pass that runs before `tomllib` and checks what that would choke on: it needs minutes for a key
of many thousand parts, and overflows the stack on deep nesting. What the scanner does not understand it
leaves to `tomllib` to complain about, which reads the same text from its beginning.
"""

from __future__ import annotations

import re
import tomllib
from bisect import bisect_right
from typing import NamedTuple

Path = tuple[str | int, ...]
"""A key with its tables; numbers are the places in lists."""

MOST_PARTS = 16
"""Parts of a dotted key."""

DEEPEST = 32
"""Lists and tables inside each other."""

_BLANK = re.compile(r"[ \t]*")
# A group that is repeated possessively has no alternatives and no lookahead: the first releases of 3.11 match
# those wrongly. Those that need them can be read in one way only, so that nothing is tried twice.
_BETWEEN = re.compile(r"[ \t\r\n]*+(?:#[^\n]*+[ \t\r\n]*+)*+")
_NAME = re.compile(r"""[A-Za-z0-9_-]++|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\n]*+'""")
_TEXT = re.compile(
    r'''"""[^"\\]*+(?:(?:\\[\s\S]|"(?!""))[^"\\]*+)*"{3,5}'''
    r"""|\'\'\'[^']*+(?:'(?!'')[^']*+)*'{3,5}"""
    r"""|"[^"\\\n]*+(?:\\.[^"\\\n]*+)*+"|'[^'\n]*+'"""
)
_SCALAR = re.compile(r"[^,\]}\n#]++")


class Position(NamedTuple):
    """A place in a text, counted from 1."""

    line: int
    column: int


class TooComplexError(ValueError):
    """The text is built so that reading it would cost too much."""

    def __init__(self, message: str, position: Position) -> None:
        super().__init__(message)
        self.position = position


class _NotUnderstoodError(Exception):
    """Probably no TOML."""


class Positions:
    """Where the keys and the items of lists are."""

    def __init__(self, text: str) -> None:
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._places: dict[Path, int] = {}

    @classmethod
    def of(cls, text: str) -> Positions:
        """Find all keys of a text; raises TooComplexError."""
        positions = cls(text)
        _Scanner(text, positions).scan()
        return positions

    def find(self, path: Path) -> Position | None:
        """Where this key or item is written first."""
        place = self._places.get(path)
        return None if place is None else self.at(place)

    def at(self, place: int) -> Position:
        """The line and column of a character."""
        line = bisect_right(self._line_starts, place)
        return Position(line, place - self._line_starts[line - 1] + 1)

    def note(self, path: Path, place: int) -> None:
        """Remember where a path is written, unless it was before."""
        self._places.setdefault(path, place)


class _Scanner:
    """One walk over a text. Each method starts at `self._at` and leaves it behind what it has read."""

    def __init__(self, text: str, positions: Positions) -> None:
        self._text = text
        self._positions = positions
        self._at = 0
        # How many tables each [[list]] has so far.
        self._tables: dict[Path, int] = {}

    def scan(self) -> None:
        """Read the whole text, or as much of it as is understood."""
        table: Path = ()
        try:
            while self._skip(_BETWEEN) < len(self._text):
                if self._text.startswith("[", self._at):
                    table = self._header()
                else:
                    self._pair(table, 1)
        except _NotUnderstoodError:
            return

    def _header(self) -> Path:
        is_list = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if is_list else 1
        path: Path = ()
        names = self._names()
        for number, name in enumerate(names, 1):
            path = (*path, name)
            self._positions.note(path, start)
            if is_list and number == len(names):
                self._tables[path] = self._tables.get(path, 0) + 1
            if path in self._tables:
                path = (*path, self._tables[path] - 1)
                self._positions.note(path, start)
        self._expect("]]" if is_list else "]")
        return path

    def _pair(self, table: Path, depth: int) -> None:
        self._skip(_BLANK)
        start = self._at
        path = table
        for name in self._names():
            path = (*path, name)
            self._positions.note(path, start)
        self._expect("=")
        self._value(path, depth)

    def _names(self) -> list[str]:
        """The parts of a dotted key."""
        start = self._at
        names: list[str] = []
        while True:
            self._skip(_BLANK)
            names.append(_plain(self._take(_NAME)))
            if len(names) > MOST_PARTS:
                raise TooComplexError(f"a key has more than {MOST_PARTS} parts", self._positions.at(start))
            self._skip(_BLANK)
            if not self._text.startswith(".", self._at):
                return names
            self._at += 1

    def _value(self, path: Path, depth: int) -> None:
        self._skip(_BLANK)
        if depth > DEEPEST:
            message = f"lists and tables are nested more than {DEEPEST} deep"
            raise TooComplexError(message, self._positions.at(self._at))
        match self._text[self._at : self._at + 1]:
            case "[":
                self._list(path, depth)
            case "{":
                self._inline_table(path, depth)
            case '"' | "'":
                self._take(_TEXT)
            case _:
                self._take(_SCALAR)

    def _list(self, path: Path, depth: int) -> None:
        self._at += 1
        index = 0
        self._skip(_BETWEEN)
        while not self._text.startswith("]", self._at):
            item = (*path, index)
            self._positions.note(item, self._at)
            self._value(item, depth + 1)
            self._skip(_BETWEEN)
            if not self._text.startswith("]", self._at):
                self._expect(",")
                self._skip(_BETWEEN)
            index += 1
        self._at += 1

    def _inline_table(self, path: Path, depth: int) -> None:
        self._at += 1
        self._skip(_BETWEEN)
        while not self._text.startswith("}", self._at):
            self._pair(path, depth + 1)
            self._skip(_BETWEEN)
            if not self._text.startswith("}", self._at):
                self._expect(",")
                self._skip(_BETWEEN)
        self._at += 1

    def _skip(self, pattern: re.Pattern[str]) -> int:
        match = pattern.match(self._text, self._at)
        if match is not None:
            self._at = match.end()
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise _NotUnderstoodError
        self._at = match.end()
        return match[0]

    def _expect(self, text: str) -> None:
        self._skip(_BLANK)
        if not self._text.startswith(text, self._at):
            raise _NotUnderstoodError
        self._at += len(text)


def _plain(name: str) -> str:
    """A part of a key without its quotes."""
    if name[0] == "'":
        return name[1:-1]
    if name[0] != '"':
        return name
    if "\\" not in name:
        return name[1:-1]
    try:
        return str(tomllib.loads(f"name = {name}")["name"])
    except tomllib.TOMLDecodeError:
        raise _NotUnderstoodError from None
