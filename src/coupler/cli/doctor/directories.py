"""The directories that Coupler writes to: whether it can."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import short_directory, size

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section

LEAST_SPACE = 200_000_000
"""Bytes that should be free: a store's log alone may grow to 256 MiB."""


def examine(section: Section, circumstances: Circumstances) -> None:
    """One after the other. Nothing is made or written for it."""
    from coupler.runtime import directories

    section.facts["COUPLER_HOME"] = os.environ.get(directories.VARIABLE)
    _look_at(section, "settings", lambda: directories.config_directory(os.environ))
    _look_at(section, "data", directories.data_directory)
    _look_at(section, "cache", directories.cache_directory)
    _look_at(section, "temporary", tempfile.gettempdir)


def _look_at(section: Section, about: str, place: Callable[[], str | None]) -> None:
    from coupler.runtime.directories import VARIABLE

    try:
        found = place()
    except OSError as error:  # no home, or no directory for temporary files
        section.problem(about, str(error), f"set {VARIABLE} to a directory that you can write to")
        return
    section.facts[about] = found
    if found is None:
        section.problem(about, "this user has no home directory", f"set {VARIABLE} to a directory")
        return
    trouble = _trouble_with(Path(found))
    shown = short_directory(found)
    if trouble is not None:
        remedy = f"see to its permissions, or set {VARIABLE} to another directory"
        section.problem(about, f"{shown} cannot be written to: {trouble}", remedy)
        return
    free = _free(Path(found))
    if free is not None and free < LEAST_SPACE:
        section.problem(
            about, f"{shown} has only {size(free)} of space left", "make room, or name another directory"
        )
        return
    section.ok(about, shown if Path(found).is_dir() else f"{shown}, which is made when it is needed")


def _trouble_with(directory: Path) -> str | None:
    """Why nothing can be written there; one that is missing is made in the next above it."""
    try:
        nearest = next(each for each in (directory, *directory.parents) if _is_there(each))
        if not nearest.is_dir():
            return f"{short_directory(str(nearest))} is not a directory"
    except OSError as error:
        return (error.strerror or str(error)).lower()
    if not os.access(nearest, os.W_OK | os.X_OK):
        return f"you may not write to {short_directory(str(nearest))}"
    return None


def _is_there(path: Path) -> bool:
    try:
        path.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _free(directory: Path) -> int | None:
    nearest = next((each for each in (directory, *directory.parents) if each.is_dir()), None)
    try:
        return None if nearest is None else shutil.disk_usage(nearest).free
    except OSError:
        return None
