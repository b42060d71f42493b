"""Answers `initialize` from what an earlier start stored, before anything else is imported.

An editor shows its agent as starting until this answer comes. Only the plain case is answered here: one
well-formed `initialize` that is already in the pipe, for a target whose record holds. Everything else, and
all that follows, is left to the connection, byte for byte. This module imports next to nothing, because it
runs before everything else.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import sys
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from coupler.__about__ import __version__
from coupler.runtime.directories import cache_directory

if TYPE_CHECKING:
    from collections.abc import Sequence

FIRST_LINE_TIMEOUT = 0.05
"""Seconds to wait for the first line; then the imports go ahead."""

LONGEST_FIRST_LINE = 64 * 1024
"""Bytes of the first line; a longer one is not the plain case."""

_MOST_OBJECTS = 100
_PLAIN_KEYS = {"jsonrpc", "id", "method", "params"}

_STANDARD_LIBRARY = os.path.join(os.path.dirname(os.__file__), "")
_COUPLER = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(__file__))), "")

TERMINAL_LOGIN = '"type":"terminal"'
"""The part of an `initialize` answer that names a terminal login, which only some clients support."""

MOST_RECORDS = 50
"""Records that are kept, the newest; each change of the environment makes another one."""


class EarlyAnswer(NamedTuple):
    """The bytes read from the client so far, and whether the `initialize` in them was answered."""

    already_read: bytes = b""
    answered: bool = False


def answer_initialize(read_fd: int, write_fd: int, introduction: str) -> EarlyAnswer:
    """Answer the first line if it is a plain `initialize`."""
    data = _read_line(read_fd)
    request_id = _id_of_initialize(data)
    if request_id is None:
        return EarlyAnswer(data)
    answer = f'{{"jsonrpc":"2.0","id":{json.dumps(request_id)},"result":{introduction}}}\n'.encode()
    # A client that is gone already will be noticed by the connection.
    with contextlib.suppress(OSError):
        while answer:
            answer = answer[os.write(write_fd, answer) :]
    return EarlyAnswer(data, True)


def _read_line(fd: int) -> bytes:
    if sys.platform == "win32":
        return b""
    import select

    data = b""
    while (
        b"\n" not in data
        and len(data) < LONGEST_FIRST_LINE
        and select.select([fd], [], [], FIRST_LINE_TIMEOUT)[0]
    ):
        piece = os.read(fd, LONGEST_FIRST_LINE)
        if not piece:
            break
        data += piece
    return data


def _id_of_initialize(data: bytes) -> int | str | None:
    line, newline, _ = data.partition(b"\n")
    if not newline or line.count(b"{") > _MOST_OBJECTS or b"[" in line or b"\\u" in line:
        return None
    try:
        message: Any = json.loads(line.decode(), parse_constant=_refuse_constant)
        version = message["params"]["protocolVersion"]
        plain = (
            message["jsonrpc"] == "2.0"
            and message["method"] == "initialize"
            and message.keys() == _PLAIN_KEYS
            and type(version) is int
            and 0 <= version <= 65535
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    request_id = message.get("id")
    return request_id if plain and type(request_id) in (int, str) else None


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


class StartupRecord(NamedTuple):
    """The stored result of an earlier start: its answers, and the files and modules they depend on."""

    introduction: str
    """The result of `initialize`, as JSON."""
    files: dict[str, str]
    """The project's own files that were imported, with their hashes."""
    packages: list[str]
    """Modules of other packages that were imported, in order."""
    forecast: Any = None
    """The last answer to `session/new`; see `CachedSessionAnswer`."""


class StartupCache:
    """Stores what `initialize` and `session/new` answered, for the next start to answer before the import.

    A record holds for the same files, interpreter, packages and environment; if any of them changed, the
    target is imported before the first answer. A target that is served by a script depends on all that the
    script has imported, and on its arguments.
    """

    def __init__(self, words: str, options: Sequence[object], *, in_script: bool = False) -> None:
        directory = _directory()
        # Named before the target is imported: its code may change the path and the environment.
        name = f"{_key(words, options, sys.argv if in_script else [])}.json"
        self._path = os.path.join(directory, name) if directory is not None else None
        self._in_script = in_script

    def recall(self) -> StartupRecord | None:
        """Return the record, if it still holds."""
        if self._path is None:
            return None
        try:
            with open(self._path, encoding="utf-8") as file:
                record = StartupRecord(**json.load(file))
            holds = _is_whole(record) and all(
                _hash_file(path) == known for path, known in record.files.items()
            )
        except (OSError, ValueError, TypeError, AttributeError, RecursionError):
            return None
        return record if holds else None

    def remember(self, introduction: str, imported: list[str]) -> None:
        """Store the answer to `initialize` and the imported modules; an error only slows the next start."""
        try:
            record = StartupRecord(
                introduction, *_split_imported([*sys.modules] if self._in_script else imported)
            )
        except OSError:
            return
        self._write(record)

    def store_session_answer(self, answer: Any) -> None:
        """Store what `session/new` answered, beside the rest of the record."""
        record = self.recall()
        if record is not None and record.forecast != answer:
            self._write(record._replace(forecast=answer))

    def forget(self) -> None:
        """Delete the record, because it was wrong."""
        if self._path is None:
            return
        try:
            os.remove(self._path)
        except OSError:
            return

    def _write(self, record: StartupRecord) -> None:
        if self._path is not None:
            write_record(self._path, record._asdict())


def write_record(path: str, record: dict[str, Any]) -> None:
    """Write a record for later starts, whole or not at all; a disk that refuses costs only their speed."""
    draft = f"{path}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        with open(draft, "w", encoding="utf-8") as file:
            json.dump(record, file)
        os.replace(draft, path)
        _keep_newest(os.path.dirname(path))
    except OSError:
        return


def _is_whole(record: StartupRecord) -> bool:
    """Return whether a record has the types that are needed; somebody may have edited the file."""
    return isinstance(json.loads(record.introduction), dict) and all(
        isinstance(name, str) for name in record.packages
    )


def is_installed(path: str) -> bool:
    """Return whether a path belongs to installed packages; Debian calls their directory differently."""
    return "site-packages" in path or "dist-packages" in path


def _key(words: str, options: Sequence[object], arguments: list[str]) -> str:
    """Hash everything that the answer to `initialize` may depend on, but for the files' contents."""
    circumstances = [
        __version__,
        sys.version,
        sys.executable,
        sys.path,
        [_changed_at(directory) for directory in sys.path if is_installed(directory)],
        os.path.abspath(words) if ".py" in words else [words, os.getcwd()],
        [*options],
        arguments,
        sorted(item for item in os.environ.items() if not _is_passing(item[0])),
    ]
    told = json.dumps(circumstances, default=_name_of)
    return hashlib.blake2b(told.encode(), digest_size=16).hexdigest()


def _name_of(value: object) -> str:
    """Return the name of a function among the options: its address changes with every start."""
    return str(getattr(value, "__qualname__", type(value).__qualname__))


_PASSING = (
    "COLUMNS DBUS_SESSION_BUS_ADDRESS DESKTOP_STARTUP_ID DISPLAY GIO_LAUNCHED_DESKTOP_FILE_PID "
    "INVOCATION_ID ITERM_SESSION_ID JOURNAL_STREAM LINES MANAGERPID NVIM NVIM_LISTEN_ADDRESS OLDPWD PWD "
    "SESSION_MANAGER SHLVL SSH_AGENT_PID SSH_AUTH_SOCK SSH_CLIENT SSH_CONNECTION SSH_TTY "
    "STARSHIP_SESSION_KEY STY SYSTEMD_EXEC_PID TERM_PROGRAM_VERSION TERM_SESSION_ID TMUX TMUX_PANE "
    "WAYLAND_DISPLAY WINDOW WINDOWID WT_SESSION XDG_ACTIVATION_TOKEN XDG_SESSION_ID _ "
)
_BEGINNINGS = "ALACRITTY_ GHOSTTY_ GNOME_TERMINAL_ KITTY_ KONSOLE_ VSCODE_ WEZTERM_ ZELLIJ "
"""Variables that differ from one terminal or editor window to the next and say nothing about an agent."""

_PASSING_VARIABLES = frozenset(_PASSING.split())
_PASSING_PREFIXES = tuple(_BEGINNINGS.split())


def _is_passing(variable: str) -> bool:
    return variable in _PASSING_VARIABLES or variable.startswith(_PASSING_PREFIXES)


def _directory() -> str | None:
    """Return the directory of the records; None for a user without a home."""
    cache = cache_directory()
    return os.path.join(cache, "introductions") if cache is not None else None


def _keep_newest(directory: str) -> None:
    """Remove the oldest records, and what crashed starts left."""
    files = sorted(os.scandir(directory), key=_age_order, reverse=True)
    for file in files[MOST_RECORDS:]:
        os.remove(file.path)


def _age_order(file: os.DirEntry[str]) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0  # another start removed it


def _split_imported(imported: list[str]) -> tuple[dict[str, str], list[str]]:
    """The project's own files with their hashes, and the names of modules from installed packages."""
    files: dict[str, str] = {}
    packages: list[str] = []
    for name in imported:
        # Asking the module itself would wake those that are imported on first use.
        origin = getattr(sys.modules.get(name), "__dict__", {}).get("__file__")
        if not isinstance(origin, str):
            continue
        # Coupler's own are installed wherever they are: a heavy target's bridge is heavy, too.
        if is_installed(origin) or origin.startswith(_COUPLER):
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
