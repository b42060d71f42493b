"""Runs a command to its end and captures what it writes.

`run_command` waits for the result of one command; `RunningCommand` hands out the output while it is written;
`Capture` keeps the beginning and the end of output that is too long.
"""

from __future__ import annotations

import asyncio
import codecs
import contextlib
import os
import signal
import sys
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple

from coupler.runtime.environment import Environment
from coupler.runtime.exceptions import innermost
from coupler.runtime.process import READ_BYTES, Child, Streams, torn_character_bytes

OutputListener = Callable[[bytes], Awaitable[None]]

DRAIN_SECONDS = 0.2
"""Seconds that the output may go on after the command itself has ended."""

DRAIN_BYTES = 1024 * 1024
"""Bytes that are still read after that, of what was written by then."""


class CommandResult(NamedTuple):
    """The exit code and the output of a command that has ended."""

    code: int
    output: str
    errors: str
    """The text of stderr, if that was captured apart."""


async def run_command(
    command: Sequence[str],
    *,
    cwd: str,
    env: Environment,
    largest: int,
    input: bytes | None = None,
    hears_stderr: bool = False,
) -> CommandResult:
    """Run a command to its end; raises `SpawnError`. Cancelled, it leaves nothing running.

    Of output and errors the first `largest` bytes are kept; the rest is read, so that it does not wait.
    """
    output, errors = bytearray(), bytearray()
    job = RunningCommand.start(command, cwd=cwd, env=env, input=input, hears_stderr=hears_stderr)
    try:
        await job.hear(_into(output, largest), _into(errors, largest))
        code = await job.wait()
    finally:
        await job.end(0)
        job.close()
    return CommandResult(code, output.decode("utf-8", "replace"), errors.decode("utf-8", "replace"))


def _into(kept: bytearray, largest: int) -> OutputListener:
    async def keep(chunk: bytes) -> None:
        kept.extend(chunk[: largest - len(kept)])

    return keep


async def ignore_output(chunk: bytes) -> None:
    """An output listener that does nothing."""


class RunningCommand:
    """A running command, made by `RunningCommand.start`; whoever started it has to `end` and `close` it.

    Its output is over when everybody who could write to it has ended, or `DRAIN_SECONDS` after the command
    itself has: what it left running in its group may hold the pipe open for ever.
    """

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        cwd: str,
        env: Environment | Mapping[str, str | None] | None = None,
        input: bytes | None = None,
        hears_stderr: bool = False,
    ) -> RunningCommand:
        """Start the command, or raise `SpawnError`. Without input it reads from the null device.

        What it writes to stderr is heard apart from stdout if asked for, else as part of it.
        """
        streams = Streams(input is not None, stderr_in_stdout=not hears_stderr, keeps_stderr=not hears_stderr)
        child = Child.spawn(list(command), cwd=cwd, env=env, streams=streams)
        return cls(child, input, hears_stderr=hears_stderr)

    def __init__(self, child: Child, input: bytes | None, *, hears_stderr: bool = False) -> None:
        self._child = child
        self._loop = asyncio.get_running_loop()
        self._output = _Output(child.stdout_fd, self._loop)
        self._errors = _Output(child.stderr_fd, self._loop) if hears_stderr else None
        self._input = _Input(child.stdin_fd, input, self._loop) if input is not None else None
        self._drain_timer: asyncio.TimerHandle | None = None
        self._exit = asyncio.ensure_future(child.wait())
        self._exit.add_done_callback(self._start_drain_timer)

    @property
    def pid(self) -> int:
        return self._child.pid

    @property
    def returncode(self) -> int | None:
        """The return code of the command itself, negative for a signal; None while it runs."""
        return self._child.returncode

    @property
    def has_ended_itself(self) -> bool:
        """True if the command has ended before `end` told it to."""
        return self._child.has_ended_itself

    @property
    def ending(self) -> tuple[int | None, str | None]:
        """The exit code, or the name of the signal that ended it; neither while it runs."""
        code = self.returncode
        if code is None or code >= 0:
            return code, None
        try:
            return None, signal.Signals(-code).name
        except ValueError:
            return None, f"SIG{-code}"

    async def hear(self, listener: OutputListener, stderr: OutputListener = ignore_output) -> None:
        """Give the listeners each piece of what is written, until that is over."""
        if self._errors is None:
            await self._output.hear(listener)
            return
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._output.hear(listener))
                both.create_task(self._errors.hear(stderr))
        except BaseExceptionGroup as group:
            raise innermost(group) from None

    async def wait(self) -> int:
        """Wait until the command itself has ended; return its return code."""
        return await self._child.wait()

    def interrupt(self) -> None:
        """Send SIGINT to the command and all that it started, as Ctrl-C does in a terminal."""
        self._child.interrupt()

    async def end(
        self,
        grace: float,
        listener: OutputListener = ignore_output,
        stderr: OutputListener = ignore_output,
        *,
        linger: float = 0.0,
    ) -> None:
        """End the command and all that it started: SIGTERM, and SIGKILL after `grace` seconds.

        It has `linger` seconds before that to end by itself. It is heard meanwhile, so that nobody who cleans
        up waits for a reader. Cancelled, it kills at once.
        """
        hearing = asyncio.ensure_future(self._hear_to_the_end(listener, stderr))
        try:
            await self._child.end(grace, linger=linger)
            # Whoever left the group may hold the pipe still.
            self._stop_waiting()
            await hearing
        finally:
            hearing.cancel()
            await asyncio.gather(hearing, return_exceptions=True)

    def close(self) -> None:
        """Close the pipes."""
        self._exit.cancel()
        if self._drain_timer is not None:
            self._drain_timer.cancel()
        self._output.close()
        if self._errors is not None:
            self._errors.close()
        if self._input is not None:
            self._input.close()

    async def _hear_to_the_end(self, listener: OutputListener, stderr: OutputListener) -> None:
        try:
            await self.hear(listener, stderr)
        except Exception:
            await self.hear(ignore_output)
            raise

    def _start_drain_timer(self, exit: asyncio.Future[int]) -> None:
        if not exit.cancelled():
            self._drain_timer = self._loop.call_later(DRAIN_SECONDS, self._stop_waiting)

    def _stop_waiting(self) -> None:
        self._output.stop_waiting()
        if self._errors is not None:
            self._errors.stop_waiting()


class _Output:
    """The read end of a pipe, for one reader at a time."""

    def __init__(self, descriptor: int, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._ready: asyncio.Future[None] | None = None
        self._is_stopped = False
        self._is_closed = False
        self._left = DRAIN_BYTES
        if sys.platform != "win32":
            os.set_blocking(descriptor, False)

    async def hear(self, listener: OutputListener) -> None:
        """Give the listener each piece, until it is over."""
        while chunk := await self.read():
            await listener(chunk)

    async def read(self) -> bytes:
        """Read what was written since the last read; nothing when the output is over."""
        if sys.platform == "win32":  # pipes cannot be polled there
            return await asyncio.to_thread(os.read, self._descriptor, READ_BYTES)
        await self._until_ready()
        try:
            chunk = os.read(self._descriptor, READ_BYTES)
        except BlockingIOError:
            return b""
        if self._is_stopped:
            self._left -= len(chunk)
        return chunk if self._left > 0 else b""

    def stop_waiting(self) -> None:
        """Stop waiting for what is not written yet."""
        self._is_stopped = True
        if self._ready is not None:
            _wake(self._ready)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            os.close(self._descriptor)

    async def _until_ready(self) -> None:
        if self._is_stopped:
            await asyncio.sleep(0)
            return
        self._ready = self._loop.create_future()
        self._loop.add_reader(self._descriptor, _wake, self._ready)
        try:
            await self._ready
        finally:
            self._ready = None
            self._loop.remove_reader(self._descriptor)


class _Input:
    """The write end of a pipe: writes what there is to write as it is read, and closes it."""

    def __init__(self, descriptor: int, text: bytes, loop: asyncio.AbstractEventLoop) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._left = memoryview(text)
        self._is_closed = False
        if sys.platform == "win32":
            threading.Thread(target=self._write_all, daemon=True).start()
        else:
            os.set_blocking(descriptor, False)
            loop.add_writer(descriptor, self._write)

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if sys.platform != "win32":
            self._loop.remove_writer(self._descriptor)
        os.close(self._descriptor)

    def _write(self) -> None:
        try:
            written = os.write(self._descriptor, self._left[:READ_BYTES])
        except BlockingIOError:
            return
        except OSError:
            self.close()  # the command reads no more
            return
        self._left = self._left[written:]
        if not self._left:
            self.close()

    def _write_all(self) -> None:
        with contextlib.suppress(OSError):
            while self._left:
                self._left = self._left[os.write(self._descriptor, self._left[:READ_BYTES]) :]
            self.close()


def _wake(ready: asyncio.Future[None]) -> None:
    if not ready.done():
        ready.set_result(None)


class Capture:
    """Keeps the first `head` bytes of what is appended and the last `tail` of the others.

    Where something was left out a marker says how much; before and after it stand whole characters.
    """

    def __init__(self, head: int, tail: int) -> None:
        self._most_head = head
        self._most_tail = tail
        self._head = bytearray()
        self._tail = bytearray()
        self._dropped = 0

    @property
    def is_cut(self) -> bool:
        """True if something was left out."""
        return self._dropped > 0 or len(self._tail) > self._most_tail

    def append(self, chunk: bytes) -> bytes:
        """Keep it; return what of it belongs to the beginning, and is kept for certain."""
        room = self._most_head - len(self._head)
        begins, others = chunk[:room], chunk[room:]
        self._head += begins
        self._tail += others
        # Trimming only now and then makes appending cheap for a flood of small chunks.
        if len(self._tail) > 2 * self._most_tail:
            self._trim()
        return begins

    def content(self) -> bytes:
        """All that is kept."""
        return bytes(self._head[: len(self._head) - self._unfinished()]) + self.rest()

    def rest(self) -> bytes:
        """The part after the beginning: the marker, if something was left out, and the end."""
        if not self.is_cut:
            return bytes(self._tail)
        self._trim()
        tail = bytes(self._tail)
        torn = torn_character_bytes(tail)
        left_out = self._dropped + torn + self._unfinished()
        return f"\n[… {left_out:,} bytes left out …]\n".encode() + tail[torn:]

    def _trim(self) -> None:
        excess = max(0, len(self._tail) - self._most_tail)
        del self._tail[:excess]
        self._dropped += excess

    def _unfinished(self) -> int:
        """Count the bytes before the marker that begin a character which does not end there."""
        if not self.is_cut:
            return 0
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        decoder.decode(bytes(self._head[-3:]))
        return len(decoder.getstate()[0])
