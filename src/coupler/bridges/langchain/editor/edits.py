"""Edits of a text: each replaces what is exactly there, all of them or none.

Models write line feeds whatever a file has: an edit takes over the file's own line ends, its mark at the
beginning, and that it has no line end at its end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, Field

from coupler.bridges.langchain.editor.mismatch import mismatch

MARK = "\ufeff"
"""What some programs put at the beginning of UTF-8."""

MOST_SHOWN = 10
"""Lines that are named in a message."""


class Edit(BaseModel):
    """One replacement."""

    old_text: str = Field(
        description="The exact text to replace, with its indentation and enough lines to be unique,"
        " without the line numbers of read_file."
    )
    new_text: str = Field(description="What to put in its place.")
    replace_all: bool = Field(False, description="Replace every occurrence, not just a unique one.")


class Edited(NamedTuple):
    """A text after its edits."""

    text: str
    lines: tuple[int, ...]
    """Where it was changed, in the order of the lines."""
    replaced: int
    """How many places were replaced."""


def edited(text: str, edits: Sequence[Edit], path: str) -> Edited:
    """The text with all edits, one after the other; raises ValueError that says which one does not fit."""
    places: list[int] = []
    count = 0
    for number, edit in enumerate(edits, 1):
        try:
            old, new = _in_style_of(text, edit.old_text, edit.new_text)
            found = _places(text, old, edit.replace_all, path)
        except ValueError as error:
            raise ValueError(_of_edit(number, edits, error)) from None
        for place in reversed(found):
            text = f"{text[:place]}{new}{text[place + len(old) :]}"
            places = [each + (len(new) - len(old) if each > place else 0) for each in places]
            places.append(place)
        count += len(found)
    return Edited(text, tuple(sorted({text.count("\n", 0, place) + 1 for place in places})), count)


def in_style(text: str, before: str) -> str:
    """A whole new text with the line ends and the mark of the one that it replaces."""
    if _has_only_crlf(before):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    if before.startswith(MARK):
        text = MARK + text.removeprefix(MARK)
    return text


def _in_style_of(text: str, old: str, new: str) -> tuple[str, str]:
    if not old:
        raise ValueError("old_text is empty: to create a file, use write_file")
    if old == new:
        raise ValueError("old_text and new_text are the same: there is nothing to change")
    if _has_only_crlf(text) or (old not in text and "\r\n" in text):
        old, new = (piece.replace("\r\n", "\n").replace("\n", "\r\n") for piece in (old, new))
    elif "\r\n" not in text:
        old, new = old.replace("\r\n", "\n"), new.replace("\r\n", "\n")
    end = "\r\n" if old.endswith("\r\n") else "\n"
    if old not in text and old.endswith(end) and old != end and text.endswith(old.removesuffix(end)):
        # The last line of a file that does not end with a line end.
        return old.removesuffix(end), new.removesuffix(end)
    return old, new


def _places(text: str, old: str, everywhere: bool, path: str) -> list[int]:
    found: list[int] = []
    place = text.find(old)
    while place >= 0:
        found.append(place)
        place = text.find(old, place + len(old))
    if not found:
        raise ValueError(f"old_text is not in {path}: {mismatch(text, old)}")
    if len(found) > 1 and not everywhere:
        lines = [str(text.count("\n", 0, each) + 1) for each in found[:MOST_SHOWN]]
        where = f"lines {', '.join(lines)}{', …' if len(found) > MOST_SHOWN else ''}"
        message = f"old_text is in {path} {len(found)} times ({where}): "
        raise ValueError(f"{message}give more lines around the one that you mean, or set replace_all")
    return found


def _of_edit(number: int, edits: Sequence[Edit], error: ValueError) -> str:
    if len(edits) == 1:
        return str(error)
    after = ", after the edits before it" if number > 1 else ""
    return f"edit {number} of {len(edits)}{after}: {error}. Nothing was changed"


def _has_only_crlf(text: str) -> bool:
    return "\r\n" in text and text.count("\n") == text.count("\r\n")
