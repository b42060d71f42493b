"""Writes a recording: a process that reads what a `RecordingFeed` noted and writes a trace to stdout.

It outlives the feeding process until the rest is written.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from coupler.recording.masking import ChunkedText, MessageMasker, piece_of, with_text
from coupler.recording.traces import (
    FORMAT,
    FORMAT_VERSION,
    Side,
    Trace,
    TraceEntry,
    TraceExchange,
    content_of,
    id_key,
    schema_problems,
)
from coupler.wire.frames import FrameBuffer, Oversized
from coupler.wire.tap import GAP, INCOMPLETE, PIPE_BYTES, RECORD, Gap

NICENESS = 5
"""The niceness of the writing, which must not slow down the agent."""

LINE_LIMIT = 96 * 1024 * 1024
"""Bytes of the longest line that is recorded."""

MOST_RECORDED = 1024 * 1024 * 1024
"""Bytes of one recording; then only short lines are written, up to as much again."""

SHORT_LINE = 1024
"""Bytes of a line that is written beyond that, such as the answer that ends a turn."""

STDERR_LIMIT = 64 * 1024
"""Bytes of stderr without a line end after which they are written as they are."""

HELD_LINES = 1000
"""Lines that wait for the rest of a secret at most."""

TOLD_PROBLEMS = 5
"""Problems that are noted for one line at most."""

OPEN_REQUESTS = 10_000
"""Requests without an answer that are remembered, so that the answer can be validated."""

SIDES: dict[bytes, Side] = {b"c": "client", b"a": "agent"}


class RecordingHeader(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first record of the feeding side."""

    label: str = ""
    started: str = ""
    command: tuple[str, ...] = ()
    mask: bool = True
    secrets: tuple[tuple[str, str], ...] = ()


def main() -> int:
    """Write a recording until the feed on stdin ends."""
    for name in ("SIGINT", "SIGHUP"):
        if hasattr(signal, name):
            signal.signal(getattr(signal, name), signal.SIG_IGN)
    with contextlib.suppress(AttributeError, OSError):
        os.nice(NICENESS)
    return RecordingWriter(sys.stdin.fileno(), sys.stdout.fileno()).run()


class RecordingWriter:
    """Writes one recording, from its header to its end."""

    def __init__(self, source: int, target: int) -> None:
        self._source = source
        self._file = RecordingFile(target)
        self._lines = LineAssembler(None)
        self._at = 0.0

    def run(self) -> int:
        for at, kind, data in _records(self._source):
            self._at = at
            try:
                self._take(at, kind, data)
            except Exception as error:
                # A fault of ours costs what it is about, and the recording goes on.
                self._file.has_lost = True
                self._file.write(
                    at, [missing_line(at, 1, f"it could not be recorded: {error!r:.200}").encode()]
                )
        self._file.write(self._at, self._lines.finish())
        self._file.finish(self._at)
        return INCOMPLETE if self._file.has_lost else 0

    def _take(self, at: float, kind: bytes, data: bytes) -> None:
        match kind:
            case b"h":
                self._begin(msgspec.json.decode(data, type=RecordingHeader))
            case b"c" | b"a" | b"e":
                self._file.write(at, self._lines.take(at, kind, data))
            case b"C" | b"A" | b"E":
                self._file.write(at, self._lines.end(at, kind.lower()))
            case b"g":
                stream, *gap = GAP.unpack(data)
                self._file.write(at, self._lines.miss(at, stream, Gap(*gap)))
            case b"x":
                self._file.write(at, self._lines.finish())
                if data:
                    line = {"at": round(at, 6), "exit": int(data)}
                    self._file.write(at, [msgspec.json.encode(line) + b"\n"])

    def _begin(self, header: RecordingHeader) -> None:
        if header.mask:
            from coupler.recording.masking import MessageMasker, secrets_to_mask
            from coupler.redaction.sources import Secret

            self._lines = LineAssembler(
                MessageMasker(secrets_to_mask(Secret(*pair) for pair in header.secrets))
            )
        first: dict[str, Any] = {"format": FORMAT, "version": FORMAT_VERSION, "label": header.label}
        if header.started:
            first["started"] = header.started
        if header.command:
            first["command"] = [self._lines.mask(word) for word in header.command]
        self._file.write(0.0, [msgspec.json.encode(first) + b"\n"])


class RecordingFile:
    """Writes whole lines. Those that cannot be written are counted, and the gap is noted in the file."""

    def __init__(self, descriptor: int) -> None:
        self.lost = 0
        self.has_lost = False
        self._descriptor = descriptor
        self._begun = b""
        self._size = 0
        self._over = 0
        """Lines that were left out, because the recording is too long."""

    def write(self, at: float, lines: Iterable[bytes]) -> None:
        for line in lines:
            size = self._size + len(line)
            if size > (2 * MOST_RECORDED if len(line) <= SHORT_LINE else MOST_RECORDED):
                self._over += 1
                self.has_lost = True
                continue
            self._size = size
            if not (self._end_begun() and self._tell_lost(at) and self._append(line)):
                self.lost += 1
                self.has_lost = True

    def finish(self, at: float) -> None:
        if self._end_begun() and self._tell_lost(at) and self._over:
            reason = f"the recording is over {MOST_RECORDED:,} bytes"
            self._append(missing_line(at, self._over, reason).encode())

    def _end_begun(self) -> bool:
        """Finish a line that was written in part; returns whether none is left."""
        begun, self._begun = self._begun, b""
        if begun and not self._append(begun):
            self._begun = begun
        return not self._begun

    def _tell_lost(self, at: float) -> bool:
        """Write a line with the number of lost lines; returns whether there is room again."""
        if self.lost and self._append(missing_line(at, self.lost, "the file could not be written").encode()):
            self.lost = 0
        return not (self.lost or self._begun)

    def _append(self, line: bytes) -> bool:
        """Write a line; returns whether it was at least begun: then the rest follows before anything else."""
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]
        except OSError:
            if len(rest) == len(line):
                return False
            self._begun = bytes(rest)
        return True


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


class PendingLine:
    """A line that may still have to wait."""

    def __init__(self, fields: dict[str, Any], message: dict[str, Any] | None = None) -> None:
        self.fields = fields
        self.message = message
        self.is_held = False

    def encode(self) -> bytes:
        return msgspec.json.encode(self.fields) + b"\n"


class LineAssembler:
    """Turns the bytes of two peers into lines of a trace: framed, validated and masked.

    Without a masker nothing is masked.
    """

    def __init__(self, screen: MessageMasker | None) -> None:
        self._screen = screen
        self._frames = {stream: FrameBuffer(LINE_LIMIT) for stream in SIDES}
        self._stderr = b""
        self._torn: set[bytes] = set()
        self._requests: dict[tuple[Side, str], TraceEntry] = {}
        self._pieces: dict[tuple[Any, str], ChunkedText] = {}
        self._waiting_pieces: dict[tuple[Any, str], list[PendingLine]] = {}
        self._queue: deque[PendingLine] = deque()

    def take(self, at: float, stream: bytes, data: bytes) -> Iterator[bytes]:
        """Return the lines that these bytes complete."""
        if stream in self._torn:
            # The beginning of this line is missing, and it was counted with what is missing.
            _, end, data = data.partition(b"\n")
            if not end:
                return
            self._torn.discard(stream)
        if stream == b"e":
            self._take_stderr(at, data)
        else:
            for frame in self._frames[stream].feed(data):
                self._take_frame(at, SIDES[stream], frame)
        yield from self._ready()

    def end(self, at: float, stream: bytes) -> Iterator[bytes]:
        """End a stream, perhaps within a line."""
        if stream == b"e":
            self._show_stderr(at, self._stderr)
            self._stderr = b""
        else:
            for frame in self._frames[stream].end():
                self._take_frame(at, SIDES[stream], frame)
            self._queue.append(PendingLine({"at": _rounded(at), "end": SIDES[stream]}))
        self._torn.discard(stream)
        yield from self._ready()

    def miss(self, at: float, stream: bytes, gap: Gap) -> Iterator[bytes]:
        """Note a gap in a stream, which could not be written fast enough."""
        if stream in SIDES:
            self._frames[stream] = FrameBuffer(LINE_LIMIT)
            lines = gap.lines + (0 if gap.ends_line else 1)
        else:
            self._stderr = b""
            lines = 0
        if not gap.ends_line:
            self._torn.add(stream)
        sender: Any = SIDES.get(stream, "stderr")
        self._queue.append(
            missing_line(at, lines, "the file could not be written fast enough", sender, gap.size)
        )
        yield from self._ready()

    def finish(self) -> Iterator[bytes]:
        """Return everything that still waits."""
        self._release_all()
        yield from self._ready()

    def mask(self, text: str) -> str:
        return text if self._screen is None else self._screen.masker.mask(text)

    def _take_frame(self, at: float, sender: Side, frame: bytes | Oversized) -> None:
        if isinstance(frame, Oversized):
            reason = f"a line was longer than {LINE_LIMIT} bytes"
            self._queue.append(missing_line(at, 1, reason, sender))
            return
        entry = TraceEntry(0, at, sender, frame)
        fields: dict[str, Any] = {"at": _rounded(at), "from": sender}
        wrong = self._problems(entry)
        if wrong:
            fields["invalid"] = [self.mask(problem) for problem in wrong[:TOLD_PROBLEMS]]
        content = content_of(frame)
        line = PendingLine(fields, entry.message)
        self._queue.append(line)
        if self._screen is None:
            fields |= content
        else:
            self._fill_masked(line, frame, content, self._screen)

    def _fill_masked(
        self, line: PendingLine, frame: bytes, content: dict[str, Any], screen: MessageMasker
    ) -> None:
        if "text" in content:
            line.fields["text"] = screen.masker.mask(content["text"])
            return
        if "bytes" in content:
            line.fields |= content_of(screen.masker.mask_bytes(frame))
            return
        value = msgspec.json.decode(frame)
        screen.learn(value)
        shown = screen.masked(value)
        if shown is value:
            line.fields["frame"] = content["frame"]
        else:
            line.fields |= {"masked": True, "frame": shown}
        if isinstance(value, dict):
            self._keep_pieces_together(line, value, shown, screen)

    def _keep_pieces_together(
        self, line: PendingLine, value: dict[str, Any], shown: Any, screen: MessageMasker
    ) -> None:
        piece = piece_of(value)
        if piece is None:
            self._release_all(_session_of(value))
            return
        *key, text = piece
        run = key[0], key[1]
        for other in [each for each in self._waiting_pieces if each[0] == run[0] and each != run]:
            self._release(other)
        line.message = shown
        line.is_held = True
        self._waiting_pieces.setdefault(run, []).append(line)
        is_whole = self._pieces.setdefault(run, ChunkedText()).add(text, screen.masker)
        if is_whole or len(self._queue) > HELD_LINES:
            self._release(run)

    def _release_all(self, session: Any = None) -> None:
        """Release waiting texts: they end where something else begins.

        Without a session it may belong to any.
        """
        for run in [*self._waiting_pieces]:
            if session is None or run[0] == session:
                self._release(run)
        for run in [*self._pieces]:
            if session is None or run[0] == session:
                del self._pieces[run]

    def _release(self, run: tuple[Any, str]) -> None:
        assert self._screen is not None
        lines = self._waiting_pieces.pop(run)
        for line, text in zip(lines, self._pieces[run].release(self._screen.masker), strict=True):
            line.is_held = False
            assert line.message is not None
            if line.message["params"]["update"]["content"]["text"] != text:
                line.fields |= {"masked": True, "frame": with_text(line.message, text)}
                # The frame stands last, because it may be long.
                line.fields["frame"] = line.fields.pop("frame")

    def _ready(self) -> Iterator[bytes]:
        while self._queue and not self._queue[0].is_held:
            yield self._queue.popleft().encode()

    def _problems(self, entry: TraceEntry) -> list[str]:
        if not entry.message:
            return ["the line is no JSON object"]
        trace: Trace | None = None
        if entry.is_request:
            if len(self._requests) < OPEN_REQUESTS:
                self._requests[entry.sender, id_key(entry.message["id"])] = entry
        elif entry.is_answer:
            asker: Side = "client" if entry.sender == "agent" else "agent"
            request = self._requests.pop((asker, id_key(entry.message.get("id"))), None)
            if request is not None:
                trace = Trace.of(TraceExchange(request, entry))
        return [str(problem) for problem in schema_problems(entry, trace) if not problem.is_draft]

    def _take_stderr(self, at: float, data: bytes) -> None:
        whole, end, rest = (self._stderr + data).rpartition(b"\n")
        self._stderr = rest
        self._show_stderr(at, whole + end)
        if len(rest) > STDERR_LIMIT:
            self._show_stderr(at, rest)
            self._stderr = b""

    def _show_stderr(self, at: float, data: bytes) -> None:
        if data:
            text = self.mask(data.decode(errors="replace"))
            self._queue.append(PendingLine({"at": _rounded(at), "stderr": text}))


def missing_line(
    at: float, lines: int, reason: str, sender: Any = None, size: int | None = None
) -> PendingLine:
    """Return a line about lines that are missing."""
    fields: dict[str, Any] = {"at": _rounded(at), "missing": lines, "because": reason}
    if sender is not None:
        fields["of"] = sender
    if size is not None:
        fields["bytes"] = size
    return PendingLine(fields)


def _session_of(value: dict[str, Any]) -> Any:
    params = value.get("params")
    return params.get("sessionId") if isinstance(params, dict) else None


def _rounded(at: float) -> float:
    return round(at, 6)


if __name__ == "__main__":
    sys.exit(main())
