"""Texts that are too long for where they are shown or read: as one line, or without their end or middle."""

from __future__ import annotations

CUT = "\n[cut here: {left} more characters]"


def one_line(text: str, longest: int) -> str:
    """A text as one line of a list or a title, with nothing in it that does not print."""
    line = " ".join("".join(each if each.isprintable() else " " for each in text).split())
    return line if len(line) <= longest else f"{line[: longest - 1].rstrip()}…"


def cut(text: str, longest: int) -> str:
    """The beginning of a text that is too long, with a word on what is missing."""
    if len(text) <= longest:
        return text
    return f"{text[:longest]}{CUT.format(left=len(text) - longest)}"


def without_middle(text: str, longest: int) -> str:
    """The beginning and the end of a text that is too long."""
    if len(text) <= longest:
        return text
    head, tail = longest * 2 // 3, longest - longest * 2 // 3
    left = len(text) - head - tail
    return f"{text[:head]}\n[… {left} characters left out here …]\n{text[len(text) - tail :]}"
