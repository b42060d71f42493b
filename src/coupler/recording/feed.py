"""What was read, on its way to the file: a queue with a limit, and a process that writes.

Whoever passes bytes on notes them here and goes on, in microseconds and whatever the disk does. They go to a
process of its own, which understands, masks and writes them; so the work takes no time from those who pass
bytes on, a fault in it cannot reach them, and their violent end loses nothing that was noted. Only what its
pipe does not hold waits for a thread: one that ran for each note would take the interpreter's lock away.

Imports as little as possible, because an editor waits for the agent behind it.
"""

from __future__ import annotations

import contextlib
import os
import select
import struct
import subprocess
import sys
import threading
from collections import deque
from typing import NamedTuple, TypeAlias

LIMIT = 128 * 1024 * 1024
"""Bytes that may wait for the disk before more of them are left out of the file."""

PATIENCE = 2.0
"""Seconds that the last of them have to get into the file before nobody waits for it any more."""

PIPE_BYTES = 1024 * 1024
"""What the pipe to the writing process holds, where the system lets us say so."""

CAN_WRITE_AT_ONCE = os.name == "posix"
"""Whether a pipe can be told not to block."""

INCOMPLETE = 3
"""The exit code of a writing process that had to leave something out."""

Kind: TypeAlias = bytes
"""Bytes of client, agent and stderr: c, a, e; their ends: C, A, E; a gap: g; the header: h; the exit: x.

p is the process group that is ended if whoever feeds dies without a word.
"""

RECORD = struct.Struct("<dcI")
"""When, which kind, and how many bytes follow."""

GAP = struct.Struct("<cQQ?")
"""Which stream lost something; its bytes, its line ends, and whether the last of them was one."""


class Gap(NamedTuple):
    """What is missing of one stream."""

    size: int = 0
    lines: int = 0
    ends_line: bool = True

    def with_more(self, data: bytes) -> Gap:
        ends_line = data.endswith(b"\n") if data else self.ends_line
        return Gap(self.size + len(data), self.lines + data.count(b"\n"), ends_line)


class Feed:
    """Takes notes from any thread. `finish` waits for the file, but not for long."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._waiting: deque[bytes] = deque()
        self._size = 0
        self._last = 0.0
        self._gaps: dict[bytes, Gap] = {}
        self._change = threading.Condition()
        self._is_over = False
        self._has_lost = False
        self._is_feeding = False
        self._writer: subprocess.Popen[bytes] | None = None

    @property
    def waiting(self) -> int:
        """Bytes that wait for the disk."""
        return self._size

    def start(self, file: int, header: bytes) -> None:
        """Begin to write to an open file, also what was noted before; raises OSError.

        `header` is for the writing process, which reads it as `record_writer.Header`.
        """
        try:
            writer = _start_writer(file)
        except OSError:
            self._give_up()
            raise
        with self._change:
            before, self._waiting = self._waiting, deque()
            self._size = 0
            self._writer = writer
            # Now and not by the thread: what follows must not have to wait for that one to run.
            for record in (_record(0.0, b"h", header), *before):
                self._send(record)
        threading.Thread(target=self._feed, args=(self._writer,), daemon=True).start()

    def note(self, at: float, kind: Kind, data: bytes = b"") -> None:
        """Keep this for the file, or count it as missing if too much is waiting already."""
        with self._change:
            if self._size + len(data) > self._limit:
                self._gaps[kind.lower()] = self._gaps.get(kind.lower(), Gap()).with_more(data)
                self._has_lost = True
                return
            stream = kind.lower()
            if stream in self._gaps:
                self._put(at, b"g", GAP.pack(stream, *self._gaps.pop(stream)))
            self._put(at, kind, data)

    def finish(self, at: float, exit_code: int | None = None, patience: float = PATIENCE) -> bool | None:
        """Nothing more comes. Whether all of it is in the file; None if it is still being written."""
        with self._change:
            for kind, gap in self._gaps.items():
                self._put(at, b"g", GAP.pack(kind, *gap))
            self._put(at, b"x", b"" if exit_code is None else b"%d" % exit_code)
            self._is_over = True
            self._change.notify()
        if self._writer is None:
            return False
        try:
            return self._writer.wait(patience) == 0 and not self._has_lost
        except subprocess.TimeoutExpired:
            return False if self._has_lost else None  # it goes on without us

    def _put(self, at: float, kind: Kind, data: bytes) -> None:
        # Two threads may come in another order than they looked at the clock.
        self._last = max(at, self._last)
        self._send(_record(self._last, kind, data))

    def _send(self, record: bytes) -> None:
        rest = record[self._write_at_once(record) :]
        if rest:
            self._waiting.append(rest)
            self._size += len(rest)
            self._change.notify()

    def _write_at_once(self, record: bytes) -> int:
        """How much of it the pipe took: nothing while other notes wait, which come first."""
        if self._writer is None or self._waiting or self._is_feeding or not CAN_WRITE_AT_ONCE:
            return 0
        assert self._writer.stdin is not None
        try:
            return os.write(self._writer.stdin.fileno(), record)
        except BlockingIOError:
            return 0
        except (OSError, ValueError):  # it died; the thread will notice
            return 0

    def _feed(self, writer: subprocess.Popen[bytes]) -> None:
        pipe = writer.stdin
        assert pipe is not None
        # A writing process that has died takes nothing more, and nobody misses what is read here.
        with contextlib.suppress(OSError):
            while piece := self._take():
                view = memoryview(piece)
                while view:
                    try:
                        view = view[os.write(pipe.fileno(), view) :]
                    except BlockingIOError:
                        select.select([], [pipe], [])
        self._give_up()
        with contextlib.suppress(OSError):
            pipe.close()

    def _give_up(self) -> None:
        """Keep nothing any more."""
        with self._change:
            self._limit = -1
            self._waiting.clear()

    def _take(self) -> bytes:
        """The next bytes to feed; none when it is over."""
        with self._change:
            self._is_feeding = False
            while not self._waiting:
                if self._is_over:
                    return b""
                self._change.wait()
            pieces = [self._waiting.popleft()]
            size = len(pieces[0])
            while self._waiting and size < PIPE_BYTES:
                pieces.append(self._waiting.popleft())
                size += len(pieces[-1])
            self._size -= size
            self._is_feeding = True
            return b"".join(pieces)


def _record(at: float, kind: Kind, data: bytes) -> bytes:
    return RECORD.pack(at, kind, len(data)) + data


def _start_writer(file: int) -> subprocess.Popen[bytes]:
    """In a session of its own: what ends us by a signal to our group does not end it before its work is done.

    -P keeps the directory that an editor started us in off the module path.
    """
    writer = subprocess.Popen(
        [sys.executable, "-P", "-m", "coupler.inspect.record_writer"],
        stdin=subprocess.PIPE,
        stdout=file,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    assert writer.stdin is not None
    if CAN_WRITE_AT_ONCE:
        os.set_blocking(writer.stdin.fileno(), False)
    with contextlib.suppress(ImportError, AttributeError, OSError):
        import fcntl

        fcntl.fcntl(writer.stdin.fileno(), fcntl.F_SETPIPE_SZ, PIPE_BYTES)
    return writer
