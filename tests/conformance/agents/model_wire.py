"""The model agent's lines: JSON-RPC 2.0 over stdin and stdout, with a reader that never waits for a turn.

One thread reads. Whoever has something to say writes one line at a time. What a request means is left to
the classes above; they name their methods in `methods` and `notifications`.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import threading
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

Object = dict[str, Any]

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
UNKNOWN_METHOD = -32601
BAD_PARAMS = -32602
INTERNAL_ERROR = -32603
REQUEST_CANCELLED = -32800
LOGIN_REQUIRED = -32000
NOT_FOUND = -32002


class Refusal(Exception):  # noqa: N818 - it is a normal answer
    """An error that a request is answered with, by either side."""

    def __init__(self, code: int, message: str, data: object = None) -> None:
        super().__init__(message)
        self.error = {"code": code, "message": message} | ({} if data is None else {"data": data})


class Cancelled(Exception):  # noqa: N818 - it is a normal end
    """The turn is over because the client, or the end of the input, says so."""


class Cancellable(Protocol):
    """Work that can be told to stop while it waits for the client."""

    cancelled: bool


@dataclass
class Request:
    """What the client asks."""

    id: str | int | None
    method: str
    params: Any


@dataclass
class Question:
    """What the agent asks; the answer is a whole frame."""

    answer: Object | None = None


class Wire:
    """Reads, writes, and matches answers with what they answer."""

    methods: ClassVar[dict[str, str]] = {}
    notifications: ClassVar[dict[str, str]] = {}

    def __init__(self) -> None:
        self.changed = threading.Condition()
        """Guards all state that threads share; notified when an answer, a cancel or an end arrives."""
        self.ended = False
        self._writing = threading.Lock()
        self._questions: dict[int, Question] = {}
        self._ids = itertools.count(1)

    def serve(self) -> None:
        """Serve until the input ends."""
        sys.stdout = sys.stderr
        try:
            for line in self.lines():
                if line.strip():
                    self.receive(line)
        finally:
            self.finish()

    def lines(self) -> Iterable[bytes]:
        """What the client writes, of any length."""
        return sys.stdin.buffer

    def finish(self) -> None:
        """Let go of everything, now that nobody listens."""
        with self.changed:
            self.ended = True
            self.changed.notify_all()

    def receive(self, line: bytes) -> None:
        """Take one line."""
        try:
            message = json.loads(line.decode(), parse_constant=refuse_constant)
        except (ValueError, RecursionError) as error:
            self.refuse_line(str(error))
            return
        match message:
            case {"method": _, "id": _}:
                self.take_request(message)
            case {"method": _}:
                self.take_notification(message)
            case {"id": _, "result": _} | {"id": _, "error": _}:
                self.take_answer(message)
            case {"id": identity} if is_id(identity):
                self.send_error(identity, Refusal(INVALID_REQUEST, "neither a request nor an answer"))
            case _:
                self.send_error(None, Refusal(INVALID_REQUEST, "not a JSON-RPC message"))

    def refuse_line(self, reason: str) -> None:
        """Answer a line that is no JSON."""
        self.send_error(None, Refusal(PARSE_ERROR, f"not JSON: {reason}"))

    def take_request(self, message: Object) -> None:
        """Give a request to its method, which answers it now or later."""
        identity, method = message["id"], message["method"]
        if not is_id(identity):
            self.send_error(None, Refusal(INVALID_REQUEST, "an id is a string, an integer or null"))
            return
        request = Request(identity, method, message.get("params"))
        try:
            if message.get("jsonrpc") != "2.0" or not isinstance(method, str):
                raise Refusal(INVALID_REQUEST, "not a JSON-RPC 2.0 request")
            self.dispatch(request)
        except Refusal as refusal:
            self.answer_error(request, refusal)
        except Exception:
            traceback.print_exc()
            self.answer_error(request, Refusal(INTERNAL_ERROR, f"{method} failed"))

    def dispatch(self, request: Request) -> None:
        """Call the method that a request names."""
        if request.method not in self.methods:
            self.answer_unknown(request)
            return
        if request.params is None:
            request.params = {}
        if not isinstance(request.params, dict):
            raise Refusal(BAD_PARAMS, "params must be an object")
        self.admit(request)
        getattr(self, self.methods[request.method])(request)

    def admit(self, request: Request) -> None:
        """Refuse what may not be asked yet."""

    def answer_unknown(self, request: Request) -> None:
        """Answer a request whose method nobody knows."""
        raise Refusal(UNKNOWN_METHOD, f"unknown method {request.method}")

    def take_notification(self, message: Object) -> None:
        """Act on a notification; one that is unknown or malformed is passed over in silence."""
        params = message.get("params")
        name = self.notifications.get(str(message["method"]))
        if name and isinstance(params, dict):
            getattr(self, name)(params)
        else:
            self.ignore_notification(message)

    def ignore_notification(self, message: Object) -> None:
        """Do nothing but say so in the log."""
        log(f"ignored the notification {message['method']!r}")

    def take_answer(self, message: Object) -> None:
        """Wake who waits for this answer."""
        with self.changed:
            question = self._questions.get(message["id"]) if type(message["id"]) is int else None
            if question:
                question.answer = message
                self.changed.notify_all()

    def ask(
        self, turn: Cancellable | None, method: str, params: Object, *, seconds: float | None = None
    ) -> Object:
        """Ask the client; a cancel of the turn ends the wait and takes the question back."""
        identity, question = next(self._ids), Question()
        with self.changed:
            self._questions[identity] = question
        self.send({"id": identity, "method": method, "params": params})
        with self.changed:
            self.changed.wait_for(lambda: question.answer or self.given_up(turn), seconds)
            del self._questions[identity]
        if question.answer is None:
            self.notify("$/cancel_request", {"requestId": identity})
        if self.given_up(turn):
            raise Cancelled
        if question.answer is None:
            raise Refusal(INTERNAL_ERROR, f"{method} was not answered within {seconds} s")
        return result_of(question.answer)

    def given_up(self, turn: Cancellable | None) -> bool:
        """Whether nobody needs an answer any more."""
        return self.ended or (turn is not None and turn.cancelled)

    def answer(self, request: Request, result: Object) -> None:
        """Answer a request."""
        self.send({"id": request.id, "result": result})

    def answer_error(self, request: Request, refusal: Refusal) -> None:
        """Answer a request with an error."""
        self.send_error(request.id, refusal)

    def send_error(self, identity: object, refusal: Refusal) -> None:
        """Answer with an error, also what was no request."""
        self.send({"id": identity, "error": refusal.error})

    def notify(self, method: str, params: Object) -> None:
        """Tell the client."""
        self.send({"method": method, "params": params})

    def send(self, frame: Object) -> None:
        """Write one frame."""
        self.write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\n")

    def write(self, data: bytes) -> None:
        """Write bytes, unmixed with those of other threads; a client that left misses nothing."""
        with self._writing:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except OSError as error:
                log(f"the client reads no more: {error}")


def is_id(value: object) -> bool:
    """Whether JSON-RPC lets this be an id."""
    return value is None or isinstance(value, str) or type(value) is int


def result_of(answer: Object) -> Object:
    """The result in an answer; an error in it is raised."""
    if "error" in answer:
        error = answer["error"] if isinstance(answer["error"], dict) else {}
        raise Refusal(error.get("code", INTERNAL_ERROR), str(error.get("message", "an error")))
    return answer["result"] if isinstance(answer["result"], dict) else {}


def refuse_constant(name: str) -> None:
    """NaN and the infinities are no JSON, whatever Python thinks."""
    raise ValueError(f"{name} is not a JSON value")


def log(text: str) -> None:
    """Say something to whoever reads stderr."""
    print(text, file=sys.stderr, flush=True)
