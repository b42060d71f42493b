"""Files as the editor has them, with what its user has not saved yet."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from msgspec import UNSET

from coupler.agent.errors import EditorError
from coupler.runtime import files
from coupler.runtime.files import FilePath
from coupler.schema.v1 import ReadTextFileRequest, WriteTextFileRequest
from coupler.wire.messages import METHOD_NOT_FOUND

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

READS = "fs.readTextFile"
WRITES = "fs.writeTextFile"

RESOURCE_NOT_FOUND = -32002

NOT_FOUND = ("not found", "no such file", "does not exist", "doesn't exist", "enoent")
"""How clients say that a file is missing, if they do not use the code for it."""


class EditorFiles:
    """Asks the client for files and gives it others to write."""

    def __init__(self, turn: Turn) -> None:
        self._turn = turn

    @property
    def can_read(self) -> bool:
        return self._turn.editor.offers(READS)

    @property
    def can_write(self) -> bool:
        return self._turn.editor.offers(WRITES)

    async def read(self, path: FilePath, line: int | None = None, limit: int | None = None) -> str:
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
            if _says_not_found(error) and not await asyncio.to_thread(files.exists, path):
                raise FileNotFoundError(f"there is no file {path.shown!r}") from None
            raise
        text: str = answer.content
        files.check_size(len(text), path)
        return text

    async def read_if_there(self, path: FilePath) -> str | None:
        """The whole text, or None if there is no file."""
        try:
            text = await self.read(path)
        except FileNotFoundError:
            return None
        # Clients exist that give an empty text for a missing file.
        is_there = bool(text) or await asyncio.to_thread(files.exists, path)
        return text if is_there else None

    async def write(self, path: FilePath, text: str) -> None:
        """Let the editor write the file."""
        await self._turn.call_editor(WriteTextFileRequest(self._turn.session.id, path.shown, text))


def _says_not_found(error: EditorError) -> bool:
    if error.code == METHOD_NOT_FOUND.code:
        return False
    words = f"{error.message} {error.data}".lower()
    return error.code == RESOURCE_NOT_FOUND or any(phrase in words for phrase in NOT_FOUND)
