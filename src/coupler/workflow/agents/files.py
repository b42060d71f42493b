"""Files that an agent reads and writes through us during a step: each judged by the step's rules first.

That it does so without having asked is its own mode's decision, as far as `files` lets it, unless a rule that
somebody wrote forbids it or wants it to be asked about. Whoever runs the workflow in an editor has the files
there, with what is not saved yet; all others are on the disk.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol

from msgspec import UNSET

from coupler.client.files import FileAccess, Files, refusal
from coupler.relay.errors import NOT_PERMITTED
from coupler.runtime import files
from coupler.runtime.files import FilePath, find_inside
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import (
    Diff,
    ReadTextFileRequest,
    ReadTextFileResponse,
    WriteTextFileRequest,
    WriteTextFileResponse,
)
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.workflow.engine.front import OpenFiles

Touch = Literal["read", "edit"]

LONGEST_CHANGE = 1024 * 1024
"""Characters of a change, old and new, that somebody is shown before it is made."""


class Owner(Protocol):
    """Whoever knows the steps that sessions belong to."""

    async def may_touch(self, session_id: str, touch: Touch, path: str, text: str | None) -> bool:
        """Whether the agent of a session may read a file now, or write this text to it."""
        ...

    def open_files(self, session_id: str) -> OpenFiles | None:
        """The files that are not those on the disk."""
        ...


class StepFiles(Files):
    """Reads and writes, where they are permitted."""

    def __init__(self, access: FileAccess, owner: Owner) -> None:
        super().__init__(access)
        self._owner = owner

    async def _read(self, request: ReadTextFileRequest, session: RemoteSession) -> ReadTextFileResponse:
        await self._require(session, "read", request.path, None)
        opened = self._owner.open_files(session.id)
        path = None if opened is None or not opened.can_read else await _found(opened, request.path, session)
        if opened is None or path is None:
            return await super()._read(request, session)
        line, limit = (None if each is UNSET else each for each in (request.line, request.limit))
        try:
            return ReadTextFileResponse(await opened.read(path, line, limit))
        except (OSError, ValueError) as error:
            raise refusal(error) from None

    async def _write(self, request: WriteTextFileRequest, session: RemoteSession) -> WriteTextFileResponse:
        await self._require(session, "edit", request.path, request.content)
        opened = self._owner.open_files(session.id)
        path = None if opened is None or not opened.can_write else await _found(opened, request.path, session)
        if opened is None or path is None:
            return await super()._write(request, session)
        await opened.write(path, request.content)
        return WriteTextFileResponse()

    async def _require(self, session: RemoteSession, touch: Touch, path: str, text: str | None) -> None:
        if not await self._owner.may_touch(session.id, touch, path, text):
            raise RpcError.because(NOT_PERMITTED, "not permitted: see `tools` of the step", path="path")


async def change_of(path: str, text: str, session: RemoteSession, opened: OpenFiles | None) -> Diff | None:
    """What writing a text would change; None for what is no text, or too long to be shown."""
    try:
        found = None if opened is None or not opened.can_read else await _found(opened, path, session)
        if opened is None or found is None:
            old = await in_thread(lambda: files.read(find_inside(path, session.cwd, session.roots)).decode())
        else:
            old = await opened.read(found)
    except FileNotFoundError:
        return Diff(path, text) if len(text) <= LONGEST_CHANGE else None
    except (OSError, ValueError, RpcError):
        return None
    return Diff(path, text, old) if len(old) + len(text) <= LONGEST_CHANGE else None


async def _found(opened: OpenFiles, path: str, session: RemoteSession) -> FilePath | None:
    """The file that is meant, if it is one of the open ones; raises what the agent is told else."""

    def find() -> FilePath | None:
        found = find_inside(path, session.cwd, session.roots)
        return found if opened.has(found) else None

    try:
        return await in_thread(find)
    except (OSError, ValueError) as error:
        raise refusal(error) from None
