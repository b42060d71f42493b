"""A part of a file as a model reads it: lines with their numbers, no more and no longer ones than it can use.

Numbers help a model to find its way and to name places; the tool that edits says so if they are copied with
the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, NamedTuple

MOST_LINES = 2000
"""Lines that are read at once, unless fewer are asked for."""

LONGEST_LINE = 2000
"""Characters of a line that are shown."""

LONGEST_TEXT = 60_000
"""Characters that a model gets at once."""

BLOCK = 1024 * 1024
"""Bytes that are looked at together."""


class Excerpt(NamedTuple):
    """Some lines of a file."""

    text: str
    first: int
    last: int
    has_more: bool


def excerpt(lines: Iterable[str], first: int, limit: int) -> Excerpt:
    """So many lines, of which the first has this number, or fewer if they are long."""
    shown: list[str] = []
    size = 0
    for number, line in enumerate(lines, first):
        text = f"{number:>6}\t{line}"
        size += len(text) + 1
        if len(shown) == limit or (size > LONGEST_TEXT and shown):
            return Excerpt("\n".join(shown), first, number - 1, True)
        shown.append(text)
    return Excerpt("\n".join(shown), first, first + len(shown) - 1, False)


def cut(line: str, length: int, unit: str = "characters") -> str:
    """A line without its end, or the beginning of a long one."""
    if length <= LONGEST_LINE:
        return line.rstrip("\r\n")
    return f"{line[:LONGEST_LINE]}… (the line goes on: it has {length} {unit})"


def lines_from(stream: BinaryIO, first: int, may_go_on: Callable[[], bool]) -> Iterator[str]:
    """The lines of a file of any size from one on; neither the file nor a line has to fit into memory.

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
        yield cut(text, len(text) if length == len(start) else length, "bytes")


def _skip(stream: BinaryIO, lines: int, may_go_on: Callable[[], bool]) -> int:
    """Go to the beginning of a line; how many lines there are before it."""
    left = lines
    has_part = False
    while left > 0:
        block = stream.read(BLOCK)
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
        piece = stream.readline(BLOCK)
        if not piece:
            break
        length += len(piece)
    return length
