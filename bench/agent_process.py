"""An agent process, driven over plain pipes with as little work on this side as possible.

Updates are counted and not parsed, and the clock runs from a request's write to the read that brings its
answer, so that what is measured is the agent and not this program.
"""

import json
import os
import select
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import psutil

CHUNK_MARK = b'"agent_message_chunk"'
ANSWER_MARKS = (b'"result"', b'"error"')
SILENCE_SECONDS = 30


class PeerError(Exception):
    """An agent closed its output, answered with an error, or was too slow."""


@dataclass(frozen=True)
class Answer:
    result: dict[str, Any]
    chunks_before: int
    seconds: float


class AgentProcess:
    """A spawned agent. `spawned` is when, on time.perf_counter's clock."""

    def __init__(self, command: list[str], env: Mapping[str, str]) -> None:
        self._stderr = tempfile.TemporaryFile()
        self._last_id = 0
        self._rest = b""
        self.spawned = time.perf_counter()
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr, env=env, bufsize=0
        )

    def __enter__(self) -> "AgentProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout, self._stderr):
            assert stream is not None
            stream.close()

    def initialize(self) -> float:
        """Shake hands; return the seconds since the process was spawned."""
        self.call("initialize", {"protocolVersion": 1, "clientCapabilities": {}})
        return time.perf_counter() - self.spawned

    def new_session(self) -> str:
        result = self.call("session/new", {"cwd": "/", "mcpServers": []}).result
        session: str = result["sessionId"]
        return session

    def prompt(self, session: str, chunks: int) -> Answer:
        answer = self.call("session/prompt", prompt_params(session, chunks))
        if answer.chunks_before != chunks:
            raise PeerError(f"{answer.chunks_before} chunks came before the answer, not {chunks}")
        return answer

    def call(self, method: str, params: dict[str, Any]) -> Answer:
        chunks, line = self._read_until(self.send(method, params))
        seconds = self._last_read - self._last_written
        message = json.loads(line)
        if "result" not in message:
            raise PeerError(f"{method} was answered with {message.get('error')}")
        return Answer(message["result"], chunks, seconds)

    def send(self, method: str, params: dict[str, Any]) -> int:
        """Write a request and return its id."""
        self._last_id += 1
        request = {"jsonrpc": "2.0", "id": self._last_id, "method": method, "params": params}
        line = json.dumps(request).encode() + b"\n"
        assert self.process.stdin is not None
        self._last_written = time.perf_counter()
        self.process.stdin.write(line)
        return self._last_id

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """Write a notification."""
        line = json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode() + b"\n"
        assert self.process.stdin is not None
        self._last_written = time.perf_counter()
        self.process.stdin.write(line)

    def cancel(self, session: str) -> float:
        """Cancel a prompt once the agent has said something; return the seconds until it is answered."""
        prompt = self.send("session/prompt", prompt_params(session, 1))
        self._read_chunk()
        self.notify("session/cancel", {"sessionId": session})
        _, line = self._read_until(prompt)
        if json.loads(line).get("result") != {"stopReason": "cancelled"}:
            raise PeerError(f"a cancelled prompt was answered with {line.decode(errors='replace')}")
        return self._last_read - self._last_written

    def read(self, size: int = 1 << 20) -> bytes:
        """Some bytes of the agent's output, at most `size`; waits for the first."""
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], SILENCE_SECONDS)[0]:
            raise PeerError(f"the agent was silent for {SILENCE_SECONDS} s: {self.stderr()}")
        chunk = os.read(self.process.stdout.fileno(), size)
        self._last_read = time.perf_counter()
        if not chunk:
            raise PeerError(f"the agent closed its output: {self.stderr()}")
        return chunk

    def finish(self) -> None:
        """Close the agent's input and wait until it has ended by itself."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            raise PeerError("the agent did not end when its input was closed") from None

    def resident_bytes(self) -> int:
        """Resident memory of the agent and what it started."""
        process = psutil.Process(self.process.pid)
        return sum(each.memory_info().rss for each in [process, *process.children(recursive=True)])

    def stderr(self) -> str:
        self._stderr.seek(0)
        return self._stderr.read().decode(errors="replace").strip()[-2000:]

    def _read_chunk(self) -> None:
        """Read up to the first text chunk."""
        while CHUNK_MARK not in self._rest.rpartition(b"\n")[0]:
            self._rest += self.read()

    def _read_until(self, id: int) -> tuple[int, bytes]:
        """Read up to the answer to `id`; return the text chunks that came before it, and its line."""
        chunks, buffer = 0, self._rest
        while True:
            whole, _, partial = buffer.rpartition(b"\n")
            if any(mark in whole for mark in ANSWER_MARKS):
                lines = whole.split(b"\n")
                for index, line in enumerate(lines):
                    if is_answer(line, id):
                        self._rest = b"".join(later + b"\n" for later in lines[index + 1 :]) + partial
                        return chunks + sum(CHUNK_MARK in earlier for earlier in lines[:index]), line
            chunks += whole.count(CHUNK_MARK)
            buffer = partial + self.read()


def prompt_params(session: str, chunks: int) -> dict[str, Any]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": str(chunks)}]}


def is_answer(line: bytes, id: int) -> bool:
    if not any(mark in line for mark in ANSWER_MARKS):
        return False
    message = json.loads(line)
    return "method" not in message and message.get("id") == id
