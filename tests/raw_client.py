"""A client made of pipes: starts any command, sends lines, and checks every frame against the schema."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Self

from forked import Popen
from schema.conformance import check_frame

Frame = dict[str, Any]

PATIENCE = 20.0
"""Seconds after which a test that waits for a frame has failed."""

COUPLER = [sys.executable, "-m", "coupler"]


class RawClient:
    """Drives an agent by hand. Used as a context manager; leaving it ends the process.

    `coupler` is a fork of a process that has it loaded, unless it has to be `fresh`.
    """

    def __init__(
        self,
        *command: str,
        env: Mapping[str, str] | None = None,
        cwd: str | Path | None = None,
        pass_fds: tuple[int, ...] = (),
        fresh: bool = False,
    ) -> None:
        self.process = (subprocess.Popen if fresh else Popen)(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **(env or {})},
            cwd=cwd,
            pass_fds=pass_fds,
        )
        self._has_drafts = any(word.startswith("--drafts") for word in command)
        self.stderr = b""
        self.lines: list[bytes] = []
        self._frames: queue.SimpleQueue[Frame | None] = queue.SimpleQueue()
        self._held: list[Frame] = []
        self._methods: dict[Any, str] = {}
        self._next_id = 0
        self._threads = [
            threading.Thread(target=self._read_stdout, daemon=True),
            threading.Thread(target=self._read_stderr, daemon=True),
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        for thread in self._threads:
            thread.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            assert stream is not None
            with contextlib.suppress(BrokenPipeError):
                stream.close()

    def write(self, data: bytes) -> None:
        """Send bytes as they are."""
        assert self.process.stdin is not None
        self.process.stdin.write(data)
        self.process.stdin.flush()

    def send(self, *frames: Frame) -> None:
        """Send frames, in one write."""
        for frame in frames:
            if "method" in frame and "id" in frame:
                self._methods[_key(frame["id"])] = frame["method"]
        self.write(b"".join(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n" for frame in frames))

    def request(self, method: str, params: Any) -> Frame:
        """A request frame with an id of its own, not sent yet."""
        self._next_id += 1
        return {"id": self._next_id, "method": method, "params": params}

    def read(self) -> Frame:
        """The next frame."""
        if self._held:
            return self._held.pop(0)
        return self._receive()

    def read_until(self, matches: Callable[[Frame], bool]) -> list[Frame]:
        """All frames up to and with the first that matches."""
        frames = [self.read()]
        while not matches(frames[-1]):
            frames.append(self.read())
        return frames

    def answer_to(self, request: Frame) -> Frame:
        """The answer to a request; frames before it stay to be read."""
        seen: list[Frame] = []
        while not is_answer_to(frame := self.read(), request["id"]):
            seen.append(frame)
        self._held[:0] = seen
        return frame

    def call(self, method: str, params: Any) -> Frame:
        """Send a request and return its answer; frames before it stay to be read."""
        request = self.request(method, params)
        self.send(request)
        return self.answer_to(request)

    def initialize(self, *, client: str = "zed", **capabilities: Any) -> Frame:
        """Say hello, by the name of a client whose terminals and message ids are known to be good."""
        info = {"name": client, "version": "1"}
        params = {"protocolVersion": 1, "clientCapabilities": capabilities, "clientInfo": info}
        return self.call("initialize", params)

    def new_session(self, cwd: str = "/", *servers: Frame) -> str:
        """Open a session, with these MCP servers, and return its id."""
        answer = self.call("session/new", {"cwd": cwd, "mcpServers": [*servers]})
        return str(answer["result"]["sessionId"])

    def prompt_request(self, session: str, text: str) -> Frame:
        """A prompt, not sent yet."""
        blocks = [{"type": "text", "text": text}]
        return self.request("session/prompt", {"sessionId": session, "prompt": blocks})

    def prompt(self, session: str, text: str = "") -> tuple[list[Frame], Frame]:
        """Send a prompt; returns its updates and its answer."""
        request = self.prompt_request(session, text)
        self.send(request)
        *before, answer = self.read_until(lambda frame: is_answer_to(frame, request["id"]))
        return [frame["params"]["update"] for frame in before], answer

    def close_stdin(self) -> None:
        """Leave."""
        assert self.process.stdin is not None
        self.process.stdin.close()

    def wait(self, timeout: float = PATIENCE) -> int:
        """The exit code; all output has been read when this returns."""
        code = self.process.wait(timeout)
        for thread in self._threads:
            thread.join(PATIENCE)
        return code

    def rest(self) -> list[Frame]:
        """The frames that were left when the output ended."""
        frames = [*self._held]
        while (frame := self._frames.get(timeout=PATIENCE)) is not None:
            frames.append(frame)
        return frames

    def _receive(self) -> Frame:
        try:
            frame = self._frames.get(timeout=PATIENCE)
        except queue.Empty:
            raise AssertionError(f"no frame within {PATIENCE} s; stderr: {self.stderr.decode()}") from None
        assert frame is not None, f"the agent closed its output; stderr: {self.stderr.decode()}"
        check_frame(frame, sent_by="agent", method_of=self._methods, unstable=self._has_drafts)
        return frame

    def _read_stdout(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line)
            try:
                self._frames.put(json.loads(line))
            except ValueError:
                self._frames.put({"not JSON": line.decode(errors="replace")})
        self._frames.put(None)

    def _read_stderr(self) -> None:
        assert self.process.stderr is not None
        while data := os.read(self.process.stderr.fileno(), 65536):
            self.stderr += data


def serve(target: str | Path, *options: str, python: bool = False, **kwargs: Any) -> RawClient:
    """A client of `coupler serve TARGET`, or of `python TARGET`."""
    if python:
        return RawClient(sys.executable, str(target), *options, **kwargs)
    return RawClient(*COUPLER, "serve", str(target), *options, **kwargs)


def is_answer_to(frame: Frame, request_id: Any) -> bool:
    """Whether this frame answers the request with this id."""
    return "method" not in frame and frame.get("id") == request_id


def texts(updates: list[Frame]) -> str:
    """The text that the agent said in these updates."""
    return "".join(
        update["content"]["text"] for update in updates if update["sessionUpdate"] == "agent_message_chunk"
    )


def _key(value: Any) -> Any:
    return value if isinstance(value, str | int) or value is None else str(value)
