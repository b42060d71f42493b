"""Throw random frames at a peer over real pipes: no crash, no hang, no lost next message.

    python scripts/soak.py --frames 1000000 --seed 7

Valid requests, mutated ones, garbage, oversized lines and odd answers are written in pieces of random size.
After every batch a sentinel request has to be answered, and every valid request before it exactly once and in
order. A failure prints the seed that repeats it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import random
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

from msgspec import Raw

from coupler.wire.messages import METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import Peer, Request
from coupler.wire.pipe_transport import PipeTransport

BATCH = 1000
FRAME_LIMIT = 32 * 1024
PATIENCE = 60.0
"""Seconds that a sentinel may take."""

NOISE = logging.getLogger("coupler.wire")


class SoakError(AssertionError):
    """The peer broke a promise."""


class Served:
    """The endpoint under fire: answers at once, later, with errors, and asks back."""

    def __init__(self) -> None:
        self.peer: Peer | None = None
        self.asked = 0
        self.told = 0
        self.ends = 0

    def request_received(self, request: Request) -> None:
        match request.method:
            case "echo":
                request.answer(request.params if request.params else None)
            case "later":
                request.lane = "later"
                request.run(self._answer_later())
            case "crash":
                raise ValueError("as asked")
            case _:
                raise RpcError.because(METHOD_NOT_FOUND, f"{request.method} is unknown")

    def notification_received(self, method: str, params: Raw) -> None:
        if method == "ask" and self.peer is not None:
            self.asked += 1
            self.peer.ask("question", {}, self._count_answer)
        elif method == "crash":
            raise ValueError("as asked")

    def disconnected(self, error: RpcError) -> None:
        self.ends += 1

    async def _answer_later(self) -> dict[str, bool]:
        await asyncio.sleep(0)
        return {"later": True}

    def _count_answer(self, answer: Raw | RpcError) -> None:
        self.told += 1


class Attacker:
    """The other side of the pipes: writes bytes in pieces, and checks every line that comes back."""

    def __init__(self, transport: PipeTransport, chance: random.Random) -> None:
        self._transport = transport
        self._chance = chance
        self._unwritten = memoryview(b"")
        self._unread = b""
        self._changed = asyncio.Event()
        self.expected: list[str] = []
        self.answered: list[str] = []
        self.later: dict[str, int] = {}
        self.lines = 0
        self.problem: Exception | None = None

    def data_received(self, data: bytes) -> None:
        *lines, self._unread = (self._unread + data).split(b"\n")
        self._changed.set()
        try:
            for line in lines:
                self._check(json.loads(line, parse_int=str))  # some have 10,000 digits
        except (SoakError, ValueError) as problem:
            self.problem = self.problem or problem

    def input_ended(self, error: Exception | None) -> None:
        self.problem = self.problem or SoakError(f"the peer ended the connection: {error}")
        self._changed.set()

    def output_ready(self) -> None:
        self._changed.set()

    async def write(self, data: bytes) -> None:
        """Write all of it, in pieces, while the answers keep coming in."""
        self._unwritten = memoryview(data)
        while self._unwritten:
            piece = self._unwritten[: self._chance.choice((1, 7, 100, 4096, 65536, 1 << 20))]
            sent = self._transport.write(piece)
            self._unwritten = self._unwritten[sent:]
            if sent < len(piece):
                await self.wait_for_change()
            elif self._chance.random() < 0.5:
                await asyncio.sleep(0)

    async def wait_for_change(self) -> None:
        self._changed.clear()
        async with asyncio.timeout(PATIENCE):
            await self._changed.wait()
        if self.problem is not None:
            raise self.problem

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            await self.wait_for_change()

    def _check(self, message: Any) -> None:
        self.lines += 1
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            raise SoakError(f"the peer wrote {message!r}")
        if "method" in message:
            return
        if ("result" in message) == ("error" in message):
            raise SoakError(f"the peer answered {message!r}")
        name = str(message["id"])
        if name.startswith("tracked-"):
            self.answered.append(name)
        elif name in self.later:
            self.later[name] += 1


class Frames:
    """An endless supply of lines, good and bad."""

    def __init__(self, chance: random.Random, attacker: Attacker) -> None:
        self._chance = chance
        self._attacker = attacker
        self._count = 0
        self._kinds: list[Callable[[], bytes]] = [
            self._tracked,
            self._tracked,
            self._later,
            self._mutated,
            self._mutated,
            self._mutated,
            self._mutated,
            self._noise,
            self._json_noise,
            self._awkward,
            self._answer,
            self._notification,
        ]

    def batch(self, size: int) -> bytes:
        ends = (b"\n", b"\n", b"\n", b"\r\n", b"\n\n", b" \n")
        lines = []
        for _ in range(size):
            kind = self._oversized if self._chance.random() < 0.001 else self._chance.choice(self._kinds)
            lines += [kind(), self._chance.choice(ends)]
        return b"".join(lines)

    def _tracked(self) -> bytes:
        self._count += 1
        name = f"tracked-{self._count}"
        self._attacker.expected.append(name)
        method = self._chance.choice(("echo", "echo", "crash", "unknown"))
        return _line({"jsonrpc": "2.0", "id": name, "method": method, "params": {"n": self._count}})

    def _later(self) -> bytes:
        self._count += 1
        name = f"later-{self._count}"
        self._attacker.later[name] = 0
        request = _line({"jsonrpc": "2.0", "id": name, "method": "later"})
        if self._chance.random() < 0.3:
            params = {"requestId": name}
            request += b"\n" + _line({"jsonrpc": "2.0", "method": "$/cancel_request", "params": params})
        return request

    def _mutated(self) -> bytes:
        """A valid message with some bytes changed, lost, doubled or added."""
        message: dict[str, Any] = {
            "jsonrpc": "2.0",
            "id": self._chance.choice((0, -1, 2**70, "mutated", None, 1.5, True, {}, [])),
            "method": self._chance.choice(("echo", "later", "crash", "$/cancel_request")),
            "params": self._chance.choice(
                ({"a": ["\\", '"', "\ud800", "é😀"]}, [], {"requestId": 1}, 7, "x" * 300)
            ),
            self._chance.choice(("result", "error", "other")): self._chance.choice((None, {"code": 1}, "x")),
        }
        for name in self._chance.sample(list(message), self._chance.randint(0, 3)):
            del message[name]
        line = bytearray(
            json.dumps(message, ensure_ascii=self._chance.random() < 0.5).encode("utf-8", "replace")
        )
        for _ in range(self._chance.randint(0, 3)):
            at = self._chance.randrange(len(line) + 1)
            match self._chance.randint(0, 4):
                case 0:
                    line[at : at + 1] = bytes([self._chance.randrange(256)])
                case 1:
                    del line[at : at + self._chance.randint(1, 20)]
                case 2:
                    line[at:at] = line[at : at + self._chance.randint(1, 20)]
                case 3:
                    line[at:at] = self._chance.choice(
                        (b'"', b"\\", b"{", b"}", b"[", b"]", b":", b",", b"\0", b"\n")
                    )
                case 4:
                    del line[at:]
        return bytes(line)

    def _noise(self) -> bytes:
        return self._chance.randbytes(self._chance.randint(0, 80))

    def _json_noise(self) -> bytes:
        pieces = (
            b'{ } [ ] " \\ : , 1 - e null NaN \xff "id" "method" "jsonrpc" "2.0" "result" "error"'.split()
        )
        pieces += [rb"\ud800", b" ", b'"params"']
        return b"".join(self._chance.choices(pieces, k=self._chance.randint(1, 40)))

    def _awkward(self) -> bytes:
        depth = self._chance.choice((150, 250, 3000))
        number = b"9" * self._chance.choice((20, 10_000))
        return self._chance.choice(
            (
                b"\xef\xbb\xbf" + _line({"jsonrpc": "2.0", "id": 1, "method": "echo"}),
                b'{"jsonrpc":"2.0","id":1,"method":"echo","params":%b%b}' % (b"[" * depth, b"]" * depth),
                b'{"jsonrpc":"2.0","method":"echo","params":%b1%b,"id":1}' % (b'{"a":' * depth, b"}" * depth),
                b'{"jsonrpc":"2.0","id":%b,"method":"echo","params":[%b]}' % (number, number),
                b'[{"jsonrpc":"2.0","id":1,"method":"echo"}]',
                rb'{"jsonrpc":"2.0","id":"\ud800","method":"echo","params":{"\udc00":"\ud83d\ude00\ud83d"}}',
                b'"' * self._chance.randint(1, 500),
                b"\\" * self._chance.randint(1, 500),
                b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"%b' % (rb"\"" * 500),
                b"\0" * 10,
                b"",
            )
        )

    def _answer(self) -> bytes:
        asked = self._chance.choice((self._chance.randint(0, 5000), "1", None, 1.0))
        members = (b'"result":{}', b'"result":null', b'"error":null', b'"error":{"code":1}', b'"result":')
        return b'{"jsonrpc":"2.0","id":%b,%b}' % (json.dumps(asked).encode(), self._chance.choice(members))

    def _notification(self) -> bytes:
        method = self._chance.choice(("ask", "ask", "crash", "other", 5, None))
        return _line({"jsonrpc": "2.0", "method": method, "params": self._chance.choice(({}, [], None, 1))})

    def _oversized(self) -> bytes:
        filling = self._chance.choice((b"x", b"[", b'"', rb"\"", b"\xff")) * (
            FRAME_LIMIT + self._chance.randint(1, 10_000)
        )
        return self._chance.choice((b"", b'{"jsonrpc":"2.0","id":1,"method":"echo","params":"')) + filling


class Complaints(logging.Handler):
    """Faults of the peer itself, as its log tells them."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        fault = record.exc_info[1] if record.exc_info else None
        if not (isinstance(fault, ValueError) and str(fault) == "as asked"):
            self.found.append(f"{record.getMessage()}: {fault!r}")


def _line(message: dict[str, Any]) -> bytes:
    return json.dumps(message).encode()


async def soak(frames: int, seed: int) -> str:
    """Send so many frames; the summary."""
    chance = random.Random(seed)
    problems: list[Any] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: problems.append(context))
    complaints = Complaints()
    NOISE.addHandler(complaints)
    NOISE.propagate = False
    NOISE.setLevel(logging.ERROR)

    near_read, far_write = os.pipe()
    far_read, near_write = os.pipe()
    served = Served()
    peer = served.peer = Peer(PipeTransport(near_read, near_write), served, frame_limit=FRAME_LIMIT)
    peer.open()
    far = PipeTransport(far_read, far_write)
    attacker = Attacker(far, chance)
    far.open(attacker)
    supply = Frames(chance, attacker)

    start = time.perf_counter()
    slowest = 0.0
    for sent in range(0, frames, BATCH):
        size = min(BATCH, frames - sent)
        sentinel = f"tracked-sentinel-{sent}"
        batch_start = time.perf_counter()
        await attacker.write(supply.batch(size))
        # What was left open by the batch ends here; the sentinel has a line to itself.
        attacker.expected.append(sentinel)
        await attacker.write(b"\n" + _line({"jsonrpc": "2.0", "id": sentinel, "method": "echo"}) + b"\n")
        await attacker.wait_until(lambda: attacker.answered[-1:] == attacker.expected[-1:])
        await attacker.wait_until(lambda: all(attacker.later.values()))
        slowest = max(slowest, time.perf_counter() - batch_start)
        _check_batch(attacker, [*problems, *complaints.found])
    elapsed = time.perf_counter() - start

    peer.input_ended(None)
    if served.told != served.asked or served.ends != 1:
        raise SoakError(f"{served.asked} questions, {served.told} answers, {served.ends} ends")
    await peer.drain()
    await peer.close()
    far.close()
    left = asyncio.all_tasks() - {asyncio.current_task()}
    if left or problems or complaints.found:
        raise SoakError(f"left behind: {left}, {problems}, {complaints.found}")
    unit = 1024 * 1024 if sys.platform == "darwin" else 1024
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // unit
    return (
        f"all sentinels answered: {frames} frames, {attacker.lines} messages back, {elapsed:.0f} s,"
        f" slowest batch {slowest * 1000:.0f} ms, peak memory {memory} MB, seed {seed}"
    )


def _check_batch(attacker: Attacker, problems: list[Any]) -> None:
    if problems:
        raise SoakError(f"faults: {problems[:3]}")
    if attacker.answered != attacker.expected:
        wrong = next(
            (pair for pair in zip(attacker.answered, attacker.expected, strict=False) if pair[0] != pair[1]),
            None,
        )
        raise SoakError(
            f"answered {len(attacker.answered)} of {len(attacker.expected)}, first wrong: {wrong}"
        )
    if doubled := [name for name, count in attacker.later.items() if count != 1]:
        raise SoakError(f"answered more than once: {doubled[:3]}")
    attacker.answered.clear()
    attacker.expected.clear()
    attacker.later.clear()


def main() -> None:
    parser = argparse.ArgumentParser(description="Throw random frames at a peer over real pipes.")
    parser.add_argument("--frames", type=int, default=1_000_000, help="how many (default: a million)")
    parser.add_argument("--seed", type=int, default=None, help="repeats a run (default: a new one)")
    arguments = parser.parse_args()
    seed = arguments.seed if arguments.seed is not None else random.SystemRandom().randrange(2**32)
    try:
        print(asyncio.run(soak(arguments.frames, seed)))
    except (Exception, KeyboardInterrupt) as problem:
        sys.exit(f"seed {seed}: {type(problem).__name__}: {problem}")


if __name__ == "__main__":
    main()
