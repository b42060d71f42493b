"""Finds the program, the arguments and the environment of a child process.

`split_command` makes words of what a person wrote, `find_program` finds the executable, and an `Environment`
says which variables the child sees. What cannot be started raises a `SpawnError`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

SpawnErrorKind = Literal[
    "bad_command",
    "bad_environment",
    "missing_directory",
    "missing_program",
    "not_executable",
    "refused",
]


class SpawnError(Exception):
    """A program could not be started; the message says what to do about it."""

    def __init__(self, kind: SpawnErrorKind, message: str) -> None:
        super().__init__(message)
        self.kind: SpawnErrorKind = kind
        self.message = message

    def __reduce__(self) -> tuple[type[SpawnError], tuple[SpawnErrorKind, str]]:
        return SpawnError, (self.kind, self.message)


class Environment:
    """The variables that a child sees. Made by `inherit` or `exact`, resolved when the child starts."""

    __slots__ = ("_inherits", "_variables")

    def __init__(self, variables: Mapping[str, str | None], *, inherits: bool) -> None:
        self._variables = dict(variables)
        self._inherits = inherits

    @classmethod
    def inherit(cls, overrides: Mapping[str, str | None] | None = None) -> Environment:
        """Ours, with `overrides` on top; None as a value removes the variable."""
        return cls(overrides or {}, inherits=True)

    @classmethod
    def exact(cls, variables: Mapping[str, str]) -> Environment:
        """These variables and no other."""
        return cls(variables, inherits=False)

    def resolve(self) -> dict[str, str]:
        """The variables as the child will see them."""
        resolved = dict(os.environ) if self._inherits else _indispensable()
        for name, value in self._variables.items():
            _check(name, value)
            if value is None:
                resolved.pop(name, None)
            else:
                resolved[name] = value
        return resolved


def _indispensable() -> dict[str, str]:
    # Windows cannot load its own socket and random libraries without this one.
    if sys.platform == "win32" and "SYSTEMROOT" in os.environ:
        return {"SYSTEMROOT": os.environ["SYSTEMROOT"]}
    return {}


def _check(name: object, value: object) -> None:
    if not isinstance(name, str) or not name or "=" in name or "\0" in name:
        raise SpawnError("bad_environment", f"{name!r} cannot be the name of an environment variable.")
    if value is not None and (not isinstance(value, str) or "\0" in value):
        # The value itself may be a secret: it is not shown.
        raise SpawnError(
            "bad_environment",
            f"The environment variable {name} must be text without NUL characters, or None to remove it.",
        )


def split_command(command: str | Sequence[str]) -> list[str]:
    """The words of a command: a string is split as a shell would split it, a list is taken as it is."""
    words = _split(command) if isinstance(command, str) else [_word(word) for word in command]
    if not words or not words[0]:
        raise SpawnError("bad_command", "The command is empty: give the program to run and its arguments.")
    if any("\0" in word for word in words):
        raise SpawnError("bad_command", f"The command {words[0]!r} holds a NUL character.")
    return words


def _split(command: str) -> list[str]:
    import shlex

    try:
        if sys.platform == "win32":
            return [word.strip('"') for word in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError as error:
        raise SpawnError("bad_command", f"The command {command!r} cannot be split: {error}.") from None


def _word(word: Any) -> str:
    text = os.fspath(word) if isinstance(word, os.PathLike) else word
    if not isinstance(text, str):
        raise SpawnError("bad_command", f"A command is made of strings; this is none: {word!r}.")
    return text


def find_program(name: str, *, cwd: Path, environment: Mapping[str, str]) -> Path:
    """The executable file that `name` means, for a child in `cwd` with this environment."""
    if os.path.dirname(name):  # noqa: PTH120 - Path("./name") has lost the dot that makes it a path
        return _executable(cwd / name)
    # Imported here: it loads three compression libraries, for a client that may never spawn.
    import shutil

    path = environment.get("PATH", os.defpath)
    found = shutil.which(name, path=path)
    if found is not None:
        return Path(cwd, found)
    for directory in filter(None, path.split(os.pathsep)):
        if (file := Path(cwd, directory, name)).is_file():
            raise _not_executable(file)
    raise SpawnError(
        "missing_program",
        f"The program {name!r} was not found. Install it, or give its full path. Searched PATH: {path}",
    )


def _executable(file: Path) -> Path:
    if not file.exists():
        raise SpawnError("missing_program", f"The program {str(file)!r} does not exist.")
    if not file.is_file() or not os.access(file, os.X_OK):
        raise _not_executable(file)
    return file


def _not_executable(file: Path) -> SpawnError:
    if file.is_dir():
        return SpawnError("not_executable", f"{str(file)!r} is a directory, not a program.")
    return SpawnError(
        "not_executable",
        f"{str(file)!r} is not executable. Allow it with chmod +x, or name the interpreter that runs it.",
    )


def find_program_outside(name: str, places: Sequence[str], *, path: str | None = None) -> str | None:
    """The program that `name` means on the PATH; None if there is none, or it lies in one of these places.

    What lies in a project may be anybody's: a program that is started unasked must not come from there. A
    place that is the root of the file system is ignored: nothing would be outside of it.
    """
    import shutil

    found = shutil.which(name, path=path)
    if found is None or not Path(found).is_absolute():
        return None
    projects = [real for place in places if (real := Path(place).resolve()) != Path(real.anchor)]
    is_inside = any(
        program.is_relative_to(project)
        for program in (Path(found), Path(found).resolve())
        for project in projects
    )
    return None if is_inside else found
