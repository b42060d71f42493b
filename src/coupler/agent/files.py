"""The files of a turn: through the editor where it offers that, else on the disk.

The editor knows what its user has not saved yet. Each direction goes its own way: an editor that offers only
reading is asked for the text, and the disk is written. Nothing outside of the session's directories is
touched, and nothing is overwritten that the session has not seen. Whether the user permits it is another
question, which `call.permitted()` asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import AsyncIterator, Coroutine
from itertools import islice
from operator import index
from typing import TYPE_CHECKING, Any, TypeVar

from coupler.agent import disk
from coupler.agent.boundary import FilePath, find_inside
from coupler.agent.call import LAST_LINE, Call, innermost_call
from coupler.agent.editor_files import EditorFiles
from coupler.agent.file_errors import FileChangedError, UnsuitableFileError
from coupler.agent.text import plain_text
from coupler.schema.v1 import Diff, ToolKind

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

T = TypeVar("T")

LONGEST_DIFF = 1024 * 1024
"""Characters of a change, old and new, that is shown whole: editors refuse messages that are too long."""


class Files:
    """Reads and writes files for a turn. Paths may be relative to the session's directory."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn
        self._editor = EditorFiles(turn)
        self._known = turn.session.known_files

    async def read(
        self, path: str | os.PathLike[str], *, line: int | None = None, limit: int | None = None
    ) -> str:
        """The text of a file exactly as it is, or `limit` lines of it from `line` on, which counts from 1.

        It has to be UTF-8. A mark at its beginning and the ends of its lines stay in the text.
        """
        lines = _checked_line(line), _checked_limit(limit)
        return await self._own(self._read(path, *lines))

    async def read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        """What is in a file on the disk, text or not."""
        return await self._own(self._read_bytes(path))

    async def write(self, path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
        """Write a file whole, and show the change; it is created if it is missing.

        A file that exists must have been read whole before, unless it is meant to be overwritten. One that
        has changed since then is left alone: FileChangedError.
        """
        await self._own(self._write(path, plain_text(text, "a file's new text"), overwrite))

    async def exists(self, path: str | os.PathLike[str]) -> bool:
        """Whether there is such a file or directory, or an unsaved text in the editor."""
        return await self._own(self._exists(path))

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._turn.check_alive()
            if self._turn.is_cancelled:
                raise asyncio.CancelledError("the turn was cancelled: it touches no more files")
        except BaseException:
            work.close()
            raise
        return await self._turn.own(work)

    async def _read(self, path: str | os.PathLike[str], line: int | None, limit: int | None) -> str:
        place = await self._find(path)
        async with self._in_call("Read", "read", place, line):
            is_whole = line is None and limit is None
            try:
                text = await self._text(place, line, limit)
            except FileNotFoundError:
                self._known.forget(place.real)
                raise
            if is_whole:
                self._known.note(place.real, self._comparable(text))
            return text

    async def _read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        place = await self._find(path)
        async with self._in_call("Read", "read", place):
            return await asyncio.to_thread(disk.read, place)

    async def _write(self, path: str | os.PathLike[str], text: str, overwrite: bool) -> None:
        place = await self._find(path)
        content = _encoded(text, place)
        async with self._known.writing(place.real):
            verb = "Edit" if await asyncio.to_thread(disk.is_file, place) else "Create"
            async with self._in_call(verb, "edit", place) as call:
                before = await self._text_if_there(place)
                self._check_known(place, before, overwrite)
                await self._put(place, text, content, before)
                self._known.note(place.real, self._comparable(text))
                await self._show_change(call, place, before, text)

    async def _exists(self, path: str | os.PathLike[str]) -> bool:
        place = await self._find(path)
        if await asyncio.to_thread(disk.exists, place):
            return True
        try:
            return self._editor.can_read and bool(await self._editor.read(place, 1, 1))
        except FileNotFoundError:
            return False

    async def _find(self, path: str | os.PathLike[str]) -> FilePath:
        session = self._turn.session
        return await asyncio.to_thread(find_inside, path, session.cwd, session.roots)

    @contextlib.asynccontextmanager
    async def _in_call(
        self, verb: str, kind: ToolKind, place: FilePath, line: int | None = None
    ) -> AsyncIterator[Call]:
        """The call whose block the code is in, or one of its own."""
        call = innermost_call(self._turn)
        if call is not None:
            await call.locate(place.shown, line)
            yield call
            return
        async with self._turn.tool(f"{verb} {place.name}", kind=kind, path=place.shown, line=line) as call:
            yield call

    async def _text(self, place: FilePath, line: int | None, limit: int | None) -> str:
        if self._editor.can_read:
            # Also the editor is not asked for what is no file, or would be too long for an answer.
            await asyncio.to_thread(disk.is_file, place)
            return await self._editor.read(place, line, limit)
        text = _decoded(await asyncio.to_thread(disk.read, place), place)
        return text if line is None and limit is None else _lines(text, line or 1, limit)

    async def _text_if_there(self, place: FilePath) -> str | None:
        if self._editor.can_read:
            return await self._editor.read_if_there(place)
        return await self._disk_text_if_there(place)

    async def _disk_text_if_there(self, place: FilePath) -> str | None:
        try:
            return _decoded(await asyncio.to_thread(disk.read, place), place)
        except FileNotFoundError:
            return None

    def _check_known(self, place: FilePath, before: str | None, overwrite: bool) -> None:
        if place.real not in self._known:
            if before is not None and not overwrite:
                message = f"{place.shown!r} exists and was not read: read it whole before you write it"
                raise FileChangedError(message)
        elif not self._known.is_current(place.real, self._comparable(before or "")):
            # A file that is gone counts as an empty one: nothing is lost if there was nothing in it.
            raise disk.changed(place)

    async def _put(self, place: FilePath, text: str, content: bytes, before: str | None) -> None:
        if self._editor.can_write:
            await self._editor.write(place, text)
            return
        on_disk = await self._disk_text_if_there(place) if self._editor.can_read else before
        if not _same_lines(on_disk, before):
            message = f"{place.shown!r} has changes in the editor that are not saved: have them saved first"
            raise FileChangedError(message)
        expected = None if on_disk is None else on_disk.encode()
        await asyncio.to_thread(disk.write, place, content, expected, self._may_go_on)

    def _may_go_on(self) -> bool:
        return self._turn.is_alive and not self._turn.is_cancelled

    async def _show_change(self, call: Call, place: FilePath, before: str | None, text: str) -> None:
        if before == text:
            return
        if len(before or "") + len(text) > LONGEST_DIFF:
            await call.output(
                f"{place.shown} has {len(text)} characters now; the change is too long to show."
            )
            return
        # Whoever asked for permission has shown the change already.
        if Diff(place.shown, text, before) not in self._turn.session.outlet.ledger.content(call.id):
            await call.diff(place.shown, before, text)

    def _comparable(self, text: str) -> str:
        """Editors have their own view of line ends and of the mark at the beginning; the disk is exact."""
        return _plain_lines(text) if self._editor.can_read else text


def _decoded(content: bytes, place: FilePath) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at position {error.start}"
        message = f"{place.shown!r} is not UTF-8 text ({byte}): read it with read_bytes"
        raise UnsuitableFileError(message) from None


def _encoded(text: str, place: FilePath) -> bytes:
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        message = f"the new text of {place.shown!r} has half a character at position {error.start}"
        raise UnsuitableFileError(f"{message} (U+{ord(text[error.start]):04X}): leave it out") from None
    disk.check_size(len(content), place)
    return content


def _lines(text: str, first: int, limit: int | None) -> str:
    return "".join(islice(io.StringIO(text), first - 1, None if limit is None else first - 1 + limit))


def _same_lines(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return _plain_lines(one) == _plain_lines(other)


def _plain_lines(text: str) -> str:
    return text.removeprefix("\ufeff").replace("\r\n", "\n")


def _checked_line(line: int | None) -> int | None:
    if line is not None and not 1 <= index(line) <= LAST_LINE:
        raise ValueError(f"lines are counted from 1 on, not from {line}")
    return line if line is None else index(line)


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and not 0 <= index(limit) <= LAST_LINE:
        raise ValueError(f"a limit is a number of lines from 0 on, not {limit}")
    return limit if limit is None else index(limit)
