"""What a tool's arguments say: which one matters most, which files, command and address they name.

Arguments are a model's words and may be anything. What is found here is shown; what the permission engine
judges is found in `judged`. Nothing here touches what it finds, but for the old text of a file that is to be
written over.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote, urlsplit

from msgspec import UNSET

from coupler.redaction.known_secrets import beginning_of
from coupler.schema.v1 import Diff, ToolCallLocation

Arguments = Mapping[str, Any]

LONGEST_PATH = 4096
"""Characters of something that can be a path."""
MOST_PATHS = 50
"""Paths of one call that are told."""
LONGEST_SHOWN = 100
"""Characters of an argument in a title."""
READ = 10_000
"""Characters of an argument that are looked at for that."""
LONGEST_OLD_TEXT = 1024 * 1024
"""Bytes of a file whose change is shown as a whole."""
LAST_LINE = 2**32 - 1

_PATH = re.compile(r"(?:.*_)?(?:path|file|filename|filepath|dir|directory|folder|paths|files|directories)")
END_OF_MOVE = frozenset({"source", "destination", "src", "dst", "dest", "target", "from", "to"})
COMMANDS = ("command", "cmd", "commands", "shell_command", "script")
ADDRESSES = ("url", "uri", "link", "address", "urls")
_LINES = ("line", "line_number", "start_line", "lineno")
_SUBJECTS = (
    *("query", "pattern", "regex", "search", "question", "expression", "code", "task", "description"),
    *("prompt", "name", "title", "topic", "key", "id"),
)
_OLD, _NEW = ("old_string", "old_text", "old_str", "old"), ("new_string", "new_text", "new_str", "new")
_WHOLE = ("content", "contents", "text", "file_text")


def key_argument(args: Arguments, cwd: str) -> str | None:
    """The argument that tells one call from another, as one short line."""
    for names in (COMMANDS, _path_names(args), ADDRESSES, _SUBJECTS, tuple(args)):
        for name in names:
            shown = in_short(args.get(name))
            if shown is not None:
                return relative(shown, cwd) if is_path_name(name) else shown
    return None


def is_path_name(name: str) -> bool:
    """Whether an argument of this name holds a path."""
    return _PATH.fullmatch(snake(name)) is not None


def paths_in(args: Arguments, kind: str) -> tuple[str, ...]:
    """The paths that the arguments name, as they are written."""
    names = _path_names(args)
    if kind == "move":
        names += tuple(name for name in args if snake(name) in END_OF_MOVE and name not in names)
    found = (path for name in names for value in _values(args[name]) if (path := _path(value)) is not None)
    return tuple(dict.fromkeys(found))[:MOST_PATHS]


def absolute(path: str, cwd: str) -> str:
    """The path from the root on; `~` is the user's home, as most tools take it."""
    return os.path.normpath(from_root(path, cwd))


def from_root(path: str, cwd: str) -> str:
    """The same as it is written, with every `..`."""
    return os.path.join(cwd, os.path.expanduser(path))


def locations_in(args: Arguments, kind: str, cwd: str) -> tuple[ToolCallLocation, ...]:
    """The places that the arguments name, for editors that follow along."""
    paths = tuple(dict.fromkeys(absolute(path, cwd) for path in paths_in(args, kind)))
    line = next((args[name] for name in _LINES if _is_line(args.get(name))), UNSET)
    return tuple(ToolCallLocation(path, line if len(paths) == 1 else UNSET) for path in paths)


def changes_in(args: Arguments, cwd: str, roots: Sequence[str]) -> tuple[Diff, ...]:
    """The change of one file that the arguments describe, if they do so in one of the usual ways."""
    paths = paths_in(args, "edit")
    if len(paths) != 1:
        return ()
    path = absolute(paths[0], cwd)
    old, new = _text_of(args, _OLD), _text_of(args, _NEW)
    if old is not None and new is not None:
        return (Diff(path, new, old),)
    whole = _text_of(args, _WHOLE)
    if whole is None or new is not None or old is not None:
        return ()
    is_known, before = _old_text(path, roots)
    return (Diff(path, whole, before),) if is_known else ()


def _old_text(path: str, roots: Sequence[str]) -> tuple[bool, str | None]:
    """Whether it is known what the file holds, and what; None if there is no such file."""
    real = os.path.realpath(path)
    if not any(
        real == root or real.startswith(os.path.join(root, "")) for root in map(os.path.realpath, roots)
    ):
        return False, None
    try:
        found = os.stat(real)
        if not stat.S_ISREG(found.st_mode) or found.st_size > LONGEST_OLD_TEXT:
            return False, None
        with open(real, encoding="utf-8", newline="") as file:
            return True, file.read()
    except FileNotFoundError:
        return True, None
    except (OSError, ValueError):
        return False, None


def _path_names(args: Arguments) -> tuple[str, ...]:
    return tuple(name for name in args if is_path_name(name))


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", str(name)).replace("-", "_").lower()


def _values(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        yield from value[:MOST_PATHS]
    else:
        yield value


def _path(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_PATH or not value.isprintable():
        return None
    if value.startswith("file://"):
        try:
            return unquote(urlsplit(value).path) or None
        except ValueError:
            return value  # no address at all, so a strange name
    return None if "://" in value else value


def _text_of(args: Arguments, names: Sequence[str]) -> str | None:
    return next((args[name] for name in names if isinstance(args.get(name), str)), None)


def _is_line(value: object) -> bool:
    return type(value) is int and 0 <= value <= LAST_LINE


def in_short(value: object) -> str | None:
    """The value as a line for people; None if there is nothing in it to be shown."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value[:MOST_PATHS] if isinstance(each, str | int | float))
    if not isinstance(value, str) or not value.strip():
        return None
    # Far more than is shown, so that no half of a secret at its end can come into sight.
    line, _, rest = beginning_of(value[:READ], READ).strip().partition("\n")
    line = " ".join(line.split())
    return f"{line[: LONGEST_SHOWN - 1].rstrip()}…" if len(line) > LONGEST_SHOWN or rest else line


def relative(path: str, cwd: str) -> str:
    return os.path.relpath(path, cwd) if path.startswith(os.path.join(cwd, "")) else path
