"""Reads `coupler.toml`, with the line and column of every key.

`read_config_file` reads and caches a file, `parse_toml` makes values and positions of its text,
`TextPositions` finds where each key is written, and an `Origin` says where a value comes from, so that
whoever it surprises can find it.
"""

from __future__ import annotations

import os
import re
import stat
import time
from bisect import bisect_right
from functools import lru_cache
from typing import Any, Literal, NamedTuple

import msgspec

from coupler.config.lookup import ConfigError
from coupler.runtime.formatting import printable

LARGEST_FILE = 1024 * 1024
"""Bytes of a file, at most."""

SETTLED_SECONDS = 2.0
"""Seconds without a change after which a file's date tells two versions apart on every file system."""

FILES_CACHED = 64

Fingerprint = tuple[int, int, int, int]

KeyPath = tuple[str | int, ...]
"""A key with its tables; numbers are the places in lists."""

MOST_PARTS = 16
"""Parts of a dotted key, at most."""

MOST_KEYS = 20_000
"""Keys and items of lists in a file, at most."""

DEEPEST = 32
"""Levels of nested lists and tables, at most."""

Layer = Literal["user", "project", "environment", "command line"]
"""Layers that can set a value, from the lowest precedence to the highest."""

_PLACE = re.compile(r" \(at (?:line (\d+), column (\d+)|end of document)\)$")
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


class Origin(msgspec.Struct, frozen=True):
    """The place where a value was set: the layer, and where in it."""

    layer: Layer
    file: str | None = None
    line: int | None = None
    variable: str | None = None

    @property
    def directory(self) -> str | None:
        """The directory that relative paths of this origin start from."""
        return None if self.file is None else os.path.dirname(self.file)

    def __str__(self) -> str:
        if self.file is not None:
            line = "" if self.line is None else f" line {self.line}"
            return f"{printable(self.file, 1000)}{line}"
        if self.variable is not None:
            return f"the variable {self.variable}"
        return f"the {self.layer}"


COMMAND_LINE = Origin("command line")


class ListItem(msgspec.Struct, frozen=True):
    """One text of a list that several origins have added to, with its own origin."""

    text: str
    origin: Origin


class ConfigFile(msgspec.Struct, frozen=True, eq=False):
    """A parsed file, whose keys are not checked yet."""

    path: str
    real_path: str
    content: bytes
    values: dict[str, Any]
    positions: TextPositions


def read_config_file(path: str, root: str | None = None) -> ConfigFile | None:
    """Read a file, from memory if it has not changed; None if there is none.

    With a root, the file must not lead out of that directory. The user's own may be a link to anywhere, as
    those who keep their settings in a repository have it.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be looked at") from None
    if stat.S_ISLNK(status.st_mode):
        real_path, status = _follow(path, root)
    else:
        real_path = path if root is not None else os.path.realpath(path)
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable(path, "it is not a regular file")
    fingerprint = (status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino)
    if abs(time.time() - status.st_mtime) < SETTLED_SECONDS:
        return _read(path, real_path, fingerprint)
    return _remembered(path, real_path, fingerprint)


def _follow(path: str, root: str | None) -> tuple[str, os.stat_result]:
    real_path = os.path.realpath(path)
    if root is not None and not real_path.startswith(os.path.join(root, "")):
        raise _unreadable(path, "it is a link that leads out of the project")
    try:
        return real_path, os.stat(real_path)
    except OSError:
        raise _unreadable(path, "it is a link that leads nowhere") from None


def _read(path: str, real_path: str, fingerprint: Fingerprint) -> ConfigFile:
    """Read and parse. The fingerprint is older than what is read, so a change in between shows next time."""
    content = _content(path, real_path)
    return ConfigFile(path, real_path, content, *parse_toml(path, content))


_remembered = lru_cache(maxsize=FILES_CACHED)(_read)


def read_content(real_path: str) -> bytes:
    """Read the bytes of a file at a path without links, as they would be trusted."""
    return _content(real_path, real_path)


def _content(path: str, real_path: str) -> bytes:
    # A pipe that took the file's place must not hold us up, nor another link lead us away.
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(real_path, flags)
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be opened") from None
    try:
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(path, "it is not a regular file")
            content = stream.read(LARGEST_FILE + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or "reading failed") from None
    if len(content) > LARGEST_FILE:
        raise _unreadable(path, f"it is larger than {LARGEST_FILE // 1024 // 1024} MiB")
    return content


def _unreadable(path: str, problem: str) -> ConfigError:
    return ConfigError("unreadable", [f"{printable(path, 1000)} cannot be used: {problem}"])


def parse_toml(path: str, content: bytes) -> tuple[dict[str, Any], TextPositions]:
    """Parse the text of a file into values and positions; raises ConfigError, whose message has the path."""
    # Imported on use: most directories have no such file.
    import tomllib

    # A byte order mark, as some editors write it, is no part of the text.
    text = _decoded(path, content).removeprefix("\ufeff").replace("\r\n", "\n")
    try:
        positions = TextPositions.of(text)
        return tomllib.loads(text), positions
    except TooComplexError as error:
        raise _no_toml(path, str(error), error.position) from None
    except tomllib.TOMLDecodeError as error:
        raise _no_toml(path, *_place(str(error), text)) from None
    except (ValueError, RecursionError):
        # Python refuses numbers of more than some thousand digits with an error of its own.
        raise _no_toml(path, "a number in it is too long, or it is nested too deep", None) from None


def _decoded(path: str, content: bytes) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        before = content[: error.start].decode("utf-8")
        position = TextPosition(before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        raise _no_toml(path, "it is not UTF-8", position) from None


def _place(message: str, text: str) -> tuple[str, TextPosition]:
    """Split a message of `tomllib` into what is wrong and where."""
    found = _PLACE.search(message)
    if found is None or found[1] is None:
        lines = text.rstrip("\n").split("\n")
        position = TextPosition(len(lines), len(lines[-1]) + 1)
    else:
        position = TextPosition(int(found[1]), int(found[2]))
    return message[: found.start()] if found else message, position


def _no_toml(path: str, problem: str, position: TextPosition | None) -> ConfigError:
    place = "" if position is None else f" line {position.line}, column {position.column}"
    sentence = printable(problem[:1].lower() + problem[1:])
    return ConfigError("syntax", [f"{printable(path, 1000)}{place}: {sentence}"])


class TextPosition(NamedTuple):
    """A place in a text, counted from 1."""

    line: int
    column: int


class TooComplexError(ValueError):
    """The text is built so that reading it would cost too much."""

    def __init__(self, message: str, position: TextPosition) -> None:
        super().__init__(message)
        self.position = position


class _NotUnderstoodError(Exception):
    """The scanner does not understand the text: it is probably no TOML."""


class TextPositions:
    """The positions of keys and of items of lists in a text, which `tomllib` does not tell."""

    def __init__(self, text: str) -> None:
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._places: dict[KeyPath, int] = {}

    @classmethod
    def of(cls, text: str) -> TextPositions:
        """Find all keys of a text; raises TooComplexError."""
        positions = cls(text)
        _Scanner(text, positions).scan()
        return positions

    def find(self, path: KeyPath) -> TextPosition | None:
        """The position where this key or item is written first."""
        place = self._places.get(path)
        return None if place is None else self.at(place)

    def at(self, place: int) -> TextPosition:
        """The line and column of a character."""
        line = bisect_right(self._line_starts, place)
        return TextPosition(line, place - self._line_starts[line - 1] + 1)

    def note(self, path: KeyPath, place: int) -> None:
        """Remember where a path is written, unless it was before; raises TooComplexError."""
        self._places.setdefault(path, place)
        if len(self._places) > MOST_KEYS:
            raise TooComplexError(f"there are more than {MOST_KEYS} keys and items", self.at(place))


class _Scanner:
    """Scans a text once. Each method starts at `self._at` and leaves it behind what it has read.

    It is tolerant, runs before `tomllib` and checks what that would choke on: `tomllib` needs minutes for a
    key of many thousand parts, and overflows the stack on deep nesting. What the scanner does not understand
    it leaves to `tomllib` to complain about, which reads the same text from its beginning.
    """

    def __init__(self, text: str, positions: TextPositions) -> None:
        self._text = text
        self._positions = positions
        self._at = 0
        # How many tables each [[list]] has so far.
        self._tables: dict[KeyPath, int] = {}

    def scan(self) -> None:
        """Read the whole text, or as much of it as is understood."""
        table: KeyPath = ()
        try:
            while self._skip(_BETWEEN) < len(self._text):
                if self._text.startswith("[", self._at):
                    table = self._header()
                else:
                    self._pair(table, 1)
        except _NotUnderstoodError:
            return

    def _header(self) -> KeyPath:
        is_list = self._text.startswith("[[", self._at)
        start = self._at
        self._at += 2 if is_list else 1
        path: KeyPath = ()
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

    def _pair(self, table: KeyPath, depth: int) -> None:
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

    def _value(self, path: KeyPath, depth: int) -> None:
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

    def _list(self, path: KeyPath, depth: int) -> None:
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

    def _inline_table(self, path: KeyPath, depth: int) -> None:
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
    import tomllib

    try:
        return str(tomllib.loads(f"name = {name}")["name"])
    except tomllib.TOMLDecodeError:
        raise _NotUnderstoodError from None
