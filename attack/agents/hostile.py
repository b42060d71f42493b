"""An agent that answers prompts after a batch of wrong frames, and checks that its requests are answered.

    python hostile.py SEED FRAMES

It ends a turn with the text `done N`, or tells which of its requests went unanswered.
"""

from __future__ import annotations

import json
import os
import queue
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from frames import Frames

PATIENCE = 30.0
"""Seconds that an answer to a request may take."""
SESSION = "hostile-session-0123456789"
HELLO = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}


class Client:
    """The other end: what it asks, and how often it has answered each request."""

    def __init__(self) -> None:
        self.asked: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
        self.answered: dict[Any, int] = {}
        self.changed = threading.Event()
        threading.Thread(target=self._read, daemon=True).start()

    def write(self, data: bytes, chance: random.Random) -> None:
        """Write in pieces that end anywhere."""
        at = 0
        while at < len(data):
            at += os.write(1, data[at : at + chance.choice((1, 9, 300, 4096, 65536, 65536))])

    def send(self, *frames: dict[str, Any]) -> None:
        data = b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames)
        while data:
            data = data[os.write(1, data) :]

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            frame = json.loads(line)
            if "method" in frame and "id" in frame:
                self.asked.put(frame)
            elif "method" not in frame and isinstance(frame.get("id"), str):
                self.answered[frame["id"]] = self.answered.get(frame["id"], 0) + 1
                self.changed.set()
        os._exit(0)

    def unanswered(self, expected: dict[str, str]) -> list[str]:
        """Wait for all answers; those that did not come, or came twice."""
        deadline = time.monotonic() + PATIENCE
        while any(id not in self.answered for id in expected) and time.monotonic() < deadline:
            self.changed.wait(0.1)
            self.changed.clear()
        return [
            f"{self.answered.get(id, 0)} answers to {name}"
            for id, name in expected.items()
            if self.answered.get(id) != 1
        ]


def main() -> None:
    seed, size = sys.argv[1], int(sys.argv[2])
    chance = random.Random(seed)
    frames = Frames("client", chance, "/nowhere")
    frames.sessions = [SESSION, SESSION, "another"]
    client = Client()
    count = 0
    while True:
        asked = client.asked.get()
        match asked["method"]:
            case "initialize":
                client.send({"id": asked["id"], "result": HELLO})
            case "session/new":
                client.send({"id": asked["id"], "result": {"sessionId": SESSION}})
            case "session/prompt":
                count += 1
                frames.expected.clear()
                client.answered.clear()
                client.write(frames.joined(frames.batch(size)) + b"\n", chance)
                missing = client.unanswered(frames.expected)
                text = f"done {count}" if not missing else f"FAILED {missing[:3]}"
                chunk = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
                update = {
                    "method": "session/update",
                    "params": {"sessionId": asked["params"]["sessionId"], "update": chunk},
                }
                client.send(update, {"id": asked["id"], "result": {"stopReason": "end_turn"}})
            case _:
                client.send({"id": asked["id"], "result": {}})


main()
