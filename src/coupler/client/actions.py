"""Reads the paths, commands and URLs of a tool call that an agent asks for, from all but its title.

What an agent says is not trusted. So everything that looks like a path, a command or an address is judged,
wherever it stands in the input, and what cannot be read makes the call one that no rule allows.
"""

from __future__ import annotations

import os.path
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from coupler.permission.action import Action, given_variables
from coupler.schema.v1 import Diff

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest


PATH_KEYS = frozenset(
    {
        *("path", "paths", "file", "files", "filename", "file_path", "file_paths", "abs_path"),
        *("absolute_path", "notebook_path", "target_file", "old_path", "new_path", "source_path"),
        *("destination_path", "directory", "dir", "dir_path"),
    }
)
COMMAND_KEYS = frozenset({"command", "cmd", "shell_command", "commands"})
URL_KEYS = frozenset({"url", "urls", "uri", "href"})
DIRECTORY_KEYS = frozenset({"cwd", "workdir", "working_directory"})

DEEPEST = 6
"""Levels of the input that are read; anything below makes the call unreadable."""
MOST_VALUES = 1_000
"""Values of the input that are read."""

UNREADABLE = "\0"
"""Placeholder for a path that cannot be judged."""


def action_of(request: PermissionRequest) -> Action:
    """Return the action that rules judge a tool call by."""
    call = request.tool_call
    said = _Said(request.cwd)
    for location in call.locations:
        said.add_path(location.path)
    for item in call.content:
        if isinstance(item, Diff):
            said.add_path(item.path)
    said.read(call.raw_input)
    server, name = server_and_name(call.name)
    return Action(
        kind=call.kind,
        name=name,
        server=server,
        paths=tuple(dict.fromkeys(said.paths)),
        command=said.command,
        urls=tuple(dict.fromkeys(said.urls)),
        env=tuple(said.env),
        cwd=said.directory,
        roots=request.roots,
    )


def server_and_name(name: str | None) -> tuple[str | None, str | None]:
    """Split a tool's name into its MCP server and the rest, where it says so (`mcp__server__tool`)."""
    if name is not None and name.startswith("mcp__") and name.count("__") >= 2:
        _, server, tool = name.split("__", 2)
        return server, tool
    return None, name


class _Said:
    """Collects the paths, commands and URLs of a tool call's input."""

    def __init__(self, cwd: str) -> None:
        self.paths: list[str] = []
        self.urls: list[str] = []
        self.env: list[str | tuple[str, str]] = []
        self.directory = cwd
        self._cwd = cwd
        self._commands: list[str | tuple[str, ...]] = []

    @property
    def command(self) -> str | tuple[str, ...] | None:
        """The command; several are joined line by line."""
        if len(self._commands) < 2:
            return self._commands[0] if self._commands else None
        return "\n".join(each if isinstance(each, str) else shlex.join(each) for each in self._commands)

    def add_path(self, path: str) -> None:
        """Add a path, and what a shell would make of it."""
        self.paths.append(os.path.join(self._cwd, path))
        if path.startswith("~"):
            self.paths.append(os.path.expanduser(path))

    def read(self, raw: Any) -> None:
        """Read a whole input."""
        for number, (part, depth) in enumerate(_parts(raw)):
            if number > MOST_VALUES or depth > DEEPEST:
                self.paths.append(UNREADABLE)
                return
            for key, value in part.items():
                self._take(_snake(key), value, part)

    def _take(self, key: str, value: Any, part: dict[str, Any]) -> None:
        if value is None:
            return
        if key in PATH_KEYS:
            for path in self._texts(value):
                self.add_path(path)
        elif key in URL_KEYS:
            self.urls += self._texts(value)
        elif key in COMMAND_KEYS:
            self._take_command(value, part.get("args", part.get("arguments")))
        elif key in DIRECTORY_KEYS:
            self.directory = os.path.join(self._cwd, next(iter(self._texts(value)), UNREADABLE))
        elif key in {"env", "environment"}:
            self.env += given_variables(value.items()) if isinstance(value, dict) else [UNREADABLE]

    def _take_command(self, value: Any, arguments: Any) -> None:
        words = self._texts(value)
        more = [] if arguments is None else self._texts(arguments)
        if isinstance(value, str) and not more:
            self._commands.append(value)
        elif isinstance(value, str):
            self._commands.append(f"{value} {shlex.join(more)}")
        elif words:
            self._commands.append((*words, *more))

    def _texts(self, value: Any) -> list[str]:
        """Return one text or a list of them; anything else is noted as unreadable, and allows nothing."""
        values = value if isinstance(value, list) else [value]
        texts = [each for each in values if isinstance(each, str)]
        # Objects are looked through by themselves.
        if any(not isinstance(each, str | dict) for each in values):
            self.paths.append(UNREADABLE)
        return texts


def _parts(raw: Any) -> Iterator[tuple[dict[str, Any], int]]:
    """Walk through all objects in a value, from the outside in, with their depth."""
    waiting: list[tuple[Any, int]] = [(raw, 0)]
    while waiting:
        value, depth = waiting.pop(0)
        if isinstance(value, dict):
            yield value, depth
            waiting += [(each, depth + 1) for each in value.values() if isinstance(each, dict | list)]
        elif isinstance(value, list):
            waiting += [(each, depth + 1) for each in value if isinstance(each, dict | list)]


def _snake(key: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in key).strip("_")
