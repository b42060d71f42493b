"""The tools `write_file` and `edit_file`: changes are shown, then asked about, then made whole or not at all.

Models write line feeds whatever a file has: an edit takes over the file's own line ends, its mark at the
beginning, and that it has no line end at its end.
"""

from __future__ import annotations

import asyncio
import difflib
import json
import re
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from itertools import zip_longest
from typing import Annotated, Any, NamedTuple
from weakref import WeakValueDictionary

from pydantic import BaseModel, BeforeValidator, Field

from coupler.agent.files import LONGEST_DIFF
from coupler.langchain.editor_tools.reading import FileArgument, check_is_editable, missing_file, size_of
from coupler.langchain.editor_tools.tool_use import ToolUse, path_in_roots, tool_use
from coupler.runtime.files import FileChangedError

CONTEXT_LINES = 3
"""Lines that are shown around a change in a file that is too long to be shown whole."""

MOST_SHOWN = 10
"""Lines that are named in a message."""

LONGEST_SHOWN = 160
"""Characters of a line that is shown."""

MOST_COMPARED = 5000
"""Most lines that are compared by similarity, which takes time."""

BYTE_ORDER_MARK = "\ufeff"
"""The mark that some programs put at the beginning of UTF-8."""

LINE_NUMBER = re.compile(r"^ *\d+\t", re.MULTILINE)
"""Matches the line number that `read_file` puts before a line."""

MOST_FOLDED = 1_000_000
"""Characters of a file in which look-alikes are looked for, which takes time."""

LONGEST_OFFERED = 2000
"""Characters of an exact text that a model is offered."""

LOOK_ALIKES = {
    **dict.fromkeys("\u2018\u2019\u201a\u201b\u2032\u00b4`", "'"),
    **dict.fromkeys("\u201c\u201d\u201e\u201f\u2033\u00ab\u00bb", '"'),
    **dict.fromkeys("\u2010\u2011\u2012\u2013\u2014\u2015\u2212", "-"),
    **dict.fromkeys("\t\u00a0\u1680\u202f\u205f\u3000", " "),
    **dict.fromkeys(map(chr, range(0x2000, 0x200B)), " "),
    **dict.fromkeys("\r\u00ad\u200b\u200c\u200d\u2060\ufeff", ""),
}
"""Signs that models write in the place of others: quotes, dashes, blanks, and some that cannot be seen."""

BLANK_NAMES = {" ": "a space", "\t": "a tab", "\n": "the end of the line", "\u00a0": "a no-break space"}

HIDDEN = frozenset({"Zs", "Mn", "Cf"})
"""Categories of Unicode: blanks, combining marks, and signs that cannot be seen."""

NOTHING_NEAR = "read the file, and copy the text exactly"

_changing: WeakValueDictionary[tuple[asyncio.AbstractEventLoop, str], asyncio.Lock] = WeakValueDictionary()


def _as_list(edits: Any) -> Any:
    """Return a list of edits: some models write one edit without its list, or the list as text."""
    if isinstance(edits, str):
        try:
            edits = json.loads(edits)
        except ValueError:
            return edits
    return [edits] if isinstance(edits, dict) else edits


class Edit(BaseModel):
    """One replacement."""

    old_text: str = Field(
        description="The exact text to replace, with its indentation and enough lines to be unique,"
        " without the line numbers of read_file."
    )
    new_text: str = Field(description="What to put in its place.")
    replace_all: bool = Field(False, description="Replace every occurrence, not just a unique one.")


Edits = Annotated[
    list[Edit], BeforeValidator(_as_list), "The replacements, made one after the other: all of them, or none."
]


async def write_file(
    path: FileArgument, content: Annotated[str, "The whole new text of the file."]
) -> tuple[str, dict[str, Any]]:
    """Create a file, or replace all of its text. Missing directories are made.

    An existing file has to be read with read_file first. To change a part of it, use edit_file.
    """
    async with tool_use("Write", "edit", path) as use, file_alone(use, path):
        files = use.prompt.turn.files
        await asyncio.to_thread(size_of, path_in_roots(path, use.prompt.session))
        before = await _known(use, path, "replace") if await files.exists(path) else None
        after = content if before is None else with_line_ends_of(content, before)
        if before == after:
            return f"{path} has this text already.", {"path": path, "changed": False}
        await change_file(use, path, before, after)
        done = "created" if before is None else "replaced"
        lines = after.count("\n") + (not after.endswith("\n") and bool(after))
        return f"{path} was {done}: {lines} lines.", {"path": path, "changed": True, "lines": lines}


async def edit_file(path: FileArgument, edits: Edits) -> tuple[str, dict[str, Any]]:
    """Replace pieces of text in a file, which has to be read with read_file first.

    Each old_text must occur exactly once, unless its replace_all is true. All edits are made, or none.
    """
    if not edits:
        raise ValueError("there is no edit in edits: name at least one, with old_text and new_text")
    async with tool_use("Edit", "edit", path) as use, file_alone(use, path):
        files = use.prompt.turn.files
        if not await files.exists(path):
            raise await asyncio.to_thread(missing_file, path_in_roots(path, use.prompt.session))
        before = await _known(use, path, "edit")
        # What does not fit is compared with all lines, which takes a moment.
        after = await asyncio.to_thread(edited, before, edits, path)
        use.works_in((path, after.lines[0]))
        await change_file(use, path, before, after.text)
        outcome = {"path": path, "replaced": after.replaced, "lines": [*after.lines]}
        return f"{path} was changed in {_places_in_words(after.replaced, after.lines)}.", outcome


@asynccontextmanager
async def file_alone(use: ToolUse, path: str) -> AsyncIterator[None]:
    """Lock a file, so that changes by concurrent tool calls are made one after the other."""
    key = asyncio.get_running_loop(), path_in_roots(path, use.prompt.session).real
    lock = _changing.get(key)
    if lock is None:
        lock = _changing[key] = asyncio.Lock()
    async with lock:
        yield


async def change_file(use: ToolUse, path: str, before: str | None, after: str) -> None:
    """Show the change, and make it if it is permitted and the file is still what was shown."""
    await _show_change(use, path, before, after)
    await use.ask()
    # What was typed while the user was asked may have been read meanwhile, by another call.
    if before is not None and await _known(use, path, "change") != before:
        raise _changed(path, "change")
    await use.prompt.turn.files.write(path, after)
    use.has_shown()


async def _known(use: ToolUse, path: str, verb: str) -> str:
    """Return the text as the model has read it, with unsaved changes; raises if the model has not read it."""
    place = path_in_roots(path, use.prompt.session)
    await asyncio.to_thread(size_of, place)
    if not use.knows(path):
        await asyncio.to_thread(check_is_editable, place)
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
    start, end = max(0, first - CONTEXT_LINES), max(0, last - CONTEXT_LINES)
    return "".join(old[start : len(old) - end]), "".join(new[start : len(new) - end])


def _places_in_words(count: int, lines: tuple[int, ...]) -> str:
    shown = ", ".join(str(line) for line in lines[:10]) + (", …" if len(lines) > 10 else "")
    return f"{count} place{'s' if count > 1 else ''} (line{'s' if len(lines) > 1 else ''} {shown})"


class EditedText(NamedTuple):
    """A text after its edits."""

    text: str
    lines: tuple[int, ...]
    """Numbers of the changed lines, in order."""
    replaced: int
    """Number of places that were replaced."""


def edited(text: str, edits: Sequence[Edit], path: str) -> EditedText:
    """Return the text with all edits, one after the other; raises ValueError if one does not fit."""
    places: list[int] = []
    count = 0
    for number, edit in enumerate(edits, 1):
        try:
            old, new = _with_line_ends(text, edit.old_text, edit.new_text)
            found = _places_of(text, old, edit.replace_all, path)
        except ValueError as error:
            raise ValueError(_of_edit(number, edits, error)) from None
        for place in reversed(found):
            text = f"{text[:place]}{new}{text[place + len(old) :]}"
            places = [each + (len(new) - len(old) if each > place else 0) for each in places]
            places.append(place)
        count += len(found)
    return EditedText(text, tuple(sorted({text.count("\n", 0, place) + 1 for place in places})), count)


def with_line_ends_of(text: str, before: str) -> str:
    """Return a new text with the line ends and the mark of the one that it replaces."""
    if _has_only_crlf(before):
        text = text.replace("\r\n", "\n").replace("\n", "\r\n")
    if before.startswith(BYTE_ORDER_MARK):
        text = BYTE_ORDER_MARK + text.removeprefix(BYTE_ORDER_MARK)
    return text


def _with_line_ends(text: str, old: str, new: str) -> tuple[str, str]:
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


def _places_of(text: str, old: str, everywhere: bool, path: str) -> list[int]:
    found: list[int] = []
    place = text.find(old)
    while place >= 0:
        found.append(place)
        place = text.find(old, place + len(old))
    if not found:
        raise ValueError(f"old_text is not in {path}: {explain_mismatch(text, old)}")
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


def explain_mismatch(text: str, wanted: str) -> str:
    """Return what to do about a text in which `wanted` does not occur: what was probably meant, and where."""
    if LINE_NUMBER.match(wanted) and LINE_NUMBER.sub("", wanted).strip("\n") in text:
        return "it begins its lines with the numbers that read_file shows: leave those out"
    if (near := _near_miss(text, wanted)) is not None:
        return near
    lines, old = text.split("\n"), wanted.strip("\n").split("\n")
    place, alike = _longest_alike(lines, old)
    if alike == len(old):
        return _different_spaces(lines, old, place)
    if alike > 0:
        return _different_later(lines, old, place, alike)
    return _nearest(lines, old)


def _near_miss(text: str, wanted: str) -> str | None:
    """Name the first sign that differs, if only look-alikes and blanks do, and offer the exact text.

    It is not replaced without being asked for: which of the two is meant, nobody but the model knows.
    """
    if len(text) > MOST_FOLDED:
        return None
    (folded, origins), (sought, _) = _folded(text), _folded(wanted)
    place = folded.find(sought) if sought.strip() else -1
    if place < 0:
        return None
    start, end = origins[place], origins[place + len(sought)]
    there, wanted = text[start:end].replace("\r\n", "\n").rstrip("\r"), wanted.replace("\r\n", "\n")
    if there == wanted:
        return None
    signs = enumerate(zip_longest(there, wanted, fillvalue=""))
    at, (has, wrote) = next((at, pair) for at, pair in signs if pair[0] != pair[1])
    line = text.count("\n", 0, start) + there.count("\n", 0, at) + 1
    if has and wrote and _folded(has)[0] == _folded(wrote)[0]:
        what = f"line {line} has {_named(has)} where you wrote {_named(wrote)}"
    elif unicodedata.normalize("NFC", there) == unicodedata.normalize("NFC", wanted):
        what = f"line {line} has letters and their marks as other signs of Unicode than you (NFC, NFD)"
    else:
        what = f"from line {line} on it differs only in spaces, tabs or signs that cannot be seen"
    more = ", and so have other places" if folded.find(sought, place + 1) >= 0 else ""
    if len(there) > LONGEST_OFFERED:
        return f"{what}{more}: read those lines again, and copy them exactly"
    return f"{what}{more}. If you mean that place, the exact old_text is, as JSON, {_as_visible_json(there)}"


def _folded(text: str) -> tuple[str, list[int]]:
    """Return a text with look-alikes as one sign and blanks as one, and where each sign comes from."""
    signs: list[str] = []
    origins: list[int] = []
    for index, each in enumerate(text):
        for sign in each if each.isascii() else unicodedata.normalize("NFD", each):
            sign = LOOK_ALIKES.get(sign, sign)
            if sign == "\n":
                while signs and signs[-1] == " ":
                    signs.pop()
                    origins.pop()
            if sign and not (sign == " " and signs and signs[-1] == " "):
                signs.append(sign)
                origins.append(index)
    return "".join(signs), [*origins, len(text)]


def _named(sign: str) -> str:
    return BLANK_NAMES.get(sign) or f"{sign} ({unicodedata.name(sign, f'U+{ord(sign):04X}').lower()})"


def _as_visible_json(text: str) -> str:
    """Return the text as JSON, with an escape for each sign that cannot be told from another by its look."""
    return "".join(
        f"\\u{ord(each):04x}" if unicodedata.category(each) in HIDDEN and each != " " else each
        for each in json.dumps(text, ensure_ascii=False)
    )


def _longest_alike(lines: list[str], old: list[str]) -> tuple[int, int]:
    """Return where most of the lines, from the first on, are the same but for spaces; and how many."""
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
