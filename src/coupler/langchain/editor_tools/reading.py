"""The tool `read_file`: reads files as the editor has them, in parts, whatever their size.

Lines have numbers, which help a model to find its way and to name places; the tool that edits says so if they
are copied with the text. Why a file cannot be read as text is told in words that say what to do instead.
"""

from __future__ import annotations

import asyncio
import base64
import difflib
import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, NamedTuple

from coupler.agent.tool_call import LAST_LINE
from coupler.langchain.content import IMAGE_HEAD, LARGEST_IMAGE, image_type
from coupler.langchain.editor_tools.search_program import directory_entries, lines_of
from coupler.langchain.editor_tools.tool_use import (
    ToolContent,
    ToolUse,
    path_in_roots,
    permitted_use,
)
from coupler.langchain.presentation import TitleArguments
from coupler.runtime import files
from coupler.runtime.files import OutsideRootsError, SessionPath, UnsuitableFileError, decode_text

if TYPE_CHECKING:
    from coupler.agent.session import Session

FileArgument = Annotated[str, "The file, absolute or relative to the working directory."]

MOST_LINES = 2000
"""Lines that are read at once, unless fewer are asked for."""

LONGEST_LINE = 2000
"""Characters of a line that are shown."""

LONGEST_TEXT = 60_000
"""Most characters that a model gets at once."""

BLOCK_BYTES = 1024 * 1024
"""Bytes that are read at a time while lines are skipped."""

HEAD_BYTES = 8192
"""Bytes at the beginning of a file that decide whether it is text."""

MOST_NAMES = 3
MOST_ENTRIES = 5000
"""Most names that are suggested, and most entries of a directory that are considered."""

PDF = b"%PDF-"
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")
"""Beginnings of PDF files and images, which are no text even without a NUL byte."""

IMAGES = (*PICTURES, b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0")
ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"(\xb5/\xfd")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def reading_title(told: TitleArguments) -> str | None:
    """Return a title such as "Read app.py:10-40"."""
    path = told.path("path")
    if path is None:
        return None
    first, limit = told.number("offset") or 1, told.number("limit")
    if first <= 1 and limit is None:
        return f"Read {path}"
    return f"Read {path}:{first}" + (f"-{first + limit - 1}" if limit is not None and limit > 0 else "")


async def read_file(
    path: FileArgument,
    offset: Annotated[int, "The first line to read, counted from 1."] = 1,
    limit: Annotated[int, f"How many lines to read; at most {MOST_LINES}."] = MOST_LINES,
) -> tuple[ToolContent, dict[str, Any]]:
    """Read a text file, with unsaved changes of the editor. Each line begins with its number and a tab.

    Images (PNG, JPEG, GIF, WebP) are shown to you.

    Long files are read in parts: the end of the answer says at which line to go on. Files of any size can be
    read; to find the place in a large one, use search.
    """
    if not 1 <= offset <= LAST_LINE or limit < 1:
        raise ValueError("offset and limit are numbers from 1 on")
    limit = min(limit, MOST_LINES)
    async with permitted_use("Read", "read", path, offset if offset > 1 else None) as use:
        use.works_in((path, offset if offset > 1 else None))
        place = await asyncio.to_thread(use.found, path)
        if (image := await asyncio.to_thread(_image_in, place)) is not None:
            return [{"type": "text", "text": f"{path} is this image:"}, image], {"path": path}
        part, total, note = await _part(use, path, offset, limit)
        outcome = {"path": path, "first": part.first, "last": part.last, "lines": total}
        return f"{part.text}{_ending(part, total)}{note}".strip("\n"), outcome


async def _part(use: ToolUse, path: str, offset: int, limit: int) -> tuple[Excerpt, int | None, str]:
    """Return some lines, how many there are if that is known, and what else is to be said."""
    session = use.prompt.session
    place = await asyncio.to_thread(use.found, path)
    size = await asyncio.to_thread(size_of, place)
    if size is not None:
        if size > files.LARGEST_FILE or not _is_inside(place, session):
            turn = use.prompt.turn
            part = await turn.own(
                asyncio.to_thread(
                    _part_on_disk, place, offset, limit, lambda: turn.is_alive and not turn.is_cancelled
                )
            )
            return part, None if part.has_more else part.last, ""
        await asyncio.to_thread(_check_head, place, size)
    elif use.outside is not None:
        raise await asyncio.to_thread(missing_file, place)
    try:
        text, note = await use.prompt.turn.files.read(path), ""
    except FileNotFoundError:
        raise await asyncio.to_thread(missing_file, place) from None
    except UnsuitableFileError:
        text = await asyncio.to_thread(_lossy_text, place)
        note = "\n(The file is not UTF-8: what cannot be shown is �, and it cannot be edited with edit_file.)"
    lines = lines_of(text)
    if not lines:
        return Excerpt("(The file is empty.)", 1, 0, False), 0, note
    if offset > len(lines):
        raise ValueError(f"the file has only {len(lines)} lines")
    some = (shown_line(line, len(line)) for line in lines[offset - 1 : offset + limit])
    return excerpt(some, offset, limit), len(lines), note


def _image_in(place: SessionPath) -> dict[str, Any] | None:
    """Return the block of an image; None if the file is none. Raises if it is too large for a model."""
    if not size_of(place):
        return None
    with files.opened(place) as file:
        kind = image_type(file.read(IMAGE_HEAD))
        if kind is None:
            return None
        file.seek(0)
        content = file.read(LARGEST_IMAGE + 1)
    if len(content) > LARGEST_IMAGE:
        raise UnsuitableFileError(
            f"{place.shown!r} is an image of more than {LARGEST_IMAGE // 2**20} MiB: make a smaller one of it"
        )
    return {"type": "image", "base64": base64.b64encode(content).decode(), "mime_type": kind}


def _is_inside(place: SessionPath, session: Session) -> bool:
    try:
        return path_in_roots(place.real, session).real == place.real
    except OutsideRootsError:
        return False


def _part_on_disk(place: SessionPath, offset: int, limit: int, may_go_on: Callable[[], bool]) -> Excerpt:
    with files.opened(place) as file:
        head = file.read(HEAD_BYTES)
        check_is_text(head, size_of(place) or 0, place)
        if head.startswith(UTF_16):
            raise UnsuitableFileError(
                f"{place.shown!r} is large and in UTF-16: convert it with `iconv` first"
            )
        file.seek(0)
        return excerpt(lines_from(file, offset, may_go_on), offset, limit)


def _check_head(place: SessionPath, size: int) -> None:
    with files.opened(place) as file:
        check_is_text(file.read(HEAD_BYTES), size, place)


def _lossy_text(place: SessionPath) -> str:
    content = files.read(place)
    return content.decode("utf-16" if content.startswith(UTF_16) else "utf-8", "replace")


def _ending(part: Excerpt, total: int | None) -> str:
    if not part.has_more:
        return ""
    of = f" of {total}" if total is not None else ", and there are more"
    return f"\n… (lines {part.first} to {part.last}{of}: go on at offset {part.last + 1})"


class Excerpt(NamedTuple):
    """Some lines of a file."""

    text: str
    first: int
    last: int
    has_more: bool


def excerpt(lines: Iterable[str], first: int, limit: int) -> Excerpt:
    """Return so many lines, of which the first has this number, or fewer if they are long."""
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines, first):
        text = f"{number:>6}\t{line}"
        size += len(text) + 1
        if len(shown) == limit or (size > LONGEST_TEXT and shown):
            return Excerpt("\n".join(shown), first, number - 1, True)
        shown.append(text)
    return Excerpt("\n".join(shown), first, first + len(shown) - 1, False)


def shown_line(line: str, length: int, unit: str = "characters") -> str:
    """Return a line without its end, or the beginning of a long one."""
    if length <= LONGEST_LINE:
        return line.rstrip("\r\n")
    return f"{line[:LONGEST_LINE]}… (the line goes on: it has {length} {unit})"


def lines_from(stream: BinaryIO, first: int, may_go_on: Callable[[], bool]) -> Iterator[str]:
    """Yield the lines of a file of any size from one on; neither file nor line has to fit into memory.

    Bytes that are no UTF-8 are shown as replacement characters. Raises ValueError if there are fewer lines.
    `may_go_on` is asked now and then: nobody may wait for it any more.
    """
    before = _skip(stream, first - 1, may_go_on)
    if before < first - 1:
        raise ValueError(f"the file has only {before} lines")
    while start := stream.readline(4 * LONGEST_LINE):
        length = len(start) + _skip_rest_of(start, stream)
        text = start.decode("utf-8-sig" if first == 1 else "utf-8", "replace")
        first = 0
        yield shown_line(text, len(text) if length == len(start) else length, "bytes")


def _skip(stream: BinaryIO, lines: int, may_go_on: Callable[[], bool]) -> int:
    """Skip lines, and return how many there were."""
    left = lines
    has_part = False
    while left > 0:
        block = stream.read(BLOCK_BYTES)
        if not may_go_on():
            raise InterruptedError("the turn was cancelled")
        if not block:
            return lines - left + has_part
        found = block.count(b"\n")
        if found < left:
            left -= found
            has_part = not block.endswith(b"\n")
            continue
        place = 0
        for _ in range(left):
            place = block.index(b"\n", place) + 1
        stream.seek(place - len(block), 1)
        return lines
    return lines


def _skip_rest_of(start: bytes, stream: BinaryIO) -> int:
    length = 0
    piece = start
    while not piece.endswith(b"\n"):
        piece = stream.readline(BLOCK_BYTES)
        if not piece:
            break
        length += len(piece)
    return length


def missing_file(place: SessionPath, what: str = "file") -> FileNotFoundError:
    """Return the error for a missing file or directory, with the names that may be meant."""
    # Who may read one file elsewhere is not told what else there is.
    near = [*_near(place)] if place.root != os.sep else []
    advice = f": did you mean {' or '.join(near)}?" if near else ": find_files finds files by name"
    return FileNotFoundError(f"there is no {what} {place.shown!r}{advice}")


def check_is_text(head: bytes, size: int, place: SessionPath) -> None:
    """Raise if a file that begins so is no text."""
    is_binary = b"\0" in head or head.startswith((*PICTURES, PDF))
    if not is_binary or head.startswith(UTF_16):
        return
    kind, advice = _kind_and_advice(head)
    raise UnsuitableFileError(f"{place.shown!r} is {kind} of {size} bytes, and no text: {advice}")


def check_is_editable(place: SessionPath) -> None:
    """Raise if a file cannot be edited as text, so that reading it once more would not help."""
    size = size_of(place)
    if size is None:
        return
    content = files.read(place)
    check_is_text(content[:HEAD_BYTES], size, place)
    decode_text(content, place, "change it with a command, as `iconv` or `sed`")


def size_of(place: SessionPath) -> int | None:
    """Return the size of a file; None if there is none. Raises if what is there is no ordinary file."""
    try:
        found = Path(place.real).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{place.shown!r} is a directory: list_directory shows what is in it")
    return found.st_size


def _near(place: SessionPath) -> Iterator[str]:
    """Yield paths that look like the first missing part of this one."""
    parent = Path(place.root)
    for index, name in enumerate(place.below):
        if (parent / name).exists():
            parent /= name
            continue
        names = _names_in(parent)
        lowered = {each.lower(): each for each in names}
        for close in difflib.get_close_matches(name.lower(), lowered, MOST_NAMES, 0.6):
            yield str(Path(*place.below[:index], lowered[close]))
        return


def _names_in(directory: Path) -> list[str]:
    try:
        with directory_entries(str(directory)) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    except OSError:
        return []


def _kind_and_advice(head: bytes) -> tuple[str, str]:
    """Return what a file is that begins so, and what to do with it instead."""
    if head.startswith(IMAGES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP"):
        return "an image", "convert it to PNG with a command, and read that"
    if head.startswith(PDF):
        return "a PDF document", "run a command that extracts its text, as `pdftotext FILE -`"
    if head.startswith(ARCHIVES):
        return "an archive", "run a command that lists it, as `unzip -l`, `tar -t` or `zcat`"
    return "a binary file", "run a command that shows what you need of it, as `file`, `strings` or `xxd`"
