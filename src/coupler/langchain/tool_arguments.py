"""Finds what a tool's arguments say: the one that matters most, and the files, commands and URLs in them.

Arguments are a model's words and may be anything. What the functions find is shown; what the permission
engine judges is found by `JudgedArguments`. Nothing here touches what it finds, but for the old text of a
file that is to be written over. Arguments that are still being written are read by `partial_object`.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from langchain_core.messages import ai
from langchain_core.utils.json import parse_partial_json
from msgspec import UNSET

from coupler.permission.action import (
    COMMAND_NAMES,
    URL_NAMES,
    is_command_name,
    is_path_name,
    is_url,
    snake_case,
)
from coupler.redaction.known_secrets import masked_beginning
from coupler.schema.v1 import Diff, ToolCallLocation

if TYPE_CHECKING:
    from coupler.langchain.file_backends import BackendFiles

ToolArguments = Mapping[str, Any]

LONGEST_PATH = 4096
"""Characters of something that can be a path."""
MOST_PATHS = 50
"""Paths of one call that are told."""
LONGEST_SHOWN = 100
"""Most characters of an argument in a title."""
LONGEST_READ = 10_000
"""Most characters of an argument that are read for a title."""
LONGEST_OLD_TEXT = 1024 * 1024
"""Bytes of a file whose change is shown as a whole."""
LAST_LINE = 2**32 - 1

MOST_VALUES = 2_000
"""Most values in the arguments of one call that are judged."""

UNJUDGEABLE = "\0"
"""A path that can never be judged, so that it is always asked about."""

KINDS_WITH_TARGETS = frozenset({"edit", "delete", "move"})
"""Kinds of tools whose `source` and `target` are files."""

SHORT_JSON = 200
"""Most characters of JSON that are left to LangChain's own parser, which is fast enough for them."""

TARGET_NAMES = frozenset({"source", "destination", "src", "dst", "dest", "target", "from", "to"})
CODE_NAMES = frozenset({*COMMAND_NAMES, "sql", "shell", "bash", "python_code", "javascript"})
"""Names of arguments that are run; `code` and `query` are not, which are as often something to be found."""
_LINES = ("line", "line_number", "start_line", "lineno")
_SUBJECTS = (
    *("query", "pattern", "regex", "search", "question", "expression", "code", "task", "description"),
    *("prompt", "name", "title", "topic", "key", "id"),
)
_OLD, _NEW = ("old_string", "old_text", "old_str", "old"), ("new_string", "new_text", "new_str", "new")
_WHOLE = ("content", "contents", "text", "file_text")

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>")?|[][{},]', re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_CLOSING = {"{": "}", "[": "]"}


def key_argument(args: ToolArguments, cwd: str, files: BackendFiles | None = None) -> str | None:
    """Return the most telling argument of a call as one short line; a path as it is on disk."""
    for names in (COMMAND_NAMES, _path_names(args), URL_NAMES, _SUBJECTS, tuple(args)):
        for name in names:
            shown = short_text(args.get(name))
            if shown is not None and is_path_name(name):
                places = files.shown({name: args[name]}) if files is not None else ()
                return relative(short_text(places[0]) or shown if len(places) == 1 else shown, cwd)
            if shown is not None:
                return shown
    return None


def takes_command(names: Iterable[str], args: ToolArguments) -> bool:
    """True if a tool with arguments of these names is given something to run, or is in this call."""
    return any(snake_case(name) in CODE_NAMES for name in (*names, *_names_in(args)))


def _names_in(args: ToolArguments) -> Iterator[str]:
    """Yield the names of all arguments, however deep they are."""
    left: list[object] = [args]
    while left:
        value = left.pop()
        if isinstance(value, Mapping):
            yield from map(str, value)
            left += value.values()
        elif isinstance(value, list | tuple):
            left += value


def paths_in(args: ToolArguments, kind: str) -> tuple[str, ...]:
    """The paths that the arguments name, as they are written."""
    names = _path_names(args)
    if kind == "move":
        names += tuple(name for name in args if snake_case(name) in TARGET_NAMES and name not in names)
    found = (
        path for name in names for value in _values(args[name]) if (path := _shown_path(value)) is not None
    )
    return tuple(dict.fromkeys(found))[:MOST_PATHS]


def absolute(path: str, cwd: str) -> str:
    """The path from the root on; `~` is the user's home, as most tools take it."""
    return os.path.normpath(unnormalized(path, cwd))


def unnormalized(path: str, cwd: str) -> str:
    """Return the path from the root on as it is written, with every `..`."""
    return os.path.join(cwd, os.path.expanduser(path))


def absolute_paths_in(
    args: ToolArguments, kind: str, cwd: str, files: BackendFiles | None = None
) -> tuple[str, ...]:
    """The files on disk that the arguments name; `files` are those of a tool that has its own."""
    if files is not None:
        return files.shown(args)
    return tuple(dict.fromkeys(absolute(path, cwd) for path in paths_in(args, kind)))


def locations_in(args: ToolArguments, paths: Sequence[str]) -> tuple[ToolCallLocation, ...]:
    """The places that the arguments name, for editors that follow along."""
    line = next((args[name] for name in _LINES if _is_line(args.get(name))), UNSET)
    return tuple(ToolCallLocation(path, line if len(paths) == 1 else UNSET) for path in paths)


def diffs_in(args: ToolArguments, paths: Sequence[str], roots: Sequence[str]) -> tuple[Diff, ...]:
    """The change of one file that the arguments describe, if they do so in one of the usual ways."""
    if len(paths) != 1:
        return ()
    [path] = paths
    old, new = _text_of(args, _OLD), _text_of(args, _NEW)
    if old is not None and new is not None:
        return (Diff(path, new, old),)
    whole = _text_of(args, _WHOLE)
    if whole is None or new is not None or old is not None:
        return ()
    is_known, before = _old_text(path, roots)
    return (Diff(path, whole, before),) if is_known else ()


def _old_text(path: str, roots: Sequence[str]) -> tuple[bool, str | None]:
    """Return whether a file's text is known, and the text; None if there is no such file."""
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


def _path_names(args: ToolArguments) -> tuple[str, ...]:
    return tuple(name for name in args if is_path_name(name))


def _values(value: object) -> Iterator[object]:
    if isinstance(value, list | tuple):
        yield from value[:MOST_PATHS]
    else:
        yield value


def _shown_path(value: object) -> str | None:
    if not isinstance(value, str) or not 0 < len(value) <= LONGEST_PATH or not value.isprintable():
        return None
    if value.startswith("file://"):
        try:
            return unquote(urlsplit(value).path) or None
        except ValueError:
            return value  # no address at all, so a strange name
    return None if "://" in value else value


def _text_of(args: ToolArguments, names: Sequence[str]) -> str | None:
    return next((args[name] for name in names if isinstance(args.get(name), str)), None)


def _is_line(value: object) -> bool:
    return type(value) is int and 0 <= value <= LAST_LINE


def short_text(value: object) -> str | None:
    """The value as a line for people; None if there is nothing in it to be shown."""
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        value = ", ".join(str(each) for each in value[:MOST_PATHS] if isinstance(each, str | int | float))
    if not isinstance(value, str) or not value.strip():
        return None
    # Far more than is shown, so that no half of a secret at its end can come into sight.
    line, _, rest = masked_beginning(value[:LONGEST_READ], LONGEST_READ).strip().partition("\n")
    line = " ".join(line.split())
    return f"{line[: LONGEST_SHOWN - 1].rstrip()}…" if len(line) > LONGEST_SHOWN or rest else line


def relative(path: str, cwd: str) -> str:
    return os.path.relpath(path, cwd) if path.startswith(os.path.join(cwd, "")) else path


class NamedText(NamedTuple):
    """A text in the arguments, and the name of the argument."""

    name: str
    text: str
    is_file: bool
    """True if the argument, or one around it, has a name for files."""


class JudgedArguments:
    """The paths, commands and URLs in a call's arguments that are judged, however deep they are.

    A model writes the arguments, and may hide what it wants behind what is allowed: as the second of two
    commands, the hundredth of many files, or inside of another value. So nothing is left out here for being
    long or odd. What is too much to be looked at cannot be judged, and counts so.
    """

    def __init__(self, args: ToolArguments, kind: str, cwd: str, files: BackendFiles | None = None) -> None:
        """`files` are those of a tool that has its own."""
        self._args = args
        self._kind = kind
        self._cwd = cwd
        self._files = files
        self._values_left = MOST_VALUES
        self._texts = [*self._named(args, is_file=False)]

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths, each also without `..`, because after a link that may lead elsewhere."""
        if self._files is not None:
            return self._files.judged(self._args)
        found = [path for named in self._texts if self._is_path(named) for path in _judged_paths(named.text)]
        whole = [unnormalized(path, self._cwd) for path in found]
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
    def is_off_disk(self) -> bool:
        """True if the tool works on files that are on no disk."""
        return self._files is not None and self._files.are_off_disk(self._args)

    @property
    def directory(self) -> str | None:
        """The directory in which the command runs; None if that is not known."""
        return self._cwd if self._files is None else self._files.directory(self._cwd)

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses."""
        return tuple(dict.fromkeys(named.text for named in self._texts if is_url(named.name, named.text)))

    def _is_path(self, named: NamedText) -> bool:
        return named.is_file or (self._kind in KINDS_WITH_TARGETS and named.name in TARGET_NAMES)

    def _named(self, value: Any, *, is_file: bool, name: str = "") -> Iterator[NamedText]:
        """All texts, with the names of the arguments that they are in."""
        self._values_left -= 1
        if self._values_left < 0:
            return
        if isinstance(value, str):
            if value:
                yield NamedText(name, value, is_file)
        elif isinstance(value, Mapping):
            if is_file:
                yield from (NamedText(name, str(key), is_file) for key in value)
            yield from self._fields(value, is_file=is_file)
        elif isinstance(value, list | tuple):
            for each in value:
                if isinstance(each, Mapping):
                    yield from self._fields(each, is_file=is_file)
                else:
                    yield from self._named(each, is_file=is_file, name=name)

    def _fields(self, value: Mapping[Any, Any], *, is_file: bool) -> Iterator[NamedText]:
        for key, each in value.items():
            name = snake_case(str(key))
            is_path = is_path_name(name) or (is_file and name == "name")
            yield from self._named(each, is_file=is_path, name=name)

    def _commands(self, value: Any) -> Iterator[str | tuple[str, ...]]:
        if isinstance(value, Mapping):
            for key, each in value.items():
                name = snake_case(str(key))
                if is_command_name(name) and (command := _command(name, each)) is not None:
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


def _judged_paths(text: str) -> Iterator[str]:
    if text.startswith("file://"):
        yield unquote(urlsplit(text).path)
    elif "://" not in text:
        yield text


def partial_object(text: str) -> dict[str, Any]:
    """The object as far as it was written; empty if there is none yet, or something else."""
    try:
        value = partial_json(text)
    except (ValueError, RecursionError, IndexError):
        return {}
    return value if isinstance(value, dict) else {}


def speed_up_partial_json() -> None:
    """Have LangChain read arguments that are being written by `partial_json`.

    LangChain tries one beginning of a text after the other until it finds one that can be read, and does so
    with every piece of a call's arguments by itself: a piece of 50 kB from the middle of a file that a model
    writes stops everything for half a minute. `partial_json` takes time that grows with the length.
    """
    if getattr(ai, "parse_partial_json", None) is parse_partial_json:
        vars(ai)["parse_partial_json"] = partial_json


def partial_json(text: str, *, strict: bool = False) -> Any:
    """Return as much of a JSON object as can be read; None, or ValueError, if that is nothing."""
    if len(text) <= SHORT_JSON:
        return parse_partial_json(text, strict=strict)
    try:
        return json.loads(text, strict=strict)
    except json.JSONDecodeError:
        pass
    if text.lstrip()[:1] != "{":
        return None
    closed, last = _closed(text)
    try:
        return json.loads(closed, strict=strict)
    except json.JSONDecodeError:
        # The end is half a name, or half a value: what stands before it may be whole.
        before = text[:last] if text[last] == "," else text[: last + 1]
        return json.loads(_closed(before)[0], strict=strict)


def _closed(text: str) -> tuple[str, int]:
    """The text with all that is open in it closed, and where its last part begins."""
    closing: list[str] = []
    last = 0
    is_in_text = False
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[" as bracket:
                closing.append(_CLOSING[bracket])
                last = token.start()
            case "}" | "]" as bracket:
                if not closing or closing.pop() != bracket:
                    raise ValueError("the brackets do not match")
            case ",":
                last = token.start()
            case _:
                is_in_text = token["end"] is None
    open_text = '"' if is_in_text else ""
    whole = _HALF_ESCAPE.sub("", text) if is_in_text and not _ends_escaped(text) else text
    return f"{whole}{open_text}{''.join(reversed(closing))}", last


def _ends_escaped(text: str) -> bool:
    """True if the text ends with backslashes that are characters themselves."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0 and text.endswith("\\")
