"""Files of the user's that a command writes: whole or not at all, and what was there is kept beside them."""

from __future__ import annotations

import os
import secrets
import stat
from contextlib import suppress
from pathlib import Path

KEPT = "before-coupler"
"""What the name of a copy ends with; those after the first have a number besides."""

LARGEST = 10_000_000
"""Bytes of a file: no settings are larger."""


class CannotWriteError(Exception):
    """The file is as it was; the message says why."""


def content_of(path: Path) -> bytes | None:
    """What is in a file, which may be a link; None if there is none. Raises `CannotWriteError`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise CannotWriteError(f"{path} is not a file")
        if status.st_size > LARGEST:
            raise CannotWriteError(f"{path} is larger than {LARGEST // 1_000_000} MB")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be read: {error.strerror}") from None


def write_new(path: Path, content: bytes) -> None:
    """Make a file, and the directories that it needs. Raises `CannotWriteError` if there is one already."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("xb") as stream:
            stream.write(content)
    except FileExistsError as error:
        wrong = "is there already" if error.filename == str(path) else f"cannot be made: {error.strerror}"
        raise CannotWriteError(f"{error.filename} {wrong}") from None
    except OSError as error:
        raise CannotWriteError(f"{path} cannot be written: {error.strerror}") from None


def replace(path: Path, content: bytes, before: bytes | None) -> Path | None:
    """Put a new content in the place of the one that was read; returns the copy of that, if there was one.

    A link stays one: what it leads to is replaced. Who has changed the file since keeps what they wrote.
    """
    real = Path(os.path.realpath(path))
    kept: Path | None = None
    new: Path | None = None
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        new = _write_beside(real, content)
        kept = None if before is None else _keep(path, before)
        if content_of(path) != before:
            raise CannotWriteError(f"{path} was changed meanwhile, and is left alone: try again")
        new.replace(real)
    except BaseException as error:
        for made in (new, kept):
            if made is not None:
                made.unlink(missing_ok=True)
        if isinstance(error, OSError):
            raise CannotWriteError(f"{path} cannot be written: {error.strerror}") from None
        raise
    return kept


def _write_beside(real: Path, content: bytes) -> Path:
    """A file in the same directory, as readable and writable as the one whose place it takes."""
    with suppress(FileNotFoundError):
        if not os.access(real, os.W_OK) and real.exists():
            raise PermissionError(0, "it is read-only", str(real))
    new = real.with_name(f".{real.name}.{secrets.token_hex(4)}")
    with new.open("xb") as stream:
        stream.write(content)
        stream.flush()
        os.fsync(stream.fileno())
    with suppress(OSError):
        status = real.stat()
        new.chmod(stat.S_IMODE(status.st_mode))
        if hasattr(os, "chown"):
            os.chown(new, status.st_uid, status.st_gid)
    return new


def _keep(path: Path, content: bytes) -> Path:
    """A copy under a name that nothing has yet, for nobody to read who could not read the file."""
    mode = stat.S_IMODE(path.stat().st_mode) & 0o666
    number = 1
    while True:
        copy = path.with_name(f"{path.name}.{KEPT}{'' if number == 1 else f'-{number}'}")
        try:
            descriptor = os.open(
                copy, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), mode
            )
        except FileExistsError:
            number += 1
            continue
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
        return copy
