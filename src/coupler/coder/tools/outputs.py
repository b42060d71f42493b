"""Keeps outputs that are too long for a model in files that it can read in parts.

Each session has a directory of them below Coupler's own. They are the user's alone, hold no secrets, and are
bounded: one file, all files of a session, and the time that they are kept. A disk that is full or missing
costs the file and never the work.
"""

from __future__ import annotations

import codecs
import functools
import hashlib
import logging
import os
import re
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.redaction.masker import Masker, StreamMasker
from coupler.runtime.directories import NoHomeError, data_directory
from coupler.runtime.process import RingBuffer

if TYPE_CHECKING:
    from coupler.agent.output import SessionRedactor
    from coupler.agent.session import Session

log = logging.getLogger("coupler.coder")

LARGEST = 16 * 1024 * 1024
"""Bytes of a file; a longer output keeps its beginning and end."""

LAST = 256 * 1024
"""Bytes of the end that are kept of a longer output."""

MOST_OF_SESSION = 128 * 1024 * 1024
"""Bytes of a session's files; the oldest make room."""

LONGEST_KEPT = 7 * 24 * 3600
"""Seconds that a file is kept."""

CUT = "\n[cut here: {left} more characters]"

_FIT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


class SessionOutputs:
    """The kept outputs of one session."""

    def __init__(self, session: Session) -> None:
        self.directory = outputs_directory(session.id)
        """The directory of the files; it need not exist."""
        self._secrets = session.secrets
        session.readable_places.add(str(self.directory))

    def keep(self, text: str, of: str) -> str | None:
        """Store a tool's output; returns the path, or None if it could not be stored."""
        file = self.begin(of)
        file.append(text.encode("utf-8", "replace"))
        file.close()
        return file.path

    def begin(self, of: str) -> OutputFile:
        """Open a file for the output of a tool."""
        _delete_old_outputs_once()
        return OutputFile(self.directory, of, self._secrets)


class OutputFile:
    """An output that is being written to the disk; its creator has to close it."""

    def __init__(self, directory: Path, of: str, secrets: SessionRedactor) -> None:
        self.path: str | None = None
        """The file's path; None if it cannot be written."""
        self._secrets = secrets
        self._stream = StreamMasker(secrets.masker or Masker())
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._room = LARGEST
        self._last = RingBuffer(LAST)
        self._left_out = 0
        self._descriptor: int | None = None
        try:
            self._descriptor, self.path = _new_file(directory, of)
        except OSError as error:
            log.warning("a long output cannot be kept: %s", error)

    def append(self, chunk: bytes) -> None:
        """Append a piece."""
        if self._descriptor is not None:
            self._put(self._decoder.decode(chunk), is_last=False)

    def close(self) -> None:
        """Write the end of the output, and close the file."""
        if self._descriptor is None:
            return
        self._put(self._decoder.decode(b"", final=True), is_last=True)
        end = self._last.text().encode()
        if self._left_out:
            self._write(f"\n[… {self._left_out - len(end):,} bytes left out …]\n".encode())
            self._write(end)
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _put(self, text: str, *, is_last: bool) -> None:
        if self._secrets.masker is not None:
            self._stream.masker = self._secrets.masker
        # A file with such a character would pass for a binary one, and could not be read.
        shown = self._stream.feed(text.replace("\0", "\N{SYMBOL FOR NULL}"))
        if is_last:
            shown += self._stream.end()
        content = shown.encode()
        begins, others = content[: self._room], content[self._room :]
        self._room -= len(begins)
        self._write(begins)
        if others:
            self._left_out += len(others)
            self._last.append(others)

    def _write(self, content: bytes) -> None:
        try:
            while content and self._descriptor is not None:
                content = content[os.write(self._descriptor, content) :]
        except OSError as error:
            log.warning("a long output cannot be kept: %s", error)
            self._give_up()

    def _give_up(self) -> None:
        """Delete the file, because an incomplete one misleads."""
        assert self._descriptor is not None
        assert self.path is not None
        os.close(self._descriptor)
        Path(self.path).unlink(missing_ok=True)
        self._descriptor = self.path = None


def outputs_directory(session_id: str) -> Path:
    """Return the directory of a session's outputs."""
    # Ids are ours, but a client says which one it means.
    is_fit = _FIT_NAME.fullmatch(session_id) is not None
    name = session_id if is_fit else hashlib.sha256(session_id.encode()).hexdigest()
    return _all_outputs() / name


def delete_outputs(session_id: str) -> None:
    """Delete the outputs of a session that was deleted."""
    shutil.rmtree(outputs_directory(session_id), ignore_errors=True)


def delete_old_outputs() -> None:
    """Delete what was kept for long enough, of all sessions."""
    before = time.time() - LONGEST_KEPT
    for directory in _entries(_all_outputs()):
        for file in _entries(directory):
            if _changed(file) < before:
                file.unlink(missing_ok=True)
        if _changed(directory) < before:
            _remove_if_empty(directory)


@functools.cache
def _delete_old_outputs_once() -> None:
    """Delete old outputs, once in a process."""
    delete_old_outputs()


def _all_outputs() -> Path:
    try:
        return Path(data_directory()) / "outputs"
    except NoHomeError:
        # Where nothing can be, nothing is kept.
        return Path(os.devnull) / "outputs"


def _new_file(directory: Path, of: str) -> tuple[int, str]:
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    _make_room(directory)
    called = re.sub(r"[^A-Za-z0-9_]+", "-", of)[:40].strip("-") or "output"
    path = directory / f"{called}-{os.urandom(4).hex()}.txt"
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), str(path)


def _make_room(directory: Path) -> None:
    """Delete the oldest files, so that another one fits."""
    files = sorted(_entries(directory), key=_changed)
    size = sum(_size(file) for file in files)
    for file in files:
        if size + LARGEST <= MOST_OF_SESSION:
            return
        size -= _size(file)
        file.unlink(missing_ok=True)


def _entries(directory: Path) -> list[Path]:
    try:
        return [*directory.iterdir()]
    except OSError:
        return []


def _changed(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0


def _remove_if_empty(directory: Path) -> None:
    try:
        directory.rmdir()
    except OSError:
        log.debug("%s is still in use", directory)


def one_line(text: str, longest: int) -> str:
    """Return a text as one line of a list or a title, with nothing in it that does not print."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def truncated(text: str, longest: int) -> str:
    """Return the beginning of a text that is too long, with a word on what is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}{CUT.format(left=len(text) - longest)}"


def without_middle(text: str, longest: int) -> str:
    """Return the beginning and the end of a text that is too long."""
    if len(text) <= longest:
        return text
    head, tail = longest * 2 // 3, longest - longest * 2 // 3
    left = len(text) - head - tail
    return f"{text[:head]}\n[… {left} characters left out here …]\n{text[len(text) - tail :]}"


def fenced(tag: str, text: str, **attributes: str) -> str:
    """Return a text of others between `<tag …>` and `</tag>`, so that a model sees where it begins and ends.

    Tags of that name in it are made harmless: it cannot pretend to end.
    """
    harmless = re.sub(rf"<(?=\s*/?\s*{re.escape(tag)}\b)", "&lt;", text, flags=re.IGNORECASE)
    words = "".join(f' {name}="{_attribute(value)}"' for name, value in attributes.items())
    return f"<{tag}{words}>\n{harmless.strip()}\n</{tag}>"


def _attribute(value: str) -> str:
    plain = "".join(each if each.isprintable() else "�" for each in value)
    return plain.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")
