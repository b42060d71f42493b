"""Reads and replaces files inside of a session's directories.

Between the judgement and the opening somebody may put a link in the place of a directory or file. So each
part is opened from the one before it, and a link is refused wherever it turns up. A file is replaced whole
or not at all, and only if it still is what its writer believes it to be. All of this blocks: the event loop
has threads for it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import BinaryIO, NamedTuple

from coupler.runtime.paths import Place, UnjudgeablePathError, is_below, locate, split

LARGEST = 10_000_000
"""Bytes of a file that is read or written: more is no work for an editor or a model."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = _NO_LINK | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
# Not blocking: whoever opens a pipe would otherwise wait for somebody at its other end.
_FILE = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_HAS_DIRECTORIES = os.open in os.supports_dir_fd

# Held from the last look at a file until it is replaced: the sessions of a process take turns.
_putting = threading.Lock()


def exists(path: FilePath) -> bool:
    """Whether there is something, be it a file or not."""
    with _explained(path):
        return _status(path) is not None


def is_file(path: FilePath) -> bool:
    """Whether there is a file; raises if what is there is of another kind, or too large."""
    with _explained(path):
        status = _status(path)
        if status is None:
            return False
        _check(status, path)
        return True


def read(path: FilePath) -> bytes:
    """What is in the file."""
    with _explained(path), _parent(path) as parent, _opened(parent, path, os.O_RDONLY) as file:
        return _content(file, path)


@contextlib.contextmanager
def opened(path: FilePath) -> Iterator[BinaryIO]:
    """The file, for who reads only a part of it: it may be of any size."""
    with (
        _explained(path),
        _parent(path) as parent,
        _opened(parent, path, os.O_RDONLY, sys.maxsize) as file,
        open(file, "rb", closefd=False) as stream,
    ):
        yield stream


def write(path: FilePath, content: bytes, expected: bytes | None, may_go_on: Callable[[], bool]) -> None:
    """Replace a file that holds `expected`, or create it if that is None; missing directories are made.

    `may_go_on` is asked last: who was cancelled meanwhile changes nothing any more.
    """
    with _explained(path), _parent(path, create=True) as parent:
        before = _status_if_unchanged(parent, path, expected)
        temporary = _write_beside(parent, path, content, before)
        try:
            with _putting:
                if not may_go_on():
                    raise InterruptedError(f"{path.shown!r} was not written: the turn was cancelled")
                if before is None:
                    _put_new(parent, temporary, path)
                else:
                    _check_unchanged(parent, path, expected, before)
                    os.replace(temporary, _name(parent, path), src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)


def overwrite(path: FilePath, content: bytes, may_go_on: Callable[[], bool]) -> None:
    """Replace a file whatever it holds, or create it; missing directories are made.

    For who writes what somebody else has decided: an editor does not judge its agent's text.
    """
    with _explained(path), _parent(path, create=True) as parent:
        temporary = _write_beside(parent, path, content, _status_if_writable(parent, path))
        try:
            with _putting:
                if not may_go_on():
                    raise InterruptedError(f"{path.shown!r} was not written: nobody wants it any more")
                os.replace(temporary, _name(parent, path), src_dir_fd=parent, dst_dir_fd=parent)
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=parent)


def check_size(size: int, path: FilePath, largest: int | None = None) -> None:
    """Raise if so many bytes are too many."""
    largest = LARGEST if largest is None else largest
    if size > largest:
        limit = f"{largest // 1_000_000} MB"
        raise UnsuitableFileError(f"{path.shown!r} has {size} bytes: files of more than {limit} are refused")


@contextlib.contextmanager
def _explained(path: FilePath) -> Iterator[None]:
    """System errors name the file as people know it; our own say everything already."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(f"there is no file {path.shown!r}") from None
        raise OSError(error.errno, error.strerror, path.shown) from None


@contextlib.contextmanager
def _parent(path: FilePath, *, create: bool = False) -> Iterator[int | None]:
    """The directory of a file, reached without following a link. None where systems cannot do that."""
    if not path.below:
        raise _is_directory(path)
    if not _HAS_DIRECTORIES:
        if create:
            os.makedirs(os.path.dirname(path.real), exist_ok=True)
        yield None
        return
    reached = os.open(path.root, _DIRECTORY)
    try:
        for name in path.below[:-1]:
            outer, reached = reached, _step_into(reached, name, path, create)
            os.close(outer)
        yield reached
    finally:
        os.close(reached)


def _step_into(outer: int, name: str, path: FilePath, create: bool) -> int:
    try:
        return os.open(name, _DIRECTORY, dir_fd=outer)
    except FileNotFoundError:
        if not create:
            raise
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            _refuse_link(os.stat(name, dir_fd=outer, follow_symlinks=False), path)
        raise
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, dir_fd=outer)
    return _step_into(outer, name, path, create=False)


@contextlib.contextmanager
def _opened(parent: int | None, path: FilePath, flags: int, largest: int | None = None) -> Iterator[int]:
    name = _name(parent, path)
    # Looked at before it is opened, because opening alone can set a device to work, and once more after.
    _check(os.stat(name, dir_fd=parent, follow_symlinks=False), path, largest)
    try:
        file = os.open(name, flags | _FILE, dir_fd=parent)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise _is_link(path) from None
        raise
    try:
        _check(os.fstat(file), path, largest)
        yield file
    finally:
        os.close(file)


def _content(file: int, path: FilePath) -> bytes:
    with open(file, "rb", closefd=False) as stream:
        # Some files, those in /proc for example, are larger than they say.
        content = stream.read(LARGEST + 1)
    check_size(len(content), path)
    return content


def _status_if_writable(parent: int | None, path: FilePath) -> os.stat_result | None:
    try:
        # Opened for writing: a file that is protected against it must not be replaced either.
        with _opened(parent, path, os.O_WRONLY) as file:
            return os.fstat(file)
    except FileNotFoundError:
        return None


def _status_if_unchanged(parent: int | None, path: FilePath, expected: bytes | None) -> os.stat_result | None:
    try:
        # Opened for writing too: a file that is protected against it must not be replaced either.
        with _opened(parent, path, os.O_RDWR) as file:
            # Taken before it is read: what changes from here on is noticed in the end.
            status = os.fstat(file)
            if _content(file, path) != expected:
                raise changed(path)
            return status
    except FileNotFoundError:
        if expected is not None:
            raise changed(path) from None
        return None


def _write_beside(parent: int | None, path: FilePath, content: bytes, like: os.stat_result | None) -> str:
    name = f".coupler-{os.urandom(8).hex()}"
    if parent is None:
        name = os.path.join(os.path.dirname(path.real), name)
    # The system applies the user's mask to the mode of a new file; that of an old one is kept as it is.
    mode = 0o666 if like is None else 0o600
    file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, mode, dir_fd=parent)
    try:
        with open(file, "wb") as stream:
            stream.write(content)
            if like is not None:
                _take_after(file, like)
            stream.flush()
            # Or the new name could survive a loss of power, and the content not.
            os.fsync(file)
    except BaseException:
        os.unlink(name, dir_fd=parent)
        raise
    return name


def _take_after(file: int, like: os.stat_result) -> None:
    """Give a file the owner, group and mode of the one that it replaces, as far as we may."""
    if sys.platform == "win32":
        return
    mode = stat.S_IMODE(like.st_mode) & 0o777
    try:
        os.fchown(file, like.st_uid, like.st_gid)
    except PermissionError:
        try:
            os.fchown(file, -1, like.st_gid)
        except PermissionError:
            # The group is another one now: to the old mode it is like everybody else.
            mode = mode & 0o707 | (mode & 0o007) << 3
    os.fchmod(file, mode)


def _put_new(parent: int | None, temporary: str, path: FilePath) -> None:
    """A second name, and not another one: that fails if somebody else has made the file meanwhile."""
    name = _name(parent, path)
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        raise changed(path) from None
    except (OSError, NotImplementedError):
        # Not every file system knows second names.
        if _exists_at(parent, name):
            raise changed(path) from None
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


def _check_unchanged(
    parent: int | None, path: FilePath, expected: bytes | None, before: os.stat_result
) -> None:
    """Its content tells what a clock with long ticks does not, and its marks that it is the same file."""
    now = _status_if_unchanged(parent, path, expected)
    if now is None or _marks(now) != _marks(before):
        raise changed(path)


def _marks(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _exists_at(parent: int | None, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _status(path: FilePath) -> os.stat_result | None:
    try:
        return os.stat(path.real, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _name(parent: int | None, path: FilePath) -> str:
    return path.real if parent is None else path.name


def _check(status: os.stat_result, path: FilePath, largest: int | None = None) -> None:
    _refuse_link(status, path)
    if stat.S_ISDIR(status.st_mode):
        raise _is_directory(path)
    if not stat.S_ISREG(status.st_mode):
        message = f"{path.shown!r} is a device, a pipe or a socket: only ordinary files are read and written"
        raise UnsuitableFileError(message)
    check_size(status.st_size, path, largest)


def _refuse_link(status: os.stat_result, path: FilePath) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _is_link(path)


def _is_link(path: FilePath) -> OutsideRootsError:
    message = f"{path.shown!r} became a link while it was being opened, and is not followed: try again"
    return OutsideRootsError(message)


def _is_directory(path: FilePath) -> IsADirectoryError:
    return IsADirectoryError(f"{path.shown!r} is a directory: name a file in it")


def changed(path: FilePath) -> FileChangedError:
    """The refusal to write over something that the writer has not seen."""
    return FileChangedError(
        f"{path.shown!r} has changed since it was read: read it again before you write it"
    )


# Which file a path means, and that it lies in the session's directories.
#
# Paths are judged by where they really lead, as the permission rules judge them. What cannot be said for sure
# is outside.


class FilePath(NamedTuple):
    """A path inside of the boundary. No part of it was a link when it was judged."""

    root: str
    """The session's directory that it is in, links resolved."""
    below: tuple[str, ...]
    """The way from there."""
    shown: str
    """The path for people and editors: it begins with the directory as the client wrote it."""

    @property
    def real(self) -> str:
        return os.path.join(self.root, *self.below)

    @property
    def name(self) -> str:
        return self.below[-1] if self.below else os.path.basename(self.root) or self.root


def find_inside(path: str | os.PathLike[str], cwd: str, roots: Sequence[str]) -> FilePath:
    """The file that a path means, which may be relative to `cwd`; it need not exist."""
    text = _text(os.fspath(path))
    if "\0" in text:
        raise ValueError(f"the path {text!r} holds a NUL character, which no file name can")
    try:
        targets = locate(os.path.join(cwd, text)).targets
    except UnjudgeablePathError as error:
        raise OutsideRootsError(f"{text!r} {error}: {_advice(roots)}") from None
    if len(targets) > 1:
        message = f"{text!r} goes back out of a link, which can mean two files: write it without '..'"
        raise OutsideRootsError(message)
    for root, real in _resolved(roots):
        if is_below(targets[0], real):
            below = split(targets[0])[len(split(real)) :]
            return FilePath(real, below, os.path.join(root, *below))
    raise OutsideRootsError(f"{text!r} is outside of the session's directories: {_advice(roots)}")


def _text(path: object) -> str:
    if isinstance(path, str):
        return str.__str__(path)
    raise TypeError(f"a path is text, not {type(path).__name__}")


def _resolved(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    for root in roots:
        try:
            place: Place = locate(root)
        except UnjudgeablePathError:
            continue
        if len(place.targets) == 1:
            yield root, place.targets[0]


def _advice(roots: Sequence[str]) -> str:
    return f"use a path below {' or '.join(repr(root) for root in roots)}"


# Text as it is in files: UTF-8, whole, and counted in lines.


def decoded(content: bytes, place: FilePath, advice: str) -> str:
    """A file's bytes as text; `advice` says what to do with those that are none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at position {error.start}"
        raise UnsuitableFileError(f"{place.shown!r} is not UTF-8 text ({byte}): {advice}") from None


def encoded(text: str, place: FilePath) -> bytes:
    """A file's new text as bytes, unless they are too many."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        message = f"the new text of {place.shown!r} has half a character at position {error.start}"
        raise UnsuitableFileError(f"{message} (U+{ord(text[error.start]):04X}): leave it out") from None
    check_size(len(content), place)
    return content


def some_lines(text: str, first: int, limit: int | None) -> str:
    """Some lines of a text, counted from 1 on, with their ends as they are."""
    return "".join(islice(io.StringIO(text), first - 1, None if limit is None else first - 1 + limit))


# Why a turn's file was not read or written.


class OutsideRootsError(PermissionError):
    """The file is not, or not for sure, in one of the session's directories."""


class FileChangedError(RuntimeError):
    """Somebody would lose what they wrote: the file is not as the session knows it."""


class UnsuitableFileError(ValueError):
    """It is no text, too large, or not a file of the ordinary kind."""
