"""Finds the `coupler.toml` files that count, and the directories of workflows beside them.

Also has the error of this package. A project's file is not trusted: its text is cut and cleaned before it
stands in a message, and values are never repeated, because the wrong one may be a password.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from coupler.runtime.directories import config_directory, home_directory

FILE_NAME = "coupler.toml"

ConfigErrorKind = Literal["unreadable", "syntax", "invalid"]

MOST_PROBLEMS = 10
"""Problems of one file that are told at once."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class ConfigError(Exception):
    """The configuration cannot be used; the message says where and what to do about it."""

    def __init__(self, kind: ConfigErrorKind, problems: Sequence[str]) -> None:
        shown = [*problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            shown.append(f"and {len(problems) - MOST_PROBLEMS:,} more problems")
        super().__init__("\n".join(shown))
        self.kind: ConfigErrorKind = kind
        self.problems = (*problems,)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[Any, ...]]:
        return ConfigError, (self.kind, self.problems)


class ProjectFile(NamedTuple):
    """A project's file, and the directory that it must not lead out of."""

    path: str
    root: str


def user_file(environ: Mapping[str, str]) -> str | None:
    """The path of the user's own file, which need not exist; None for a user without a home."""
    directory = config_directory(environ)
    return None if directory is None else os.path.join(directory, FILE_NAME)


def project_file(cwd: str, environ: Mapping[str, str]) -> ProjectFile | None:
    """The nearest file from a session's directory upwards; the user's own is not a project's."""
    return next(project_files(cwd, environ), None)


def project_files(cwd: str, environ: Mapping[str, str]) -> Iterator[ProjectFile]:
    """The nearest file and those above it in the same project: what they forbid, no nearer one takes back."""
    if not os.path.isabs(cwd) or "\0" in cwd:
        raise ValueError("a project is looked for from an absolute directory")
    home = home_directory(environ)
    last = None if home is None else os.path.realpath(home)
    for directory in _upwards(os.path.realpath(cwd), last):
        path = os.path.join(directory, FILE_NAME)
        if _is_there(path) and not _is_users(path, environ):
            yield ProjectFile(path, _root(directory, last))


def workflows_directory(environ: Mapping[str, str]) -> str | None:
    """The directory of the user's own workflows, which need not exist; None for a user without a home."""
    directory = config_directory(environ)
    return None if directory is None else os.path.join(directory, "workflows")


def project_workflows(cwd: str, environ: Mapping[str, str]) -> ProjectFile | None:
    """The nearest directory of workflows from a directory upwards; the user's own is not a project's."""
    own = workflows_directory(environ)
    home = home_directory(environ)
    last = None if home is None else os.path.realpath(home)
    for directory in _upwards(os.path.realpath(cwd), last):
        path = os.path.join(directory, ".coupler", "workflows")
        is_own = own is not None and os.path.realpath(own) == os.path.realpath(path)
        if _is_there(path) and not is_own:
            return ProjectFile(path, _root(directory, last))
    return None


def project_directory(cwd: str, environ: Mapping[str, str]) -> str:
    """The project that a directory belongs to: where its file is, else the repository, else itself."""
    found = project_file(cwd, environ)
    if found is not None:
        return os.path.dirname(found.path)
    home = home_directory(environ)
    return _root(os.path.realpath(cwd), None if home is None else os.path.realpath(home))


def printable_key(path: Sequence[str | int]) -> str:
    """A key as it is written in TOML; numbers, which count the tables of a list, are left out."""
    from coupler.runtime.formatting import LONGEST_NAME, printable

    names = [part for part in path if isinstance(part, str)]
    return printable(".".join(name if _BARE.fullmatch(name) else f'"{name}"' for name in names), LONGEST_NAME)


def is_repository(directory: str) -> bool:
    """Tell whether this is the root of a git repository."""
    # In worktrees and submodules it is a file.
    return os.path.lexists(os.path.join(directory, ".git"))


def _upwards(directory: str, last: str | None) -> Iterator[str]:
    """The directory and those above it, up to a repository's root, the user's home or the system's root."""
    while True:
        yield directory
        parent = os.path.dirname(directory)
        if directory == last or parent == directory or is_repository(directory):
            return
        directory = parent


def _root(directory: str, last: str | None) -> str:
    """The repository's root, or without one the file's own directory."""
    return next((each for each in _upwards(directory, last) if is_repository(each)), directory)


def _is_there(path: str) -> bool:
    try:
        os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        from coupler.runtime.formatting import printable

        # It may be there and forbid something, so going on without it is not safe.
        raise ConfigError(
            "unreadable", [f"{printable(path, 1000)} cannot be read: {error.strerror}"]
        ) from None
    return True


def _is_users(path: str, environ: Mapping[str, str]) -> bool:
    own = user_file(environ)
    return own is not None and os.path.realpath(own) == os.path.realpath(path)
