"""Files that a session has touched, as they are in the editor now: what its user has not saved is in them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from coupler.agent.errors import EditorError
from coupler.agent.files import EditorFiles
from coupler.runtime.files import OutsideRootsError, UnsuitableFileError, find_inside
from coupler.runtime.paths import is_below

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

MOST_FILES = 100
"""Files that the editor is asked for; those that were touched last."""

AT_ONCE = 8

LIMIT = 10.0
"""Seconds that the editor has."""

LONGEST_TEXT = 2_000_000
"""Characters of a file that is searched."""


async def unsaved_texts(turn: Turn, place: str) -> dict[str, str]:
    """The texts by real paths of what the session has touched in a place, as far as the editor tells them."""
    editor = EditorFiles(turn)
    touched = [path for path in turn.session.known_files.paths if is_below(path, place)][-MOST_FILES:]
    if not touched or not editor.can_read:
        return {}
    texts: dict[str, str] = {}
    turns = asyncio.Semaphore(AT_ONCE)

    async def ask(path: str) -> None:
        session = turn.session
        async with turns:
            try:
                text = await editor.read_if_there(find_inside(path, session.cwd, session.roots))
            except (EditorError, OutsideRootsError, UnsuitableFileError):
                return  # what the editor does not tell is as it is on the disk
        if text is not None and len(text) <= LONGEST_TEXT:
            texts[path] = text

    try:
        async with asyncio.timeout(LIMIT), asyncio.TaskGroup() as asking:
            for path in touched:
                asking.create_task(ask(path))
    except TimeoutError:
        pass  # an editor that does not answer costs what is not saved, and no more
    return texts
