"""A server of chat completions on loopback that gives the answers which a test has prepared."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from providers.stub import lines_of


class Prepared(NamedTuple):
    """One answer."""

    payloads: Sequence[Any] = ()
    status: int = 200
    headers: Mapping[str, str] = MappingProxyType({})
    streamed: bool = True
    hangs: bool = False
    """Whether the stream stays open until the client leaves."""
    breaks: bool = False
    """Whether the connection ends in the middle."""


def text(*words: str, **choice: Any) -> Prepared:
    """An answer that says these words."""
    pieces = [{"choices": [{"index": 0, "delta": {"content": word}}]} for word in words]
    return Prepared([*pieces, {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop", **choice}]}])


def calls(*wanted: tuple[str, str, Any]) -> Prepared:
    """An answer that wants tools: id, name and arguments of each."""
    made = [
        {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": given}}
        for index, (id, name, given) in enumerate(wanted)
    ]
    return Prepared([{"choices": [{"index": 0, "delta": {"tool_calls": made}}]}])


def recording(name: str) -> Prepared:
    """A recorded stream."""
    return Prepared(lines_of(name))


class ModelServer:
    """Runs in a thread of its own, as a context manager; `requests` are the bodies, `heads` their headers."""

    def __init__(self, *answers: Prepared) -> None:
        self.requests: list[dict[str, Any]] = []
        self.heads: list[dict[str, str]] = []
        self.left = threading.Event()
        """Set when a client has left in the middle of an answer."""
        self._answers = list(answers)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *reason: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def answer_to(self, request: dict[str, Any]) -> Prepared:
        """The next one that was prepared; the last one is repeated."""
        return self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        owner = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                owner.requests.append({"path": self.path, **json.loads(body)})
                owner.heads.append(dict(self.headers))
                answer = owner.answer_to(owner.requests[-1])
                self.close_connection = True
                self._begin(answer)
                try:
                    self._send(answer)
                except OSError:
                    owner.left.set()

            def _begin(self, answer: Prepared) -> None:
                self.send_response(answer.status)
                kind = "text/event-stream" if answer.streamed else "application/json"
                self.send_header("Content-Type", kind)
                self.send_header("Transfer-Encoding", "chunked")
                for name, value in answer.headers.items():
                    self.send_header(name, value)
                self.end_headers()

            def _send(self, answer: Prepared) -> None:
                for payload in answer.payloads:
                    encoded = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
                    self._chunk(b": ping\n\ndata: " + encoded + b"\n\n" if answer.streamed else encoded)
                if answer.breaks:
                    return
                if answer.hangs:
                    while not owner.left.wait(0.01):
                        self._chunk(b": still here\n\n")
                if answer.streamed:
                    self._chunk(b"data: [DONE]\n\n")
                self.wfile.write(b"0\r\n\r\n")

            def _chunk(self, part: bytes) -> None:
                # In two writes, because no reader may rely on where a chunk is cut.
                self.wfile.write(f"{len(part):x}\r\n".encode() + part[:5])
                self.wfile.flush()
                self.wfile.write(part[5:] + b"\r\n")
                self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:
                """Nothing."""

        return Handler
