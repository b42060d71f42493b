"""The tool that reads files: as the editor has them, in parts, whatever their size."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any

from coupler.agent.tool_call import LAST_LINE
from coupler.bridges.langchain.editor.excerpt import MOST_LINES, Excerpt, cut, excerpt, lines_from
from coupler.bridges.langchain.editor.finding.lines import lines_of
from coupler.bridges.langchain.editor.tool_use import ToolUse, permitted_use, place_of, readable_place
from coupler.bridges.langchain.editor.unreadable import HEAD, UTF_16, check_is_text, missing, size_of
from coupler.bridges.langchain.tool_calls.own_title import Told
from coupler.runtime import files
from coupler.runtime.files import FilePath, OutsideRootsError, UnsuitableFileError

if TYPE_CHECKING:
    from coupler.agent.session import Session

File = Annotated[str, "The file, absolute or relative to the working directory."]


def reading_title(told: Told) -> str | None:
    """As "Read app.py:10-40"."""
    path = told.path("path")
    if path is None:
        return None
    first, limit = told.number("offset") or 1, told.number("limit")
    if first <= 1 and limit is None:
        return f"Read {path}"
    return f"Read {path}:{first}" + (f"-{first + limit - 1}" if limit is not None and limit > 0 else "")


async def read_file(
    path: File,
    offset: Annotated[int, "The first line to read, counted from 1."] = 1,
    limit: Annotated[int, f"How many lines to read; at most {MOST_LINES}."] = MOST_LINES,
) -> tuple[str, dict[str, Any]]:
    """Read a text file, with unsaved changes of the editor. Each line begins with its number and a tab.

    Long files are read in parts: the end of the answer says at which line to go on. Files of any size can be
    read; to find the place in a large one, use search.
    """
    if not 1 <= offset <= LAST_LINE or limit < 1:
        raise ValueError("offset and limit are numbers from 1 on")
    limit = min(limit, MOST_LINES)
    async with permitted_use("Read", "read", path, offset if offset > 1 else None) as use:
        use.works_in((path, offset if offset > 1 else None))
        part, total, note = await _part(use, path, offset, limit)
        outcome = {"path": path, "first": part.first, "last": part.last, "lines": total}
        return f"{part.text}{_ending(part, total)}{note}".strip("\n"), outcome


async def _part(use: ToolUse, path: str, offset: int, limit: int) -> tuple[Excerpt, int | None, str]:
    """Some lines, how many there are if that is known, and what else is to be said."""
    session = use.prompt.session
    place = await asyncio.to_thread(readable_place, path, session)
    size = await asyncio.to_thread(size_of, place)
    if size is not None:
        if size > files.LARGEST or not _is_inside(place, session):
            turn = use.prompt.turn
            part = await turn.own(
                asyncio.to_thread(
                    _part_on_disk, place, offset, limit, lambda: turn.is_alive and not turn.is_cancelled
                )
            )
            return part, None if part.has_more else part.last, ""
        await asyncio.to_thread(_check_head, place, size)
    try:
        text, note = await use.prompt.turn.files.read(path), ""
    except FileNotFoundError:
        raise await asyncio.to_thread(missing, place) from None
    except UnsuitableFileError:
        text = await asyncio.to_thread(_lossy_text, place)
        note = "\n(The file is not UTF-8: what cannot be shown is �, and it cannot be edited with edit_file.)"
    lines = lines_of(text)
    if not lines:
        return Excerpt("(The file is empty.)", 1, 0, False), 0, note
    if offset > len(lines):
        raise ValueError(f"the file has only {len(lines)} lines")
    some = (cut(line, len(line)) for line in lines[offset - 1 : offset + limit])
    return excerpt(some, offset, limit), len(lines), note


def _is_inside(place: FilePath, session: Session) -> bool:
    try:
        return place_of(place.real, session).real == place.real
    except OutsideRootsError:
        return False


def _part_on_disk(place: FilePath, offset: int, limit: int, may_go_on: Callable[[], bool]) -> Excerpt:
    with files.opened(place) as file:
        head = file.read(HEAD)
        check_is_text(head, size_of(place) or 0, place)
        if head.startswith(UTF_16):
            raise UnsuitableFileError(
                f"{place.shown!r} is large and in UTF-16: convert it with `iconv` first"
            )
        file.seek(0)
        return excerpt(lines_from(file, offset, may_go_on), offset, limit)


def _check_head(place: FilePath, size: int) -> None:
    with files.opened(place) as file:
        check_is_text(file.read(HEAD), size, place)


def _lossy_text(place: FilePath) -> str:
    content = files.read(place)
    return content.decode("utf-16" if content.startswith(UTF_16) else "utf-8", "replace")


def _ending(part: Excerpt, total: int | None) -> str:
    if not part.has_more:
        return ""
    of = f" of {total}" if total is not None else ", and there are more"
    return f"\n… (lines {part.first} to {part.last}{of}: go on at offset {part.last + 1})"
