"""Real descriptors: pipes, sockets, files."""

from __future__ import annotations

import asyncio
import errno
import os
import pty
import resource
import signal
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from coupler.wire.peer import Peer
from coupler.wire.pipe_transport import PipeTransport
from wire.stage import Listener, request_line, run, ticks, until

both_modes = pytest.mark.parametrize("threaded", [False, True], ids=["watched", "threaded"])


def is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


class Far:
    """The other ends of a transport's pipes, in blocking mode, for a thread or for small amounts."""

    def __init__(self) -> None:
        self.near_read, self.write_fd = os.pipe()
        self.read_fd, self.near_write = os.pipe()

    def write(self, data: bytes) -> None:
        assert os.write(self.write_fd, data) == len(data)

    def end_input(self) -> None:
        os.close(self.write_fd)
        self.write_fd = -1

    def stop_reading(self) -> None:
        os.close(self.read_fd)
        self.read_fd = -1

    async def read_lines(self, count: int) -> list[bytes]:
        """Read in a thread, as a process would."""

        def read() -> list[bytes]:
            data = b""
            while data.count(b"\n") < count:
                piece = os.read(self.read_fd, 65536)
                assert piece, f"the output ended after {data!r}"
                data += piece
            return data.splitlines()

        return await asyncio.to_thread(read)

    def close(self) -> None:
        for fd in (self.write_fd, self.read_fd):
            if fd >= 0:
                os.close(fd)


@pytest.fixture
def far() -> Iterator[Far]:
    # The near ends belong to the transport, and perhaps to a thread that closes them only after the test.
    far = Far()
    yield far
    far.close()


@both_modes
def test_requests_come_in_and_answers_go_out(far: Far, threaded: bool) -> None:
    async def test() -> None:
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), Listener())
        peer.open()
        for number in range(3):
            far.write(request_line(number))
            assert (await far.read_lines(1))[0].startswith(b'{"jsonrpc":"2.0","id":%d,' % number)
        await peer.close()

    run(test())


@both_modes
def test_the_last_line_is_served_and_answered_after_the_end_of_input(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), listener)
        peer.open()
        far.write(request_line(1) + request_line(2).rstrip())
        far.end_input()
        await until(lambda: listener.ends)
        await peer.drain()
        await peer.close()
        lines = os.read(far.read_fd, 65536).splitlines()
        assert [line[:23] for line in lines] == [b'{"jsonrpc":"2.0","id":1', b'{"jsonrpc":"2.0","id":2']
        assert listener.ends[0].message == "the other side closed the connection"

    run(test())


@both_modes
def test_more_than_the_pipe_holds_goes_out_whole_and_in_order(far: Far, threaded: bool) -> None:
    async def test() -> None:
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), Listener())
        peer.open()
        for number in range(1000):
            peer.notify("m", {"n": number, "pad": "x" * 1000})
        lines = await far.read_lines(1000)
        await peer.drain()
        assert [b'"n":%d,' % number in line for number, line in enumerate(lines)] == [True] * 1000
        await peer.close()

    run(test())


@both_modes
def test_what_was_drained_is_in_the_pipe_when_the_connection_closes(far: Far, threaded: bool) -> None:
    async def test() -> None:
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), Listener())
        peer.open()
        peer.notify("last", {"pad": "x" * 20_000})
        await peer.drain()
        assert len(os.read(far.read_fd, 65536)) > 20_000
        await peer.close()

    run(test())


@both_modes
def test_an_answer_comes_while_nobody_reads_a_chatty_lane(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), listener)
        peer.open()
        for _ in range(500):
            peer.notify("m", {"pad": "x" * 1000}, lane="a")
        far.write(request_line("list"))
        await until(lambda: listener.requests)
        lines = await far.read_lines(501)
        position = next(index for index, line in enumerate(lines) if b'"list"' in line)
        assert position < 250
        await peer.close()

    run(test())


@both_modes
def test_a_reader_who_went_away_ends_the_connection(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), listener)
        peer.open()
        answers: list[object] = []
        peer.ask("m", {}, answers.append)
        await far.read_lines(1)
        far.stop_reading()
        peer.notify("m", {})
        peer.notify("m", {"pad": "x" * 200_000}, lane="a")
        await until(lambda: listener.ends)
        assert "Broken pipe" in listener.ends[0].message
        assert answers == listener.ends
        peer.notify("m", {})
        await peer.drain()
        await ticks()
        await peer.close()

    run(test())


@both_modes
def test_a_reader_who_goes_away_while_the_pipe_is_full_ends_the_connection(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), listener)
        peer.open()
        peer.notify("m", {"pad": "x" * 1_000_000})
        draining = asyncio.create_task(peer.drain())
        await ticks(20)
        assert not draining.done()
        far.stop_reading()
        await draining
        await until(lambda: listener.ends)
        await peer.close()

    run(test())


@both_modes
def test_both_descriptors_are_closed_with_the_transport(far: Far, threaded: bool) -> None:
    async def test() -> None:
        transport = PipeTransport(far.near_read, far.near_write, threaded=threaded)
        peer = Peer(transport, Listener())
        peer.open()
        # A thread that is blocked in its read can only close it once something came.
        far.end_input()
        await until(lambda: peer.closed_because)
        await peer.close()
        transport.close()
        await until(lambda: not is_open(far.near_read) and not is_open(far.near_write))
        assert os.read(far.read_fd, 1) == b""
        assert transport.write(b"nobody") == 6

    run(test())


def test_a_transport_that_was_never_opened_can_be_closed(far: Far) -> None:
    async def test() -> None:
        await Peer(PipeTransport(far.near_read, far.near_write), Listener()).close()
        assert not is_open(far.near_read)
        assert not is_open(far.near_write)

    run(test())


def test_closing_a_full_pipe_does_not_wait_for_its_reader(far: Far) -> None:
    async def test() -> None:
        peer = Peer(PipeTransport(far.near_read, far.near_write), Listener())
        peer.open()
        peer.notify("m", {"pad": "x" * 1_000_000})
        await ticks()
        await peer.close()
        await ticks()
        assert not is_open(far.near_write)

    run(test())


def test_a_thread_that_is_blocked_in_its_descriptor_closes_it_itself(far: Far) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=True), listener)
        peer.open()
        peer.notify("m", {"pad": "x" * 1_000_000})
        await ticks(20)
        await peer.close()
        # Both threads are still blocked, so neither number may mean another file yet.
        assert is_open(far.near_read)
        assert is_open(far.near_write)
        far.write(request_line(1))
        while os.read(far.read_fd, 65536):
            pass
        await until(lambda: not is_open(far.near_read) and not is_open(far.near_write))
        await ticks()
        assert listener.requests == []

    run(test())


def test_threads_survive_that_the_loop_is_gone(far: Far) -> None:
    async def test() -> None:
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=True), Listener())
        peer.open()
        peer.notify("m", {"pad": "x" * 1_000_000})
        await ticks()
        threads.extend(thread for thread in threading.enumerate() if thread.name.startswith("coupler-"))
        transports.append(peer._transport)

    threads: list[threading.Thread] = []
    transports: list[object] = []
    run(test())
    far.write(b"x\n")
    far.stop_reading()
    assert len(threads) >= 2
    assert all(thread.daemon for thread in threads)
    transports[0].close()  # type: ignore[attr-defined]
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()


@both_modes
@pytest.mark.parametrize("was_blocking", [True, False])
def test_the_blocking_mode_is_given_back(far: Far, threaded: bool, was_blocking: bool) -> None:
    async def test() -> None:
        # given descriptors that share their mode with others, as those of a shell do
        for fd in (far.near_read, far.near_write):
            os.set_blocking(fd, was_blocking)
        shared = os.dup(far.near_read), os.dup(far.near_write)
        # when they were used
        listener = Listener()
        peer = Peer(PipeTransport(far.near_read, far.near_write, threaded=threaded), listener)
        peer.open()
        assert [os.get_blocking(fd) for fd in shared] == [threaded, threaded]
        far.write(request_line(1))
        await far.read_lines(1)
        far.end_input()
        await until(lambda: listener.ends)
        await peer.close()
        await until(lambda: not is_open(far.near_read) and not is_open(far.near_write))
        # then it is as it was
        assert [os.get_blocking(fd) for fd in shared] == [was_blocking, was_blocking]
        for fd in shared:
            os.close(fd)

    run(test())


@both_modes
@pytest.mark.parametrize("one_number", [True, False])
def test_a_socket_serves_both_ways(threaded: bool, one_number: bool) -> None:
    async def test() -> None:
        near, far = socket.socketpair()
        fd = near.detach()
        listener = Listener()
        transport = PipeTransport(fd, fd if one_number else os.dup(fd), threaded=threaded)
        peer = Peer(transport, listener)
        peer.open()
        far.sendall(request_line(1))
        reply = await asyncio.to_thread(far.recv, 65536)
        assert b'"id":1' in reply
        far.shutdown(socket.SHUT_WR)
        await until(lambda: listener.ends)
        peer.notify("after", {})
        await peer.drain()
        assert b"after" in await asyncio.to_thread(far.recv, 65536)
        await peer.close()
        await until(lambda: not is_open(fd))
        assert await asyncio.to_thread(far.recv, 1) == b""
        far.close()

    run(test())


def test_a_socket_that_was_reset_ends_the_connection() -> None:
    async def test() -> None:
        near, far = socket.socketpair()
        listener = Listener()
        peer = Peer(PipeTransport(fd := near.detach(), fd), listener)
        peer.open()
        peer.notify("unread", {})
        await peer.drain()
        far.close()  # with unread bytes, which makes it a reset
        await until(lambda: listener.ends)
        assert "reset" in listener.ends[0].message
        await peer.close()

    run(test())


@both_modes
def test_a_regular_file_is_read_to_its_end_and_another_written(tmp_path: Path, threaded: bool) -> None:
    async def test() -> None:
        source, target = tmp_path / "in", tmp_path / "out"
        source.write_bytes(b"".join(request_line(number) for number in range(5000)))
        listener = Listener()
        transport = PipeTransport(
            os.open(source, os.O_RDONLY), os.open(target, os.O_WRONLY | os.O_CREAT), threaded=threaded
        )
        peer = Peer(transport, listener)
        peer.open()
        await until(lambda: listener.ends)
        await peer.drain()
        await peer.close()
        lines = target.read_bytes().splitlines()
        assert [b'"id":%d,' % number in line for number, line in enumerate(lines)] == [True] * 5000

    run(test())


@both_modes
def test_dev_null_is_an_empty_input_and_takes_all_output(threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        transport = PipeTransport(
            os.open(os.devnull, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), threaded=threaded
        )
        peer = Peer(transport, listener)
        peer.open()
        peer.notify("m", {"pad": "x" * 1_000_000})
        await until(lambda: listener.ends)
        await peer.drain()
        await peer.close()

    run(test())


@both_modes
def test_an_input_that_cannot_be_read_is_an_end(tmp_path: Path, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        transport = PipeTransport(
            os.open(tmp_path, os.O_RDONLY), os.open(os.devnull, os.O_WRONLY), threaded=threaded
        )
        peer = Peer(transport, listener)
        peer.open()
        await until(lambda: listener.ends)
        await peer.close()

    run(test())


def test_a_terminal_is_watched_like_a_pipe() -> None:
    async def test() -> None:
        far, near = pty.openpty()
        listener = Listener()
        peer = Peer(PipeTransport(near, near), listener)
        peer.open()
        os.write(far, request_line(1))
        await until(lambda: listener.requests)
        await peer.drain()
        await peer.close()
        os.close(far)

    run(test())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@both_modes
def test_a_full_disk_ends_the_connection(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        peer = Peer(
            PipeTransport(far.near_read, os.open("/dev/full", os.O_WRONLY), threaded=threaded), listener
        )
        peer.open()
        peer.notify("m", {})
        await until(lambda: listener.ends)
        assert os.strerror(errno.ENOSPC) in listener.ends[0].message
        await peer.close()

    run(test())


def test_a_disk_that_becomes_full_within_a_write_ends_the_connection(far: Far, tmp_path: Path) -> None:
    async def test() -> None:
        # given a file that may grow to 1000 bytes
        os.close(far.near_write)
        fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        previous = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))
        try:
            # when more is written
            listener = Listener()
            peer = Peer(PipeTransport(far.near_read, fd), listener)
            peer.open()
            peer.notify("m", {"pad": "x" * 5000})
            await until(lambda: listener.ends)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
            signal.signal(signal.SIGXFSZ, previous)
        # then the connection says so
        assert os.strerror(errno.EFBIG) in listener.ends[0].message
        await peer.close()

    run(test())


@both_modes
def test_what_was_read_before_comes_first(far: Far, threaded: bool) -> None:
    async def test() -> None:
        listener = Listener()
        line = request_line("first")
        transport = PipeTransport(
            far.near_read, far.near_write, already_read=request_line(0) + line[:10], threaded=threaded
        )
        peer = Peer(transport, listener)
        far.write(line[10:] + request_line("second"))
        peer.open()
        assert len(listener.requests) == 1
        await far.read_lines(3)
        assert [bytes(request.id) for request in listener.requests] == [b"0", b'"first"', b'"second"']
        far.end_input()
        await until(lambda: listener.ends)
        await peer.close()

    run(test())


def test_a_wakeup_without_bytes_is_harmless(far: Far) -> None:
    async def test() -> None:
        listener = Listener()
        transport = PipeTransport(far.near_read, far.near_write)
        peer = Peer(transport, listener)
        peer.open()
        transport._read()
        far.write(request_line(1))
        await far.read_lines(1)
        assert listener.ends == []
        await peer.close()

    run(test())


@both_modes
def test_a_transport_that_does_not_read_lets_the_writer_wait_and_loses_nothing(threaded: bool) -> None:
    async def test() -> None:
        far, listener = Far(), Listener()
        transport = PipeTransport(far.near_read, far.near_write, threaded=threaded)
        peer = Peer(transport, listener)
        peer.open()
        try:
            far.write(request_line(1, "first"))
            await until(lambda: len(listener.requests) == 1)
            peer.pause_reading()
            far.write(request_line(2, "second"))  # a thread may have begun to read before the pause
            far.write(request_line(3, "third"))
            await ticks()
            assert len(listener.requests) <= 3
            peer.resume_reading()
            peer.resume_reading()
            await until(lambda: len(listener.requests) == 3)
            peer.pause_reading()
            peer.resume_reading()
            far.end_input()
            await until(lambda: peer.closed_because is not None)
            peer.resume_reading()  # nothing is left to read
        finally:
            await peer.close()
            far.stop_reading()

    run(test())
