"""Files for the agent behind: as the editor has them, with what is not saved yet, else from the disk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from coupler.client.files import FileAccess, Files
from coupler.client.reasons import OUTSIDE_ROOTS
from coupler.permission.action import Action
from coupler.runtime.files import OutsideRootsError, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.messages import INVALID_PARAMS, RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.relay.behind import Behind

READS = "fs.readTextFile"
WRITES = "fs.writeTextFile"


class RelayedFiles(Files):
    """Reads and writes, each judged by the rules first. Nothing outside of the session's directories."""

    def __init__(self, access: FileAccess, find: Callable[[str], Behind | None]) -> None:
        super().__init__(access)
        self._find = find

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        relayed = self._find(session.id)
        if relayed is None:
            return await super()._read(request, session)
        await _require(relayed, "read", request.path)
        if not relayed.can_ask_editor(READS):
            return await super()._read(request, session)
        path = await _inside(relayed, request.path)
        asked = ReadTextFileRequest(relayed.session.id, path, request.line, request.limit)
        answer: ReadTextFileResponse = await relayed.session.outlet.ask(asked)
        return ReadTextFileResponse(answer.content)

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        relayed = self._find(session.id)
        if relayed is None:
            return await super()._write(request, session)
        await _require(relayed, "edit", request.path)
        if not relayed.can_ask_editor(WRITES):
            return await super()._write(request, session)
        path = await _inside(relayed, request.path)
        await relayed.session.outlet.ask(WriteTextFileRequest(relayed.session.id, path, request.content))
        return WriteTextFileResponse()


async def _require(relayed: Behind, kind: str, path: str) -> None:
    session = relayed.session
    action = Action(kind=kind, paths=(path,), cwd=session.cwd, roots=session.roots)
    verb = "Read" if kind == "read" else "Write"
    await relayed.guard.require(action, f"{verb} {path}")


async def _inside(relayed: Behind, path: str) -> str:
    """The path as the editor gets it."""
    session = relayed.session
    try:
        return (await in_thread(lambda: find_inside(path, session.cwd, session.roots))).shown
    except OutsideRootsError as error:
        raise RpcError.because(OUTSIDE_ROOTS, str(error), path="path") from None
    except ValueError as error:
        raise RpcError.because(INVALID_PARAMS, str(error), path="path") from None
