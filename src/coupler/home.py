"""Where Coupler keeps things: the user's data and caches, or one directory named by COUPLER_HOME.

Written by hand for the three platforms, with `os` and `sys` only: it runs before an editor's first answer,
and a package that knows the places costs 20 ms to import.
"""

from __future__ import annotations

import os
import sys

VARIABLE = "COUPLER_HOME"


class NoHomeError(OSError):
    """This user has no home directory, and none was named."""


def data_directory() -> str:
    """The directory for what must last: sessions, runs, remembered choices."""
    home = os.environ.get(VARIABLE)
    if home:
        return os.path.abspath(home)
    directory = _below_home(
        windows=("LOCALAPPDATA", "~"),
        macos="~/Library/Application Support",
        others=("XDG_DATA_HOME", "~/.local/share"),
    )
    if directory is None:
        raise NoHomeError(
            f"this user has no home directory: set {VARIABLE} to a directory for Coupler's data"
        )
    return directory


def cache_directory() -> str | None:
    """The directory for what may be lost at any time; none for a user without a home."""
    home = os.environ.get(VARIABLE)
    if home:
        return os.path.join(home, "cache")
    return _below_home(
        windows=("LOCALAPPDATA", "~"),
        macos="~/Library/Caches",
        others=("XDG_CACHE_HOME", "~/.cache"),
    )


def store_file() -> str:
    """The one database of this user."""
    return os.path.join(data_directory(), "coupler.db")


def _below_home(windows: tuple[str, str], macos: str, others: tuple[str, str]) -> str | None:
    """Coupler's own directory in the platform's place, each a variable and what holds without it."""
    if sys.platform == "darwin":
        base = os.path.expanduser(macos)
    else:
        variable, fallback = windows if sys.platform == "win32" else others
        base = os.environ.get(variable) or os.path.expanduser(fallback)
    return os.path.join(base, "coupler") if not base.startswith("~") else None
