"""Finds the user's settings, data and cache directories.

Written by hand for the three platforms, with `os` and `sys` only: it runs before an editor's first answer,
and a package that knows the places costs 20 ms to import.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

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


def config_directory(environ: Mapping[str, str]) -> str | None:
    """The directory for what the user has set; none for a user without a home."""
    home = environ.get(VARIABLE)
    if home:
        return os.path.abspath(home)
    return _below_home(
        windows=("APPDATA", "~"),
        macos="~/Library/Application Support",
        others=("XDG_CONFIG_HOME", "~/.config"),
        environ=environ,
    )


def working_directory() -> str | None:
    """Return the process's directory; None if it was removed."""
    try:
        return os.getcwd()
    except OSError:
        return None


def home_directory(environ: Mapping[str, str]) -> str | None:
    """The user's own directory, as the variables say or else as the system knows."""
    named = environ.get("USERPROFILE" if sys.platform == "win32" else "HOME")
    directory = named or os.path.expanduser("~")
    return directory if os.path.isabs(directory) else None


def store_file() -> str:
    """The one database of this user."""
    return os.path.join(data_directory(), "coupler.db")


def credentials_file() -> str:
    """The file with what `coupler login coder` stores; permission rules know its name as sensitive."""
    return os.path.join(data_directory(), "credentials.json")


def _below_home(
    windows: tuple[str, str], macos: str, others: tuple[str, str], environ: Mapping[str, str] = os.environ
) -> str | None:
    """Coupler's own directory below the platform's base; each base is a variable and its fallback."""
    if sys.platform == "darwin":
        base = _expanded(macos, environ)
    else:
        variable, fallback = windows if sys.platform == "win32" else others
        base = environ.get(variable) or _expanded(fallback, environ)
    return os.path.join(base, "coupler") if not base.startswith("~") else None


def _expanded(path: str, environ: Mapping[str, str]) -> str:
    """A path below the home of these variables' user; it keeps its ~ if there is none."""
    if environ is os.environ:
        return os.path.expanduser(path)
    home = home_directory(environ)
    return path if home is None else f"{home}{path[1:]}"
