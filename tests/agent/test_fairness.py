"""Two hundred chatty turns and a slow reader: everybody else is served all the same."""

import json
import subprocess
import time

from raw_client import COUPLER

CHATTY = """
async def agent(turn):
    while True:
        await turn.say("blah " * 100)
"""
TURNS = 200
SLOW = 20 * 1024 * 1024
"""Bytes a second that the reader takes."""

BOUND = 2.0
"""Seconds; measured alone it is some twenty milliseconds, but the machine may have other work."""


def test_a_new_session_does_not_wait_behind_the_chatter(app):
    process = subprocess.Popen(
        [*COUPLER, "serve", app(CHATTY)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    with process:
        try:
            reader = SlowReader(process.stdout)
            send(process, "initialize", 0, {"protocolVersion": 1})
            reader.until(lambda frame: frame.get("id") == 0)
            for i in range(1, TURNS + 1):
                send(process, "session/new", i, {"cwd": "/", "mcpServers": []})
            sessions = [
                reader.until(lambda frame: "result" in frame)["result"]["sessionId"] for _ in range(TURNS)
            ]
            for i, session in enumerate(sessions):
                send(process, "session/prompt", 1000 + i, {"sessionId": session, "prompt": []})
            chatting = set()
            while len(chatting) < TURNS:
                chatting.add(reader.until(lambda frame: "method" in frame)["params"]["sessionId"])

            began = time.monotonic()
            send(process, "session/new", 9999, {"cwd": "/", "mcpServers": []})
            answer = reader.until(lambda frame: frame.get("id") == 9999)
            took = time.monotonic() - began

            assert answer["result"]["sessionId"] not in sessions
            assert took < BOUND
        finally:
            process.kill()


def send(process, method, id, params):
    process.stdin.write(
        json.dumps({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).encode() + b"\n"
    )
    process.stdin.flush()


class SlowReader:
    """Reads no faster than SLOW."""

    def __init__(self, stream):
        self.stream = stream
        self.began = time.monotonic()
        self.read = 0

    def until(self, matches):
        while True:
            line = self.stream.readline()
            assert line, "the agent is gone"
            self.read += len(line)
            ahead = self.read / SLOW - (time.monotonic() - self.began)
            if ahead > 0.01:
                time.sleep(ahead)
            frame = json.loads(line)
            if matches(frame):
                return frame
