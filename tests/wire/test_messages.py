"""One frame as a message, and a message as one frame."""

from __future__ import annotations

import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from coupler.wire import messages
from coupler.wire.frames import DEFAULT_LIMIT, Frame, FrameBuffer, Oversized
from coupler.wire.messages import (
    BATCH_UNSUPPORTED,
    CANCELLED,
    FRAME_TOO_LONG,
    INVALID_REQUEST,
    MAX_DEPTH,
    PARSE_ERROR,
    REASONS,
    Envelope,
    ErrorReason,
    Malformed,
    RpcError,
)
from tables import table

BIG = b"9" * 10_000


def read(frame: Frame) -> Envelope:
    message = messages.parse(frame, DEFAULT_LIMIT)
    assert isinstance(message, Envelope), message
    return message


def refuse(frame: Frame) -> Malformed:
    message = messages.parse(frame, DEFAULT_LIMIT)
    assert isinstance(message, Malformed), message
    return message


class TestWellFormed:
    def test_a_request_keeps_its_params_as_they_were_written(self) -> None:
        message = read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{ "a" : 1.50 }}')
        assert (message.method, bytes(message.id), bytes(message.params)) == ("m", b"1", b'{ "a" : 1.50 }')

    def test_a_notification_has_no_id(self) -> None:
        message = read(b'{"jsonrpc":"2.0","method":"m"}')
        assert (message.method, message.id, message.params) == ("m", messages.ABSENT, messages.ABSENT)

    def test_array_params_pass(self) -> None:
        assert bytes(read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":[1,[2]]}').params) == b"[1,[2]]"

    @pytest.mark.parametrize(
        "line",
        [
            b'{"jsonrpc":"2.0","id":1,"result":null}',
            b'{"id":1,"result":null}',
            b'{"jsonrpc":"1.0","id":1,"result":null}',
        ],
    )
    def test_an_answer_of_null_is_an_answer_even_without_a_version(self, line: bytes) -> None:
        assert bytes(read(line).result) == b"null"

    @table(
        "id",
        [
            b"0",
            b"-1",
            b"1",
            b"18446744073709551616",
            b"-170141183460469231731687303715884105728",
            BIG,
            b"null",
            b'""',
            b'"a"',
            rb'"\u0041\n\"\\\/"',
            '"ключ"'.encode(),
            rb'"\ud83d\ude00"',
            rb'"half \ud83d"',
        ],
        ids=lambda value: repr(value[:30]),
    )
    def test_an_id_is_kept_byte_by_byte(self, id: bytes) -> None:
        assert bytes(read(b'{"jsonrpc":"2.0","id":%b,"method":"m"}' % id).id) == id

    def test_numbers_of_ten_thousand_digits_pass_undecoded(self) -> None:
        line = b'{"jsonrpc":"2.0","id":1,"method":"m","params":[%b,-%b,%b.5,1e%b]}' % (BIG, BIG, BIG, BIG)
        assert len(bytes(read(line).params)) > 40_000

    def test_unknown_members_are_ignored(self) -> None:
        assert read(b'{"jsonrpc":"2.0","method":"m","trace":{"a":[1]}}').method == "m"

    @pytest.mark.parametrize("brackets", [b"[", b'{"a":', b'[{"a":'])
    def test_nesting_up_to_the_limit_passes(self, brackets: bytes) -> None:
        # The envelope itself is the first level.
        count = (MAX_DEPTH - 1) // (brackets.count(b"[") + brackets.count(b"{"))
        closing = brackets.translate(bytes.maketrans(b"[{", b"]}"), b'"a:')[::-1]
        params = brackets * count + b"1" + closing * count
        read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)

    @table(
        "params",
        [
            pytest.param(b"[%b]" % b",".join([b"[{}]"] * 5000), id="wide, not deep"),
            pytest.param(b'["%b"]' % (b"[{" * 5000), id="brackets in a string"),
            pytest.param(rb'["%b"]' % (rb"\"[\\" * 5000), id="brackets between escapes"),
            pytest.param(b"[%b]" % b",".join([rb'"[\\","{\"["'] * 5000), id="brackets in many strings"),
        ],
    )
    def test_many_brackets_are_not_deep_nesting(self, params: bytes) -> None:
        read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":%b}' % params)


class TestLoneSurrogates:
    @table(
        ("written", "meant"),
        [
            (rb"\ud83d", "\ufffd"),
            (rb"\uDE00", "\ufffd"),
            (rb"a\uD83Db", "a\ufffdb"),
            (rb"\ud83d\ud83d\ude00", "\ufffd😀"),
            (rb"\ud83d\ude00\ude00", "😀\ufffd"),
            (rb"\ude00\ud83d", "\ufffd\ufffd"),
            (rb"\ud83d\n", "\ufffd\n"),
            (rb"\\ud83d\ud83d", "\\ud83d\ufffd"),
            (rb"\\\ud83d", "\\\ufffd"),
            (rb"\\\\ud83d\\\ud83d\ude00\udbff", "\\\\ud83d\\😀\ufffd"),
        ],
    )
    def test_half_a_character_is_replaced_and_the_rest_stays(self, written: bytes, meant: str) -> None:
        message = read(b'{"jsonrpc":"2.0","id":1,"method":"m","params":{"t":"%b"}}' % written)
        assert msgspec.json.decode(message.params) == {"t": meant}

    def test_the_id_of_a_repaired_message_is_the_one_that_was_written(self) -> None:
        message = read(rb'{"jsonrpc":"2.0","id":"\ud800","method":"m\ud800","params":{"id":2}}')
        assert (bytes(message.id), message.method) == (rb'"\ud800"', "m\ufffd")

    def test_a_number_as_id_survives_the_repair(self) -> None:
        assert bytes(read(rb'{"jsonrpc":"2.0","id":5,"method":"\ud800"}').id) == b"5"

    def test_of_two_ids_the_last_counts_as_it_does_elsewhere(self) -> None:
        assert bytes(read(rb'{"jsonrpc":"2.0","id":"a","id":"b","method":"\ud800"}').id) == b'"b"'

    @given(st.text(st.sampled_from('\ud800\udfff😀a\\"\n/')))
    def test_any_text_of_node_is_read_as_python_reads_it(self, text: str) -> None:
        line = b'{"jsonrpc":"2.0","method":"m","params":[%b]}' % json.dumps(text).encode()
        expected = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert msgspec.json.decode(read(line).params) == [expected]


def deep(depth: int) -> bytes:
    return b"[" * depth + b"]" * depth


MALFORMED: list[tuple[str, bytes, str, bytes, ErrorReason]] = [
    ("not JSON", b"hello", "unknown", b"null", PARSE_ERROR),
    ("a lone brace", b"{", "unknown", b"null", PARSE_ERROR),
    ("NUL", b"\0", "unknown", b"null", PARSE_ERROR),
    ("a number", b"42", "unknown", b"null", INVALID_REQUEST),
    ("null", b"null", "unknown", b"null", INVALID_REQUEST),
    ("a string", b'"id"', "unknown", b"null", INVALID_REQUEST),
    ("an empty object", b"{}", "unknown", b"null", INVALID_REQUEST),
    ("an empty batch", b"[]", "unknown", b"null", BATCH_UNSUPPORTED),
    (
        "a batch",
        b'[{"jsonrpc":"2.0","id":1,"method":"m"},{"jsonrpc":"2.0","id":2,"method":"m"}]',
        "unknown",
        b"null",
        BATCH_UNSUPPORTED,
    ),
    ("a broken batch", b'[{"jsonrpc":"2.0","id":1,"method":"m"}', "unknown", b"null", PARSE_ERROR),
    *(
        (f"one line of pretty-printed JSON: {line!r}", line, "unknown", b"null", PARSE_ERROR)
        for line in (
            b'"jsonrpc": "2.0",',
            b'"id": 1',
            b'"params": {',
            b'"a": [',
            b"[",
            b"1,",
            b"},",
            b"]",
            b"}",
        )
    ),
    ("no method", b'{"jsonrpc":"2.0","id":3}', "unknown", b"3", INVALID_REQUEST),
    ("no version", b'{"id":4,"method":"m"}', "request", b"4", INVALID_REQUEST),
    ("a wrong version", b'{"jsonrpc":"1.0","id":"a","method":"m"}', "request", b'"a"', INVALID_REQUEST),
    ("a version that is a number", b'{"jsonrpc":2.0,"id":4,"method":"m"}', "request", b"4", INVALID_REQUEST),
    ("a version of null", b'{"jsonrpc":null,"id":4,"method":"m"}', "request", b"4", INVALID_REQUEST),
    ("a method that is no string", b'{"jsonrpc":"2.0","id":4,"method":5}', "request", b"4", INVALID_REQUEST),
    (
        "an id with a fraction",
        b'{"jsonrpc":"2.0","id":1.5,"method":"m"}',
        "request",
        b"null",
        INVALID_REQUEST,
    ),
    (
        "an id that is a float",
        b'{"jsonrpc":"2.0","id":1.0,"method":"m"}',
        "request",
        b"null",
        INVALID_REQUEST,
    ),
    ("an id with exponent", b'{"jsonrpc":"2.0","id":1e3,"method":"m"}', "request", b"null", INVALID_REQUEST),
    ("an id of true", b'{"jsonrpc":"2.0","id":true,"method":"m"}', "request", b"null", INVALID_REQUEST),
    ("an id of objects", b'{"jsonrpc":"2.0","id":{"a":1},"method":"m"}', "request", b"null", INVALID_REQUEST),
    ("an id of arrays", b'{"jsonrpc":"2.0","id":[1],"method":"m"}', "request", b"null", INVALID_REQUEST),
    ("a notification, no version", b'{"method":"m"}', "notification", b"null", INVALID_REQUEST),
    (
        "a notification, bad method",
        b'{"jsonrpc":"2.0","method":{}}',
        "notification",
        b"null",
        INVALID_REQUEST,
    ),
    (
        "a notification, broken",
        b'{"jsonrpc":"2.0","method":"m","params":{',
        "notification",
        b"null",
        PARSE_ERROR,
    ),
    ("a request, broken", b'{"jsonrpc":"2.0","id":5,"method":"m","params":{', "request", b"5", PARSE_ERROR),
    ("a request, brace missing", b'{"jsonrpc":"2.0","method":"m","id":5', "request", b"5", PARSE_ERROR),
    ("a request, brace too many", b'{"jsonrpc":"2.0","id":5,"method":"m"}}', "request", b"5", PARSE_ERROR),
    ("two on one line", b'{"jsonrpc":"2.0","id":5,"method":"m"}{"id":6}', "request", b"5", PARSE_ERROR),
    ("an answer and a request", b'{"id":5,"a":1}{"id":6,"method":"m"}', "unknown", b"5", PARSE_ERROR),
    ("noise before", b'log: {"jsonrpc":"2.0","id":5,"method":"m"}', "request", b"5", PARSE_ERROR),
    ("a brace before", b'} {"jsonrpc":"2.0","id":5,"method":"m"}', "request", b"5", PARSE_ERROR),
    ("NUL before", b'\0{"jsonrpc":"2.0","id":5,"method":"m"}', "request", b"5", PARSE_ERROR),
    ("NUL inside", b'{"jsonrpc":"2.0","id":5,"method":"m\0"}', "request", b"5", PARSE_ERROR),
    ("NaN", b'{"jsonrpc":"2.0","id":5,"method":"m","params":[NaN]}', "request", b"5", PARSE_ERROR),
    ("Infinity", b'{"jsonrpc":"2.0","id":5,"method":"m","params":-Infinity}', "request", b"5", PARSE_ERROR),
    ("not UTF-8", b'{"jsonrpc":"2.0","id":5,"method":"m","params":"\xff"}', "request", b"5", PARSE_ERROR),
    ("UTF-16", '{"id":5}'.encode("utf-16-le"), "unknown", b"null", PARSE_ERROR),
    (
        "an id that is not UTF-8",
        b'{"jsonrpc":"2.0","id":"\xff","method":"m"}',
        "request",
        b"null",
        PARSE_ERROR,
    ),
    ("an id with zeros", b'{"jsonrpc":"2.0","id":007,"method":"m"}', "request", b"null", PARSE_ERROR),
    (
        "an id that escapes wrongly",
        rb'{"jsonrpc":"2.0","id":"\x","method":"m"}',
        "request",
        b"null",
        PARSE_ERROR,
    ),
    ("an id without its end", b'{"jsonrpc":"2.0","method":"m","id":"a', "request", b"null", PARSE_ERROR),
    (
        "an id with its backslash cut",
        b'{"jsonrpc":"2.0","method":"m","id":"a\\',
        "request",
        b"null",
        PARSE_ERROR,
    ),
    ("an id without a value", b'{"jsonrpc":"2.0","method":"m","id":}', "notification", b"null", PARSE_ERROR),
    (
        "deep, id first",
        b'{"jsonrpc":"2.0","id":5,"method":"m","params":%b}' % deep(100_000),
        "request",
        b"5",
        PARSE_ERROR,
    ),
    (
        "deep, id last",
        b'{"jsonrpc":"2.0","method":"m","params":%b,"id":5}' % deep(100_000),
        "request",
        b"5",
        PARSE_ERROR,
    ),
    (
        "deeper than is searched, id last",
        b'{"jsonrpc":"2.0","method":"m","params":%b, "id" : "a" }' % deep(200_000),
        "request",
        b'"a"',
        PARSE_ERROR,
    ),
    (
        "deeper than is searched, no id",
        b'{"jsonrpc":"2.0","method":"m","params":%b}' % deep(200_000),
        "unknown",
        b"null",
        PARSE_ERROR,
    ),
    ("deep, never closed", b"[" * 100_000, "unknown", b"null", PARSE_ERROR),
    (
        "one level too deep",
        b'{"jsonrpc":"2.0","id":5,"method":"m","params":%b}' % deep(MAX_DEPTH),
        "request",
        b"5",
        PARSE_ERROR,
    ),
    ("an answer, broken", b'{"jsonrpc":"2.0","id":5,"result":{', "response", b"5", PARSE_ERROR),
    ("an error, broken", b'{"jsonrpc":"2.0","id":5,"error":{"code":', "response", b"5", PARSE_ERROR),
    ("an answer without id", b'{"jsonrpc":"2.0","result":{}}', "response", b"null", INVALID_REQUEST),
    ("an answer, deep", b'{"jsonrpc":"2.0","id":5,"result":%b}' % deep(500), "response", b"5", PARSE_ERROR),
]


class TestMalformed:
    @table(("line", "kind", "id", "reason"), [pytest.param(*case, id=name) for name, *case in MALFORMED])
    def test_what_is_no_message_says_what_it_meant_to_be(
        self, line: bytes, kind: str, id: bytes, reason: ErrorReason
    ) -> None:
        message = refuse(line)
        assert (message.kind, bytes(message.id)) == (kind, id)
        assert (message.error.code, message.error.reason) == (reason.code, reason.name)

    @table(
        ("head", "tail", "kind", "id"),
        [
            (b'{"jsonrpc":"2.0","id":7,"method":"m","params":"xx', b'xx"}', "request", b"7"),
            (b'{"jsonrpc":"2.0","id":7,"result":"xx', b'xx"}', "response", b"7"),
            (b'{"jsonrpc":"2.0","id":7,"result":{"a":[', b"]}}", "response", b"7"),
            (b'{"jsonrpc":"2.0","method":"m","params":"xx', b'xx","id":"a"}\r', "request", b'"a"'),
            (b'{"jsonrpc":"2.0","method":"m","params":"xx', b'xx" , "id" : -7 }', "request", b"-7"),
            (b'{"jsonrpc":"2.0","result":"xx', b'xx","id":7}', "response", b"7"),
            (b'{"jsonrpc":"2.0","method":"m","params":{"a":"xx', b'xx","id":7}}', "unknown", b"null"),
            (b'{"jsonrpc":"2.0","method":"m","params":"xx', rb'xx\"id\":7}"}', "unknown", b"null"),
            (b'{"jsonrpc":"2.0","method":"m","id":12', b'3,"params":{}}', "unknown", b"null"),
            (b'{"jsonrpc":"2.0","method":"m","id":"ab', b'c","params":{}}', "unknown", b"null"),
            (b"xxxx", b"xxxx", "unknown", b"null"),
        ],
    )
    def test_the_id_of_a_dropped_line_is_found_at_either_end_or_not_guessed(
        self, head: bytes, tail: bytes, kind: str, id: bytes
    ) -> None:
        message = refuse(Oversized(head, tail))
        assert (message.kind, bytes(message.id)) == (kind, id)
        assert message.error.reason == FRAME_TOO_LONG.name
        assert message.error.data["limit"] == DEFAULT_LIMIT

    def test_the_id_is_found_in_the_head_that_the_frame_buffer_keeps(self) -> None:
        line = b'{"jsonrpc":"2.0","id":"seven","method":"m","params":"%b"}\n' % (b"x" * 5000)
        (frame,) = FrameBuffer(limit=4000).feed(line)
        message = refuse(frame)
        assert (message.kind, bytes(message.id)) == ("request", b'"seven"')

    @given(st.binary(max_size=300))
    def test_nothing_raises_whatever_the_bytes_are(self, line: bytes) -> None:
        messages.parse(line, DEFAULT_LIMIT)

    @given(st.text(st.sampled_from('{}[]",:\\ud80019-.einjsorpcmthd \x00é'), max_size=120))
    def test_nothing_raises_for_bytes_that_look_like_json(self, text: str) -> None:
        message = messages.parse(text.encode(), DEFAULT_LIMIT)
        if isinstance(message, Malformed):
            json.loads(messages.error_response(message.id, message.error))

    @given(
        st.dictionaries(
            st.sampled_from(["jsonrpc", "id", "method", "params", "result", "error", "x"]),
            st.recursive(
                st.none()
                | st.booleans()
                | st.floats()
                | st.integers()
                | st.text(max_size=3)
                | st.just("2.0"),
                lambda inner: (
                    st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2)
                ),
                max_leaves=4,
            ),
        ),
        st.integers(min_value=0, max_value=200),
    )
    def test_a_cut_message_is_answered_with_json_or_not_at_all(
        self, message: dict[str, Any], cut: int
    ) -> None:
        line = json.dumps(message).encode()[: cut or None]
        parsed = messages.parse(line, DEFAULT_LIMIT)
        if isinstance(parsed, Malformed):
            answer = json.loads(messages.error_response(parsed.id, parsed.error))
            assert answer["id"] is None or type(answer["id"]) in (int, str)


ENVELOPE = b'{"jsonrpc":"2.0","id":1,"method":"m","params":'


class TestAttacks:
    """Lines just under the limit that once took minutes, or a gigabyte."""

    @table(
        ("head", "unit", "tail"),
        [
            pytest.param(ENVELOPE + b'"', rb"\"", b"", id="escaped quotes without an end"),
            pytest.param(ENVELOPE + b"[" + b"[]," * 300 + b'"', rb"\"", b"", id="the same after brackets"),
            pytest.param(ENVELOPE + b'"', rb"\\", b"", id="backslashes without an end"),
            pytest.param(ENVELOPE, b'"', b"", id="quotes"),
            pytest.param(ENVELOPE + b"[" + b"[]," * 300, b'"",', b"1]}", id="empty strings"),
            pytest.param(ENVELOPE + b"[" + b"[]," * 300 + b'"', b"a", b'"]}', id="one long string"),
            pytest.param(ENVELOPE, b"[", b"", id="open brackets"),
            pytest.param(ENVELOPE + b"[", b"[],", b"1]}", id="pairs of brackets"),
            pytest.param(ENVELOPE + b"[", b'"["[', b"", id="brackets inside and outside"),
            pytest.param(ENVELOPE + rb'"\ud800', rb"\n", b'"}', id="escapes with a surrogate"),
            pytest.param(ENVELOPE + b'"', rb"\ud800", b'"}', id="lone surrogates"),
            pytest.param(b"", rb"\ud83d\ude00", b"", id="pairs of surrogates"),
            pytest.param(b"", b"\\", rb"\ud800", id="backslashes and a surrogate"),
            pytest.param(b"", b"{:", b"", id="colons"),
            pytest.param(b"", b'{"id":', b"", id="ids"),
            pytest.param(b"", b',"id":1}', b"", id="ids at the end"),
            pytest.param(b"", b", ", b'"id":1}', id="commas before an id"),
            pytest.param(ENVELOPE, b"1", b"}", id="digits"),
            pytest.param(b'{"jsonrpc":"2.0","method":"m","id":', b"1", b"}", id="digits of an id"),
        ],
    )
    @pytest.mark.long
    def test_no_line_under_the_limit_stops_the_loop_for_long(
        self, head: bytes, unit: bytes, tail: bytes
    ) -> None:
        line = head + unit * ((DEFAULT_LIMIT - len(head) - len(tail)) // len(unit)) + tail
        start = time.process_time()
        messages.parse(line, DEFAULT_LIMIT)
        # About a second at most; coverage and load may take a multiple of it, what is quadratic takes hours.
        assert time.process_time() - start < 15


class TestErrorMember:
    @pytest.mark.parametrize(
        ("raw", "code", "message", "data"),
        [
            (b'{"code":-32601,"message":"no"}', -32601, "no", None),
            (b'{"code":1,"message":"m","data":{"reason":"r","n":[1]}}', 1, "m", {"reason": "r", "n": [1]}),
            (b'{"code":1,"message":"m","data":null,"more":1}', 1, "m", None),
        ],
    )
    def test_an_error_is_read_as_it_was_written(self, raw: bytes, code: int, message: str, data: Any) -> None:
        error = messages.parse_error(Raw(raw))
        assert (error.code, error.message, error.data) == (code, message, data)

    @table(
        "raw",
        [
            b"null",
            b'"no"',
            b"{}",
            b'{"code":"x","message":"m"}',
            b'{"code":1.5,"message":"m"}',
            b'{"code":1}',
            BIG,
            b'{"code":1,"message":"m","data":%b}' % BIG,
        ],
        ids=lambda raw: repr(raw[:30]),
    )
    def test_an_error_of_another_shape_is_still_an_error(self, raw: bytes) -> None:
        error = messages.parse_error(Raw(raw))
        assert error.code == -32603
        assert repr(raw[:100])[2:-1] in error.message
        assert len(error.message) < 400

    def test_a_reason_is_read_only_from_where_it_belongs(self) -> None:
        assert RpcError(1, "m").reason is None
        assert RpcError(1, "m", ["reason"]).reason is None
        assert RpcError(1, "m", {"reason": 5}).reason is None
        assert RpcError.because(CANCELLED, "m", method="x").data == {"reason": "cancelled", "method": "x"}
        assert str(RpcError.because(CANCELLED, "stopped")) == "stopped (-32800)"

    def test_every_reason_has_a_name_of_its_own(self) -> None:
        assert len({reason.name for reason in REASONS}) == len(REASONS)


class Point(msgspec.Struct, rename="camel", omit_defaults=True):
    at_x: int
    label: str = ""
    raw: Raw = messages.NULL


class TestEncoding:
    @table(
        ("line", "message"),
        [
            (messages.notification("m", {"a": 1}), {"jsonrpc": "2.0", "method": "m", "params": {"a": 1}}),
            (messages.request(3, "m", [1]), {"jsonrpc": "2.0", "id": 3, "method": "m", "params": [1]}),
            (messages.response(Raw(b'"a"'), {"b": 2}), {"jsonrpc": "2.0", "id": "a", "result": {"b": 2}}),
            (messages.response(Raw(b"1"), None), {"jsonrpc": "2.0", "id": 1, "result": {}}),
            (messages.response(Raw(b"1"), False), {"jsonrpc": "2.0", "id": 1, "result": False}),
            (messages.response(Raw(b"1"), messages.NULL), {"jsonrpc": "2.0", "id": 1, "result": None}),
            (
                messages.error_response(messages.NULL, RpcError(5, "no")),
                {"jsonrpc": "2.0", "id": None, "error": {"code": 5, "message": "no"}},
            ),
            (
                messages.error_response(Raw(b"1"), RpcError(5, "no", [])),
                {"jsonrpc": "2.0", "id": 1, "error": {"code": 5, "message": "no", "data": []}},
            ),
        ],
    )
    def test_a_message_is_one_line(self, line: bytes, message: dict[str, Any]) -> None:
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        assert json.loads(line) == message

    @table(
        ("value", "line"),
        [
            ("a\ud83d", '"a\ufffd"'),
            ("\ud83d\ude00", '"😀"'),
            (["\udc00", ("\ud800",)], '["\ufffd",["\ufffd"]]'),
            ({"\ud800": {"a": "\ud800"}, "n": 1}, '{"\ufffd":{"a":"\ufffd"},"n":1}'),
            (Point(1, "\ud800"), '{"atX":1,"label":"\ufffd"}'),
            (Point(1, "\ud800", Raw(b'{"a": [1]}')), '{"atX":1,"label":"\ufffd","raw":{"a":[1]}}'),
            ({"a": "\ud800", "raw": Raw(rb'"\ud800"')}, '{"a":"\ufffd","raw":"\ufffd"}'),
        ],
    )
    def test_text_that_utf8_cannot_hold_is_replaced(self, value: Any, line: str) -> None:
        assert messages.encode(value).decode() == line

    def test_a_value_that_came_pretty_printed_goes_out_on_one_line(self) -> None:
        assert messages.encode({"a": Raw(b'{\r\n  "b": "\\n"\n}')}) == rb'{"a":{"b":"\n"}}'

    @pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
    def test_what_json_has_no_number_for_is_null(self, value: float) -> None:
        assert messages.encode([value]) == b"[null]"

    def test_what_json_cannot_hold_raises_for_its_author(self) -> None:
        with pytest.raises(TypeError):
            messages.encode(object())
        with pytest.raises(TypeError):
            messages.encode(["\ud800", object()])

    @given(st.text(st.characters(), max_size=50) | st.text(st.sampled_from("\ud800\udc00\n\r\u2028a")))
    def test_any_text_makes_one_line_of_utf8_that_can_be_read_back(self, text: str) -> None:
        line = messages.notification(text, {text: [text]})
        assert line.count(b"\n") == 1
        cleaned = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        assert json.loads(line.decode()) == {
            "jsonrpc": "2.0",
            "method": cleaned,
            "params": {cleaned: [cleaned]},
        }
