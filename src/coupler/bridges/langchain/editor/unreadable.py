"""Why a file cannot be read as text, in words that say what to do instead."""

from __future__ import annotations

import difflib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from coupler.files.boundary import FilePath
from coupler.files.errors import UnsuitableFileError

HEAD = 8192
"""Bytes at the beginning of a file by which text is told from other things."""

MOST_NAMES = 3
MOST_ENTRIES = 5000
"""Names that are suggested, and those of which they are chosen."""

IMAGES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF8", b"BM", b"II*\0", b"MM\0*", b"\0\0\1\0")
ARCHIVES = (b"PK\x03\x04", b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"(\xb5/\xfd")
UTF_16 = (b"\xff\xfe", b"\xfe\xff")


def missing(place: FilePath) -> FileNotFoundError:
    """There is no such file: with the names that may be meant."""
    near = [*_near(place)]
    advice = f": did you mean {' or '.join(near)}?" if near else ": find_files finds files by name"
    return FileNotFoundError(f"there is no file {place.shown!r}{advice}")


def is_directory(place: FilePath) -> IsADirectoryError:
    """It is a directory."""
    return IsADirectoryError(f"{place.shown!r} is a directory: list_directory shows what is in it")


def check_is_text(head: bytes, size: int, place: FilePath) -> None:
    """Raise if a file that begins so is no text."""
    if b"\0" not in head and not head.startswith((*IMAGES[:3], b"%PDF-")):
        return
    if not head.startswith(UTF_16):
        raise UnsuitableFileError(
            f"{place.shown!r} is {_kind(head)} of {size} bytes, and no text: {_advice(head)}"
        )


def size_of(place: FilePath) -> int | None:
    """How large a file is; None if there is none. Raises if what is there is no ordinary file."""
    try:
        found = Path(place.real).lstat()
    except (FileNotFoundError, NotADirectoryError):
        return None
    if stat.S_ISDIR(found.st_mode):
        raise is_directory(place)
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


def _is_image(head: bytes) -> bool:
    return head.startswith(IMAGES) or (head.startswith(b"RIFF") and head[8:12] == b"WEBP")


def _kind(head: bytes) -> str:
    if _is_image(head):
        return "an image"
    if head.startswith(b"%PDF-"):
        return "a PDF document"
    if head.startswith(ARCHIVES):
        return "an archive"
    return "a binary file"


def _advice(head: bytes) -> str:
    if _is_image(head):
        return "ask the user to attach it to a prompt, or look at it with a command, as `file`"
    if head.startswith(b"%PDF-"):
        return "run a command that extracts its text, as `pdftotext FILE -`"
    if head.startswith(ARCHIVES):
        return "run a command that lists it, as `unzip -l`, `tar -t` or `zcat`"
    return "run a command that shows what you need of it, as `file`, `strings` or `xxd`"
