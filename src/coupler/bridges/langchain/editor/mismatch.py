"""Why a text that a model wants to replace is not in a file: what it probably meant, and where."""

from __future__ import annotations

import difflib
import re

LONGEST_SHOWN = 160
"""Characters of a line that is shown."""

MOST_COMPARED = 5000
"""Lines that are compared by how much they are alike, which takes time."""

NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
"""What the tool that reads puts before a line."""

NOTHING_NEAR = "read the file, and copy the text exactly"


def mismatch(text: str, wanted: str) -> str:
    """What to do, for a text in which `wanted` does not occur."""
    if NUMBER.match(wanted) and NUMBER.sub("", wanted).strip("\n") in text:
        return "it begins its lines with the numbers that read_file shows: leave those out"
    lines, old = text.split("\n"), wanted.strip("\n").split("\n")
    place, alike = _longest_alike(lines, old)
    if alike == len(old):
        return _different_spaces(lines, old, place)
    if alike > 0:
        return _different_later(lines, old, place, alike)
    return _nearest(lines, old)


def _longest_alike(lines: list[str], old: list[str]) -> tuple[int, int]:
    """Where most of the lines, from the first on, are the same but for spaces; and how many."""
    plain, wanted = [_plain(line) for line in lines], [_plain(line) for line in old]
    best = (0, 0)
    for place, line in enumerate(plain):
        if line != wanted[0] or not line:
            continue
        alike = 1
        while alike < len(wanted) and plain[place + alike : place + alike + 1] == [wanted[alike]]:
            alike += 1
        if alike > best[1]:
            best = (place, alike)
    return best


def _different_spaces(lines: list[str], old: list[str], place: int) -> str:
    for number, wanted in enumerate(old):
        there = lines[place + number]
        if there.rstrip("\r") != wanted.rstrip("\r"):
            return (
                f"from line {place + 1} on it differs only in spaces, tabs or indentation. "
                f"Line {place + number + 1} is {_shown(there)}, and not {_shown(wanted)}"
            )
    return f"from line {place + 1} on it differs only in empty lines or line ends: {NOTHING_NEAR}"


def _different_later(lines: list[str], old: list[str], place: int, alike: int) -> str:
    there = lines[place + alike] if place + alike < len(lines) else None
    what = f"line {place + alike + 1} is {_shown(there)}" if there is not None else "the file ends"
    return (
        f"it begins like line {place + 1}, but then {what}, and not {_shown(old[alike])}: "
        "copy the text exactly"
    )


def _nearest(lines: list[str], old: list[str]) -> str:
    longest = max(old, key=len)
    close = difflib.get_close_matches(longest, lines[:MOST_COMPARED], 1, 0.7)
    if not close:
        return NOTHING_NEAR
    return f"the nearest is line {lines.index(close[0]) + 1}, {_shown(close[0])}: copy the text exactly"


def _plain(line: str) -> str:
    return " ".join(line.split())


def _shown(line: str) -> str:
    line = line.rstrip("\r")
    return repr(line if len(line) <= LONGEST_SHOWN else f"{line[:LONGEST_SHOWN]}…")
