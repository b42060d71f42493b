"""Lines that a regular expression fits, with those around them."""

# A Path for each of very many files would take longer than to look at them.

from __future__ import annotations

import io
import os
import re
from collections import deque
from collections.abc import Iterable, Iterator

Hit = tuple[str, int, str, bool]
"""A file, the number of a line, its text, and whether it fits or only stands near one that does."""

LARGEST = 2_000_000
"""Bytes of a file that is searched, unless it was named itself."""

LONGEST_LINE = 300
"""Characters of a line that are shown."""

BEFORE = 100
"""Characters that are shown before the place that fits, in a line that is longer than that."""

LONGEST_READ = 1_000_000
"""Characters of a line that are looked at."""

WIDE = (b"\xff\xfe", b"\xfe\xff")
"""How files in UTF-16 begin."""


def hits_in(path: str, lines: Iterable[str], expression: re.Pattern[str], context: int) -> Iterator[Hit]:
    """The lines of a file that fit, and so many around each."""
    before: deque[Hit] = deque(maxlen=context)
    left = 0
    for number, line in enumerate(lines, 1):
        fits = expression.search(line)
        if fits is not None:
            yield from before
            before.clear()
            left = context
            yield path, number, shortened(line, fits.start()), True
        elif left > 0:
            left -= 1
            yield path, number, shortened(line, 0), False
        elif context:
            before.append((path, number, shortened(line, 0), False))


def shortened(line: str, place: int) -> str:
    """A line, or what is around a place in it."""
    line = line.replace("\0", "\ufffd")
    if len(line) <= LONGEST_LINE:
        return line
    start = max(0, min(place - BEFORE, len(line) - LONGEST_LINE))
    end = start + LONGEST_LINE
    return f"{'…' if start else ''}{line[start:end]}{'…' if end < len(line) else ''}"


def lines_of(text: str) -> list[str]:
    """The lines of a text, without their ends."""
    lines = text.removeprefix("\ufeff").split("\n")
    if not lines[-1]:
        lines.pop()
    return [line.removesuffix("\r") for line in lines]


def lines_in(path: str) -> list[str]:
    """The lines of a file; none of one that is too large, no text, or gone."""
    try:
        if os.stat(path, follow_symlinks=False).st_size > LARGEST:
            return []
        with open(path, "rb") as file:
            content = file.read(LARGEST + 1)
    except OSError:
        return []
    if content[:2] in WIDE:
        return lines_of(content.decode("utf-16", "replace"))
    return [] if b"\0" in content else lines_of(content.decode("utf-8", "replace"))


def lines_of_any(path: str) -> Iterator[str]:
    """The lines of a file that was named itself, text or not; it need not fit in memory, nor its lines."""
    with open(path, "rb") as file:
        is_wide = file.read(2) in WIDE
        file.seek(0)
        encoding = "utf-16" if is_wide else "utf-8-sig"
        text = io.TextIOWrapper(file, encoding, "replace", newline="\n")
        while line := text.readline(LONGEST_READ):
            rest = line
            while not rest.endswith("\n") and (rest := text.readline(LONGEST_READ)):
                pass
            yield line.removesuffix("\n").removesuffix("\r")
