"""One side of a connection, driven byte by byte."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from coupler.wire.messages import RpcError
from coupler.wire.outbox import BUDGET, CHUNK
from coupler.wire.peer import Peer, Request
from tables import table
from wire.stage import Listener, Tape, notification_line, peer_on_tape, request_line, run, ticks, until


def cancel_line(id: object) -> bytes:
    return notification_line("$/cancel_request", {"requestId": id})


def error_of(message: dict[str, Any]) -> tuple[int, str]:
    return message["error"]["code"], message["error"]["data"]["reason"]


@pytest.fixture
def logged(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], list[str]]]:
    with caplog.at_level(logging.DEBUG, "coupler.wire"):
        yield lambda: [record.getMessage() for record in caplog.records]


class TestLeavingOut:
    """Peers that leave things out, and code that leaves."""

    def test_an_answer_without_a_result_is_one_that_was_undefined(self) -> None:
        async def test() -> bytes:
            peer, tape = peer_on_tape()
            asking = asyncio.ensure_future(peer.request("m", {}))
            await until(lambda: tape.messages)
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1}\n')
            return bytes(await asking)

        assert run(test()) == b"null"

    def test_an_id_alone_that_nobody_waits_for_is_no_message(self) -> None:
        async def test() -> list[dict[str, Any]]:
            _, tape = peer_on_tape()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1}\n')
            await ticks()
            return tape.messages

        (message,) = run(test())
        assert message["id"] == 1 and error_of(message) == (-32600, "invalid_request")

    def test_code_that_exits_ends_its_request_and_not_the_process(self) -> None:
        async def leave() -> None:
            raise SystemExit(3)

        async def test() -> list[dict[str, Any]]:
            _, tape = peer_on_tape(Listener(echo=lambda request: request.run(leave())))
            tape.receiver.data_received(request_line(1))
            await until(lambda: tape.messages)
            return tape.messages

        assert error_of(run(test())[0]) == (-32603, "internal_error")


class TestReceiving:
    def test_requests_are_answered_in_order_with_one_write(self) -> None:
        async def test() -> None:
            _, tape = peer_on_tape()
            tape.receiver.data_received(request_line(1, params={"a": 1}) + request_line("two"))
            assert tape.writes == []
            await ticks()
            assert tape.messages == [
                {"jsonrpc": "2.0", "id": 1, "result": {"a": 1}},
                {"jsonrpc": "2.0", "id": "two", "result": {}},
            ]
            assert len(tape.writes) == 1

        run(test())

    @table(
        "id",
        [
            b"0",
            b"-1",
            b"123456789012345678901234567890",
            b"null",
            b'""',
            rb'"\u0061\"\n\ud83d\ude00"',
            rb'"\ud83d"',
        ],
    )
    def test_an_id_is_echoed_byte_by_byte(self, id: bytes) -> None:
        async def test() -> None:
            _, tape = peer_on_tape()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":%b,"method":"echo"}\n' % id)
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":%b,"method":"unknown"}\n' % id)
            await ticks()
            start = b'{"jsonrpc":"2.0","id":%b,' % id
            assert [line.startswith(start) for line in tape.lines] == [True, True]

        run(test())

    @table("id", [1.5, 1.0, True, False, {}, {"a": 1}, [], [1]])
    def test_what_is_no_id_is_refused_under_null(self, id: object) -> None:
        async def test() -> None:
            listener = Listener()
            _, tape = peer_on_tape(listener)
            tape.receiver.data_received(request_line(id) + request_line("next"))
            await ticks()
            refusal, answer = tape.messages
            assert (refusal["id"], error_of(refusal)) == (None, (-32600, "invalid_request"))
            assert answer["id"] == "next"
            assert len(listener.requests) == 1

        run(test())

    @table(
        ("line", "id", "code", "reason"),
        [
            (b"hello", None, -32700, "parse_error"),
            (b"\xff\xfe", None, -32700, "parse_error"),
            (b'{"jsonrpc":"2.0","id":7,"method":"echo","params":"\xff"}', 7, -32700, "parse_error"),
            (b'{"jsonrpc":"2.0","id":7,"method":"echo","params":NaN}', 7, -32700, "parse_error"),
            (b'{"jsonrpc":"2.0","id":7,"method":"echo","params":' + b"[" * 100_000, 7, -32700, "parse_error"),
            (b"[" * 100_000 + b"]" * 100_000, None, -32700, "parse_error"),
            (
                b'{"jsonrpc":"2.0","id":7,"method":"echo","params":"%b"}' % (b"x" * 300_000),
                7,
                -32600,
                "frame_too_long",
            ),
            (b"x" * 300_000, None, -32600, "frame_too_long"),
            (b"[]", None, -32600, "batch_unsupported"),
            (b'[{"jsonrpc":"2.0","id":7,"method":"echo"}]', None, -32600, "batch_unsupported"),
            (b'{"id":7,"method":"echo"}', 7, -32600, "invalid_request"),
            (b'{"jsonrpc":"1.0","id":7,"method":"echo"}', 7, -32600, "invalid_request"),
            (b'{"jsonrpc":"2.0","id":7}', 7, -32600, "invalid_request"),
            (b"true", None, -32600, "invalid_request"),
            (b'{"jsonrpc":"2.0","id":7,"method":"unknown"}', 7, -32601, "method_not_found"),
        ],
        ids=lambda value: repr(value)[:40],
    )
    def test_bad_input_costs_one_message(self, line: bytes, id: object, code: int, reason: str) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape(frame_limit=250_000)
            tape.receiver.data_received(line + b"\r\n\r\n" + request_line("next"))
            await ticks()
            refusal, answer = tape.messages
            assert (refusal["id"], *error_of(refusal)) == (id, code, reason)
            assert answer == {"jsonrpc": "2.0", "id": "next", "result": {}}
            assert peer.closed_because is None

        run(test())

    @table(
        "line",
        [
            b'{"jsonrpc":"2.0","method":5}',
            b'{"method":"m"}',
            b'{"jsonrpc":"2.0","method":"m","params":{',
            b'{"jsonrpc":"2.0","method":"m","params":"\xff"}',
            b'{"jsonrpc":"2.0","id":7,"result":{',
            b'{"jsonrpc":"2.0","id":7,"error":"\xff"}',
            b'{"jsonrpc":"2.0","result":1}',
            b'{"jsonrpc":"2.0","error":{"code":1,"message":"m"}}',
            b'{"jsonrpc":"2.0","id":null,"error":{"code":-32700,"message":"what?"}}',
            b'{"jsonrpc":"2.0","id":99,"result":{}}',
            b'{"jsonrpc":"2.0","id":1.0,"result":{}}',
            b'{"jsonrpc":"2.0","method":"$/cancel_request"}',
            b'{"jsonrpc":"2.0","method":"$/cancel_request","params":[1]}',
            b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":99}}',
            b"",
            b"\xef\xbb\xbf \t\r",
        ],
    )
    def test_broken_notifications_and_answers_are_never_answered(self, line: bytes) -> None:
        async def test() -> None:
            _, tape = peer_on_tape()
            tape.receiver.data_received(line + b"\n" + request_line("next"))
            await ticks()
            assert [message["id"] for message in tape.messages] == ["next"]

        run(test())

    def test_a_flood_of_garbage_is_answered_but_does_not_fill_the_log(
        self, caplog: pytest.LogCaptureFixture
    ) -> None:
        async def test() -> None:
            _, tape = peer_on_tape()
            tape.receiver.data_received(b"what?\n" * 5000)
            await ticks(200)
            assert len(tape.messages) == 5000

        run(test())
        assert 50 <= len(caplog.records) <= 60
        assert "4096 like this by now" in caplog.text

    @table("line", [b"hello", b"[]", b"{}", b'{"jsonrpc":"2.0","id":7}', b"x" * 2000])
    def test_a_client_answers_no_garbage(self, line: bytes) -> None:
        async def test() -> None:
            _, tape = peer_on_tape(answers_garbage=False, frame_limit=1000)
            tape.receiver.data_received(line + b"\n" + b'{"id":8,"method":"echo"}\n')
            await ticks()
            assert [(message["id"], *error_of(message)) for message in tape.messages] == [
                (8, -32600, "invalid_request")
            ]

        run(test())

    def test_array_params_reach_the_endpoint(self) -> None:
        async def test() -> None:
            listener = Listener()
            _, tape = peer_on_tape(listener)
            tape.receiver.data_received(b'{"jsonrpc":"2.0","method":"m","params":[1,2]}\n')
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"method":"echo","params":[1,2]}\n')
            await ticks()
            assert listener.heard == [("m", [1, 2])]
            assert tape.messages[0]["result"] == [1, 2]

        run(test())

    def test_messages_of_all_kinds_are_handled_in_the_order_of_arrival(self) -> None:
        async def test() -> None:
            order: list[str] = []

            class Ordered(Listener):
                def request_received(self, request: Request) -> None:
                    order.append(request.method)
                    request.answer(None)

                def notification_received(self, method: str, params: Raw) -> None:
                    order.append(method)

            peer, tape = peer_on_tape(Ordered())
            peer.ask("m", {}, lambda answer: order.append("answer"))
            answer = b'{"jsonrpc":"2.0","id":1,"result":{}}\n'
            data = notification_line("one") + request_line(1, "two") + answer + notification_line("three")
            for byte in data:
                tape.receiver.data_received(bytes([byte]))
            assert order == ["one", "two", "answer", "three"]
            await ticks()

        run(test())


class TestFaults:
    def test_an_endpoint_that_raises_costs_one_message(self, logged: Callable[[], list[str]]) -> None:
        def refuse(request: Request) -> None:
            raise RpcError(-5, "not today", {"reason": "mood"})

        def crash(request: Request) -> None:
            raise KeyError("lost")

        def stop(request: Request) -> None:
            raise asyncio.CancelledError

        class Deaf(Listener):
            def notification_received(self, method: str, params: Raw) -> None:
                raise ValueError(method)

        async def test() -> None:
            _, tape = peer_on_tape(Deaf(refuse=refuse, crash=crash, stop=stop))
            tape.receiver.data_received(
                request_line(1, "refuse")
                + request_line(2, "crash")
                + notification_line("m")
                + request_line(3, "stop")
                + request_line(4)
            )
            await ticks()
            refusal, crash_report, stopped, answer = tape.messages
            assert refusal["error"] == {"code": -5, "message": "not today", "data": {"reason": "mood"}}
            assert error_of(crash_report) == (-32603, "internal_error")
            assert crash_report["error"]["message"] == "KeyError: 'lost'"
            assert error_of(stopped) == (-32800, "cancelled")
            assert answer == {"jsonrpc": "2.0", "id": 4, "result": {}}

        run(test())
        assert "crash failed" in logged()

    def test_an_endpoint_that_raises_after_it_answered_has_answered(
        self, logged: Callable[[], list[str]]
    ) -> None:
        def answer_and_crash(request: Request) -> None:
            request.answer({"ok": True})
            raise ValueError

        async def test() -> None:
            _, tape = peer_on_tape(Listener(m=answer_and_crash))
            tape.receiver.data_received(request_line(1, "m"))
            await ticks()
            assert tape.messages == [{"jsonrpc": "2.0", "id": 1, "result": {"ok": True}}]

        run(test())
        assert "a second answer to m was dropped" in logged()

    @table(
        ("work", "code", "message"),
        [
            (RpcError(-5, "not today"), -5, "not today"),
            (ValueError("lost"), -32603, "ValueError: lost"),
            (TimeoutError(), -32603, "TimeoutError"),
            (
                RpcError(-5, "with data", object()),
                -32603,
                "TypeError: Encoding objects of type object is unsupported",
            ),
        ],
    )
    def test_a_task_that_raises_answers_with_an_error(self, work: Exception, code: int, message: str) -> None:
        async def fail() -> None:
            await asyncio.sleep(0)
            raise work

        async def test() -> None:
            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(fail())))
            tape.receiver.data_received(request_line(1, "m"))
            await peer.all_answered()
            await peer.drain()
            (answer,) = tape.messages
            assert (answer["error"]["code"], answer["error"]["message"]) == (code, message)

        run(test())

    def test_two_requests_with_one_id_are_both_waited_for(self) -> None:
        async def test() -> None:
            waiting: list[Request] = []
            peer, tape = peer_on_tape(Listener(m=waiting.append))
            tape.receiver.data_received(request_line(1, "m") * 2)
            answered = asyncio.ensure_future(peer.all_answered())
            waiting[1].answer(None)
            await ticks()
            assert not answered.done()
            waiting[0].answer(None)
            await answered

        run(test())

    @pytest.mark.parametrize("in_task", [True, False])
    def test_a_result_that_json_cannot_hold_is_an_error_not_silence(self, in_task: bool) -> None:
        async def work() -> object:
            return object()

        def handle(request: Request) -> None:
            if in_task:
                request.run(work())
            else:
                request.answer(object())

        async def test() -> None:
            peer, tape = peer_on_tape(Listener(m=handle))
            tape.receiver.data_received(request_line(1, "m"))
            await peer.all_answered()
            await peer.drain()
            assert [error_of(message) for message in tape.messages] == [(-32603, "internal_error")]

        run(test())

    def test_a_callback_that_raises_costs_its_own_answer_only(self, logged: Callable[[], list[str]]) -> None:
        def crash(_: object) -> None:
            raise ValueError

        async def test() -> None:
            peer, tape = peer_on_tape()
            peer.ask("m", {}, crash)
            answers: list[object] = []
            peer.ask("m", {}, answers.append)
            line = b'{"jsonrpc":"2.0","id":%d,"result":{}}\n'
            tape.receiver.data_received(line % 1 + line % 2)
            assert len(answers) == 1
            await ticks()

        run(test())
        assert "a message could not be handled" in logged()


class TestAsking:
    def test_a_request_returns_the_raw_result(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            asking = asyncio.create_task(peer.request("m", {"a": 1}))
            await ticks()
            assert tape.messages == [{"jsonrpc": "2.0", "id": 1, "method": "m", "params": {"a": 1}}]
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"result":{ "b": 2}}\n')
            assert bytes(await asking) == b'{ "b": 2}'

        run(test())

    @table(
        ("members", "expected"),
        [
            (b'"result":null', b"null"),
            (b'"result":{"a":1},"error":null', b'{"a":1}'),
            (b'"error":{"code":5,"message":"no"}', (5, "no")),
            (b'"result":null,"error":{"code":5,"message":"no"}', (5, "no")),
            (b'"error":null', (-32603, "the peer answered with an error of its own shape: b'null'")),
            (b'"result":{"a":', (-32700, None)),
            (b'"result":"\xff"', (-32700, None)),
            (b'"result":"%b"' % (b"x" * 2000), (-32600, None)),
        ],
    )
    def test_every_kind_of_answer_settles_the_request(
        self, members: bytes, expected: bytes | tuple[int, str]
    ) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape(frame_limit=1000)
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,%b}\n' % members)
            if isinstance(expected, bytes):
                assert bytes(await asking) == expected
                return
            with pytest.raises(RpcError) as caught:
                await asking
            assert caught.value.code == expected[0]
            assert expected[1] in (None, caught.value.message)

        run(test())

    def test_an_answer_too_long_to_keep_fails_its_request_though_the_id_came_last(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape(frame_limit=1000)
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","result":"%b","id":1}\n' % (b"x" * 2000))
            with pytest.raises(RpcError) as caught:
                await asking
            assert caught.value.reason == "frame_too_long"
            assert len(tape.messages) == 1

        run(test())

    def test_an_answer_counts_once_and_only_for_its_own_id(self, logged: Callable[[], list[str]]) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            answers: list[Any] = []
            peer.ask("m", {}, answers.append)
            line = b'{"jsonrpc":"2.0","id":%b,"result":{"n":%b}}\n'
            for id in (b"2", b'"1"', b"1.0", b"null", b"1", b"1"):
                tape.receiver.data_received(line % (id, id))
            assert [bytes(answer) for answer in answers] == [b'{"n":1}']
            await ticks()
            assert len(tape.lines) == 1

        run(test())
        assert sum("unknown request" in message for message in logged()) == 5

    def test_answers_find_their_requests_in_any_order(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            asking = [asyncio.create_task(peer.request("m", {})) for _ in range(50)]
            await ticks()
            for message in reversed(tape.messages):
                tape.receiver.data_received(
                    b'{"jsonrpc":"2.0","id":%d,"result":%d}\n' % ((message["id"],) * 2)
                )
            assert [int(bytes(result)) for result in await asyncio.gather(*asking)] == list(range(1, 51))

        run(test())

    def test_a_callback_may_ask_again(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            answers: list[Any] = []

            def ask_again(_: object) -> None:
                peer.ask("second", {}, answers.append)

            peer.ask("first", {}, ask_again)
            tape.receiver.data_received(b'{"id":1,"result":1}\n{"id":2,"result":2}\n')
            assert [bytes(answer) for answer in answers] == [b"2"]
            await ticks()
            assert [message["method"] for message in tape.messages] == ["first", "second"]

        run(test())

    def test_params_that_json_cannot_hold_raise_and_leave_nothing_behind(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            with pytest.raises(TypeError):
                await peer.request("m", object())
            tape.receiver.input_ended(None)
            await ticks()
            assert tape.writes == []

        run(test())

    def test_a_request_without_an_answer_fails_at_its_deadline_and_is_cancelled(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            with pytest.raises(RpcError, match=r"fs/read was not answered within 0\.01 s") as caught:
                await peer.request("fs/read", {}, deadline=0.01)
            assert (caught.value.code, caught.value.reason) == (-32603, "timed_out")
            assert caught.value.data["method"] == "fs/read"
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
            await ticks()
            assert [message["method"] for message in tape.messages] == ["fs/read", "$/cancel_request"]
            assert tape.messages[1]["params"] == {"requestId": 1}

        run(test())

    def test_a_request_that_is_answered_in_time_is_not_cancelled(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            asking = asyncio.create_task(peer.request("m", {}, deadline=60))
            await ticks()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
            await asking
            await ticks()
            assert len(tape.lines) == 1

        run(test())

    def test_cancelling_the_one_who_waits_cancels_the_work_of_the_other_side(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"error":{"code":-32800,"message":"m"}}\n')
            await ticks()
            assert tape.messages[1:] == [
                {"jsonrpc": "2.0", "method": "$/cancel_request", "params": {"requestId": 1}}
            ]

        run(test())

    def test_a_cancel_does_not_overtake_the_request_that_it_cancels(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.room = 0
            peer.notify("before", {"text": "x" * 2 * CHUNK}, lane="a")
            id = peer.ask("m", {}, lambda _: None, lane="a")
            await ticks()
            peer.give_up(id)
            peer.give_up(id)
            tape.make_room()
            await peer.drain()
            assert [message["method"] for message in tape.messages] == ["before", "m", "$/cancel_request"]

        run(test())


class TestBeingCancelled:
    def test_a_running_request_is_answered_once_as_cancelled(self) -> None:
        async def test() -> None:
            cleaned = asyncio.Event()

            async def work() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    await asyncio.sleep(0)
                    cleaned.set()

            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(work())))
            tape.receiver.data_received(request_line("a", "m"))
            await ticks()
            tape.receiver.data_received(cancel_line("a"))
            # A second cancel does not disturb the clean-up.
            await asyncio.sleep(0)
            tape.receiver.data_received(cancel_line("a"))
            await cleaned.wait()
            await peer.all_answered()
            tape.receiver.data_received(cancel_line("a"))
            await ticks()
            (answer,) = tape.messages
            assert (answer["id"], *error_of(answer)) == ("a", -32800, "cancelled")

        run(test())

    def test_a_cancel_in_the_same_write_as_its_request_finds_it(self) -> None:
        async def test() -> None:
            started: list[bool] = []

            async def work() -> None:
                started.append(True)

            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(work())))
            tape.receiver.data_received(request_line(1, "m") + cancel_line(1) + request_line(2))
            await peer.all_answered()
            await ticks()
            assert started == []
            assert {message["id"]: "error" in message for message in tape.messages} == {1: True, 2: False}
            assert len(tape.messages) == 2

        run(test())

    def test_a_cancel_that_comes_before_the_work_is_started_is_remembered(self) -> None:
        async def work() -> None:
            await asyncio.Event().wait()

        async def test() -> None:
            listener = Listener(m=lambda request: None)
            peer, tape = peer_on_tape(listener)
            tape.receiver.data_received(request_line(1, "m") + cancel_line(1))
            listener.requests[0].run(work())
            await peer.all_answered()
            await ticks()
            assert [error_of(message) for message in tape.messages] == [(-32800, "cancelled")]

        run(test())

    def test_unknown_finished_and_odd_ids_are_ignored(self, logged: Callable[[], list[str]]) -> None:
        async def test() -> None:
            listener = Listener()
            _, tape = peer_on_tape(listener)
            tape.receiver.data_received(request_line(1))
            odd: list[object] = [1, 2, "1", None, 1.0, [], {}]
            for id in odd:
                tape.receiver.data_received(cancel_line(id))
            tape.receiver.data_received(notification_line("$/cancel_request", {"id": 1}))
            await ticks()
            assert len(tape.lines) == 1
            assert listener.heard == []

        run(test())
        assert "a $/cancel_request without a requestId was ignored" in logged()

    @table("id", ["1", '"a b"', '"\\u0041"', "null", "-5"])
    def test_any_id_can_be_cancelled_as_it_was_written(self, id: str) -> None:
        async def test() -> None:
            listener = Listener(m=lambda request: None)
            _, tape = peer_on_tape(listener)
            cancelled: list[bool] = []
            tape.receiver.data_received(f'{{"jsonrpc":"2.0","id":{id},"method":"m"}}\n'.encode())
            listener.requests[0].when_cancelled(lambda: cancelled.append(True))
            line = f'{{"jsonrpc":"2.0","method":"$/cancel_request","params":{{"requestId":{id}}}}}\n'
            tape.receiver.data_received(line.encode())
            tape.receiver.data_received(line.encode())
            assert cancelled == [True]

        run(test())

    def test_work_that_swallows_its_cancel_answers_with_what_it_returns(self) -> None:
        async def work() -> dict[str, str]:
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                return {"stopReason": "cancelled"}
            raise AssertionError

        async def test() -> None:
            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(work())))
            tape.receiver.data_received(request_line(1, "m"))
            await ticks()
            tape.receiver.data_received(cancel_line(1))
            await peer.all_answered()
            await ticks()
            assert [message["result"] for message in tape.messages] == [{"stopReason": "cancelled"}]

        run(test())

    def test_an_answer_given_by_other_means_is_not_given_again(self) -> None:
        async def test() -> None:
            listener = Listener(m=lambda request: None)
            peer, tape = peer_on_tape(listener)
            tape.receiver.data_received(request_line(1, "m"))
            listener.requests[0].waive()
            await peer.all_answered()
            listener.requests[0].answer({})
            await ticks()
            assert tape.lines == []

        run(test())

    def test_a_cancel_both_ways_meets_in_the_middle(self) -> None:
        async def test() -> None:
            # given a request of ours that the other side answers while we cancel it
            peer, tape = peer_on_tape()
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            asking.cancel()
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"result":{}}\n')
            # then nobody hangs, and nothing is cancelled that was answered
            with pytest.raises(asyncio.CancelledError):
                await asking
            await ticks()
            assert len(tape.lines) == 1

        run(test())


class TestTheEnd:
    def test_every_pending_request_fails_once_and_at_once(self) -> None:
        async def test() -> None:
            listener = Listener()
            peer, tape = peer_on_tape(listener)
            answers: list[list[Any]] = [[] for _ in range(100)]
            for each in answers:
                peer.ask("m", {}, each.append)
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            tape.receiver.input_ended(None)
            assert [[answer.reason for answer in each] for each in answers] == [["connection_closed"]] * 100
            assert listener.ends == [peer.closed_because]
            tape.receiver.input_ended(None)
            tape.receiver.input_ended(OSError("again"))
            assert len(listener.ends) == 1
            with pytest.raises(RpcError, match="the other side closed the connection"):
                await asking

        run(test())

    def test_a_request_after_the_end_fails_at_once(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.receiver.input_ended(None)
            answers: list[Any] = []
            peer.ask("m", {}, answers.append)
            assert answers == [peer.closed_because]
            with pytest.raises(RpcError):
                await peer.request("m", {})
            await ticks()
            assert tape.lines == []

        run(test())

    def test_listeners_that_fail_keep_nobody_from_hearing_of_the_end(self) -> None:
        def crash(_: object) -> None:
            raise ValueError

        class Crashing(Listener):
            def disconnected(self, error: RpcError) -> None:
                super().disconnected(error)
                raise asyncio.CancelledError

        async def test() -> None:
            listener = Crashing()
            peer, tape = peer_on_tape(listener)
            answers: list[object] = []
            peer.ask("m", {}, crash)
            peer.ask("m", {}, answers.append)
            tape.receiver.input_ended(None)
            assert (len(answers), len(listener.ends)) == (1, 1)
            await peer.close()
            assert tape.closed

        run(test())

    def test_a_callback_may_ask_again_at_the_end(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            answers: list[object] = []

            def ask_again(_: object) -> None:
                peer.ask("again", {}, answers.append)

            peer.ask("m", {}, ask_again)
            tape.receiver.input_ended(None)
            assert answers == [peer.closed_because]
            await ticks()

        run(test())

    def test_a_last_line_without_its_end_is_served(self) -> None:
        async def test() -> None:
            _, tape = peer_on_tape()
            tape.receiver.data_received(request_line(1) + request_line(2).rstrip())
            tape.receiver.input_ended(None)
            await ticks()
            assert [message["id"] for message in tape.messages] == [1, 2]

        run(test())

    def test_what_is_answered_after_the_end_of_input_is_still_written(self) -> None:
        async def test() -> None:
            gate = asyncio.Event()

            async def work() -> dict[str, bool]:
                await gate.wait()
                return {"late": True}

            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(work())))
            tape.receiver.data_received(request_line(1, "m"))
            tape.receiver.input_ended(None)
            waiting = [asyncio.create_task(peer.all_answered()) for _ in range(2)]
            await ticks()
            assert not any(task.done() for task in waiting)
            gate.set()
            await asyncio.gather(*waiting)
            peer.notify("last", {})
            await peer.drain()
            assert [message.get("result", message.get("method")) for message in tape.messages] == [
                {"late": True},
                "last",
            ]

        run(test())

    def test_after_an_error_nothing_is_kept_for_writing(self) -> None:
        async def test() -> None:
            listener = Listener()
            peer, tape = peer_on_tape(listener)
            tape.room = 10
            peer.notify("m", {"text": "x" * 2 * BUDGET}, lane="a")
            await ticks()
            waiting = [asyncio.create_task(peer.drain()) for _ in range(2)]
            writer = asyncio.create_task(peer.outbox.wait_for_room("a"))
            tape.receiver.data_received(b'{"jsonrpc":"2.0","id":1,"method":"echo"}')
            await ticks()
            tape.receiver.input_ended(BrokenPipeError("gone"))
            await asyncio.gather(*waiting, writer)
            peer.notify("m", {})
            await ticks()
            assert (peer.outbox.unsent, tape.lines) == (0, [b'{"jsonrpc"'])
            assert str(peer.closed_because) == "the other side closed the connection: gone (-32603)"
            # Half a line is not served when nobody can be answered.
            assert listener.requests == []

        run(test())

    def test_an_error_after_an_orderly_end_only_stops_the_writing(self) -> None:
        async def test() -> None:
            listener = Listener()
            peer, tape = peer_on_tape(listener)
            tape.receiver.input_ended(None)
            tape.receiver.input_ended(BrokenPipeError())
            peer.notify("m", {})
            await ticks()
            assert (tape.lines, len(listener.ends)) == ([], 1)

        run(test())

    def test_closing_cancels_what_runs_and_fails_what_waits(self) -> None:
        async def test() -> None:
            ended: list[str] = []

            async def work() -> None:
                try:
                    await asyncio.Event().wait()
                finally:
                    ended.append("work")

            listener = Listener(m=lambda request: request.run(work()))
            peer, tape = peer_on_tape(listener)
            tape.receiver.data_received(request_line(1, "m") + b'{"jsonrpc":"2.0","id":2,"method":"m"')
            asking = asyncio.create_task(peer.request("m", {}))
            await ticks()
            await peer.close()
            assert (ended, tape.closed, len(listener.ends)) == (["work"], True, 1)
            assert listener.ends[0].message == "the connection was closed"
            with pytest.raises(RpcError, match="the connection was closed"):
                await asking
            await peer.close()
            assert len(listener.ends) == 1

        run(test())

    def test_a_close_that_is_cancelled_closes_all_the_same(self) -> None:
        async def stubborn(released: asyncio.Event) -> None:
            while not released.is_set():
                try:
                    await released.wait()
                except asyncio.CancelledError:
                    continue

        async def test() -> bool:
            peer, tape = peer_on_tape()
            released = asyncio.Event()
            task = peer.start(stubborn(released))
            await ticks()
            closing = asyncio.ensure_future(peer.close(grace=30))
            await ticks()
            closing.cancel()
            await asyncio.wait([closing])
            released.set()
            await task
            return tape.closed

        assert run(test())

    def test_closing_leaves_behind_what_ignores_it(self) -> None:
        async def test() -> None:
            release = asyncio.Event()

            async def stubborn() -> None:
                while not release.is_set():
                    try:
                        await release.wait()
                    except asyncio.CancelledError:
                        continue

            peer, tape = peer_on_tape(Listener(m=lambda request: request.run(stubborn())))
            tape.receiver.data_received(request_line(1, "m"))
            await ticks()
            await peer.close(grace=0.01)
            assert tape.closed
            release.set()
            await ticks()
            assert tape.lines == []

        run(test())

    def test_a_request_may_close_the_connection_that_it_came_over(self) -> None:
        async def test() -> None:
            closed: list[bool] = []

            async def work(peer: Peer) -> None:
                await peer.close()
                closed.append(True)

            async def other() -> None:
                await asyncio.Event().wait()

            peer, tape = peer_on_tape(
                Listener(bye=lambda request: request.run(work(peer)), m=lambda request: request.run(other()))
            )
            tape.receiver.data_received(request_line(1, "m") + request_line(2, "bye"))
            await until(lambda: closed)
            assert tape.closed

        run(test())


class TestWriting:
    def test_what_is_queued_in_one_tick_is_one_write(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            for number in range(100):
                peer.notify("m", {"n": number})
            assert tape.writes == []
            await asyncio.sleep(0)
            assert (len(tape.writes), len(tape.lines)) == (1, 100)

        run(test())

    def test_one_write_a_tick_so_that_input_comes_in_between(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            for number in range(10):
                peer.notify("m", {"text": "x" * CHUNK}, lane=number)
            for count in range(1, 11):
                await asyncio.sleep(0)
                assert len(tape.writes) == count
            assert peer.outbox.unsent == 0

        run(test())

    def test_a_full_transport_gets_the_rest_when_it_has_room_again(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.room = 7
            for number in range(20):
                peer.notify("m", {"n": number}, lane="a")
            draining = [asyncio.create_task(peer.drain()) for _ in range(2)]
            await ticks()
            assert [len(write) for write in tape.writes] == [7]
            peer.notify("control", {})
            for _ in range(500):
                if peer.outbox.unsent == 0 and not peer._unwritten:
                    break
                tape.make_room(5)
                await asyncio.sleep(0)
            await asyncio.gather(*draining)
            # The chunk that was begun is finished first; within it and after it all is whole and in order.
            assert [message["params"].get("n") for message in tape.messages] == [*range(20), None]

        run(test())

    def test_a_request_answers_in_its_lane(self) -> None:
        async def test() -> None:
            def handle(request: Request) -> None:
                request.lane = "session"
                for number in range(3):
                    peer.notify("update", {"n": number}, lane="session")
                request.answer({})

            peer, tape = peer_on_tape(Listener(prompt=handle))
            tape.receiver.data_received(request_line("p", "prompt") + request_line("list"))
            await ticks()
            assert [message.get("id", message.get("method")) for message in tape.messages] == [
                "update",
                "update",
                "update",
                "p",
                "list",
            ]

        run(test())

    def test_draining_what_is_empty_does_not_wait(self) -> None:
        async def test() -> None:
            peer, _ = peer_on_tape()
            await peer.drain()
            await peer.all_answered()

        run(test())

    def test_one_who_stops_waiting_for_the_drain_keeps_nobody_waiting(self) -> None:
        async def test() -> None:
            peer, tape = peer_on_tape()
            tape.room = 0
            peer.notify("m", {})
            impatient, patient = (asyncio.create_task(peer.drain()) for _ in range(2))
            await ticks()
            impatient.cancel()
            await ticks()
            tape.make_room()
            await patient
            assert impatient.cancelled()

        run(test())


GARBAGE = st.one_of(
    st.binary(max_size=60),
    st.sampled_from(
        [
            b"{}",
            b"[]",
            b"[{}]",
            b"null",
            b'{"jsonrpc":"2.0","id":"g","method":7}',
            b'{"jsonrpc":"2.0","id":"g","result":',
            b'{"jsonrpc":"2.0","id":77,"result":{}}',
            b'{"jsonrpc":"2.0","method":"m","params":{',
            b'{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":"x"}}',
            b'{"jsonrpc":"2.0","id":"g","method":"crash"}',
            b'{"jsonrpc":"2.0","method":"crash"}',
            b"[" * 300,
            b'"' * 99,
            b"\\" * 99,
            b"\xef\xbb\xbf",
            b"\r",
            b"\0",
            b"x" * 600,
        ]
    ),
).map(lambda data: data.replace(b"\n", b" "))


class Crashing(Listener):
    def __init__(self) -> None:
        super().__init__(crash=lambda request: 1 / 0)

    def notification_received(self, method: str, params: Raw) -> None:
        raise ZeroDivisionError


@settings(suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(
    st.lists(st.one_of(st.just(None), GARBAGE), max_size=30),
    st.lists(st.integers(min_value=0, max_value=3000), max_size=20),
    st.booleans(),
)
def test_between_any_garbage_every_request_is_answered_once_and_in_order(
    lines: list[bytes | None], cuts: list[int], answers_garbage: bool
) -> None:
    # given valid requests between garbage, split anywhere
    data = b""
    count = 0
    for line in lines:
        if line is None:
            data += request_line(1000 + count, params={"n": count})
            count += 1
        else:
            data += line + b"\n"
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})

    async def test() -> Tape:
        peer, tape = peer_on_tape(Crashing(), answers_garbage=answers_garbage, frame_limit=500)
        for start, stop in pairwise(places):
            tape.receiver.data_received(data[start:stop])
            await asyncio.sleep(0)
        tape.receiver.input_ended(None)
        await peer.drain()
        await peer.close()
        return tape

    # when they were read
    tape = run(test())
    # then each has its answer, in order, and everything written is JSON-RPC
    answers = [message for message in tape.messages if message["id"] in range(1000, 2000)]
    assert [answer["id"] for answer in answers] == list(range(1000, 1000 + count))
    assert all(answer["result"] == {"n": answer["id"] - 1000} for answer in answers)
    assert all(message["jsonrpc"] == "2.0" for message in tape.messages)


@given(
    st.lists(
        st.tuples(
            st.sampled_from([None, "a", "b", "c"]), st.integers(min_value=0, max_value=40_000), st.booleans()
        ),
        max_size=40,
    ),
    st.lists(st.integers(min_value=1, max_value=100_000), max_size=40),
)
def test_each_lane_keeps_its_order_over_any_transport(
    sends: list[tuple[str | None, int, bool]], rooms: list[int]
) -> None:
    async def test() -> Tape:
        peer, tape = peer_on_tape()
        tape.room = 1000
        room = iter(rooms)
        for number, (lane, size, breathe) in enumerate(sends):
            peer.notify("m", {"lane": lane, "n": number, "pad": "x" * size}, lane)
            if breathe:
                await asyncio.sleep(0)
                tape.make_room(next(room, 10))
        tape.make_room()
        await peer.drain()
        return tape

    seen: dict[str | None, list[int]] = {}
    for message in run(test()).messages:
        seen.setdefault(message["params"]["lane"], []).append(message["params"]["n"])
    sent: dict[str | None, list[int]] = {}
    for number, (lane, _, _) in enumerate(sends):
        sent.setdefault(lane, []).append(number)
    assert seen == sent


@given(
    st.lists(st.sampled_from(["start", "cancel", "finish", "fail", "tick", "give up"]), max_size=60),
    st.randoms(),
)
def test_every_request_has_exactly_one_answer_whatever_is_cancelled(steps: list[str], random: Any) -> None:
    async def test() -> tuple[Tape, int]:
        gates: list[asyncio.Future[dict[str, str]]] = []

        async def work() -> dict[str, str]:
            gate: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
            gates.append(gate)
            return await gate

        peer, tape = peer_on_tape(Listener(m=lambda request: request.run(work())))
        count = 0
        for step in steps:
            match step:
                case "start":
                    count += 1
                    tape.receiver.data_received(request_line(count, "m"))
                case "cancel":
                    tape.receiver.data_received(cancel_line(random.randint(0, count + 1)))
                case "finish" | "fail" if gates:
                    gate = random.choice(gates)
                    if not gate.done():
                        gate.set_result({}) if step == "finish" else gate.set_exception(ValueError())
                case _:
                    await asyncio.sleep(0)
        await ticks()
        for gate in gates:
            if not gate.done():
                gate.set_result({})
        await peer.all_answered()
        await peer.drain()
        await peer.close()
        return tape, count

    tape, count = run(test())
    assert sorted(message["id"] for message in tape.messages) == list(range(1, count + 1))
    assert {json.dumps(error_of(message)) for message in tape.messages if "error" in message} <= {
        '[-32800, "cancelled"]',
        '[-32603, "internal_error"]',
    }
