"""What `decode` makes of whole messages: errors people can act on, nothing but DecodingError, odd sizes."""

from __future__ import annotations

from typing import Literal

import msgspec
import pytest
from msgspec import Raw

from coupler.schema import v1
from coupler.schema.decoding import DecodingError, decode
from tables import table

Role = Literal["agent", "client"]

pytestmark = pytest.mark.parametrize("role", ["agent", "client"])


def test_a_message_is_read_from_bytes_and_from_raw(role: Role) -> None:
    expected = v1.CancelNotification("s", meta={"a": 1})
    assert decode(v1.CancelNotification, b'{"sessionId":"s","_meta":{"a":1}}', role) == expected
    assert decode(v1.CancelNotification, Raw(b'{"sessionId":"s","_meta":{"a":1}}'), role) == expected


def test_a_message_that_needs_leniency_is_read_from_raw_too(role: Role) -> None:
    assert decode(v1.CancelNotification, Raw(b'{"sessionId":"s","_meta":1}'), role) == v1.CancelNotification(
        "s"
    )


@table("raw", [b"", b"  \n", b"null", b"{}", Raw(b""), Raw(b"null")])
def test_no_params_are_an_empty_object_where_nothing_is_required(role: Role, raw: bytes | Raw) -> None:
    assert decode(v1.ListSessionsRequest, raw, role) == v1.ListSessionsRequest()


@table(
    ("raw", "message"),
    [
        (b"", "expected an object, got null"),
        (b"null", "expected an object, got null"),
        (b"[]", "expected an object, got an array"),
        (b'"s"', "expected an object, got a string"),
        (b"1.5", "expected an object, got a decimal number"),
        (b"true", "expected an object, got a boolean"),
        (b"{}", "sessionId: is required"),
        (b'{"sessionId": {}, "prompt": []}', "sessionId: expected a string, got an object"),
        (b'{"sessionId": "s", "prompt": {}}', "prompt: expected an array, got an object"),
        (
            b'{"sessionId": "s", "prompt": [{"type": "text", "text": 1}]}',
            "prompt[0].text: expected a string, got a number",
        ),
        (b'{"sessionId": "s", "prompt": [{"type": "text"}]}', "prompt[0].text: is required"),
    ],
)
def test_an_error_says_where_and_what(role: Role, raw: bytes, message: str) -> None:
    with pytest.raises(DecodingError) as caught:
        decode(v1.PromptRequest, raw, role)
    assert str(caught.value) == message
    assert caught.value.__context__ is None


@table(
    ("kind", "raw", "message"),
    [
        (
            v1.CancelRequestNotification,
            b'{"requestId": []}',
            "requestId: expected an integer or a string, got an array",
        ),
        (
            v1.InitializeRequest,
            b'{"protocolVersion": 70000}',
            "protocolVersion: expected an integer from 0 to 65535, got one outside",
        ),
        (v1.Cost, b'{"amount": "1", "currency": "EUR"}', "amount: expected a number, got a string"),
        (v1.Cost, b'{"amount": true, "currency": "EUR"}', "amount: expected a number, got a boolean"),
        (
            v1.Cost,
            b'{"amount": %s, "currency": "EUR"}' % (b"9" * 400),
            "amount: expected a number, got one that is too large",
        ),
        (
            v1.Notice,
            b'{"sessionUpdate": "notice", "severity": "info", "title": ""}',
            "title: must not be empty",
        ),
        (
            v1.SessionConfigSelect,
            b'{"type":"select","id":"i","name":"n","currentValue":"v","options":[{"value":"v","name":"n"},{"group":"g","name":"n","options":[]}]}',
            "expected options or groups, got both",
        ),
        (
            v1.AcceptElicitationResponse,
            b'{"action":"accept","content":{"k":null}}',
            "content.k: expected a string or an integer or a number or a boolean or an array, got null",
        ),
    ],
)
def test_an_error_names_what_was_expected(role: Role, kind: type, raw: bytes, message: str) -> None:
    with pytest.raises(DecodingError) as caught:
        decode(kind, raw, role)
    assert str(caught.value) == message


def test_a_long_unknown_word_is_cut_in_the_message(role: Role) -> None:
    raw = b'{"sessionUpdate":"plan","entries":[{"content":"c","priority":"%s","status":"pending"}]}' % (
        b"x" * 1000
    )
    if role == "client":
        assert len(decode(v1.Plan, raw, role).entries[0].priority) == 1000
        return
    with pytest.raises(DecodingError) as caught:
        decode(v1.PlanEntry, raw[len('{"sessionUpdate":"plan","entries":[') : -2], role)
    assert len(str(caught.value)) < 200
    assert caught.value.path == "priority"


@table(
    "raw",
    [
        b"{",
        b'{"sessionId": "s"',
        b"{'sessionId': 's'}",
        b"nul",
        b"\xff\xfe",
        b'{"sessionId": "\xff"}',
        b'{"sessionId": "\\ud800"}',
        b'{"sessionId": "s", "_meta": {"n": 1e400}}',
        b'{"sessionId": "s", "_meta": {"n": %s}}' % (b"9" * 10_000),
        b'{"sessionId": "s", "_meta": {"n": %s}}' % (b"[" * 100_000),
        b'{"sessionId": "s", "_meta": {"n": %s1%s}}' % (b"[" * 100_000, b"]" * 100_000),
        b'{"sessionId": %s1%s}' % (b'{"a":' * 100_000, b"}" * 100_000),
        b'{"sessionId": "s"} {}',
    ],
    ids=lambda raw: repr(raw[:30]),
)
def test_what_is_no_json_or_too_much_of_it_is_a_decoding_error(role: Role, raw: bytes) -> None:
    with pytest.raises(DecodingError) as caught:
        decode(v1.CancelNotification, raw, role)
    assert caught.value.path == ""
    assert len(str(caught.value)) < 300


@table("number", [2**63 - 1, 2**63, 2**64 - 1])
def test_uint64_is_read_to_its_end(role: Role, number: int) -> None:
    usage = decode(
        v1.UsageUpdate,
        msgspec.json.encode({"sessionUpdate": "usage_update", "used": 0, "size": number}),
        role,
    )
    assert usage.size == number


@table("number", [-(2**63) - 1, 2**63])
def test_int64_ends(role: Role, number: int) -> None:
    link = {"type": "resource_link", "name": "n", "uri": "u", "size": number}
    assert decode(v1.ResourceLink, msgspec.json.encode(link), role) == v1.ResourceLink("n", "u")


def test_an_integer_too_large_for_one_is_still_a_number(role: Role) -> None:
    accepted = decode(v1.AcceptElicitationResponse, b'{"action":"accept","content":{"k":%d}}' % 10**30, role)
    assert accepted.content == {"k": 1e30}


def test_null_is_told_from_absent_even_on_the_second_reading(role: Role) -> None:
    read = decode(
        v1.SessionInfoUpdate, b'{"sessionUpdate":"session_info_update","title":null,"_meta":7}', role
    )
    assert read == v1.SessionInfoUpdate(title=None)
