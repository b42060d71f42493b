"""The tools that change files: the change is shown before it is asked about, and made whole or not at all."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any
from weakref import WeakValueDictionary

from pydantic import BeforeValidator

from coupler.agent.files import LONGEST_DIFF
from coupler.bridges.langchain.editor.edits import Edit, edited, in_style
from coupler.bridges.langchain.editor.reading import File
from coupler.bridges.langchain.editor.tool_use import ToolUse, place_of, tool_use
from coupler.bridges.langchain.editor.unreadable import check_can_be_known, missing, size_of
from coupler.runtime.files import FileChangedError

AROUND = 3
"""Lines that are shown around a change in a file that is too long to be shown whole."""


def _as_list(edits: Any) -> Any:
    """Some models write one edit without its list, or the list as text."""
    if isinstance(edits, str):
        try:
            edits = json.loads(edits)
        except ValueError:
            return edits
    return [edits] if isinstance(edits, dict) else edits


_changing: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()

Edits = Annotated[
    list[Edit], BeforeValidator(_as_list), "The replacements, made one after the other: all of them, or none."
]


async def write_file(
    path: File, content: Annotated[str, "The whole new text of the file."]
) -> tuple[str, dict[str, Any]]:
    """Create a file, or replace all of its text. Missing directories are made.

    An existing file has to be read with read_file first. To change a part of it, use edit_file.
    """
    async with tool_use("Write", "edit", path) as use, _alone(use, path):
        files = use.prompt.turn.files
        await asyncio.to_thread(size_of, place_of(path, use.prompt.session))
        before = await _known(use, path, "replace") if await files.exists(path) else None
        after = content if before is None else in_style(content, before)
        if before == after:
            return f"{path} has this text already.", {"path": path, "changed": False}
        await _change(use, path, before, after)
        done = "created" if before is None else "replaced"
        lines = after.count("\n") + (not after.endswith("\n") and bool(after))
        return f"{path} was {done}: {lines} lines.", {"path": path, "changed": True, "lines": lines}


async def edit_file(path: File, edits: Edits) -> tuple[str, dict[str, Any]]:
    """Replace pieces of text in a file, which has to be read with read_file first.

    Each old_text must occur exactly once, unless its replace_all is true. All edits are made, or none.
    """
    if not edits:
        raise ValueError("there is no edit in edits: name at least one, with old_text and new_text")
    async with tool_use("Edit", "edit", path) as use, _alone(use, path):
        files = use.prompt.turn.files
        if not await files.exists(path):
            raise await asyncio.to_thread(missing, place_of(path, use.prompt.session))
        before = await _known(use, path, "edit")
        # What does not fit is compared with all lines, which takes a moment.
        after = await asyncio.to_thread(edited, before, edits, path)
        use.works_in((path, after.lines[0]))
        await _change(use, path, before, after.text)
        outcome = {"path": path, "replaced": after.replaced, "lines": [*after.lines]}
        return f"{path} was changed in {_places(after.replaced, after.lines)}.", outcome


@asynccontextmanager
async def _alone(use: ToolUse, path: str) -> AsyncIterator[None]:
    """Models call tools side by side: two changes of one file are made one after the other."""
    key = asyncio.get_running_loop(), place_of(path, use.prompt.session).real
    lock = _changing.get(key)
    if lock is None:
        lock = _changing[key] = asyncio.Lock()
    async with lock:
        yield


async def _change(use: ToolUse, path: str, before: str | None, after: str) -> None:
    """Show the change, and make it if it is permitted and the file is still what was shown."""
    await _show_change(use, path, before, after)
    await use.ask()
    # What was typed while the user was asked may have been read meanwhile, by another call.
    if before is not None and await _known(use, path, "change") != before:
        raise _changed(path, "change")
    await use.prompt.turn.files.write(path, after)
    use.has_shown()


async def _known(use: ToolUse, path: str, verb: str) -> str:
    """The text as the model knows it, with what is not saved in the editor."""
    place = place_of(path, use.prompt.session)
    await asyncio.to_thread(size_of, place)
    if not use.knows(path):
        await asyncio.to_thread(check_can_be_known, place)
        raise FileChangedError(
            f"{path} was not read in this session: read it with read_file before you {verb} it"
        )
    try:
        return await use.prompt.turn.files.read_known(path)
    except FileChangedError:
        raise _changed(path, verb) from None


def _changed(path: str, verb: str) -> FileChangedError:
    return FileChangedError(
        f"{path} has changed since you read it: read it again with read_file before you {verb} it"
    )


async def _show_change(use: ToolUse, path: str, before: str | None, after: str) -> None:
    if len(before or "") + len(after) > LONGEST_DIFF:
        before, after = await asyncio.to_thread(_around_change, before or "", after)
    if len(before or "") + len(after) <= LONGEST_DIFF:
        await use.block.diff(path, before, after)
    else:
        await use.block.output(f"{path} changes in more than can be shown.")


def _around_change(before: str, after: str) -> tuple[str, str]:
    """The lines that are not the same in both, with a few around them."""
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    shorter = min(len(old), len(new))
    first = next((index for index in range(shorter) if old[index] != new[index]), shorter)
    left = shorter - first
    last = next((index for index in range(left) if old[-1 - index] != new[-1 - index]), left)
    start, end = max(0, first - AROUND), max(0, last - AROUND)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])


def _places(count: int, lines: tuple[int, ...]) -> str:
    shown = ", ".join(str(line) for line in lines[:10]) + (", …" if len(lines) > 10 else "")
    return f"{count} place{'s' if count > 1 else ''} (line{'s' if len(lines) > 1 else ''} {shown})"
