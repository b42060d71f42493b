"""A model server that follows a plan, refuses what real servers refuse, and fails when it is told to.

    with StrictModel() as model:
        model.begin([Move("I look.", Call("read_file", {"path": "a.py"})), Move(fault="busy"), Move("Done.")])

It speaks the wires of `scripted_model`: chat completions and responses, Anthropic's messages and Gemini's
content. Each request with tools gets the next move; one without is for a summary. `wire_rules` judge each
request first.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from labs.scripted_model import Anthropic, Gemini, Json, OpenAi, Piece, Responses, dialect_of
from labs.wire_rules import Strictness, offered_tools, problem_of

WIRES: Mapping[type, str] = {
    OpenAi: "openai",
    Responses: "responses",
    Anthropic: "anthropic",
    Gemini: "gemini",
}
LEADING: Mapping[type, int] = {OpenAi: 0, Responses: 1, Anthropic: 1, Gemini: 0}
"""Events of a stream before the first that says something."""
ENDING: Mapping[type, int] = {OpenAi: 3, Responses: 1, Anthropic: 2, Gemini: 1}
"""Events of a stream that tell its end."""

RETRY_AFTER = 1
"""Seconds that a busy server asks for."""

REFUSALS: Mapping[str, tuple[int, str, str]] = {
    "busy": (429, "rate_limit_error", "RESOURCE_EXHAUSTED"),
    "busy, and says until when": (429, "rate_limit_error", "RESOURCE_EXHAUSTED"),
    "failing": (500, "api_error", "INTERNAL"),
    "overloaded": (529, "overloaded_error", "UNAVAILABLE"),
}
"""Faults that are told by a status: the status, and the names that Anthropic and Google have for it."""

BROKEN = (
    "dropped before the first word",
    "dropped in the middle",
    "dropped behind a call",
    "without an end",
    "without anything",
)
"""Faults of streams: connections that are lost, and answers that lack their end or their content."""

IMAGE = b"iVBORw0K"
"""What PNG images begin with in a request."""

SUMMARY = "SUMMARY: the tasks so far are done."
PATIENCE_SECONDS = 60.0


class Move:
    """What the model does at one request: it says and calls something, or its server has a fault."""

    def __init__(
        self, *pieces: Piece, fault: str | None = None, expects: str = "", waits: bool = False
    ) -> None:
        assert fault is None or fault in REFUSALS or fault in BROKEN, fault
        self.pieces = pieces
        self.fault = fault
        self.expects = expects
        """A text that the newest results have to have."""
        self.waits = waits
        """True if the answer stops after its first half, until the model is released."""


@dataclass
class Asked:
    """One request, as it was counted."""

    size: int
    is_summary: bool
    cpu: float
    """Seconds of processor time of the agent so far."""
    process: int | None
    images: int
    """How often it has the beginning of an image."""
    tools: frozenset[str]
    """The tools that it offers."""


@dataclass
class Ledger:
    """What was asked, and what was wrong with it."""

    asked: list[Asked] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    """The faults that were played."""
    refusals: list[str] = field(default_factory=list)
    """Reasons by which requests were refused that are in order for less strict servers."""
    malformed: list[str] = field(default_factory=list)
    """Reasons by which requests were refused that no server takes."""
    surprises: list[str] = field(default_factory=list)
    """What a request should have had."""


class StrictModel:
    """The server; its plan and its strictness can be changed while nobody asks."""

    def __init__(self, cpu_of: Callable[[int], float] | None = None) -> None:
        self.strictness = Strictness()
        self.ledger = Ledger()
        self.process: int | None = None
        """The agent's process, whose processor time is noted at each request."""
        self.summary_faults: list[str] = []
        """Faults of the next requests for a summary."""
        self._cpu_of = cpu_of
        self._plan: list[Move] = []
        self._marker = b""
        self._lock = threading.Lock()
        self._released = threading.Event()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The address without the `/v1` that OpenAI's clients want."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def left(self) -> int:
        """The moves that were not asked for yet."""
        return len(self._plan)

    def begin(self, plan: Iterable[Move], marker: str = "") -> None:
        """Follow a new plan; each request is to have the marker in it."""
        self._released.clear()
        with self._lock:
            self._plan, self._marker = [*plan], marker.encode()

    def release(self) -> None:
        """Let an answer that waits go on, if anybody still reads it."""
        self._released.set()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _move(self, wire: str, request: Json, body: bytes) -> Move | str:
        """Return what is done about a request: the next move, or the reason why it is refused."""
        has_tools = bool(request.get("tools"))
        with self._lock:
            cpu = self._cpu_of(self.process) if self._cpu_of is not None and self.process is not None else 0.0
            images = body.count(IMAGE)
            tools = frozenset(offered_tools(request))
            self.ledger.asked.append(Asked(len(body), not has_tools, cpu, self.process, images, tools))
            if (reason := problem_of(wire, request, self.strictness)) is not None:
                is_ours = problem_of(wire, request, Strictness()) is None
                (self.ledger.refusals if is_ours else self.ledger.malformed).append(reason)
                return reason
            if not has_tools:
                move = Move(fault=self.summary_faults.pop(0)) if self.summary_faults else Move(SUMMARY)
            else:
                move = self._plan.pop(0) if self._plan else Move("There is nothing left to do.")
                self._look(move, request, body)
            if move.fault is not None:
                self.ledger.faults.append(move.fault)
            return move

    def _look(self, move: Move, request: Json, body: bytes) -> None:
        told = request.get("messages") or request.get("contents") or request["input"]
        newest = json.dumps(told[-5:], ensure_ascii=False)
        if move.expects not in newest:
            self.ledger.surprises.append(f"the results should have {move.expects!r}: {newest[-500:]}")
        if self._marker not in body:
            self.ledger.surprises.append(f"the request should have {self._marker.decode()!r}")

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(ConnectionError):  # who asked was killed
                    super().handle()

            def do_GET(self) -> None:
                self._send(200, {"object": "list", "data": [{"id": "scripted", "object": "model"}]})

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                request, dialect = json.loads(body), dialect_of(self.path)
                move = model._move(WIRES[dialect], request, body)
                if isinstance(move, str):
                    self._refuse(dialect, 400, "invalid_request_error", "INVALID_ARGUMENT", move)
                elif move.fault in REFUSALS:
                    after = {"Retry-After": str(RETRY_AFTER)} if "says" in move.fault else {}
                    self._refuse(dialect, *REFUSALS[move.fault], f"the server is {move.fault}", after)
                elif request.get("stream") or "stream" in self.path:
                    self._stream(dialect, move)
                else:
                    self._send(200, dialect.whole(move.pieces))

            def _refuse(
                self, dialect: type, status: int, kind: str, name: str, reason: str, headers: Any = None
            ) -> None:
                error: Json = {"type": kind, "message": reason, "param": None, "code": None}
                body: Json = {"type": "error", "error": error}
                if dialect is Gemini:
                    body = {"error": {"code": status, "message": reason, "status": name}}
                self._send(status, body, headers)

            def _send(self, status: int, value: Json, headers: Mapping[str, str] | None = None) -> None:
                content = json.dumps(value).encode()
                self.send_response(status)
                for header, text in {"Content-Type": "application/json", **(headers or {})}.items():
                    self.send_header(header, text)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _stream(self, dialect: Any, move: Move) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                # So that a connection which is lost can be told from an answer that has ended.
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                events = [*_events(dialect, move)]
                middle = len(events) // 2
                try:
                    for at, event in enumerate(events):
                        if move.waits and at == middle:
                            model._released.wait(PATIENCE_SECONDS)
                        self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
                    if move.fault is None or not move.fault.startswith("dropped"):
                        self.wfile.write(b"0\r\n\r\n")
                        return
                except (BrokenPipeError, ConnectionResetError):
                    pass  # who asked has gone
                self.close_connection = True

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        return Handler


def _events(dialect: Any, move: Move) -> Iterator[bytes]:
    """Yield the events of an answer, as far as they come."""
    pieces = () if move.fault == "without anything" else move.pieces
    words = [word for piece in pieces for word in (_words(piece) if isinstance(piece, str) else (piece,))]
    events = [*dialect.stream(words)]
    leading, ending = LEADING[dialect], ENDING[dialect]
    match move.fault:
        case "dropped before the first word":
            events = events[:leading]
        case "dropped in the middle":
            events = events[: max(len(events) // 2, leading + 1)]
        case "dropped behind a call" | "without an end":
            events = events[:-ending]
    yield from events


def _words(text: str) -> Iterator[str]:
    """Yield the words of a text with the blanks behind them; joined they are the text."""
    *words, last = text.split(" ")
    yield from (f"{word} " for word in words)
    yield last
