"""A server on loopback in a model's place, whose answer never ends. Of which kind it is, the address says."""

from __future__ import annotations

import gzip
import itertools
import json
import socketserver
import threading
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

TEXT = "All work and no play makes Jack a dull boy. " * 230
"""About 10 KB."""

STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n"
JSON = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n"
FAILED = b"HTTP/1.1 400 Bad Request\r\nContent-Type: application/json\r\nConnection: close\r\n"
PACKED = b"Content-Encoding: gzip\r\n"


def event(**delta: Any) -> bytes:
    """A piece of an answer."""
    choice = {"index": 0, "delta": delta, "finish_reason": None}
    chunk = {"id": "x", "object": "chat.completion.chunk", "model": "m", "created": 1, "choices": [choice]}
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


def call(number: int, arguments: str, **fields: Any) -> bytes:
    """A piece of a tool call."""
    function = {"arguments": arguments, **({"name": "run_command"} if fields else {})}
    return event(tool_calls=[{"index": number, "type": "function", "function": function, **fields}])


def calls() -> Iterator[bytes]:
    for number in itertools.count():
        yield call(number, '{"command": "true"}', id=f"call-{number}")


def argument() -> Iterator[bytes]:
    yield call(0, '{"command": "', id="call-0")
    yield from itertools.repeat(call(0, TEXT))


def headers() -> Iterator[bytes]:
    for number in itertools.count():
        yield f"X-{number}: {TEXT[:1000]}\r\n".encode()


def packed(content: bytes) -> Iterator[bytes]:
    """A body that is about a thousand times as long when it is unpacked, and never ends."""
    packer = zlib.compressobj(wbits=16 + zlib.MAX_WBITS)
    while True:
        yield packer.compress(content * 1000) + packer.flush(zlib.Z_SYNC_FLUSH)


FLOODS: dict[str, tuple[bytes, Iterator[bytes]]] = {
    "text": (STREAM + b"\r\n", itertools.repeat(event(content=TEXT))),
    "letters": (STREAM + b"\r\n", itertools.repeat(event(content="x") * 100)),
    "thoughts": (STREAM + b"\r\n", itertools.repeat(event(reasoning_content=TEXT))),
    "an argument": (STREAM + b"\r\n", argument()),
    "calls": (STREAM + b"\r\n", calls()),
    "nothing new": (STREAM + b"\r\n", itertools.repeat(event() * 100)),
    "a line": (STREAM + b"\r\ndata: ", itertools.repeat(b"x" * 65536)),
    "an event": (STREAM + b"\r\n", itertools.repeat(b"data: x\n" * 5000)),
    "comments": (STREAM + b"\r\n", itertools.repeat(b": x\n\n" * 5000)),
    "headers": (STREAM, headers()),
    "a header": (STREAM + b"X: ", itertools.repeat(b"x" * 65536)),
    "a body": (JSON + b'\r\n{"id": "', itertools.repeat(b"x" * 65536)),
    "an error": (FAILED + b'\r\n{"error": {"message": "', itertools.repeat(b"x" * 65536)),
    "a packed stream": (STREAM + PACKED + b"\r\n", packed(event(content=TEXT))),
    "a packed tail": (
        STREAM + PACKED + b"\r\n" + gzip.compress(event(content="x")),
        itertools.repeat(b"x" * 65536),
    ),
    "a packed body": (JSON + PACKED + b"\r\n", packed(TEXT.encode())),
    "silence": (STREAM + b"\r\n", iter(())),
}


class _Flooding(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        kind = self.rfile.readline().split()[1].decode().split("/")[1].replace("-", " ")
        length = 0
        while (line := self.rfile.readline()).strip():
            name, _, value = line.partition(b":")
            length = int(value) if name.lower() == b"content-length" else length
        self.rfile.read(length)
        head, flood = FLOODS[kind]
        try:
            self.wfile.write(head)
            for piece in flood:
                self.wfile.write(piece)
            self.rfile.read(1)
        except OSError:
            pass  # the client has heard enough


@contextmanager
def flooding_server() -> Iterator[str]:
    """The server's address: a kind and a path follow it, as in `…/a-line/v1`."""

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True
        block_on_close = False

    with Server(("127.0.0.1", 0), _Flooding) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
