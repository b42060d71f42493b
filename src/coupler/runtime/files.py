"""Reads and replaces files inside of a session's directories.

`find_inside` decides which file a path means, and that it lies in one of the directories; paths are judged by
where they really lead, as the permission rules judge them. Between that decision and the opening somebody may
put a link in the place of a directory or file, so each part is opened from the one before it, and a link is
refused wherever it turns up. A file is replaced whole or not at all, and only if it still is what its writer
believes it to be. All of this blocks: the event loop has threads for it.
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

from coupler.runtime.paths import ResolvedPath, UnresolvablePathError, is_below, resolve_path, split_path

LARGEST_FILE = 10_000_000
"""Bytes of a file that is read or written: more is no work for an editor or a model."""

_NO_LINK = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_DIRECTORY = _NO_LINK | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_PATH", 0)
# Not blocking: whoever opens a pipe would otherwise wait for somebody at its other end.
_FILE = _NO_LINK | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_HAS_DIRECTORIES = os.open in os.supports_dir_fd

# Held from the last look at a file until it is replaced: the sessions of a process take turns.
_putting = threading.Lock()


class OutsideRootsError(PermissionError):
    """The file is outside of the session's directories, or it is not certain that it is inside."""


class FileChangedError(RuntimeError):
    """The file is not as the session knows it: a write would lose somebody's changes."""


class UnsuitableFileError(ValueError):
    """The file is no text, too large, or not a regular file."""


class SessionPath(NamedTuple):
    """A path inside of a session's directories. No part of it was a link when it was resolved."""

    root: str
    """The session's directory that it is in, links resolved."""
    below: tuple[str, ...]
    """The names that lead there from the root."""
    shown: str
    """The path for people and editors: it begins with the directory as the client wrote it."""

    @property
    def real(self) -> str:
        return os.path.join(self.root, *self.below)

    @property
    def name(self) -> str:
        return self.below[-1] if self.below else os.path.basename(self.root) or self.root


def find_inside(path: str | os.PathLike[str], cwd: str, roots: Sequence[str]) -> SessionPath:
    """The file that a path means, which may be relative to `cwd`; it need not exist.

    Raises OutsideRootsError if it is not for sure in one of the roots.
    """
    text = _text(os.fspath(path))
    if "\0" in text:
        raise ValueError(f"the path {text!r} holds a NUL character, which no file name can")
    try:
        targets = resolve_path(os.path.join(cwd, text)).targets
    except UnresolvablePathError as error:
        raise OutsideRootsError(f"{text!r} {error}: {_advice(roots)}") from None
    if len(targets) > 1:
        message = f"{text!r} goes back out of a link, which can mean two files: write it without '..'"
        raise OutsideRootsError(message)
    for root, real in _resolved(roots):
        if is_below(targets[0], real):
            below = split_path(targets[0])[len(split_path(real)) :]
            return SessionPath(real, below, os.path.join(root, *below))
    raise OutsideRootsError(f"{text!r} is outside of the session's directories: {_advice(roots)}")


def _text(path: object) -> str:
    if isinstance(path, str):
        return str.__str__(path)
    raise TypeError(f"a path is text, not {type(path).__name__}")


def _resolved(roots: Sequence[str]) -> Iterator[tuple[str, str]]:
    for root in roots:
        try:
            place: ResolvedPath = resolve_path(root)
        except UnresolvablePathError:
            continue
        if len(place.targets) == 1:
            yield root, place.targets[0]


def _advice(roots: Sequence[str]) -> str:
    return f"use a path below {' or '.join(repr(root) for root in roots)}"


def exists(path: SessionPath) -> bool:
    """Return whether there is something at the path, be it a file or not."""
    with _explained(path):
        return _status(path) is not None


def is_file(path: SessionPath) -> bool:
    """Return whether there is a file; raises if what is there is of another kind, or too large."""
    with _explained(path):
        status = _status(path)
        if status is None:
            return False
        _check(status, path)
        return True


def read(path: SessionPath) -> bytes:
    """Read the whole file."""
    with _explained(path), _parent(path) as parent, _opened(parent, path, os.O_RDONLY) as file:
        return _content(file, path)


@contextlib.contextmanager
def opened(path: SessionPath) -> Iterator[BinaryIO]:
    """Open the file for somebody who reads only a part of it: it may be of any size."""
    with (
        _explained(path),
        _parent(path) as parent,
        _opened(parent, path, os.O_RDONLY, sys.maxsize) as file,
        open(file, "rb", closefd=False) as stream,
    ):
        yield stream


def write(path: SessionPath, content: bytes, expected: bytes | None, may_go_on: Callable[[], bool]) -> None:
    """Replace a file that holds `expected`, or create it if that is None; missing directories are made.

    `may_go_on` is asked last: a writer that was cancelled meanwhile changes nothing any more.
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


def overwrite(path: SessionPath, content: bytes, may_go_on: Callable[[], bool]) -> None:
    """Replace a file whatever it holds, or create it; missing directories are made.

    For a writer of what somebody else has decided: an editor does not judge its agent's text.
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


def remove(path: SessionPath, expected: bytes, may_go_on: Callable[[], bool]) -> None:
    """Delete a file that holds `expected`; `may_go_on` is asked last."""
    with _explained(path), _parent(path) as parent:
        before = _status_if_unchanged(parent, path, expected)
        with _putting:
            if not may_go_on():
                raise InterruptedError(f"{path.shown!r} was not deleted: the turn was cancelled")
            assert before is not None, "a file that is expected and missing is an error"
            _check_unchanged(parent, path, expected, before)
            os.unlink(_name(parent, path), dir_fd=parent)


def decode_text(content: bytes, place: SessionPath, advice: str) -> str:
    """A file's bytes as text; `advice` tells the user what to do with a file that is not text."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at position {error.start}"
        raise UnsuitableFileError(f"{place.shown!r} is not UTF-8 text ({byte}): {advice}") from None


def encode_text(text: str, place: SessionPath) -> bytes:
    """A file's new text as bytes; raises UnsuitableFileError if they are too many."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        message = f"the new text of {place.shown!r} has half a character at position {error.start}"
        raise UnsuitableFileError(f"{message} (U+{ord(text[error.start]):04X}): leave it out") from None
    check_size(len(content), place)
    return content


def slice_lines(text: str, first: int, limit: int | None) -> str:
    """Some lines of a text, counted from 1 on, with their line ends as they are."""
    return "".join(islice(io.StringIO(text), first - 1, None if limit is None else first - 1 + limit))


def check_size(size: int, path: SessionPath, largest: int | None = None) -> None:
    """Raise UnsuitableFileError if a file of this size is too large."""
    largest = LARGEST_FILE if largest is None else largest
    if size > largest:
        limit = f"{largest // 1_000_000} MB"
        raise UnsuitableFileError(f"{path.shown!r} has {size} bytes: files of more than {limit} are refused")


def file_changed_error(path: SessionPath) -> FileChangedError:
    """The error for a write over something that the writer has not read."""
    return FileChangedError(
        f"{path.shown!r} has changed since it was read: read it again before you write it"
    )


@contextlib.contextmanager
def _explained(path: SessionPath) -> Iterator[None]:
    """Make system errors name the file as people know it; our own errors say everything already."""
    try:
        yield
    except OSError as error:
        if error.errno is None:
            raise
        if error.errno == errno.ENOENT:
            raise FileNotFoundError(f"there is no file {path.shown!r}") from None
        raise OSError(error.errno, error.strerror, path.shown) from None


@contextlib.contextmanager
def _parent(path: SessionPath, *, create: bool = False) -> Iterator[int | None]:
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


def _step_into(outer: int, name: str, path: SessionPath, create: bool) -> int:
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
def _opened(parent: int | None, path: SessionPath, flags: int, largest: int | None = None) -> Iterator[int]:
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


def _content(file: int, path: SessionPath) -> bytes:
    with open(file, "rb", closefd=False) as stream:
        # Some files, those in /proc for example, are larger than they say.
        content = stream.read(LARGEST_FILE + 1)
    check_size(len(content), path)
    return content


def _status_if_writable(parent: int | None, path: SessionPath) -> os.stat_result | None:
    try:
        # Opened for writing: a file that is protected against it must not be replaced either.
        with _opened(parent, path, os.O_WRONLY) as file:
            return os.fstat(file)
    except FileNotFoundError:
        return None


def _status_if_unchanged(
    parent: int | None, path: SessionPath, expected: bytes | None
) -> os.stat_result | None:
    try:
        # Opened for writing too: a file that is protected against it must not be replaced either.
        with _opened(parent, path, os.O_RDWR) as file:
            # Taken before it is read: what changes from here on is noticed in the end.
            status = os.fstat(file)
            if _content(file, path) != expected:
                raise file_changed_error(path)
            return status
    except FileNotFoundError:
        if expected is not None:
            raise file_changed_error(path) from None
        return None


def _write_beside(parent: int | None, path: SessionPath, content: bytes, like: os.stat_result | None) -> str:
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


def _put_new(parent: int | None, temporary: str, path: SessionPath) -> None:
    """Give the file its name by a hard link: that fails if somebody else has made the file meanwhile."""
    name = _name(parent, path)
    try:
        os.link(temporary, name, src_dir_fd=parent, dst_dir_fd=parent, follow_symlinks=False)
    except FileExistsError:
        raise file_changed_error(path) from None
    except (OSError, NotImplementedError):
        # Not every file system knows second names.
        if _exists_at(parent, name):
            raise file_changed_error(path) from None
        os.replace(temporary, name, src_dir_fd=parent, dst_dir_fd=parent)


def _check_unchanged(
    parent: int | None, path: SessionPath, expected: bytes | None, before: os.stat_result
) -> None:
    """Compare content, as the clock may be coarse, and identity: it must be the same file."""
    now = _status_if_unchanged(parent, path, expected)
    if now is None or _identity(now) != _identity(before):
        raise file_changed_error(path)


def _identity(status: os.stat_result) -> tuple[int, ...]:
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_mode


def _exists_at(parent: int | None, name: str) -> bool:
    try:
        os.stat(name, dir_fd=parent, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _status(path: SessionPath) -> os.stat_result | None:
    try:
        return os.stat(path.real, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _name(parent: int | None, path: SessionPath) -> str:
    return path.real if parent is None else path.name


def _check(status: os.stat_result, path: SessionPath, largest: int | None = None) -> None:
    _refuse_link(status, path)
    if stat.S_ISDIR(status.st_mode):
        raise _is_directory(path)
    if not stat.S_ISREG(status.st_mode):
        message = f"{path.shown!r} is a device, a pipe or a socket: only ordinary files are read and written"
        raise UnsuitableFileError(message)
    check_size(status.st_size, path, largest)


def _refuse_link(status: os.stat_result, path: SessionPath) -> None:
    if stat.S_ISLNK(status.st_mode):
        raise _is_link(path)


def _is_link(path: SessionPath) -> OutsideRootsError:
    message = f"{path.shown!r} became a link while it was being opened, and is not followed: try again"
    return OutsideRootsError(message)


def _is_directory(path: SessionPath) -> IsADirectoryError:
    return IsADirectoryError(f"{path.shown!r} is a directory: name a file in it")
