"""Waiting for what happens outside of the connection: files, and processes that end."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from runtime.test_child import gone_within

PATIENCE = 20.0
"""Seconds after which a test that waits has failed."""


def until(condition: Callable[[], object]) -> None:
    """Wait for a condition."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)


def pid_in(file: Path) -> int:
    """The number of a process, when it has been written to a file."""
    until(lambda: file.exists() and file.read_text().endswith("\n"))
    return int(file.read_text())


def is_gone(pid: int) -> bool:
    """Whether the process ends soon."""
    return gone_within(PATIENCE, pid)
