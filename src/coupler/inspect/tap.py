"""A tap between an editor and an agent: every byte is passed on as it came, and noted on its way.

Three threads each read one pipe and write another, and block where the peers would: so back-pressure, and
pipes that are closed by half or broken, mean on either side what they mean without a tap. Nothing is
understood here, and nothing here waits for the recording. The process ends as the agent does, with its exit
code, and leaves nothing of it running.

Imports as little as possible, because an editor waits for the agent behind it.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from coupler.recording.feed import Feed, Kind

READ_SIZE = 64 * 1024
"""Bytes that are passed on at once: what a pipe holds."""

GRACE = 1.0
"""Seconds between asking the agent's processes to end, and ending them."""

SILENCE = 0.5
"""Seconds without a byte after which the output of a dead agent is over, though somebody holds it open."""

NOTICED = 0.25
"""Seconds in which it is noticed that an editor is gone which has said so by half."""

LONELY = 5.0
"""Seconds that an agent may still run after it closed its output and lost its input."""

STDIN, STDOUT, STDERR = 0, 1, 2

WINDOWS = sys.platform == "win32"


class Tap:
    """An agent's process, with its three streams passed on. Belongs to the main thread."""

    def __init__(self, command: list[str], feed: Feed) -> None:
        """Start the agent; raises OSError."""
        self._began = time.monotonic()
        self._early_signals: list[int] = []
        self._ending: threading.Timer | None = None
        self._pumps: tuple[Pump, ...] = ()
        self._handle_signals()
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            start_new_session=True,
            creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
        )
        if not WINDOWS:
            feed.note(0.0, b"p", b"%d" % self._process.pid)
        self._feed = feed
        self.is_recorded: bool | None = False
        """Whether all of it is in the file, once the agent has ended; None if it is still being written."""
        assert self._process.stdin and self._process.stdout and self._process.stderr
        agent = [pipe.fileno() for pipe in (self._process.stdin, self._process.stdout, self._process.stderr)]
        self._pumps = (
            Pump(STDIN, agent[0], b"c", self._note),
            Pump(agent[1], STDOUT, b"a", self._note),
            Pump(agent[2], STDERR, b"e", self._note, gives_up=False),
        )
        for number in self._early_signals:
            self._end(number)

    def run(self) -> int:
        """Pass everything on until the agent has ended; its exit code, as a shell would give it."""
        client, *outputs = self._pumps
        for pump in self._pumps:
            pump.start()
        threading.Thread(target=self._leave_with_client, args=(client,), daemon=True).start()
        self._wait_for_exit()
        for pump in outputs:
            pump.drain()
        self._end_the_rest()
        code = self._process.wait()
        self.is_recorded = self._feed.finish(self._now(), code)
        return code if code >= 0 else 128 - code

    def _note(self, kind: Kind, data: bytes = b"") -> None:
        self._feed.note(self._now(), kind, data)

    def _now(self) -> float:
        return time.monotonic() - self._began

    def _handle_signals(self) -> None:
        for name in ("SIGINT", "SIGTERM", "SIGHUP"):
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda number, frame: self._end(number))

    def _end(self, number: int) -> None:
        """Let the agent and all that it started have the signal too, and kill what ignores it."""
        if not self._pumps:
            self._early_signals.append(number)  # the agent is just being started
            return
        self._signal(number)
        if self._ending is None:
            self._ending = threading.Timer(GRACE, self._kill)
            self._ending.daemon = True
            self._ending.start()

    def _kill(self) -> None:
        self._signal(getattr(signal, "SIGKILL", signal.SIGTERM))
        # Nobody may read what is still to be passed on.
        for pump in self._pumps:
            pump.stop()

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
            if WINDOWS:
                self._process.send_signal(number)
            else:
                os.killpg(self._process.pid, number)
                os.killpg(self._process.pid, signal.SIGCONT)  # a stopped process would never see it

    def _leave_with_client(self, client: Pump) -> None:
        """End the agent when nobody is left to talk to it: half a connection is one, none is none."""
        client.join()
        if WINDOWS:
            return
        output = self._pumps[1]
        poll = select.poll()
        poll.register(STDOUT, 0)  # only that nobody reads it any more
        # Looked at again and again: a call that waits for it would hold the pipe open itself.
        while output.is_alive():
            if poll.poll(NOTICED * 1000):
                self._end(signal.SIGTERM)
                return
        time.sleep(LONELY)
        self._end(signal.SIGTERM)

    def _wait_for_exit(self) -> None:
        """Wait, and leave the dead process unreaped: so long nobody else gets its number, and its group's."""
        if not hasattr(os, "waitid"):
            self._process.wait()
            return
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOWAIT)

    def _end_the_rest(self) -> None:
        """What the agent started and left behind ends with it."""
        self._process.wait()
        with contextlib.suppress(ProcessLookupError, PermissionError, OSError):
            if WINDOWS:
                return
            os.killpg(self._process.pid, 0)
            # Rare, so it may cost an import.
            from coupler.runtime.process import Group

            rest = Group(self._process)
            rest.terminate()
            deadline = time.monotonic() + GRACE
            while rest.alive() and time.monotonic() < deadline:
                time.sleep(0.01)
            rest.kill()


class Pump(threading.Thread):
    """Reads one descriptor and writes another, until either ends."""

    def __init__(
        self, source: int, target: int, kind: Kind, note: Callable[..., None], *, gives_up: bool = True
    ) -> None:
        """`gives_up`: an end on one side is made one on the other; not so for stderr, which is ours too."""
        super().__init__(name=f"coupler-tap-{kind.decode()}", daemon=True)
        self.is_broken = False
        self._source = source
        self._target = target
        self._kind = kind
        self._note = note
        self._gives_up = gives_up
        self._done = threading.Event()
        self._last_read = time.monotonic()
        self._is_writing = False

    def run(self) -> None:
        kind = self._kind
        try:
            while data := self._read():
                # First noted, then passed on: an answer to it must not be noted before it.
                self._note(kind, data)
                self._write(data)
                if self.is_broken and self._gives_up:
                    break
            self._note(kind.upper())
        finally:
            if self._gives_up:
                release(self._target)
                if self.is_broken:
                    release(self._source)
            self._done.set()

    def drain(self) -> None:
        """Wait until a dead process's last bytes were passed on."""
        while not self._done.wait(SILENCE):
            if not self._is_writing and time.monotonic() - self._last_read > SILENCE:
                return

    def stop(self) -> None:
        """Stop waiting for it."""
        self._done.set()

    def _read(self) -> bytes:
        while True:
            try:
                data = os.read(self._source, READ_SIZE)
            except BlockingIOError:
                # Whoever shares the descriptor with us wants it so.
                select.select([self._source], [], [])
                continue
            except OSError:
                return b""
            self._last_read = time.monotonic()
            return data

    def _write(self, data: bytes) -> None:
        if self.is_broken:
            return
        self._is_writing = True
        view = memoryview(data)
        while view:
            try:
                view = view[os.write(self._target, view) :]
            except BlockingIOError:
                select.select([], [self._target], [])
            except OSError:
                self.is_broken = True
                break
        self._last_read = time.monotonic()
        self._is_writing = False


def open_missing_streams() -> None:
    """Put the null device where a standard stream is closed, or else a file would get its number."""
    for descriptor in (STDIN, STDOUT, STDERR):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest number that is free


def release(descriptor: int) -> None:
    """Close a descriptor; a standard one is put to the null device, so that no file can get its number."""
    with contextlib.suppress(OSError):
        if descriptor > STDERR:
            os.close(descriptor)
            return
        null = os.open(os.devnull, os.O_RDWR)
        os.dup2(null, descriptor)
        os.close(null)


def leave(code: int) -> NoReturn:
    """End at once: a thread that is blocked in a pipe would keep an ordinary end from coming."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # there may be no stderr at all
        sys.stderr.flush()
    os._exit(code)
