"""An endless agent behind a relay: memory and store stay bounded, and a cancel is answered in time."""

from __future__ import annotations

import json
import subprocess
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from client.stage import flooding, memory_until, wait_until_prompted
from coupler.agent.turn import CANCEL_GRACE
from raw_client import COUPLER

MOST_MEMORY = 300_000_000
MOST_STORED = 100_000_000
"""Bytes that a relay may take and store, whatever its agent says."""

LEEWAY = 3.0
"""Seconds beyond the grace, for a loaded machine."""

KINDS = (
    *("silence", "text", "messages", "calls", "long calls", "output", "growing output", "terminal output"),
    *("plans", "commands", "options", "modes", "titles", "usage", "images", "writes", "unknown requests"),
)


class SlowEditor:
    """An editor that reads only when it is told to, and so lets what is written to it pile up."""

    def __init__(self, *command: str) -> None:
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        self.is_reading = threading.Event()
        self._answers: dict[Any, Any] = {}
        self._arrived = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def send(self, **frame: Any) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        self.process.stdin.flush()

    def answer(self, id: int) -> Any:
        with self._arrived:
            assert self._arrived.wait_for(lambda: id in self._answers, timeout=60), f"no answer to {id}"
            return self._answers[id]

    def open_session(self, cwd: Path) -> str:
        self.is_reading.set()
        self.send(id=1, method="initialize", params={"protocolVersion": 1, "clientCapabilities": {}})
        self.answer(1)
        self.send(id=2, method="session/new", params={"cwd": str(cwd), "mcpServers": []})
        return str(self.answer(2)["sessionId"])

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.is_reading.set()
        self.process.stdin.close()
        self.process.wait(60)
        self._thread.join()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.is_reading.wait()
            if b'"session/update"' in line[:100]:
                continue
            frame = json.loads(line)
            if "method" not in frame:
                with self._arrived:
                    self._answers[frame["id"]] = frame.get("result")
                    self._arrived.notify_all()


def flood(kind: str, directory: Path, *, is_read: bool) -> tuple[int, int, float]:
    """Flood an editor for two seconds, then cancel: the memory, the bytes stored, the seconds it took."""
    store = directory / "store.db"
    editor = SlowEditor(*COUPLER, "serve", "--store", str(store), "--", *flooding(kind, directory))
    try:
        session = editor.open_session(directory)
        if not is_read:
            editor.is_reading.clear()
        blocks = [{"type": "text", "text": "go"}]
        editor.send(id=3, method="session/prompt", params={"sessionId": session, "prompt": blocks})
        wait_until_prompted(directory)
        most = memory_until(lambda: False, editor.process.pid, seconds=2)
        began = time.monotonic()
        editor.send(method="session/cancel", params={"sessionId": session})
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
