"""A model behind an address: the part of OpenAI's chat completions that agents use, over real HTTP.

    with ModelServer([says("Hello"), calls("add", a=1, b=2), refuses(429, retry_after=1)]) as server:
        ChatOpenAI(base_url=server.url, api_key="key")

One reply for each request, the last is repeated; one that depends on the request is a function of it. What
was asked is in `server.asked`. Replies are streamed if the request wants that, and whole otherwise.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

Delta = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """What one request is answered with."""

    deltas: Sequence[Delta] = ()
    finish: str = "stop"
    usage: tuple[int, int] = (10, 5)
    more_usage: dict[str, Any] = field(default_factory=dict)
    """What else is reported of it, such as tokens from a cache, or the cost."""
    status: int = 200
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    holds: bool = False
    """Whether it waits, after the first delta, until `server.release()`."""
    is_cut: bool = False
    """Whether the connection breaks after the deltas."""
    fails_with: dict[str, Any] | None = None
    """The error that comes after the deltas, in place of an end."""


def says(*pieces: str, finish: str = "stop", **more: Any) -> Reply:
    """A text, piece by piece."""
    return Reply([{"content": piece} for piece in pieces], finish, **more)


def calls(name: str, id: str = "call_1", /, **arguments: Any) -> Reply:
    """A tool call, its arguments in two pieces."""
    return Reply(call_deltas(0, id, name, arguments), "tool_calls")


def call_deltas(index: int, id: str, name: str, arguments: Any) -> list[Delta]:
    """The pieces of one call among those of an answer."""
    text = json.dumps(arguments)
    middle = len(text) // 2
    first = {"index": index, "id": id, "type": "function", "function": {"name": name, "arguments": ""}}
    rest = [{"index": index, "function": {"arguments": part}} for part in (text[:middle], text[middle:])]
    return [{"tool_calls": [part]} for part in (first, *rest)]


def refuses(status: int, message: str, code: str | None = None, retry_after: float | None = None) -> Reply:
    """An error, as OpenAI answers it."""
    error = {"message": message, "type": "invalid_request_error", "param": None, "code": code}
    headers = {} if retry_after is None else {"Retry-After": f"{retry_after:g}"}
    return Reply(status=status, body={"error": error}, headers=headers)


def strictly(reply: Reply) -> Callable[[dict[str, Any]], Reply]:
    """The reply, if every tool call in the conversation has a result; OpenAI refuses any other as well."""

    def answer(request: dict[str, Any]) -> Reply:
        unanswered: set[str] = set()
        for message in request["messages"]:
            if message["role"] == "tool":
                if message["tool_call_id"] not in unanswered:
                    return refuses(400, "a tool message must follow the call that it answers")
                unanswered.discard(message["tool_call_id"])
            elif unanswered:
                return refuses(400, f"tool calls must be followed by their results: {unanswered}")
            unanswered |= {call["id"] for call in message.get("tool_calls", ())}
        return reply if not unanswered else refuses(400, f"tool calls without results: {unanswered}")

    return answer


def breaks_off(*pieces: str, **error: Any) -> Reply:
    """A text that ends with an error in its stream, as OpenAI sends it: too late for a status."""
    return says(*pieces, fails_with={"message": "something went wrong", "param": None, **error})


UNAUTHORIZED = refuses(401, "Incorrect API key provided", "invalid_api_key")
RATE_LIMITED = refuses(429, "Rate limit reached", "rate_limit_exceeded", retry_after=7)
TOO_LONG = refuses(400, "This model's maximum context length is 10 tokens", "context_length_exceeded")


class ModelServer:
    """Answers on a loopback port, in threads."""

    def __init__(self, replies: Sequence[Reply | Callable[[dict[str, Any]], Reply]]) -> None:
        self.replies = replies
        self.asked: list[dict[str, Any]] = []
        self.keys: set[str] = set()
        """What requests were authorized by."""
        self._released = threading.Event()
        self._counting = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._answering())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def url(self) -> str:
        """The base address that clients are given."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def release(self) -> None:
        """Let replies that hold go on."""
        self._released.set()

    def hold(self) -> None:
        """Let replies that hold wait again."""
        self._released.clear()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _next(self, request: dict[str, Any]) -> Reply:
        with self._counting:
            self.asked.append(request)
            reply = self.replies[min(len(self.asked), len(self.replies)) - 1]
        return reply if isinstance(reply, Reply) else reply(request)

    def _answering(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Answering(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.keys.add(self.headers.get("Authorization", ""))
                reply = server._next(request)
                if reply.status != 200:
                    self._send(reply.status, reply.body, reply.headers)
                elif request.get("stream"):
                    self._stream(reply)
                else:
                    self._send(200, _whole(reply), reply.headers)

            def _send(self, status: int, body: Any, headers: dict[str, str]) -> None:
                content = json.dumps(body).encode()
                self.send_response(status)
                for name, value in {"Content-Type": "application/json", **headers}.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            def _stream(self, reply: Reply) -> None:
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                # So that an answer which breaks off can be told from one that has ended.
                self.send_header("Transfer-Encoding", "chunked")
                self.end_headers()
                try:
                    for number, chunk in enumerate(_chunks(reply)):
                        if number == 1 and reply.holds:
                            server._released.wait()
                        self._event(json.dumps(chunk))
                    if not reply.is_cut:
                        self._event("[DONE]")
                        self.wfile.write(b"0\r\n\r\n")
                except (BrokenPipeError, ConnectionResetError):
                    pass  # who asked has gone
                self.close_connection = True

            def _event(self, data: str) -> None:
                event = f"data: {data}\n\n".encode()
                self.wfile.write(b"%x\r\n%b\r\n" % (len(event), event))
                self.wfile.flush()

            def log_message(self, *_: object) -> None:
                pass

        return Answering


def _chunks(reply: Reply) -> Iterator[dict[str, Any]]:
    frame = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "scripted"}
    for number, delta in enumerate(reply.deltas):
        role = {"role": "assistant"} if number == 0 else {}
        yield {**frame, "choices": [{"index": 0, "delta": {**role, **delta}, "finish_reason": None}]}
    if reply.fails_with is not None:
        yield {"error": reply.fails_with}
    if reply.is_cut or reply.fails_with is not None:
        return
    yield {**frame, "choices": [{"index": 0, "delta": {}, "finish_reason": reply.finish}]}
    yield {**frame, "choices": [], "usage": _usage(reply)}


def _whole(reply: Reply) -> dict[str, Any]:
    text = "".join(delta.get("content", "") for delta in reply.deltas)
    parts = [part for delta in reply.deltas for part in delta.get("tool_calls", ())]
    message: dict[str, Any] = {"role": "assistant", "content": text or None}
    for name in ("reasoning_content", "reasoning"):
        if thought := "".join(delta.get(name, "") for delta in reply.deltas):
            message[name] = thought
    if parts:
        message["tool_calls"] = [_joined(parts, first) for first in parts if "id" in first]
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": message, "finish_reason": reply.finish}],
        "usage": _usage(reply),
    }


def _joined(parts: list[dict[str, Any]], first: dict[str, Any]) -> dict[str, Any]:
    of_call = [part["function"] for part in parts if part["index"] == first["index"]]
    arguments = "".join(function.get("arguments", "") for function in of_call)
    function = {"name": first["function"]["name"], "arguments": arguments}
    return {"id": first["id"], "type": "function", "function": function}


def _usage(reply: Reply) -> dict[str, Any]:
    prompt, completion = reply.usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        **reply.more_usage,
    }
