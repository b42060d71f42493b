"""The directories that a client gives a session, refused with a sentence unless each is right.

They are the boundary of what tools may touch, so none is left out, guessed or made: a client whose list does
not hold is told which entry is wrong, before anything is created.
"""

from __future__ import annotations

import os.path
from collections.abc import Sequence
from typing import NoReturn

from msgspec import UNSET, UnsetType

from coupler.wire.messages import INVALID_PARAMS, RpcError


def check_cwd(cwd: str) -> str:
    """The session's directory, without what the path says twice."""
    return _checked("cwd", cwd)


def check_additional(directories: Sequence[str] | UnsetType) -> tuple[str, ...]:
    """The other roots of the session."""
    if directories is UNSET:
        return ()
    return tuple(
        _checked(f"additionalDirectories[{index}]", directory) for index, directory in enumerate(directories)
    )


def check_same(cwd: str, stored: str) -> None:
    """A session stays where it was made: what it remembers are the paths of that directory."""
    try:
        is_same = cwd == stored or os.path.samefile(cwd, stored)
    except OSError:
        is_same = False
    if not is_same:
        refuse("cwd", f"cwd: the session belongs to {stored!r}, not to {cwd!r}")


def check_filter(cwd: str) -> str:
    """A directory to list the sessions of; it may be gone by now."""
    if not os.path.isabs(cwd):
        refuse("cwd", f"cwd: expected an absolute path, got {cwd!r}")
    return os.path.normpath(cwd)


def refuse(path: str, message: str) -> NoReturn:
    """Refuse a field of the params."""
    raise RpcError.because(INVALID_PARAMS, message, path=path)


def _checked(path: str, directory: str) -> str:
    if not os.path.isabs(directory):
        refuse(path, f"{path}: expected an absolute path, got {directory!r}")
    # Not by pathlib, which raises for a path that is too long or in a forbidden place.
    if "\0" in directory or not os.path.isdir(directory):
        problem = "is not a directory" if _exists(directory) else "does not exist"
        refuse(path, f"{path}: {directory!r} {problem}")
    return os.path.normpath(directory)


def _exists(path: str) -> bool:
    return "\0" not in path and os.path.exists(path)
