"""Commands: from what a person writes to the program that will run."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coupler.process.errors import SpawnError


def split_command(command: str | Sequence[str]) -> list[str]:
    """The words of a command: a string is split as a shell would split it, a list is taken as it is."""
    words = _split(command) if isinstance(command, str) else [_word(word) for word in command]
    if not words or not words[0]:
        raise SpawnError("bad_command", "The command is empty: give the program to run and its arguments.")
    if any("\0" in word for word in words):
        raise SpawnError("bad_command", f"The command {words[0]!r} holds a NUL character.")
    return words


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


def find_outside(name: str, places: Sequence[str], *, path: str | None = None) -> str | None:
    """The program that `name` means on the PATH; None if there is none, or it lies in one of these places.

    What lies in a project may be anybody's: a program that is started unasked must not come from there. A
    place that is the root of the file system is not meant: nothing would be outside of it.
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


def _split(command: str) -> list[str]:
    import shlex

    try:
        if sys.platform == "win32":
            return [word.strip('"') for word in shlex.split(command, posix=False)]
        return shlex.split(command)
    except ValueError as error:
        raise SpawnError("bad_command", f"The command {command!r} cannot be split: {error}.") from None


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
