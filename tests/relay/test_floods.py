"""An endless agent behind a relay: memory and store stay bounded, and a cancel is answered in time."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from client.stage import flooding, memory_until, wait_until_prompted
from coupler.agent.turn import CANCEL_GRACE
from raw_client import COUPLER
from slow_editor import SlowEditor

MOST_MEMORY = 300_000_000
MOST_STORED = 100_000_000
"""Bytes that a relay may take and store, whatever its agent says."""

LEEWAY = 3.0
"""Seconds beyond the grace, for a loaded machine."""

KINDS = (
    *("silence", "text", "messages", "calls", "long calls", "output", "growing output", "terminal output"),
    *("plans", "commands", "options", "modes", "titles", "usage", "images", "writes", "unknown requests"),
)


def flood(kind: str, directory: Path, *, is_read: bool) -> tuple[int, int, float]:
    """Flood an editor for two seconds, then cancel: the memory, the bytes stored, the seconds it took."""
    store = directory / "store.db"
    editor = SlowEditor(*COUPLER, "serve", "--store", str(store), "--", *flooding(kind, directory))
    try:
        session = editor.open_session(directory)
        if not is_read:
            editor.is_reading.clear()
        editor.prompt(session)
        wait_until_prompted(directory)
        most = memory_until(lambda: False, editor.process.pid, seconds=2)
        began = time.monotonic()
        editor.cancel(session)
        editor.is_reading.set()
        assert editor.answer(3) == {"stopReason": "cancelled"}
        took = time.monotonic() - began
        most = max(most, memory_until(lambda: False, editor.process.pid, seconds=0.1))
        return most, sum(file.stat().st_size for file in directory.glob("store.db*") if file.is_file()), took
    finally:
        editor.leave()


@pytest.mark.parametrize(("kind", "is_read"), [("text", True), ("commands", False)])
def test_an_endless_agent_fills_neither_memory_nor_store(kind: str, is_read: bool, tmp_path: Path) -> None:
    most, stored, took = flood(kind, tmp_path, is_read=is_read)
    assert most < MOST_MEMORY
    assert stored < MOST_STORED
    assert took < CANCEL_GRACE + LEEWAY


@pytest.mark.long
@pytest.mark.parametrize("is_read", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("kind", KINDS)
def test_no_kind_of_update_fills_memory_or_store(kind: str, is_read: bool, tmp_path: Path) -> None:
    most, stored, took = flood(kind, tmp_path, is_read=is_read)
    assert most < MOST_MEMORY
    assert stored < MOST_STORED
    assert took < CANCEL_GRACE + LEEWAY
