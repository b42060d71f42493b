"""The process that writes a recording: reads what a `Feed` noted, and writes lines of a trace to its stdout.

It outlives whoever feeds it, by as much as it needs to write the rest. If they died without a word, it also
ends what they had started: an agent whose editor is gone is of no use to anybody.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from coupler.inspect.record_lines import Lines, missing
from coupler.inspect.trace import FORMAT, FORMAT_VERSION
from coupler.wire.tap import GAP, INCOMPLETE, PIPE_BYTES, RECORD, Gap

NICENESS = 5
"""How far the writing stands back behind the agent, which an editor waits for."""

GRACE = 1.0
"""Seconds for an agent whose tap was killed: to notice, and then again to end when it is asked to."""


class Header(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the feeding side tells first."""

    label: str = ""
    started: str = ""
    command: tuple[str, ...] = ()
    mask: bool = True
    secrets: tuple[tuple[str, str], ...] = ()


class File:
    """Writes whole lines. While the disk takes none, they are counted instead."""

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        self.has_lost = False
        self._descriptor = descriptor
        self._begun = b""

    def write(self, at: float, lines: Iterable[bytes]) -> None:
        for line in lines:
            if not (self._end_begun() and self._tell_lost(at) and self._append(line)):
                self.lost += 1
                self.has_lost = True

    def finish(self, at: float) -> None:
        if self._end_begun():
            self._tell_lost(at)

    def _end_begun(self) -> bool:
        """Whether no line is left that has begun and not ended."""
        begun, self._begun = self._begun, b""
        if begun and not self._append(begun):
            self._begun = begun
        return not self._begun

    def _tell_lost(self, at: float) -> bool:
        """Whether there is room again after a line that says how many are missing."""
        if self.lost and self._append(missing(at, self.lost, "the file could not be written").encode()):
            self.lost = 0
        return not (self.lost or self._begun)

    def _append(self, line: bytes) -> bool:
        """Whether it went out, or at least began to: then the rest of it follows before anything else."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            if len(rest) == len(line):
                return False
            self._begun = bytes(rest)
        return True


def main() -> int:
    """Write until nothing more comes."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICENESS)
    return Writer(sys.stdin.fileno(), sys.stdout.fileno()).run()


class Writer:
    """One recording, from its header to its end."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._file = File(target)
        self._lines = Lines(None)
        self._group: int | None = None
        self._has_ended = False
        self._at = 0.0

    def run(self) -> int:
        for at, kind, data in _records(self._source):
            self._at = at
            try:
                self._take(at, kind, data)
            except Exception as error:
                # A fault of ours costs what it is about, and the recording goes on.
                self._file.has_lost = True
                self._file.write(at, [missing(at, 1, f"it could not be recorded: {error!r:.200}").encode()])
        self._file.write(self._at, self._lines.finish())
        self._file.finish(self._at)
        if not self._has_ended and self._group is not None:
            end_group(self._group)
        return INCOMPLETE if self._file.has_lost else 0

    def _take(self, at: float, kind: bytes, data: bytes) -> None:
        match kind:
            case b"h":
                self._begin(msgspec.json.decode(data, type=Header))
            case b"c" | b"a" | b"e":
                self._file.write(at, self._lines.take(at, kind, data))
            case b"C" | b"A" | b"E":
                self._file.write(at, self._lines.end(at, kind.lower()))
            case b"g":
                stream, *gap = GAP.unpack(data)
                self._file.write(at, self._lines.miss(at, stream, Gap(*gap)))
            case b"p":
                self._group = int(data)
            case b"x":
                self._has_ended = True
                self._file.write(at, self._lines.finish())
                if data:
                    line = {"at": round(at, 6), "exit": int(data)}
                    self._file.write(at, [msgspec.json.encode(line) + b"\n"])

    def _begin(self, header: Header) -> None:
        if header.mask:
            from coupler.inspect.record_masking import Screen, known_secrets
            from coupler.redaction.sources import Secret

            self._lines = Lines(Screen(known_secrets(Secret(*pair) for pair in header.secrets)))
        first: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION, "label": header.label}
        if header.started:
            first["started"] = header.started
        if header.command:
            first["command"] = [self._lines.mask(word) for word in header.command]
        self._file.write(0.0, [msgspec.json.encode(first) + b"\n"])


def end_group(group: int) -> None:
    """Let a process group end by itself, ask it to, and kill it."""
    if not hasattr(os, "killpg"):
        return
    for number in (signal.SIGTERM, signal.SIGKILL):
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            try:
                os.killpg(group, 0)
            except (ProcessLookupError, PermissionError):
                return
            # No system call waits for a group that is not ours.
            time.sleep(0.02)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def _records(source: int) -> Iterator[tuple[float, bytes, bytes]]:
    held = bytearray()
    position = 0
    while data := os.read(source, PIPE_BYTES):
        held += data
        while len(held) - position >= RECORD.size:
            at, kind, size = RECORD.unpack_from(held, position)
            start = position + RECORD.size
            if len(held) - start < size:
                break
            position = start + size
            yield at, kind, bytes(held[start:position])
        del held[:position]
        position = 0


if __name__ == "__main__":
    sys.exit(main())
