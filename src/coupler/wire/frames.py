"""Splits a stream of bytes into frames, and drops what is longer than a limit.

A frame is one line without its line end. Blank lines, a byte-order mark and CR are removed. A line over
the limit is dropped while it streams: memory stays constant, and one `Oversized` takes its place.
"""

from __future__ import annotations

from typing import NamedTuple

DEFAULT_LIMIT = 10 * 1024 * 1024
"""Bytes of the longest line that is accepted."""

KEPT_BYTES = 1024
"""Bytes kept of either end of a line that was dropped: enough to find the id that a peer is waiting for."""

_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_BLANKS = b" \t\r"


class Oversized(NamedTuple):
    """A line over the limit that was dropped."""

    head: bytes
    tail: bytes


Frame = bytes | Oversized


class FrameBuffer:
    """Collects bytes and returns whole frames, in order."""

    def __init__(self, limit: int = DEFAULT_LIMIT) -> None:
        self.limit = limit
        self._kept = min(KEPT_BYTES, limit)
        self._held = bytearray()
        self._dropped: Oversized | None = None

    @property
    def unfinished(self) -> bytes:
        """The beginning of a line whose end has not come yet."""
        return bytes(self._held)

    def feed(self, data: bytes) -> list[Frame]:
        """The frames that `data` completes."""
        first, *rest = data.split(b"\n")
        if not rest:
            self._hold(first)
            return []
        last = rest.pop()
        frames: list[Frame] = []
        if self._held or self._dropped is not None:
            self._hold(first)
            self._release(frames)
        else:
            self._append(frames, first)
        for line in rest:
            self._append(frames, line)
        self._hold(last)
        return frames

    def end(self) -> list[Frame]:
        """The frame that was left without a line end when the stream ended."""
        frames: list[Frame] = []
        self._release(frames)
        return frames

    def _hold(self, part: bytes) -> None:
        if self._dropped is not None:
            tail = self._dropped.tail + part[-self._kept :]
            self._dropped = self._dropped._replace(tail=tail[-self._kept :])
            return
        self._held += part
        if len(self._held) > self.limit:
            self._dropped = self._drop(self._held)
            self._held = bytearray()

    def _release(self, frames: list[Frame]) -> None:
        if self._dropped is not None:
            frames.append(self._dropped)
            self._dropped = None
        else:
            line, self._held = bytes(self._held), bytearray()
            self._append(frames, line)

    def _append(self, frames: list[Frame], line: bytes) -> None:
        if len(line) > self.limit:
            frames.append(self._drop(line))
            return
        if not line.startswith(b"{"):
            line = line.removeprefix(_BYTE_ORDER_MARK)
        line = line.strip(_BLANKS)
        if line:
            frames.append(line)

    def _drop(self, line: bytes | bytearray) -> Oversized:
        return Oversized(bytes(line[: self._kept]), bytes(line[-self._kept :]))
