"""What the tests of a peer share: a transport made of lists, an endpoint that remembers, and waiting."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from msgspec import Raw

from coupler.wire.messages import METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import Peer, Request
from coupler.wire.transport import Receiver

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds after which a test that waits has failed."""


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run a test's coroutine; nothing that it left behind may have failed unseen, or still be running."""

    async def guarded() -> T:
        problems: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
        async with asyncio.timeout(PATIENCE):
            result = await work
        left = asyncio.all_tasks() - {asyncio.current_task()}
        assert not left, f"left running: {left}"
        assert not problems, f"failed unseen: {problems}"
        return result

    return asyncio.run(guarded())


async def until(condition: Callable[[], object]) -> None:
    """Let the loop work until the condition holds."""
    async with asyncio.timeout(PATIENCE):
        while not condition():
            await asyncio.sleep(0)


async def ticks(count: int = 5) -> None:
    """Give everything that could happen now the time to happen."""
    for _ in range(count):
        await asyncio.sleep(0)


class Tape:
    """A transport that keeps what is written; `room` is how many bytes it takes before it is full."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.room: int | None = None
        self.closed = False
        self.is_paused = False

    def open(self, receiver: Receiver) -> None:
        self.receiver = receiver

    def pause_reading(self) -> None:
        self.is_paused = True

    def resume_reading(self) -> None:
        self.is_paused = False

    def write(self, data: bytes | memoryview) -> int:
        taken = len(data) if self.room is None else min(self.room, len(data))
        if self.room is not None:
            self.room -= taken
        if taken:
            self.writes.append(bytes(data[:taken]))
        return taken

    def make_room(self, room: int | None = None) -> None:
        self.room = room
        self.receiver.output_ready()

    def close(self) -> None:
        self.closed = True

    @property
    def lines(self) -> list[bytes]:
        return b"".join(self.writes).splitlines()

    @property
    def messages(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.lines]


class Listener:
    """An endpoint that notes down everything; `echo` is answered, other methods as `handlers` say."""

    def __init__(self, **handlers: Callable[[Request], object]) -> None:
        self.handlers: dict[str, Callable[[Request], object]] = {"echo": answer_params, **handlers}
        self.heard: list[tuple[str, Any]] = []
        self.requests: list[Request] = []
        self.ends: list[RpcError] = []

    def request_received(self, request: Request) -> None:
        self.requests.append(request)
        handler = self.handlers.get(request.method)
        if handler is None:
            raise RpcError.because(METHOD_NOT_FOUND, f"{request.method} is unknown")
        handler(request)

    def notification_received(self, method: str, params: Raw) -> None:
        self.heard.append((method, json.loads(bytes(params)) if params else None))

    def disconnected(self, error: RpcError) -> None:
        self.ends.append(error)


def answer_params(request: Request) -> None:
    request.answer(request.params if request.params else None)


def peer_on_tape(listener: Listener | None = None, **options: Any) -> tuple[Peer, Tape]:
    tape = Tape()
    peer = Peer(tape, listener or Listener(), **options)
    peer.open()
    return peer, tape


def request_line(id: object = 1, method: str = "echo", params: object = None) -> bytes:
    message = {"jsonrpc": "2.0", "id": id, "method": method, "params": params or {}}
    return json.dumps(message).encode() + b"\n"


def notification_line(method: str, params: object = None) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params or {}}).encode() + b"\n"
