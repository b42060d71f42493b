"""Reads and writes the files of a turn, through the editor where it offers that, else on the disk.

The editor knows what its user has not saved yet. Each direction goes its own way: an editor that offers only
reading is asked for the text, and the disk is written. Nothing outside of the session's directories is
touched, and nothing is overwritten that the session has not seen. Whether the user permits it is another
question, which `call.permitted()` asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextvars import ContextVar
from operator import index
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import UNSET

from coupler.agent.content import file_path, plain_text
from coupler.agent.errors import EditorError
from coupler.agent.tool_call import LAST_LINE, Call, check_not_refused, innermost_call
from coupler.runtime import files
from coupler.runtime.files import (
    FileChangedError,
    OutsideRootsError,
    SessionPath,
    decode_text,
    encode_text,
    find_inside,
    slice_lines,
)
from coupler.schema.v1 import (
    ContentBlock,
    Diff,
    EmbeddedResource,
    ReadTextFileRequest,
    TextResourceContents,
    ToolKind,
    WriteTextFileRequest,
)
from coupler.wire.messages import INTERNAL_ERROR, METHOD_NOT_FOUND

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

T = TypeVar("T")

LONGEST_DIFF = 1024 * 1024
"""Characters of a change, old and new, that is shown whole: editors refuse messages that are too long."""

ADVICE = "read it with read_bytes"
"""The advice in errors about files that are not text."""

MARK = "\ufeff"
"""The byte order mark that some programs put at the beginning of UTF-8."""

READS = "fs.readTextFile"
WRITES = "fs.writeTextFile"

RESOURCE_NOT_FOUND = -32002

NOT_FOUND = ("not found", "no such file", "does not exist", "doesn't exist", "enoent")
"""Phrases in clients' errors for a missing file, from those that do not use the code for it."""

UNEXPLAINED = ("", "internal error")
"""Messages of clients' errors that say nothing about what is wrong."""

_writing: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()


class WrittenFile(NamedTuple):
    """A file that was written, with its text before, None if there was none, and after."""

    path: str
    before: str | None
    after: str


written_files: ContextVar[list[WrittenFile] | None] = ContextVar("written_files", default=None)
"""Collects what the running code writes, for whoever may have to take it back."""


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

        It has to be UTF-8. A byte order mark and the ends of its lines stay in the text.
        """
        lines = _checked_line(line), _checked_limit(limit)
        return await self._own(self._read(path, *lines))

    async def read_known(self, path: str | os.PathLike[str]) -> str:
        """Return the text of a file that the session has read; raises FileChangedError if it has changed."""
        return await self._own(self._read_known(path))

    async def read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        """Return the content of a file on the disk, text or not."""
        return await self._own(self._read_bytes(path))

    async def write(self, path: str | os.PathLike[str], text: str, *, overwrite: bool = False) -> None:
        """Write a file whole, and show the change; it is created if it is missing.

        A file that exists must have been read whole before, unless it is meant to be overwritten. One that
        has changed since then is left alone: FileChangedError.
        """
        await self._own(self._write(path, plain_text(text, "a file's new text"), overwrite))

    async def remove(self, path: str | os.PathLike[str]) -> None:
        """Delete a file; one that has changed since the session saw it is left alone: FileChangedError."""
        await self._own(self._remove(path))

    async def note_attached(self, blocks: Iterable[ContentBlock]) -> None:
        """Count the session's files that are embedded in a prompt as read, while they hold the same text."""
        for block in blocks:
            match block:
                case EmbeddedResource(resource=TextResourceContents(text=text, uri=uri)):
                    if (path := file_path(uri)) is not None:
                        await self._note_attached(path, text, is_part="#" in uri)

    async def exists(self, path: str | os.PathLike[str]) -> bool:
        """Return whether there is such a file or directory, or an unsaved text in the editor."""
        return await self._own(self._exists(path))

    async def _own(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            self._turn.check_alive()
            if self._turn.is_cancelled:
                raise asyncio.CancelledError("the turn was cancelled: it touches no more files")
            check_not_refused(self._turn)
        except BaseException:
            work.close()
            raise
        return await self._turn.own(work)

    async def _read(self, path: str | os.PathLike[str], line: int | None, limit: int | None) -> str:
        place = await self._find(path)
        async with self._in_call("Read", "read", place, line):
            is_whole = line is None and limit is None
            # Looked at before the text: what is saved in between is noticed when the file is written.
            saved = await self._saved(place) if is_whole else ""
            try:
                text = await self._text(place, line, limit)
            except FileNotFoundError:
                self._known.forget(place.real)
                raise
            if is_whole:
                self._known.note(place.real, self._comparable(text), saved)
            return text

    async def _read_known(self, path: str | os.PathLike[str]) -> str:
        place = await self._find(path)
        async with self._in_call("Read", "read", place):
            saved = await self._saved(place)
            text = await self._text(place, None, None)
            self._check_known(place, text, saved, overwrite=False)
            return text

    async def _read_bytes(self, path: str | os.PathLike[str]) -> bytes:
        place = await self._find(path)
        async with self._in_call("Read", "read", place):
            return await asyncio.to_thread(files.read, place)

    async def _write(self, path: str | os.PathLike[str], text: str, overwrite: bool) -> None:
        place = await self._find(path)
        content = encode_text(text, place)
        async with writing(place.real):
            verb = "Edit" if await asyncio.to_thread(files.is_file, place) else "Create"
            async with self._in_call(verb, "edit", place) as call:
                saved = await self._saved(place)
                before = await self._text_if_there(place)
                self._check_known(place, before, saved, overwrite)
                await self._put(place, text, content, before)
                self._known.note(place.real, self._comparable(text), saved)
                if (written := written_files.get()) is not None:
                    written.append(WrittenFile(place.shown, before, text))
                await self._show_change(call, place, before, text)

    async def _remove(self, path: str | os.PathLike[str]) -> None:
        place = await self._find(path)
        async with writing(place.real), self._in_call("Delete", "delete", place):
            before = await self._text_if_there(place)
            on_disk = await self._disk_text_if_there(place)
            self._check_known(place, before, await self._saved(place), overwrite=True)
            if on_disk is None or not _same_lines(on_disk, before):
                message = (
                    f"{place.shown!r} has changes in the editor that are not saved: have them saved first"
                )
                raise FileChangedError(message)
            await asyncio.to_thread(files.remove, place, on_disk.encode(), self._condition())
            self._known.forget(place.real)

    async def _note_attached(self, path: str, text: str, *, is_part: bool) -> None:
        try:
            place = await self._find(path)
            on_disk = await self._disk_text_if_there(place)
        except (OSError, ValueError):
            return  # it is elsewhere, or nothing that could be edited
        if _same_lines(on_disk, text):
            text = on_disk or ""
        elif is_part or not self._editor.can_read:
            return
        # The editor may have this text unsaved. It is asked when the file is to be changed.
        self._known.note_attached(place.real, self._comparable(text), _plain_lines(on_disk or ""))

    async def _exists(self, path: str | os.PathLike[str]) -> bool:
        place = await self._find(path)
        if await asyncio.to_thread(files.exists, place):
            return True
        try:
            return self._editor.can_read and bool(await self._editor.read(place, 1, 1))
        except FileNotFoundError:
            return False

    async def _find(self, path: str | os.PathLike[str]) -> SessionPath:
        session = self._turn.session
        return await asyncio.to_thread(find_inside, path, session.cwd, session.roots)

    @contextlib.asynccontextmanager
    async def _in_call(
        self, verb: str, kind: ToolKind, place: SessionPath, line: int | None = None
    ) -> AsyncIterator[Call]:
        """Yield the tool call whose block the code is in, or a new one."""
        call = innermost_call(self._turn)
        if call is not None:
            await call.locate(place.shown, line)
            yield call
            return
        async with self._turn.tool(f"{verb} {place.name}", kind=kind, path=place.shown, line=line) as call:
            yield call

    async def _text(self, place: SessionPath, line: int | None, limit: int | None) -> str:
        if self._editor.can_read:
            # Also the editor is not asked for what is no file, or would be too long for an answer.
            await asyncio.to_thread(files.is_file, place)
            return await self._editor.read(place, line, limit)
        text = decode_text(await asyncio.to_thread(files.read, place), place, ADVICE)
        return text if line is None and limit is None else slice_lines(text, line or 1, limit)

    async def _text_if_there(self, place: SessionPath) -> str | None:
        if self._editor.can_read:
            return await self._editor.read_if_there(place)
        return await self._disk_text_if_there(place)

    async def _disk_text_if_there(self, place: SessionPath) -> str | None:
        try:
            return decode_text(await asyncio.to_thread(files.read, place), place, ADVICE)
        except FileNotFoundError:
            return None

    async def _saved(self, place: SessionPath) -> str:
        """Return the text on the disk while the editor has its own; empty if it cannot be read.

        An editor that has not noticed what another program saved would overwrite it.
        """
        if not self._editor.can_read:
            return ""
        try:
            content = await asyncio.to_thread(files.read, place)
        except OutsideRootsError:
            raise
        except OSError:
            return ""
        return _plain_lines(content.decode(errors="surrogateescape"))

    def _check_known(self, place: SessionPath, before: str | None, saved: str, overwrite: bool) -> None:
        if place.real not in self._known:
            if before is not None and not overwrite:
                message = f"{place.shown!r} exists and was not read: read it whole before you write it"
                raise FileChangedError(message)
        elif not self._known.is_current(place.real, self._comparable(before or "")):
            # A file that is gone counts as an empty one: nothing is lost if there was nothing in it.
            raise files.file_changed_error(place)
        elif self._editor.can_read and not self._known.is_saved(place.real, saved):
            raise files.file_changed_error(place)

    async def _put(self, place: SessionPath, text: str, content: bytes, before: str | None) -> None:
        if self._editor.can_write:
            await self._editor.write(place, text)
            return
        on_disk = await self._disk_text_if_there(place) if self._editor.can_read else before
        if not _same_lines(on_disk, before):
            message = f"{place.shown!r} has changes in the editor that are not saved: have them saved first"
            raise FileChangedError(message)
        if on_disk is not None and before is not None:
            content = _restored(text, before, on_disk).encode()
        expected = None if on_disk is None else on_disk.encode()
        await asyncio.to_thread(files.write, place, content, expected, self._condition())

    def _condition(self) -> Callable[[], bool]:
        """Return a check that the write is still wanted: a cancelled caller does not stop its thread."""
        turn, task = self._turn, asyncio.current_task()
        return lambda: turn.is_alive and not turn.is_cancelled and not (task and task.cancelling())

    async def _show_change(self, call: Call, place: SessionPath, before: str | None, text: str) -> None:
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
        """Normalize text from an editor, which may change line ends and drop byte order marks."""
        return _plain_lines(text) if self._editor.can_read else text


def _same_lines(one: str | None, other: str | None) -> bool:
    if one is None or other is None:
        return one is other
    return _plain_lines(one) == _plain_lines(other)


def _restored(text: str, shown: str, on_disk: str) -> str:
    """Put back the byte order mark and line ends that the file has and that the editor did not show."""
    if "\r\n" not in shown and "\r\n" in on_disk and "\n" not in on_disk.replace("\r\n", ""):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    if on_disk.startswith(MARK) and not shown.startswith(MARK):
        text = MARK + text.removeprefix(MARK)
    return text


def _plain_lines(text: str) -> str:
    return text.removeprefix(MARK).replace("\r\n", "\n")


def _checked_line(line: int | None) -> int | None:
    if line is not None and not 1 <= index(line) <= LAST_LINE:
        raise ValueError(f"lines are counted from 1 on, not from {line}")
    return line if line is None else index(line)


def _checked_limit(limit: int | None) -> int | None:
    if limit is not None and not 0 <= index(limit) <= LAST_LINE:
        raise ValueError(f"a limit is a number of lines from 0 on, not {limit}")
    return limit if limit is None else index(limit)


class EditorFiles:
    """Reads and writes files as the editor has them, with what its user has not saved yet."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def can_read(self) -> bool:
        return self._turn.editor.offers(READS)

    @property
    def can_write(self) -> bool:
        return self._turn.editor.offers(WRITES)

    async def read(self, path: SessionPath, line: int | None = None, limit: int | None = None) -> str:
        """The text of a file, or some lines of it; raises FileNotFoundError or EditorError."""
        session = self._turn.session
        request = ReadTextFileRequest(
            session.id,
            path.shown,
            UNSET if line is None else line,
            UNSET if limit is None else limit,
        )
        try:
            answer = await self._turn.call_editor(request)
        except EditorError as error:
            # A file that is on the disk is not missing, whatever the editor could not find.
            if _may_mean_missing(error) and not await asyncio.to_thread(files.exists, path):
                raise FileNotFoundError(f"there is no file {path.shown!r}") from None
            raise
        text: str = answer.content
        # Clients exist that give an empty text for a missing file.
        is_from_start = line in (None, 1) and limit != 0
        if not text and is_from_start and not await asyncio.to_thread(files.exists, path):
            raise FileNotFoundError(f"there is no file {path.shown!r}")
        files.check_size(len(text), path)
        return text

    async def read_if_there(self, path: SessionPath) -> str | None:
        """The whole text, or None if there is no file."""
        try:
            return await self.read(path)
        except FileNotFoundError:
            return None

    async def write(self, path: SessionPath, text: str) -> None:
        """Let the editor write the file."""
        await self._turn.call_editor(WriteTextFileRequest(self._turn.session.id, path.shown, text))


def _may_mean_missing(error: EditorError) -> bool:
    """Return whether an error says that there is no such file, or says nothing: then the disk knows more."""
    if error.code == METHOD_NOT_FOUND.code:
        return False
    words = f"{error.message} {error.data}".lower()
    says_nothing = (
        error.code == INTERNAL_ERROR.code and not error.data and error.message.lower() in UNEXPLAINED
    )
    return error.code == RESOURCE_NOT_FOUND or says_nothing or any(phrase in words for phrase in NOT_FOUND)


class _Known(NamedTuple):
    text: bytes
    saved: bytes


class KnownFiles:
    """Detects changes of the files that a session has read or written.

    It has digests by real paths, of the text that the session saw last and of what was saved.
    """

    def __init__(self) -> None:
        self._files: dict[str, _Known] = {}
        self._attached: dict[str, _Known] = {}
        """Files that a prompt has brought since they were read or written."""

    def __contains__(self, path: str) -> bool:
        return path in self._files or path in self._attached

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that the session has touched, the last one last."""
        return tuple(self._files)

    def saved(self, most: int) -> dict[str, list[str]]:
        """Return the digests of the last files, as a JSON value."""
        last = [*{**self._attached, **self._files}.items()][-most:]
        return {path: [known.text.hex(), known.saved.hex()] for path, known in last}

    def restore(self, saved: object) -> None:
        """Take over digests that `saved` returned; anything else is ignored."""
        try:
            files = msgspec.convert(saved, dict[str, tuple[str, str]])
            known = {path: _Known(*map(bytes.fromhex, digests)) for path, digests in files.items()}
        except (msgspec.ValidationError, ValueError):
            return
        self._files = {**known, **self._files}

    def note(self, path: str, text: str, saved: str) -> None:
        """Record the text that the session saw in a file, and what was on the disk at that time."""
        self.forget(path)
        self._files[path] = _Known(_digest(text), _digest(saved))

    def note_attached(self, path: str, text: str, saved: str) -> None:
        """Record the text that a prompt has brought, besides the one that the session saw in the file."""
        self._attached[path] = _Known(_digest(text), _digest(saved))

    def forget(self, path: str) -> None:
        """Record that the session has seen that the file does not exist."""
        self._files.pop(path, None)
        self._attached.pop(path, None)

    def is_current(self, path: str, text: str) -> bool:
        """Return whether this is the text that the session saw last."""
        return any(known.text == _digest(text) for known in self._seen(path))

    def is_saved(self, path: str, saved: str) -> bool:
        """Return whether this was on the disk, or is the text that the session saw and that is saved now."""
        return any(_digest(saved) in known for known in self._seen(path))

    def _seen(self, path: str) -> list[_Known]:
        return [known[path] for known in (self._files, self._attached) if path in known]


def writing(path: str) -> asyncio.Lock:
    """Return the lock of a file, for all sessions: who compares and writes sees what others wrote."""
    key = asyncio.get_running_loop(), path
    lock = _writing.get(key)
    if lock is None:
        lock = _writing[key] = asyncio.Lock()
    return lock


def _digest(text: str) -> bytes:
    # Imported on use: most sessions touch no file.
    from hashlib import blake2b

    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
