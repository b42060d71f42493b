"""An editor of bytes for floods: reads when it is told to, keeps nothing but answers, and measures."""

from __future__ import annotations

import json
import os
import subprocess
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

import psutil


class SlowEditor:
    """An editor that reads only when it is told to, and so lets what is written to it pile up."""

    def __init__(self, *command: str, env: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=None if env is None else os.environ | env,
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

    def prompt(self, session: str) -> None:
        """Send a prompt with the id 3."""
        blocks = [{"type": "text", "text": "go"}]
        self.send(id=3, method="session/prompt", params={"sessionId": session, "prompt": blocks})

    def cancel(self, session: str) -> None:
        self.send(method="session/cancel", params={"sessionId": session})

    def has_answer(self, id: int) -> bool:
        return id in self._answers

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
                    self._answers[frame["id"]] = frame.get("result", frame.get("error"))
                    self._arrived.notify_all()


class Flooded(NamedTuple):
    """What came of a prompt whose turn has no end."""

    memory: int
    """The most bytes that the process has held."""
    answer: Any
    slowest: float
    """Seconds for the slowest answer to another request, meanwhile."""
    cancel: float
    """Seconds from the cancel to the answer."""


def flooded(editor: SlowEditor, session: str, seconds: float) -> Flooded:
    """Prompt a session, ask for the list of sessions meanwhile, and cancel if it is not over in time."""
    process = psutil.Process(editor.process.pid)
    editor.prompt(session)
    most, slowest, deadline, id = 0, 0.0, time.monotonic() + seconds, 100
    while not editor.has_answer(3) and time.monotonic() < deadline:
        id += 1
        asked = time.monotonic()
        editor.send(id=id, method="session/list", params={})
        editor.answer(id)
        slowest = max(slowest, time.monotonic() - asked)
        for _ in range(10):
            most = max(most, process.memory_info().rss)
            time.sleep(0.01)
    cancelled = time.monotonic()
    editor.cancel(session)
    return Flooded(most, editor.answer(3), slowest, time.monotonic() - cancelled)
