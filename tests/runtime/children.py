"""Children of the test's own process, by a word of their command lines."""

from __future__ import annotations

import time

import psutil

PATIENCE = 20.0


def children_called(word: str) -> list[psutil.Process]:
    """Those whose command line has this word."""
    return [child for child in psutil.Process().children() if word in words_of(child)]


def words_of(process: psutil.Process) -> list[str]:
    """A process's command line, which is empty for a moment while its program is loaded."""
    deadline = time.monotonic() + PATIENCE
    try:
        while not (words := process.cmdline()) and time.monotonic() < deadline:
            time.sleep(0.001)
    except psutil.NoSuchProcess:
        return []
    return words
