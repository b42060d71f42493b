"""Serves `fs/*`: reads and writes text files in a session's directories for its agent.

`files=` of `connect` decides which of both is offered; the session's policy is not asked. The files of one
session are served one after the other, so that a read sees the write before it, and in threads: a slow disk
holds up that session's files and nothing else.
"""

from __future__ import annotations

import asyncio
import os.path
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Literal, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from coupler.client.errors import (
    FILE_FAILED,
    OUTSIDE_ROOTS,
    RESOURCE_NOT_FOUND,
    UNSUITABLE_FILE,
    AsyncResponder,
    Responder,
)
from coupler.runtime import files
from coupler.runtime.files import (
    OutsideRootsError,
    UnsuitableFileError,
    decode_text,
    encode_text,
    find_inside,
    slice_lines,
)
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.messages import CANCELLED, INVALID_PARAMS, ErrorReason, RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

T = TypeVar("T")

FileAccess: TypeAlias = Literal["none", "read", "write"]
"""File access that an agent has through its client; `write` includes reading."""


class ClientFiles:
    """Reads and writes files for the sessions of one connection."""

    def __init__(self, access: FileAccess) -> None:
        self._access = access
        self._turns: WeakKeyDictionary[RemoteSession, asyncio.Lock] = WeakKeyDictionary()

    def responders(self) -> dict[str, Responder]:
        """Return the responder of each offered method."""
        responders: dict[str, Responder] = {}
        if self._access != "none":
            responders["fs/read_text_file"] = AsyncResponder(ReadTextFileRequest, self._read)
        if self._access == "write":
            responders["fs/write_text_file"] = AsyncResponder(WriteTextFileRequest, self._write)
        return responders

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        def read() -> str:
            place = find_inside(request.path, session.cwd, session.roots)
            text = decode_text(files.read(place), place, "only text is served")
            if request.line or isinstance(request.limit, int):
                limit = request.limit if isinstance(request.limit, int) else None
                return slice_lines(text, request.line or 1, limit)
            return text

        return ReadTextFileResponse(await self._in_turn(session, request.path, read))

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        is_taken_back = threading.Event()

        def write() -> None:
            place = find_inside(request.path, session.cwd, session.roots)
            content = encode_text(request.content, place)
            files.overwrite(place, content, lambda: not is_taken_back.is_set())

        try:
            await self._in_turn(session, request.path, write)
        except asyncio.CancelledError:
            is_taken_back.set()
            raise
        return WriteTextFileResponse()

    async def _in_turn(self, session: RemoteSession, path: str, work: Callable[[], T]) -> T:
        if not os.path.isabs(path):  # noqa: PTH117 - pathlib raises for a path that is too long
            message = f"path: expected an absolute path, got {path!r}"
            raise RpcError.because(INVALID_PARAMS, message, path="path")
        turn = self._turns.setdefault(session, asyncio.Lock())
        async with turn:
            await session.room()
            try:
                return await in_thread(work)
            except (OSError, ValueError) as error:
                raise file_error(error) from None


def file_error(error: OSError | ValueError) -> RpcError:
    """Convert a failure of the disk, or the reason for not touching it, to the error for the agent."""
    if isinstance(error, OSError) and error.errno is not None:
        message = f"{error.filename!r}: {error.strerror}"
    else:
        message = str(error)
    return RpcError.because(_reason(error), message, path="path")


def _reason(error: OSError | ValueError) -> ErrorReason:
    match error:
        case OutsideRootsError():
            return OUTSIDE_ROOTS
        case FileNotFoundError() | NotADirectoryError():
            return RESOURCE_NOT_FOUND
        case UnsuitableFileError() | IsADirectoryError():
            return UNSUITABLE_FILE
        case InterruptedError():
            return CANCELLED
        case OSError():
            return FILE_FAILED
    return INVALID_PARAMS
