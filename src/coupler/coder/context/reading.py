"""Reads the texts that a model is given unasked: as the editor has them, else from the disk.

A file of the project must not lead out of it, nor to something that is usually kept secret: a link called
AGENTS.md would otherwise send anything to the model's provider. What cannot be read is noted.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING

from coupler.agent.errors import EditorError
from coupler.agent.files import EditorFiles
from coupler.permission.patterns import is_sensitive
from coupler.runtime import files
from coupler.runtime.files import FilePath, OutsideRootsError, UnsuitableFileError, find_inside

if TYPE_CHECKING:
    from coupler.agent.turn import Turn
    from coupler.coder.context.grounds import Ground

PATIENCE = 2.0
"""Seconds that an editor may take for a file; then the disk is read."""

MARK = "\ufeff"


class Reader:
    """Reads for one turn."""

    def __init__(self, turn: Turn) -> None:
        self.notes: list[str] = []
        """What could not be read, and why."""
        self._session = turn.session
        self._editor = EditorFiles(turn)

    async def read(self, ground: Ground, *names: str) -> str | None:
        """The text of a file below this directory; None if there is none that can be read."""
        path = str(Path(ground.directory, *names))
        try:
            place = await asyncio.to_thread(_find, path, ground.bounds)
            if place is None:
                return None
            text = await self._unsaved(path)
            if text is None:
                text = self._decoded(await asyncio.to_thread(files.read, place), path)
            if "\0" in text:
                raise UnsuitableFileError("it is not text")
        except FileNotFoundError:
            return None
        except (OSError, UnsuitableFileError, OutsideRootsError, ValueError) as error:
            self.notes.append(f"{path} was not read: {_reason(error, path)}")
            return None
        return text.removeprefix(MARK)

    async def _unsaved(self, path: str) -> str | None:
        """The text as the editor has it, for files that it can know."""
        if not self._editor.can_read:
            return None
        try:
            place = await asyncio.to_thread(find_inside, path, self._session.cwd, self._session.roots)
            async with asyncio.timeout(PATIENCE):
                return await self._editor.read_if_there(place)
        except (OSError, ValueError, EditorError, UnsuitableFileError, OutsideRootsError):
            return None

    def _decoded(self, content: bytes, path: str) -> str:
        try:
            return content.decode()
        except UnicodeDecodeError:
            self.notes.append(f"{path} is not UTF-8: some of its characters are wrong")
            return content.decode("utf-8", "replace")


def text_on_disk(path: str, bounds: str | None) -> str:
    """The same without an editor; raises OSError or ValueError with a reason for people. This blocks."""
    try:
        place = _find(path, bounds)
        if place is None:
            raise FileNotFoundError("it is not there")
        content = files.read(place)
    except (OSError, UnsuitableFileError, OutsideRootsError) as error:
        raise ValueError(_reason(error, path)) from None
    if b"\0" in content:
        raise ValueError("it is not text")
    return content.decode("utf-8", "replace")


def _find(path: str, bounds: str | None) -> FilePath | None:
    """The file that the path means, if there is something; raises if that is not to be read."""
    if not os.path.lexists(path):
        return None
    place = find_inside(path, os.path.sep, (bounds or Path(path).anchor,))
    if bounds is not None and any(is_sensitive(name, "read") for name in place.below):
        raise UnsuitableFileError("it leads to a file that is usually kept secret")
    return place


def _reason(error: Exception, path: str) -> str:
    if isinstance(error, OutsideRootsError):
        return "it leads out of the project"
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return str(error).removeprefix(f"{path!r} ")
