"""Why a file cannot be read as text, in words that say what to do instead."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from coupler.runtime import files
from coupler.runtime.files import FilePath, UnsuitableFileError, decoded

HEAD = 8192
"""Bytes at the beginning of a file by which text is told from other things."""

MOST_NAMES = 3
MOST_ENTRIES = 5000
"""Names that are suggested, and those of which they are chosen."""

PDF = b"%PDF-"
PICTURES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8")
"""How those files begin, and these, that are no text even if no NUL is in sight."""

IMAGES = (*PICTURES, b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0")
ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"(\xb5/\xfd")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def missing(place: FilePath, what: str = "file") -> FileNotFoundError:
    """There is no such file, or directory: with the names that may be meant."""
    near = [*_near(place)]
    advice = f": did you mean {' or '.join(near)}?" if near else ": find_files finds files by name"
    return FileNotFoundError(f"there is no {what} {place.shown!r}{advice}")


def check_is_text(head: bytes, size: int, place: FilePath) -> None:
    """Raise if a file that begins so is no text."""
    is_binary = b"\0" in head or head.startswith((*PICTURES, PDF))
    if not is_binary or head.startswith(UTF_16):
        return
    kind, advice = _kind_and_advice(head)
    raise UnsuitableFileError(f"{place.shown!r} is {kind} of {size} bytes, and no text: {advice}")


def check_can_be_known(place: FilePath) -> None:
    """Raise if a file is shown in part or in other letters: to read it once more would not help."""
    size = size_of(place)
    if size is None:
        return
    content = files.read(place)
    check_is_text(content[:HEAD], size, place)
    decoded(content, place, "change it with a command, as `iconv` or `sed`")


def size_of(place: FilePath) -> int | None:
    """How large a file is; None if there is none. Raises if what is there is no ordinary file."""
    try:
        found = Path(place.real).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(f"{place.shown!r} is a directory: list_directory shows what is in it")
    return found.st_size


def _near(place: FilePath) -> Iterator[str]:
    """Paths beside the first part of the way that is missing, which look like it."""
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
        with os.scandir(directory) as entries:
            return [entry.name for entry, _ in zip(entries, range(MOST_ENTRIES), strict=False)]
    except OSError:
        return []


def _kind_and_advice(head: bytes) -> tuple[str, str]:
    """What a file is that begins so, and what to do with it instead."""
    if head.startswith(IMAGES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP"):
        return "an image", "ask the user to attach it to a prompt, or look at it with a command, as `file`"
    if head.startswith(PDF):
        return "a PDF document", "run a command that extracts its text, as `pdftotext FILE -`"
    if head.startswith(ARCHIVES):
        return "an archive", "run a command that lists it, as `unzip -l`, `tar -t` or `zcat`"
    return "a binary file", "run a command that shows what you need of it, as `file`, `strings` or `xxd`"
