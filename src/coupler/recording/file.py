"""The file of a recording: where it is by default, what it is called, and that only its user can read it.

A recording never overwrites another: an editor starts the same command again and again.
"""

from __future__ import annotations

import os
import re
import stat
import time

from coupler.runtime.directories import data_directory

LAUNCHERS = frozenset(
    {"bun", "bunx", "coupler", "deno", "env", "node", "npm", "npx", "pipx", "pnpx", "python", "ruby", "sh"}
    | {"bash", "uv", "uvx", "yarn"}
)
"""Programs that start others, and words of theirs: the agent is what comes after them."""

LAUNCHING_WORDS = frozenset({"acp", "dlx", "exec", "run", "serve", "start", "tool", "x"})

_UNFIT = re.compile(r"[^A-Za-z0-9._]+")
_VERSION = re.compile(r"(?<=.)@.*|[\d.]+$")
_LONGEST_NAME = 40
_SCRIPTS = (".py", ".js", ".mjs", ".cjs", ".ts", ".rb", ".sh", ".exe", ".cmd")


class FileError(Exception):
    """A file for a recording cannot be made."""


def default_path(command: list[str]) -> str:
    """A file in the user's own directory, named after the time and the agent; raises NoHomeError."""
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{agent_name(command)}.ndjson"
    return os.path.join(data_directory(), "recordings", name)


def agent_name(command: list[str]) -> str:
    """What the command is about, for people: `npx -y @vendor/some-agent --acp` is some-agent."""
    fallback = name = _plain(command[0])
    for word in command:
        name = _plain(word)
        if name and not word.startswith("-") and not _is_launcher(name):
            return name
    return fallback or "agent"


def open_file(path: str) -> tuple[int, str]:
    """A descriptor to write to, and the path; one more number in its name if there is such a file."""
    path = os.path.abspath(path)
    try:
        _make_directory(os.path.dirname(path))
        if os.path.isdir(path):
            raise FileError(f"{path} is a directory: name a file in it")
        if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
            # A named pipe: reading too, or else opening it waits for a reader; nor does writing wait for one.
            return os.open(path, os.O_RDWR | getattr(os, "O_NONBLOCK", 0)), path
        return _open_new(path)
    except OSError as error:
        raise FileError(f"{path} cannot be written: {error.strerror}") from None


def _open_new(path: str) -> tuple[int, str]:
    stem, extension = os.path.splitext(path)
    number = 1
    while True:
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND
            return os.open(path, flags | getattr(os, "O_NOFOLLOW", 0), 0o600), path
        except FileExistsError:
            number += 1
            path = f"{stem}-{number}{extension}"


def _make_directory(directory: str) -> None:
    """Ours is made, and for its user alone; any other has to be there."""
    try:
        ours = os.path.join(data_directory(), "recordings")
    except OSError:
        return
    if directory == ours:
        os.makedirs(directory, mode=0o700, exist_ok=True)


def _plain(word: str) -> str:
    """The last part of a path or a package's name, without what is about files and versions."""
    name = word.replace("\\", "/").rstrip("/").rpartition("/")[2].partition(":")[0]
    for extension in _SCRIPTS:
        name = name.removesuffix(extension)
    name = _VERSION.sub("", name) if "@" in name[1:] else name
    return _UNFIT.sub("-", name).strip("-.")[:_LONGEST_NAME]


def _is_launcher(name: str) -> bool:
    return name.rstrip("0123456789.") in LAUNCHERS or name in LAUNCHING_WORDS
