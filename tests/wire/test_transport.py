"""Two ends in one process."""

from __future__ import annotations

from coupler.wire.outbox import CHUNK
from coupler.wire.peer import Peer
from coupler.wire.transport import MemoryTransport
from wire.stage import Listener, run, ticks, until


class Ear:
    """A receiver that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def data_received(self, data: bytes) -> None:
        self.told.append(data)

    def input_ended(self, error: Exception | None) -> None:
        self.told.append(error)

    def output_ready(self) -> None:
        self.told.append("ready")


def test_bytes_arrive_at_the_other_end_and_the_writer_may_go_on() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near, far = Ear(), Ear()
        one.open(near)
        other.open(far)
        assert one.write(b"hello") == 5
        assert far.told == []
        await ticks()
        assert (near.told, far.told) == (["ready"], [b"hello"])

    run(test())


def test_one_write_a_tick_is_taken() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near, far = Ear(), Ear()
        one.open(near)
        other.open(far)
        assert one.write(b"first") == 5
        assert one.write(memoryview(b"second")) == 0
        await ticks()
        assert one.write(memoryview(b"second")) == 6
        await ticks()
        assert far.told == [b"first", b"second"]

    run(test())


def test_what_is_written_before_the_other_end_opens_waits_for_it() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near, far = Ear(), Ear()
        one.open(near)
        one.write(b"early")
        await ticks()
        assert one.write(b"more") == 0
        other.open(far)
        await ticks()
        assert (near.told, far.told) == (["ready"], [b"early"])

    run(test())


def test_an_end_that_was_closed_before_the_other_opened_is_reported_after_its_bytes() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        far = Ear()
        one.open(Ear())
        one.write(b"early")
        await ticks()
        one.close()
        await ticks()
        other.open(far)
        await ticks()
        assert far.told == [b"early", None]

    run(test())


def test_closing_one_end_ends_the_input_of_the_other_after_what_was_written() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near, far = Ear(), Ear()
        one.open(near)
        other.open(far)
        one.write(b"last")
        one.close()
        one.close()
        await ticks()
        assert (near.told, far.told) == ([], [b"last", None])

    run(test())


def test_what_is_written_to_a_closed_end_is_dropped() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near = Ear()
        one.open(near)
        other.open(Ear())
        other.close()
        await ticks()
        assert near.told == [None]
        assert one.write(b"nobody") == 6
        await ticks()
        assert near.told == [None, "ready"]
        one.close()
        assert one.write(b"nothing") == 0
        await ticks()

    run(test())


def test_two_peers_talk_both_ways_at_once() -> None:
    async def test() -> None:
        # given two peers, of which one opens late
        ends = MemoryTransport.pair()
        listeners = Listener(), Listener()
        near, far = (Peer(end, listener) for end, listener in zip(ends, listeners, strict=True))
        near.open()
        near.notify("before", {"you": "came"})
        await ticks()
        far.open()
        # when both write more than one write takes
        for number in range(2000):
            near.notify("count", {"n": number, "pad": "x" * 200}, lane=number % 3)
            far.notify("count", {"n": number})
        assert bytes(await near.request("echo", {"a": 1})) == b'{"a":1}'
        assert bytes(await far.request("echo", {"b": 2})) == b'{"b":2}'
        await near.drain()
        await until(lambda: len(listeners[1].heard) == 2001 and len(listeners[0].heard) == 2000)
        # then all came, each lane in order
        assert listeners[1].heard[0] == ("before", {"you": "came"})
        assert [params["n"] for _, params in listeners[0].heard] == list(range(2000))
        for lane in range(3):
            numbers = [params["n"] for _, params in listeners[1].heard[1:] if params["n"] % 3 == lane]
            assert numbers == sorted(numbers)
        assert near.outbox.unsent == 0
        # and closing one side tells the other
        await near.close()
        await until(lambda: listeners[1].ends)
        await far.close()
        assert [len(listener.ends) for listener in listeners] == [1, 1]

    run(test())


def test_a_frame_larger_than_a_chunk_arrives_whole() -> None:
    async def test() -> None:
        ends = MemoryTransport.pair()
        listener = Listener()
        near, far = Peer(ends[0], Listener()), Peer(ends[1], listener)
        near.open()
        far.open()
        near.notify("huge", {"text": "x" * 5 * CHUNK})
        await until(lambda: listener.heard)
        assert len(listener.heard[0][1]["text"]) == 5 * CHUNK
        await near.close()
        await far.close()

    run(test())


def test_an_end_that_does_not_read_lets_the_other_wait_and_loses_nothing() -> None:
    async def test() -> None:
        one, other = MemoryTransport.pair()
        near, far = Ear(), Ear()
        one.open(near)
        other.open(far)
        other.pause_reading()
        assert one.write(b"first") == 5
        await ticks()
        assert (one.write(b"second"), near.told, far.told) == (0, [], [])
        one.end_output()
        await ticks()
        assert far.told == []
        other.resume_reading()
        await ticks()
        assert far.told == [b"first", None]

    run(test())
