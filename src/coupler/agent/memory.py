"""What earlier starts learned of a target: its introduction, and what it imports.

From the second start on `initialize` is answered before a heavy target is imported. The record holds for
the same files, interpreter, packages and environment; if any of them changed, the target introduces
itself anew. Imports next to nothing, because it runs before everything else.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import NamedTuple

from coupler.__about__ import __version__

# What differs from one terminal or editor window to the next and says nothing about an agent.
_PASSING_VARIABLES = frozenset(
    {
        "ALACRITTY_LOG",
        "ALACRITTY_SOCKET",
        "ALACRITTY_WINDOW_ID",
        "COLUMNS",
        "DBUS_SESSION_BUS_ADDRESS",
        "DESKTOP_STARTUP_ID",
        "DISPLAY",
        "GNOME_TERMINAL_SCREEN",
        "INVOCATION_ID",
        "ITERM_SESSION_ID",
        "JOURNAL_STREAM",
        "KITTY_PID",
        "KITTY_WINDOW_ID",
        "KONSOLE_DBUS_SESSION",
        "KONSOLE_DBUS_WINDOW",
        "LINES",
        "MANAGERPID",
        "NVIM",
        "NVIM_LISTEN_ADDRESS",
        "OLDPWD",
        "PWD",
        "SESSION_MANAGER",
        "SHLVL",
        "SSH_AGENT_PID",
        "SSH_AUTH_SOCK",
        "SSH_CLIENT",
        "SSH_CONNECTION",
        "SSH_TTY",
        "STARSHIP_SESSION_KEY",
        "STY",
        "SYSTEMD_EXEC_PID",
        "TERM_SESSION_ID",
        "TMUX",
        "TMUX_PANE",
        "VSCODE_IPC_HOOK",
        "VSCODE_IPC_HOOK_CLI",
        "VSCODE_PID",
        "WAYLAND_DISPLAY",
        "WEZTERM_PANE",
        "WEZTERM_UNIX_SOCKET",
        "WINDOW",
        "WINDOWID",
        "XDG_ACTIVATION_TOKEN",
        "XDG_SESSION_ID",
        "ZELLIJ_PANE_ID",
        "ZELLIJ_SESSION_NAME",
        "_",
    }
)

_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")


class Record(NamedTuple):
    """What is remembered of one target."""

    introduction: str
    """The result of `initialize`, as JSON."""
    files: dict[str, str]
    """The project's own files that were imported, with their hashes."""
    packages: list[str]
    """Modules of other packages that were imported, in order."""


class Memory:
    """The record of one target, under the circumstances of this start."""

    def __init__(self, words: str, options: dict[str, str | None]) -> None:
        # Named before the target is imported: its code may change the path and the environment.
        self._path = os.path.join(_directory(), f"{_key(words, options)}.json")

    def recall(self) -> Record | None:
        """What is known, if it still holds."""
        try:
            with open(self._path, encoding="utf-8") as file:
                record = Record(**json.load(file))
            holds = _is_whole(record) and all(
                _hash_file(path) == known for path, known in record.files.items()
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return record if holds else None

    def remember(self, introduction: str, imported: list[str]) -> None:
        """Keep what this start learned; a disk that refuses costs only the next start's speed."""
        draft = f"{self._path}.{os.getpid()}"
        try:
            record = Record(introduction, *_sort_out(imported))
            os.makedirs(os.path.dirname(self._path), mode=0o700, exist_ok=True)
            with open(draft, "w", encoding="utf-8") as file:
                json.dump(record._asdict(), file)
            os.replace(draft, self._path)
        except OSError:
            return

    def forget(self) -> None:
        """The record was wrong."""
        try:
            os.remove(self._path)
        except OSError:
            return


def _is_whole(record: Record) -> bool:
    """Whether this can be answered and imported; somebody may have edited the file."""
    return isinstance(json.loads(record.introduction), dict) and all(
        isinstance(name, str) for name in record.packages
    )


def _key(words: str, options: dict[str, str | None]) -> str:
    """A hash of everything that the introduction may depend on, but for the files' contents."""
    circumstances = [
        __version__,
        sys.version,
        sys.executable,
        sys.path,
        [_changed_at(directory) for directory in sys.path if "site-packages" in directory],
        os.path.abspath(words) if ".py" in words else [words, os.getcwd()],
        sorted(options.items()),
        sorted(item for item in os.environ.items() if item[0] not in _PASSING_VARIABLES),
    ]
    return hashlib.blake2b(json.dumps(circumstances).encode(), digest_size=16).hexdigest()


def _directory() -> str:
    home = os.environ.get("COUPLER_HOME")
    if home:
        return os.path.join(home, "cache", "introductions")
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or os.path.expanduser("~")
    elif sys.platform == "darwin":
        base = os.path.expanduser("~/Library/Caches")
    else:
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(base, "coupler", "introductions")


def _sort_out(imported: list[str]) -> tuple[dict[str, str], list[str]]:
    """The project's own files with their hashes, and the names of modules from installed packages."""
    files: dict[str, str] = {}
    packages: list[str] = []
    for name in imported:
        # Asking the module itself would wake those that are imported on first use.
        origin = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if not isinstance(origin, str):
            continue
        if "site-packages" in origin or "dist-packages" in origin:
            packages.append(name)
        elif not origin.startswith(_STANDARD_LIBRARY):
            files[origin] = _hash_file(origin)
    return files, packages


def _hash_file(path: str) -> str:
    with open(path, "rb") as file:
        return hashlib.blake2b(file.read(), digest_size=16).hexdigest()


def _changed_at(directory: str) -> int | None:
    try:
        return os.stat(directory).st_mtime_ns
    except OSError:
        return None
