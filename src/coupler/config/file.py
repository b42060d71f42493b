"""One `coupler.toml`, read with care: a cloned repository may hold anything under that name."""

from __future__ import annotations

import os
import stat
import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.config.errors import ConfigError, shown

if TYPE_CHECKING:
    from coupler.config.positions import Positions

LARGEST = 1024 * 1024
"""Bytes of a file."""

SETTLED = 2.0
"""Seconds without a change after which a file's date tells two versions apart on every file system."""

FILES_REMEMBERED = 64

Fingerprint = tuple[int, int, int, int]


class ConfigFile(msgspec.Struct, frozen=True, eq=False):
    """A file that is TOML; what its keys mean is not yet looked at."""

    path: str
    real_path: str
    content: bytes
    values: dict[str, Any]
    positions: Positions


def read(path: str, root: str | None = None) -> ConfigFile | None:
    """The file, from memory if it has not changed; None if there is none.

    With a root, the file must not lead out of that directory. The user's own may be a link to anywhere, as
    those who keep their settings in a repository have it.
    """
    try:
        status = os.lstat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be looked at") from None
    if stat.S_ISLNK(status.st_mode):
        real_path, status = _follow(path, root)
    else:
        real_path = path if root is not None else os.path.realpath(path)
    if not stat.S_ISREG(status.st_mode):
        raise _unreadable(path, "it is not a regular file")
    fingerprint = (status.st_mtime_ns, status.st_size, status.st_ctime_ns, status.st_ino)
    if abs(time.time() - status.st_mtime) < SETTLED:
        return _read(path, real_path, fingerprint)
    return _remembered(path, real_path, fingerprint)


def _follow(path: str, root: str | None) -> tuple[str, os.stat_result]:
    real_path = os.path.realpath(path)
    if root is not None and not real_path.startswith(os.path.join(root, "")):
        raise _unreadable(path, "it is a link that leads out of the project")
    try:
        return real_path, os.stat(real_path)
    except OSError:
        raise _unreadable(path, "it is a link that leads nowhere") from None


def _read(path: str, real_path: str, fingerprint: Fingerprint) -> ConfigFile:
    """Read and parse. The fingerprint is older than what is read, so a change in between shows next time."""
    # Imported on use: most sessions have no file at all, and must not wait for a parser.
    from coupler.config.parsing import parse

    content = _content(path, real_path)
    return ConfigFile(path, real_path, content, *parse(path, content))


_remembered = lru_cache(maxsize=FILES_REMEMBERED)(_read)


def content_of(real_path: str) -> bytes:
    """The bytes of a file at a path without links, as they would be trusted."""
    return _content(real_path, real_path)


def _content(path: str, real_path: str) -> bytes:
    # A pipe that took the file's place must not hold us up, nor another link lead us away.
    flags = os.O_RDONLY
    for name in ("O_NONBLOCK", "O_NOFOLLOW", "O_CLOEXEC", "O_BINARY"):
        flags |= getattr(os, name, 0)
    try:
        descriptor = os.open(real_path, flags)
    except OSError as error:
        raise _unreadable(path, error.strerror or "it cannot be opened") from None
    try:
        with open(descriptor, "rb") as stream:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise _unreadable(path, "it is not a regular file")
            content = stream.read(LARGEST + 1)
    except OSError as error:
        raise _unreadable(path, error.strerror or "reading failed") from None
    if len(content) > LARGEST:
        raise _unreadable(path, f"it is larger than {LARGEST // 1024 // 1024} MiB")
    return content


def _unreadable(path: str, problem: str) -> ConfigError:
    return ConfigError("unreadable", [f"{shown(path, 1000)} cannot be used: {problem}"])
