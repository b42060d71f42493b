"""A client for large numbers: it parses what it waits for and nothing else, so that the agent sets the pace.

It takes no coverage along either: what is measured here is the agent as its users run it.
"""

import json
import os
import select
import subprocess
import time

import forked
from raw_client import COUPLER, PATIENCE

ANSWERS = (b'"result":', b'"error":')


class LeanClient:
    """Drives an agent over pipes. A context manager; leaving it ends the process."""

    def __init__(self, *command):
        env = {name: value for name, value in os.environ.items() if not name.startswith("COVERAGE")}
        self.process = forked.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=env)
        self._next_id = 0
        self._partial = b""
        self._lines = []
        self._answers = {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()

    def send(self, method, params):
        """Send a request; returns its id."""
        self._next_id += 1
        self._write({"id": self._next_id, "method": method, "params": params})
        return self._next_id

    def notify(self, method, params):
        self._write({"method": method, "params": params})

    def answer(self, id):
        """The answer to a request; everything before it is dropped, but for other answers."""
        while id not in self._answers:
            self._next_line()
        return self._answers.pop(id)

    def call(self, method, params):
        answer = self.answer(self.send(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def until(self, *marks):
        """The line that has all of these in it; everything before it is dropped, but for answers."""
        while True:
            line = self._next_line()
            if all(mark in line for mark in marks):
                return line

    def read_for(self, seconds):
        """Read on; everything is dropped, but for answers."""
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            self._next_line()

    def initialize(self, **capabilities):
        info = {"name": "zed", "version": "1"}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        return self.call("initialize", params)

    def new_session(self, cwd="/"):
        return self.call("session/new", {"cwd": str(cwd), "mcpServers": []})["sessionId"]

    def prompt(self, session, text=""):
        """Send a prompt; returns the id of the request."""
        return self.send("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    def leave(self):
        """Close the agent's input and wait for its end; returns the seconds that it took."""
        began = time.perf_counter()
        self.process.stdin.close()
        while self.process.stdout.read(65536):
            pass
        assert self.process.wait(PATIENCE) == 0
        return time.perf_counter() - began

    def _write(self, frame):
        self.process.stdin.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")
        self.process.stdin.flush()

    def _next_line(self):
        """The next line; an answer is kept as well."""
        while not self._lines:
            assert select.select([self.process.stdout], [], [], PATIENCE)[0], f"silent for {PATIENCE} s"
            chunk = os.read(self.process.stdout.fileno(), 1 << 20)
            assert chunk, "the agent closed its output"
            *lines, self._partial = (self._partial + chunk).split(b"\n")
            self._lines = lines[::-1]
        line = self._lines.pop()
        if any(mark in line for mark in ANSWERS) and "method" not in (frame := json.loads(line)):
            self._answers[frame["id"]] = frame
        return line


def serve_lean(target, *options):
    """A lean client of `coupler serve TARGET`."""
    return LeanClient(*COUPLER, "serve", str(target), *options)
