"""Runs `finding.py`, which looks for files and lines, and ends it if it takes too long."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from typing import NamedTuple

import msgspec

from coupler.process import Job

PROGRAM = Path(__file__).with_name("finding.py")

LIMIT = 30.0
"""Seconds that a search has."""

LONGEST_OUTPUT = 16 * 1024 * 1024


class Entry(NamedTuple):
    """A file, or a line in it."""

    path: str
    line: int
    text: str


class Found(NamedTuple):
    """What was found, and whether there is more."""

    entries: list[Entry]
    is_cut: bool

    def relative_to(self, directory: str) -> Found:
        """The same with shorter paths, for what is in this directory."""
        start = f"{directory}{os.sep}"
        short = [entry._replace(path=entry.path.removeprefix(start)) for entry in self.entries]
        return Found(short, self.is_cut)


async def find(place: str, glob: str, pattern: str | None, most: int) -> Found:
    """Files with such names in a directory, or their lines that a regular expression fits."""
    task = {"directory": place, "glob": glob, "pattern": pattern, "most": most}
    output = bytearray()

    async def keep(chunk: bytes) -> None:
        if len(output) + len(chunk) > LONGEST_OUTPUT:
            raise ValueError("too much was found: ask for less")
        output.extend(chunk)

    job = Job.start(
        [sys.executable, "-I", "-S", str(PROGRAM)],
        cwd=str(PROGRAM.parent),
        input=msgspec.json.encode(task),
        hears_stderr=True,
    )
    try:
        async with asyncio.timeout(LIMIT):
            await job.hear(keep)
            code = await job.wait()
    except TimeoutError:
        raise ValueError(
            f"this took longer than {LIMIT:g} s: use a simpler pattern, or look in less"
        ) from None
    finally:
        await job.end(0)
        job.close()
    if code != 0:
        raise ValueError("the search failed: use a simpler pattern")
    return msgspec.json.decode(bytes(output), type=Found)
