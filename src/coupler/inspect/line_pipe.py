"""Lines over a transport, kept in a trace: what the scripted client and the scripted agent stand on.

Nothing is understood here beyond lines and answers, so that a script can send and see anything.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from typing import Any, Literal, TypeVar

from coupler.__about__ import __version__
from coupler.inspect.trace import Entry, Side, Trace, id_key
from coupler.wire.frames import FrameBuffer, Oversized
from coupler.wire.transport import Transport

T = TypeVar("T")

INFO = {"name": "coupler-check", "title": "Coupler's conformance kit", "version": __version__}
"""Who a scripted peer says it is."""

LINE_LIMIT = 64 * 1024 * 1024
"""Bytes of the longest line that is kept whole."""

FLOOD_LINES = 100_000
FLOOD_BYTES = 256 * 1024 * 1024
"""What one peer may write in all before it counts as a flood and is read no more."""

Kind = Literal["silent", "gone", "flood", "spawn"]


class ScriptError(Exception):
    """The other side did not do what the script waited for."""

    def __init__(self, kind: Kind, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class LinePipe:
    """One end of a connection: writes lines, notes lines, and wakes whoever waits for one."""

    def __init__(self, transport: Transport, us: Side, trace: Trace, timeout: float) -> None:
        self.trace = trace
        self.timeout = timeout
        self.has_ended = False
        self.when_received: Callable[[Entry], None] = lambda entry: None
        self._us: Side = us
        self._them: Side = "agent" if us == "client" else "client"
        self._transport = transport
        self._frames = FrameBuffer(LINE_LIMIT)
        self._began = time.monotonic()
        self._unwritten = b""
        self._bytes_read = 0
        self._lines_read = 0
        self._is_flooded = False
        self._answers: dict[str, Entry] = {}
        self._news = asyncio.Event()

    def open(self) -> None:
        self._transport.open(self)

    def close(self) -> None:
        self._transport.close()

    def write(self, data: bytes) -> None:
        """Send bytes as they are; each line of them is noted."""
        for line in data.splitlines():
            self.trace.append(self._now(), self._us, line)
        self._unwritten += data
        self.output_ready()

    def send(self, message: dict[str, Any]) -> None:
        """Send a message, with the member that every one has."""
        self.write(json.dumps({"jsonrpc": "2.0", **message}, ensure_ascii=False).encode() + b"\n")

    async def until(self, look: Callable[[], T | None], what: str, within: float | None = None) -> T:
        """Wait until `look` finds something; it is asked again whenever a line has come."""
        limit = self.timeout if within is None else within
        try:
            async with asyncio.timeout(limit):
                while (found := look()) is None:
                    self._raise_if_over(what)
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            raise ScriptError("silent", f"{what} did not come within {limit:g} s") from None
        return found

    async def answer(self, id: Any, what: str, within: float | None = None) -> Entry:
        """Wait for the answer to the request with this id."""
        return await self.until(lambda: self._answers.get(id_key(id)), what, within)

    async def quiet(self, seconds: float) -> None:
        """Let that time pass, or stop early when the other side is gone."""
        try:
            async with asyncio.timeout(seconds):
                while not self.has_ended and not self._is_flooded:
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return

    def data_received(self, data: bytes) -> None:
        self._bytes_read += len(data)
        for frame in self._frames.feed(data):
            self._note(frame)
        self._news.set()

    def input_ended(self, error: Exception | None) -> None:
        for frame in self._frames.end():
            self._note(frame)
        self.has_ended = True
        self._news.set()

    def output_ready(self) -> None:
        if self._unwritten and not self.has_ended:
            sent = self._transport.write(self._unwritten)
            self._unwritten = self._unwritten[sent:]

    def _note(self, frame: bytes | Oversized) -> None:
        self._lines_read += 1
        if self._lines_read > FLOOD_LINES or self._bytes_read > FLOOD_BYTES:
            self._is_flooded = True
        if self._is_flooded:
            return
        line = frame if isinstance(frame, bytes) else frame.head + b"\xe2\x80\xa6" + frame.tail
        entry = self.trace.append(self._now(), self._them, line)
        if entry.is_answer:
            self._answers.setdefault(id_key(entry.message.get("id")), entry)
        self.when_received(entry)

    def _raise_if_over(self, what: str) -> None:
        if self._is_flooded:
            raise ScriptError("flood", f"the {self._them} wrote without end while {what} was waited for")
        if self.has_ended:
            raise ScriptError("gone", f"the {self._them} closed the connection before {what} came")

    def _now(self) -> float:
        return time.monotonic() - self._began
