"""Floods: too many requests, answers that nobody reads, and more frames than can be handled at once."""

from __future__ import annotations

import asyncio
import json
import re
import time
from typing import Any

import pytest

from coupler.wire import peer as peer_module
from coupler.wire.messages import RpcError
from coupler.wire.peer import MAX_REQUESTS_IN_FLIGHT, Peer, Request
from coupler.wire.transport import MemoryTransport
from wire.stage import Listener, notification_line, peer_on_tape, request_line, run, ticks, until

BOUND = 1.0
"""Seconds that another connection may wait; alone it is ten milliseconds, but the machine may be busy."""


def cancel_line(id: object) -> bytes:
    return notification_line("$/cancel_request", {"requestId": id})


class TestRequestsInFlight:
    def test_one_more_than_the_limit_is_refused_and_cancels_and_answers_still_get_through(self) -> None:
        async def test() -> None:
            waiting: list[Request] = []
            cancelled: list[object] = []

            def keep(request: Request) -> None:
                waiting.append(request)
                request.when_cancelled(lambda: cancelled.append(json.loads(request.key)))

            listener = Listener(keep=keep)
            peer, tape = peer_on_tape(listener)
            asked = asyncio.ensure_future(peer.request("question", {}))
            await ticks()
            for id in range(MAX_REQUESTS_IN_FLIGHT + 10):
                tape.receiver.data_received(request_line(id, "keep"))
            tape.receiver.data_received(notification_line("session/cancel") + cancel_line(5))
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')

            # then those beyond the limit have an error, and nothing else is held up
            assert await asked
            await ticks(100)
            refused = [each for each in tape.messages if "error" in each]
            assert [each["id"] for each in refused] == [*range(4096, 4106)]
            assert {each["error"]["data"]["reason"] for each in refused} == {"too_many_requests"}
            assert (len(waiting), cancelled) == (MAX_REQUESTS_IN_FLIGHT, [5])
            assert ("session/cancel", {}) in listener.heard

            # and one that is answered makes room for another
            waiting[0].answer(None)
            tape.receiver.data_received(request_line("next", "keep"))
            assert waiting[-1].key == b'"next"'

        run(test())

    def test_requests_with_the_same_id_are_counted_each(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_module, "MAX_REQUESTS_IN_FLIGHT", 10)

        async def test() -> None:
            waiting: list[Request] = []
            _, tape = peer_on_tape(Listener(keep=waiting.append))
            for _ in range(50):
                tape.receiver.data_received(request_line(1, "keep"))
            assert len(waiting) == 10

        run(test())

    def test_long_requests_are_limited_by_their_bytes_but_one_alone_is_served(self) -> None:
        async def test() -> None:
            waiting: list[Request] = []
            _, tape = peer_on_tape(Listener(keep=waiting.append), frame_limit=1000)
            for id in range(50):
                tape.receiver.data_received(request_line(id, "keep", {"text": "x" * 800}))
            assert len(waiting) == 4

        run(test())


class TestUnreadAnswers:
    @pytest.fixture(autouse=True)
    def low_limits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_module, "MAX_UNREAD_ANSWERS", 100)

    @pytest.mark.parametrize("line", [request_line(1), request_line(1, "unknown"), b"garbage\n"])
    def test_nothing_is_read_until_some_were_taken_and_nothing_is_lost(self, line: bytes) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.room = 0
            sent = 0
            while not tape.is_paused:
                tape.receiver.data_received(line * 10)
                await ticks()
                sent += 10
            assert 100 < sent <= 120
            tape.receiver.data_received(line * 1000)
            assert peer.outbox.answers <= 120

            tape.make_room()
            await until(lambda: not tape.is_paused)
            await peer.drain()
            assert len(tape.messages) == sent + 1000

        run(test())

    def test_answers_in_a_lane_are_counted_and_updates_are_not(self) -> None:
        async def test() -> None:
            def answer_in_lane(request: Request) -> None:
                request.lane = "s"
                request.answer(None)

            peer, tape = peer_on_tape(Listener(laned=answer_in_lane))
            tape.room = 0
            for _ in range(1000):
                peer.notify("session/update", {}, "s")
            tape.receiver.data_received(request_line(1))
            assert not tape.is_paused
            for id in range(200):
                tape.receiver.data_received(request_line(id, "laned"))
            assert tape.is_paused
            tape.make_room()
            await peer.drain()
            assert (peer.outbox.answers, peer.outbox.answer_bytes) == (0, 0)

        run(test())

    def test_long_answers_are_limited_by_their_bytes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_module, "MAX_UNREAD_BYTES", 10_000)

        async def test() -> None:
            _, tape = peer_on_tape()
            tape.room = 0
            for id in range(11):
                tape.receiver.data_received(request_line(id, params={"text": "x" * 1000}))
            assert tape.is_paused

        run(test())

    def test_a_peer_that_takes_nothing_for_long_is_left(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_module, "UNREAD_TIMEOUT", 0.05)

        async def test() -> None:
            listener = Listener()
            _, tape = peer_on_tape(listener)
            tape.room = 0
            tape.receiver.data_received(request_line(1) * 1000)
            await until(lambda: listener.ends)
            assert listener.ends[0].reason == "answers_unread"
            assert re.search(r"left 1\d\d answers \(\d+ bytes\) unread", listener.ends[0].message)
            assert tape.closed

        run(test())

    def test_the_end_of_the_input_is_handled_after_what_came_before_it(self) -> None:
        async def test() -> None:
            listener = Listener()
            peer, tape = peer_on_tape(listener)
            tape.room = 0
            tape.receiver.data_received(request_line(1) * 1000)
            tape.receiver.input_ended(None)
            await ticks()
            assert not listener.ends
            tape.make_room()
            await until(lambda: listener.ends)
            await peer.drain()
            assert len(tape.messages) == 1000

        run(test())

    @pytest.mark.parametrize("is_read_first", [True, False])
    def test_who_stops_reading_for_a_reason_of_its_own_and_the_peer_do_not_end_each_other_s_pause(
        self, is_read_first: bool
    ) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.room = 0
            tape.receiver.data_received(request_line(1) * 1000)
            peer.pause_reading()
            ends = [tape.make_room, peer.resume_reading]
            for end in ends if is_read_first else reversed(ends):
                await ticks()
                assert tape.is_paused
                end()
            await until(lambda: not tape.is_paused)
            tape.receiver.data_received(request_line("last"))
            await peer.drain()
            assert len(tape.messages) == 1001

        run(test())

    def test_two_that_flood_each_other_do_not_wait_for_ever(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(peer_module, "UNREAD_TIMEOUT", 0.1)

        async def test() -> None:
            answers: list[Any] = []
            ends = MemoryTransport.pair()
            listeners = [Listener(), Listener()]
            peers = [Peer(end, listener) for end, listener in zip(ends, listeners, strict=True)]
            for peer in peers:
                peer.open()
            for peer in peers:
                for _ in range(5000):
                    peer.ask("echo", {"text": "x" * 100}, answers.append)
            await until(lambda: len(answers) == 10_000)
            errors = [answer for answer in answers if isinstance(answer, RpcError)]
            assert not errors or {error.reason for error in errors} >= {"answers_unread"}
            for peer in peers:
                await peer.close()

        run(test())


@pytest.mark.parametrize(
    "flood",
    [
        b"garbage\n",
        b"{}\n",
        b"[]\n",
        b'{"jsonrpc":"2.0","id":7,"result":{}}\n',
        b'{"jsonrpc":"2.0","method":"unknown"}\n',
        b'{"jsonrpc":"2.0","method":"$/cancel_request"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"unknown"}\n',
        b'{"jsonrpc":"2.0","id":1,"method":"echo"}\n',
    ],
)
def test_another_connection_is_served_while_one_is_flooded(
    flood: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """They all come at once, more than any pipe holds."""

    async def test() -> None:
        listener = Listener()
        listener.requests = _Forgetful()
        listener.heard = _Forgetful()
        _, flooded = peer_on_tape(listener)
        _, other = peer_on_tape()
        slowest = 0.0
        count = 300_000 // len(flood)
        flooded.receiver.data_received(flood * count + request_line("last"))
        while not flooded.writes or b'"last"' not in flooded.writes[-1]:
            began = time.monotonic()
            other.receiver.data_received(request_line(1))
            answered = len(other.writes)
            await until(lambda answered=answered: len(other.writes) > answered)  # type: ignore[misc]
            slowest = max(slowest, time.monotonic() - began)
        assert slowest < BOUND, f"{slowest:.3f} s"

    run(test())
    logged = sum(len(record.getMessage()) for record in caplog.records)
    assert logged < 20_000, f"{logged} characters"


class _Forgetful(list[Any]):
    """A list that keeps nothing: a flood would fill it."""

    def append(self, item: Any) -> None:
        pass
