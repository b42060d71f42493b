"""Text as it is in files: UTF-8, whole, and counted in lines."""

from __future__ import annotations

import io
from itertools import islice

from coupler.files import disk
from coupler.files.boundary import FilePath
from coupler.files.errors import UnsuitableFileError


def decoded(content: bytes, place: FilePath, advice: str) -> str:
    """A file's bytes as text; `advice` says what to do with those that are none."""
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        byte = f"byte 0x{content[error.start]:02x} at position {error.start}"
        raise UnsuitableFileError(f"{place.shown!r} is not UTF-8 text ({byte}): {advice}") from None


def encoded(text: str, place: FilePath) -> bytes:
    """A file's new text as bytes, unless they are too many."""
    try:
        content = text.encode()
    except UnicodeEncodeError as error:
        message = f"the new text of {place.shown!r} has half a character at position {error.start}"
        raise UnsuitableFileError(f"{message} (U+{ord(text[error.start]):04X}): leave it out") from None
    disk.check_size(len(content), place)
    return content


def some_lines(text: str, first: int, limit: int | None) -> str:
    """Some lines of a text, counted from 1 on, with their ends as they are."""
    return "".join(islice(io.StringIO(text), first - 1, None if limit is None else first - 1 + limit))
