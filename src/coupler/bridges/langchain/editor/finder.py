"""Runs the program in `finding`, which looks for files and lines, and ends it if it takes too long."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from coupler.bridges.langchain.editor.found import Found
from coupler.runtime.commands import Job, Listener
from coupler.runtime.environment import Environment

SOURCE = Path(__file__).parents[4]
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "from coupler.bridges.langchain.editor.finding.program import main; main()"
)

LIMIT = 30.0
"""Seconds that a search has."""

LONGEST_OUTPUT = 16 * 1024 * 1024


class Quest(NamedTuple):
    """What is looked for: files with such names, or their lines that a regular expression fits."""

    directory: str
    """A directory or one file, links resolved."""
    glob: str
    pattern: str | None
    most: int
    ignore_case: bool = False
    context: int = 0
    """Lines that are wanted around each that fits."""
    texts: Mapping[str, str] = MappingProxyType({})
    """Files as they are in the editor, whatever the disk has."""
    walks: bool = True
    """Whether other files are looked at."""


async def find(quest: Quest) -> Found:
    """What the program finds."""
    output = bytearray()

    async def keep(chunk: bytes) -> None:
        if len(output) + len(chunk) > LONGEST_OUTPUT:
            raise ValueError("too much was found: ask for less")
        output.extend(chunk)

    command = [sys.executable, "-I", "-S", "-c", START, str(SOURCE)]
    job = Job.start(
        command,
        cwd=str(SOURCE),
        env=Environment.exact({}),
        input=msgspec.json.encode({**quest._asdict(), "texts": dict(quest.texts)}),
    )
    code = await heard(job, keep)
    if code != 0:
        raise ValueError("the search failed: use a simpler pattern")
    return msgspec.json.decode(bytes(output), type=Found)


async def heard(job: Job, listener: Listener) -> int:
    """Hear a job out and end it, also if it takes too long; what it returned."""
    try:
        async with asyncio.timeout(LIMIT):
            await job.hear(listener)
            return await job.wait()
    except TimeoutError:
        message = f"this took longer than {LIMIT:g} s: use a simpler pattern, or look in less"
        raise ValueError(message) from None
    finally:
        await job.end(0)
        job.close()
