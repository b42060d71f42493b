"""What of a tool's arguments the permission engine judges: every path, command and address, however deep.

A model writes the arguments, and may hide what it wants behind what is allowed: as the second of two
commands, the hundredth of many files, or inside of another value. So nothing is left out here for being long
or odd. What is too much to be looked at cannot be judged, and counts so.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit

from coupler.bridges.langchain.tool_calls.arguments import (
    ADDRESSES,
    COMMANDS,
    END_OF_MOVE,
    Arguments,
    from_root,
    is_path_name,
    snake,
)

MOST_VALUES = 2_000
"""Values in the arguments of one call that are looked at."""

UNJUDGEABLE = "\0"
"""A path that nobody can judge."""

CHANGING = frozenset({"edit", "delete", "move"})
"""Kinds of tools whose `source` and `target` are files."""


class Named(NamedTuple):
    """A text in the arguments, and what it is called there."""

    name: str
    text: str
    is_file: bool
    """Whether it is, or is in, something that is called like files."""


class Judged:
    """The arguments of one call, as they are judged."""

    def __init__(self, args: Arguments, kind: str, cwd: str) -> None:
        self._args = args
        self._kind = kind
        self._cwd = cwd
        self._values_left = MOST_VALUES
        self._texts = [*self._named(args, is_file=False)]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths; each as it looks, too: after a link `..` leads elsewhere than that."""
        found = [path for named in self._texts if self._is_path(named) for path in _path(named.text)]
        whole = [from_root(path, self._cwd) for path in found]
        judged = [each for path in whole for each in (os.path.normpath(path), path)]
        return tuple(dict.fromkeys(judged if self._values_left >= 0 else [*judged, UNJUDGEABLE]))

    @property
    def command(self) -> str | tuple[str, ...] | None:
        """The command: words, a text for a shell, or several as one script."""
        found = [*self._commands(self._args)]
        if len(found) <= 1:
            return found[0] if found else None
        return "\n".join(each if isinstance(each, str) else shlex.join(each) for each in found)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses."""
        return tuple(dict.fromkeys(named.text for named in self._texts if named.name in ADDRESSES))

    def _is_path(self, named: Named) -> bool:
        return named.is_file or (self._kind in CHANGING and named.name in END_OF_MOVE)

    def _named(self, value: Any, *, is_file: bool, name: str = "") -> Iterator[Named]:
        """All texts, with the names of the arguments that they are in."""
        self._values_left -= 1
        if self._values_left < 0:
            return
        if isinstance(value, str):
            if value:
                yield Named(name, value, is_file)
        elif isinstance(value, Mapping):
            if is_file:
                yield from (Named(name, str(key), is_file) for key in value)
            yield from self._fields(value, is_file=is_file)
        elif isinstance(value, list | tuple):
            for each in value:
                if isinstance(each, Mapping):
                    yield from self._fields(each, is_file=is_file)
                else:
                    yield from self._named(each, is_file=is_file, name=name)

    def _fields(self, value: Mapping[Any, Any], *, is_file: bool) -> Iterator[Named]:
        for key, each in value.items():
            name = snake(str(key))
            is_path = is_path_name(name) or (is_file and name == "name")
            yield from self._named(each, is_file=is_path, name=name)

    def _commands(self, value: Any) -> Iterator[str | tuple[str, ...]]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                name = snake(str(key))
                if name in COMMANDS and (command := _command(name, each)) is not None:
                    yield command
                else:
                    yield from self._commands(each)
        elif isinstance(value, list | tuple):
            for each in value:
                yield from self._commands(each)


def _command(name: str, value: Any) -> str | tuple[str, ...] | None:
    if isinstance(value, str):
        return value or None
    if isinstance(value, list | tuple) and value and all(isinstance(word, str) for word in value):
        # Several commands are one script; the words of one command look the same, and are judged so.
        return "\n".join(value) if name == "commands" else tuple(value)
    return None


def _path(text: str) -> Iterator[str]:
    if text.startswith("file://"):
        yield unquote(urlsplit(text).path)
    elif "://" not in text:
        yield text
