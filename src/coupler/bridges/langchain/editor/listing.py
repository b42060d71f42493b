"""The tool that shows what is in a directory."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from coupler.bridges.langchain.editor.tool_use import permitted_use, readable_place
from coupler.bridges.langchain.editor.unreadable import missing
from coupler.bridges.langchain.editor.unsaved import unsaved_texts
from coupler.bridges.langchain.tool_calls.own_title import Told
from coupler.runtime.files import FilePath

MOST_ENTRIES = 500
"""Entries that are shown."""


class Entry(NamedTuple):
    """Something in a directory."""

    name: str
    is_directory: bool
    about: str = ""

    @property
    def line(self) -> str:
        """The entry as it is shown."""
        return f"{self.name}{'/' if self.is_directory else ''}{self.about}"


def listing_title(told: Told) -> str | None:
    """As "List src"."""
    return f"List {told.path('path') or '.'}"


async def list_directory(
    path: Annotated[str, "The directory, absolute or relative to the working directory."] = ".",
) -> tuple[str, dict[str, Any]]:
    """List what is in a directory, hidden files too: directories first, with a `/` at their end, then files.

    To find files in the directories below, use find_files.
    """
    async with permitted_use("List", "read", path) as use:
        place = readable_place(path, use.prompt.session)
        entries = await asyncio.to_thread(_entries, place)
        known = {entry.name for entry in entries}
        for real in await unsaved_texts(use.prompt.turn, place.real):
            parent, name = os.path.split(real)
            if parent == place.real and name not in known:
                entries.append(Entry(name, False, " (not saved)"))
        entries.sort(key=lambda entry: (not entry.is_directory, entry.name))
        lines = [entry.line for entry in entries[:MOST_ENTRIES]]
        if len(entries) > MOST_ENTRIES:
            lines.append(f"… ({len(entries) - MOST_ENTRIES} more: use find_files with a glob)")
        return "\n".join(lines) or "(The directory is empty.)", {"path": path, "entries": len(entries)}


def _entries(place: FilePath) -> list[Entry]:
    try:
        with os.scandir(place.real) as found:
            return [_entry(each) for each in found if each.name.isprintable()]
    except FileNotFoundError:
        raise missing(place, "directory") from None
    except NotADirectoryError:
        raise NotADirectoryError(f"{place.shown!r} is a file: read it with read_file") from None


def _entry(found: os.DirEntry[str]) -> Entry:
    if found.is_symlink():
        return Entry(found.name, False, f" -> {Path(found.path).readlink()}")
    if found.is_dir(follow_symlinks=False):
        return Entry(found.name, True)
    size = found.stat(follow_symlinks=False).st_size
    return Entry(found.name, False, f" ({_size(size)})")


def _size(size: float) -> str:
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"
