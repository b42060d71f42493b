"""A transport over two file descriptors: pipes, sockets, and what an event loop cannot watch.

Pipes and sockets are watched by the loop. Regular files and `/dev/null` (epoll refuses them), and every
pipe on Windows, are served by daemon threads that block in the loop's stead.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import queue
import stat
import threading
from collections.abc import Callable

from coupler.wire.transport import Receiver

READ_SIZE = 64 * 1024
"""Bytes asked for at once: what a pipe holds."""


class PipeTransport:
    """Reads one descriptor and writes another; owns both and closes them."""

    def __init__(
        self,
        read_fd: int,
        write_fd: int,
        *,
        already_read: bytes = b"",
        threaded: bool = os.name == "nt",
    ) -> None:
        self._input = _Descriptor(read_fd)
        self._output = _Descriptor(os.dup(write_fd) if write_fd == read_fd else write_fd)
        self._already_read = already_read
        self._threaded = threaded
        self._reader_thread: _ReaderThread | None = None
        self._writer_thread: _WriterThread | None = None
        self._is_reading = False
        self._is_paused = False
        self._awaits_room = False
        self._input_ended = False
        self._output_ended = False
        self._closed = False

    def open(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._loop = asyncio.get_running_loop()
        if self._threaded or not self._input.can_be_watched():
            self._input.set_blocking(True)
            self._reader_thread = _ReaderThread(self._input, self._loop, self._accept)
        else:
            self._input.set_blocking(False)
            self._start_reading()
        if self._threaded:
            self._output.set_blocking(True)
            self._writer_thread = _WriterThread(self._output, self._loop, self._written)
        else:
            self._output.set_blocking(False)
        if self._already_read:
            receiver.data_received(self._already_read)

    def write(self, data: bytes | memoryview) -> int:
        if self._output_ended:
            return len(data)
        if self._writer_thread is not None:
            return self._writer_thread.offer(data)
        try:
            sent = os.write(self._output.fd, data)
        except BlockingIOError:
            sent = 0
        except OSError as error:
            self._loop.call_soon(self._end, error)
            return len(data)
        if sent < len(data):
            self._wait_for_room()
        return sent

    def pause_reading(self) -> None:
        self._is_paused = True
        if self._reader_thread is not None:
            self._reader_thread.pause()
        self._stop_reading()

    def resume_reading(self) -> None:
        if not self._is_paused:
            return
        self._is_paused = False
        if self._reader_thread is not None:
            self._reader_thread.resume()
        elif not self._closed and not self._input_ended:
            self._start_reading()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._stop_reading()
        _release(self._reader_thread, self._input)
        self.end_output()

    def end_output(self) -> None:
        if self._output_ended:
            return
        self._output_ended = True
        if self._awaits_room:
            self._loop.remove_writer(self._output.fd)
        _release(self._writer_thread, self._output)

    def _read(self) -> None:
        try:
            data = os.read(self._input.fd, READ_SIZE)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(error)
            return
        self._accept(data)

    def _accept(self, data: bytes) -> None:
        if data:
            self._receiver.data_received(data)
        else:
            self._end(None)

    def _wait_for_room(self) -> None:
        try:
            self._loop.add_writer(self._output.fd, self._writable)
            self._awaits_room = True
        except PermissionError:  # a regular file took a part, because its disk is full: the rest will say so
            self._loop.call_soon(self._receiver.output_ready)

    def _writable(self) -> None:
        self._loop.remove_writer(self._output.fd)
        self._awaits_room = False
        self._receiver.output_ready()

    def _written(self, failure: OSError | None) -> None:
        if failure is None:
            self._receiver.output_ready()
        else:
            self._end(failure)

    def _end(self, error: Exception | None) -> None:
        if self._closed:
            return
        self._input_ended = True
        self._stop_reading()
        self._receiver.input_ended(error)

    def _start_reading(self) -> None:
        self._loop.add_reader(self._input.fd, self._read)
        self._is_reading = True

    def _stop_reading(self) -> None:
        if self._is_reading:
            self._loop.remove_reader(self._input.fd)
            self._is_reading = False


class _Descriptor:
    """An open file that gets its own blocking mode back before it is closed."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        # Windows has no such mode for pipes before Python 3.12; its threads block anyway.
        self._was_blocking = os.get_blocking(fd) if os.name == "posix" else True

    def can_be_watched(self) -> bool:
        mode = os.fstat(self.fd).st_mode
        return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(self.fd)

    def set_blocking(self, blocking: bool) -> None:
        if os.name == "posix":
            os.set_blocking(self.fd, blocking)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self.set_blocking(self._was_blocking)
            os.close(self.fd)


class _ReaderThread:
    """Blocks in `read` and hands each piece to the loop; waits until it was handled before the next."""

    def __init__(
        self, descriptor: _Descriptor, loop: asyncio.AbstractEventLoop, accept: Callable[[bytes], None]
    ) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._accept = accept
        self._handled = threading.Semaphore()
        self._is_paused = False
        self._owes_release = False
        self._stopped = False
        threading.Thread(target=self._run, name="coupler-reader", daemon=True).start()

    def pause(self) -> None:
        """Read nothing after the piece that is being read."""
        self._is_paused = True

    def resume(self) -> None:
        self._is_paused = False
        if self._owes_release:
            self._owes_release = False
            self._handled.release()

    def stop(self) -> None:
        self._stopped = True
        self._handled.release()

    def _run(self) -> None:
        while self._may_read():
            try:
                data = os.read(self._descriptor.fd, READ_SIZE)
            except OSError:
                data = b""
            with contextlib.suppress(RuntimeError):  # the loop is gone, and with it everybody who waits
                self._loop.call_soon_threadsafe(self._hand_over, data)
        self._descriptor.close()

    def _may_read(self) -> bool:
        self._handled.acquire()
        return not self._stopped

    def _hand_over(self, data: bytes) -> None:
        if self._stopped:
            return
        self._accept(data)
        if data and self._is_paused:
            self._owes_release = True
        elif data:
            self._handled.release()


class _WriterThread:
    """Blocks in `write`, one piece at a time."""

    def __init__(
        self,
        descriptor: _Descriptor,
        loop: asyncio.AbstractEventLoop,
        written: Callable[[OSError | None], None],
    ) -> None:
        self._descriptor = descriptor
        self._loop = loop
        self._written = written
        self._work: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._busy = False
        self._sent = 0
        threading.Thread(target=self._run, name="coupler-writer", daemon=True).start()

    def offer(self, data: bytes | memoryview) -> int:
        """Begin to write; the bytes count as sent when they are offered again after they went out.

        So a caller that waits for the last byte does not end the process while the thread still has it.
        """
        if self._sent:
            sent, self._sent = self._sent, 0
            return sent
        if not self._busy:
            self._busy = True
            self._work.put(bytes(data))
        return 0

    def stop(self) -> None:
        self._work.put(b"")

    def _run(self) -> None:
        while data := self._work.get():
            failure: OSError | None = None
            try:
                _write_all(self._descriptor.fd, data)
            except OSError as error:
                failure = error
            with contextlib.suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._done, len(data), failure)
        self._descriptor.close()

    def _done(self, size: int, failure: OSError | None) -> None:
        self._busy = False
        self._sent = size
        self._written(failure)


def _release(thread: _ReaderThread | _WriterThread | None, descriptor: _Descriptor) -> None:
    # A thread may be blocked in its descriptor: only itself can close it before the number is used again.
    if thread is not None:
        thread.stop()
    else:
        descriptor.close()


def _write_all(fd: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(fd, rest) :]
