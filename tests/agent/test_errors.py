"""The error table: every way to be refused, with its code and its stable reason."""

import json

import pytest

from agent.steps import begin, cancel, end_of, error_of, still_serves
from coupler.agent.errors import (
    LONGEST_MESSAGE,
    REASONS,
    AuthRequiredError,
    EditorError,
    agent_failed,
    describe,
)
from coupler.runtime.extras import MissingExtraError
from coupler.wire.messages import RpcError
from tables import table

AGENT = """
import asyncio
from coupler.agent.errors import AuthRequiredError

async def agent(turn):
    await turn.say("started")
    match turn.text:
        case "wait": await asyncio.Event().wait()
        case "raise": raise LookupError("no such model")
        case "login": raise AuthRequiredError("run `login` first")
"""


@pytest.fixture
def client_and_session(share):
    return share(AGENT)


def block(**fields):
    return {"sessionId": "SESSION", "prompt": [fields]}


CASES = {
    # name: (method, params, code, reason, further data)
    "unknown method": ("session/dance", {}, -32601, "method_not_found", {"method": "session/dance"}),
    "unadvertised method": (
        "session/fork",
        {"sessionId": "x", "cwd": "/", "mcpServers": []},
        -32601,
        "method_not_found",
        {"method": "session/fork"},
    ),
    "authenticate without methods": (
        "authenticate",
        {"methodId": "x"},
        -32601,
        "method_not_found",
        {"method": "authenticate"},
    ),
    "notification as request": (
        "session/update",
        {},
        -32601,
        "method_not_found",
        {"method": "session/update"},
    ),
    "second initialize": ("initialize", {"protocolVersion": 1}, -32600, "already_initialized", {}),
    "unknown session prompted": (
        "session/prompt",
        {"sessionId": "gone", "prompt": []},
        -32002,
        "unknown_session",
        {"sessionId": "gone"},
    ),
    "unknown session cancelled": (
        "session/cancel",
        {"sessionId": "gone"},
        -32002,
        "unknown_session",
        {"sessionId": "gone"},
    ),
    "missing cwd": ("session/new", {"mcpServers": []}, -32602, "invalid_params", {"path": "cwd"}),
    "cwd of a wrong type": (
        "session/new",
        {"cwd": 1, "mcpServers": []},
        -32602,
        "invalid_params",
        {"path": "cwd"},
    ),
    "missing mcpServers": ("session/new", {"cwd": "/"}, -32602, "invalid_params", {"path": "mcpServers"}),
    "array params": ("session/new", ["/", []], -32602, "invalid_params", {"path": ""}),
    "params of a number": ("session/new", 5, -32602, "invalid_params", {"path": ""}),
    "null params": ("session/new", None, -32602, "invalid_params", {"path": ""}),
    "missing session": ("session/prompt", {"prompt": []}, -32602, "invalid_params", {"path": "sessionId"}),
    "missing prompt": (
        "session/prompt",
        {"sessionId": "SESSION"},
        -32602,
        "invalid_params",
        {"path": "prompt"},
    ),
    "prompt of text": (
        "session/prompt",
        {"sessionId": "SESSION", "prompt": "hi"},
        -32602,
        "invalid_params",
        {"path": "prompt"},
    ),
    "text block without text": (
        "session/prompt",
        block(type="text"),
        -32602,
        "invalid_params",
        {"path": "prompt[0].text"},
    ),
    "block of an unknown type": (
        "session/prompt",
        block(type="hologram"),
        -32602,
        "invalid_params",
        {"path": "prompt[0].type"},
    ),
    "block without a type": (
        "session/prompt",
        block(text="hi"),
        -32602,
        "invalid_params",
        {"path": "prompt[0].type"},
    ),
    "unaccepted image": (
        "session/prompt",
        block(type="image", data="", mimeType="image/png"),
        -32602,
        "invalid_params",
        {"path": "prompt[0]"},
    ),
    "exception in agent code": (
        "session/prompt",
        block(type="text", text="raise"),
        -32603,
        "agent_failed",
        {},
    ),
    "login required": ("session/prompt", block(type="text", text="login"), -32000, "auth_required", {}),
}


@pytest.mark.parametrize("case", CASES)
def test_a_refusal_has_its_code_its_reason_and_says_where(client_and_session, case):
    client, session = client_and_session
    method, params, code, reason, data = CASES[case]
    if isinstance(params, dict) and params.get("sessionId") == "SESSION":
        params = {**params, "sessionId": session}

    answer = client.call(method, params)

    assert error_of(answer) == (code, reason)
    assert answer["error"]["data"] == {"reason": reason, **data}
    assert answer["error"]["message"]
    _, after = client.prompt(client.new_session())
    assert after["result"]["stopReason"] == "end_turn"


def test_a_busy_session_is_refused_at_once_and_its_turn_goes_on(client_and_session):
    client, session = client_and_session
    running = begin(client, session, "wait")

    answer = client.call("session/prompt", {"sessionId": session, "prompt": []})

    assert error_of(answer) == (-32600, "session_busy")
    assert answer["error"]["data"]["sessionId"] == session
    assert "session/cancel" in answer["error"]["message"]
    client.send(cancel(session))
    assert end_of(client, running)[1]["result"] == {"stopReason": "cancelled"}


@pytest.mark.parametrize(
    ("line", "id", "code", "reason"),
    [
        (b"not JSON", None, -32700, "parse_error"),
        (b'{"jsonrpc": "2.0", "id": 3, "method": "x"', 3, -32700, "parse_error"),
        (b'"text"', None, -32600, "invalid_request"),
        (b"5", None, -32600, "invalid_request"),
        (b"[]", None, -32600, "batch_unsupported"),
        (b'[{"jsonrpc":"2.0","id":1,"method":"initialize"}]', None, -32600, "batch_unsupported"),
        (b'{"jsonrpc":"1.0","id":9,"method":"session/new"}', 9, -32600, "invalid_request"),
        (b'{"id":9,"method":"session/new"}', 9, -32600, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":{},"method":"session/new"}', None, -32600, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":9,"method":7}', 9, -32600, "invalid_request"),
        (b'{"jsonrpc":"2.0","id":9}', 9, -32600, "invalid_request"),
        (b"\xff\xfe", None, -32700, "parse_error"),
    ],
)
def test_a_line_that_is_no_request_costs_one_error(client_and_session, line, id, code, reason):
    client, _ = client_and_session
    client._methods[id] = "x"

    client.write(line + b"\n")

    answer = client.read()
    assert answer["id"] == id
    assert error_of(answer) == (code, reason)
    still_serves(client)


def test_pretty_printed_json_costs_one_error_a_line(client_and_session):
    client, _ = client_and_session
    pretty = json.dumps({"a": 1}, indent=1)

    client.write(pretty.encode() + b"\n")

    assert [error_of(client.read()) for _ in pretty.splitlines()] == [(-32700, "parse_error")] * 3
    still_serves(client)


def test_an_answer_to_nothing_is_ignored(client_and_session):
    client, _ = client_and_session

    client.send({"id": 99, "result": {}}, {"id": "x", "error": {"code": 1, "message": "?"}})

    still_serves(client)


def test_a_notification_is_never_answered(client_and_session):
    client, _ = client_and_session

    client.send(
        {"method": "session/cancel", "params": {"sessionId": "gone"}},
        {"method": "session/cancel", "params": {}},
        {"method": "session/cancel"},
        {"method": "session/dance", "params": {}},
        {"method": "$/anything", "params": {}},
        {"method": "$/cancel_request", "params": {"requestId": 12345}},
        {"method": "$/cancel_request", "params": 3},
    )

    still_serves(client)
    assert client._held == []


class TestTable:
    def test_every_reason_is_named_once_and_explained(self):
        names = [reason.name for reason in REASONS]
        assert len(set(names)) == len(names)
        assert all(reason.meaning.endswith(".") for reason in REASONS)

    @table(
        ("name", "code"),
        [
            ("not_initialized", -32600),
            ("already_initialized", -32600),
            ("session_busy", -32600),
            ("unknown_session", -32002),
            ("invalid_params", -32602),
            ("agent_failed", -32603),
            ("auth_required", -32000),
            ("cancelled", -32800),
        ],
    )
    def test_the_published_rows_stay(self, name, code):
        assert {reason.name: reason.code for reason in REASONS}[name] == code


class TestDescription:
    def test_an_exception_is_its_type_and_its_text(self):
        assert describe(ValueError("bad")) == "ValueError: bad"
        assert describe(SystemExit(3)) == "SystemExit: 3"
        assert describe(KeyError()) == "KeyError"

    def test_a_missing_extra_is_its_text_alone(self):
        assert describe(MissingExtraError('pip install "x"')) == 'pip install "x"'

    def test_a_text_that_cannot_be_had_costs_nothing(self):
        class RudeError(Exception):
            def __str__(self):
                raise RuntimeError

        assert describe(RudeError()) == "RudeError: <its text cannot be shown: RuntimeError>"

    def test_a_huge_text_is_cut(self):
        text = describe(ValueError("x" * 10**6))
        assert len(text) < LONGEST_MESSAGE + 100
        assert text.endswith("(1000012 characters)")

    def test_what_the_code_means_for_the_client_goes_through(self):
        error = AuthRequiredError("log in")
        assert agent_failed(error) is error

    def test_what_came_from_the_client_does_not_look_like_our_refusal(self):
        error = agent_failed(EditorError(-32601, "no such method"))
        assert (error.code, error.reason) == (-32603, "agent_failed")
        assert isinstance(error, RpcError)


def test_an_error_that_agent_code_raises_on_purpose_keeps_its_code_and_has_a_reason(converse):
    client, session = converse("""
        from coupler import AuthRequiredError
        from coupler.wire.messages import RpcError

        async def agent(turn):
            if turn.text == "login":
                raise AuthRequiredError("run: my-agent login")
            raise RpcError(-32001, "mine", {"limit": 5} if turn.text == "data" else None)
    """)

    answers = {text: client.prompt(session, text)[1]["error"] for text in ("login", "data", "")}

    assert answers == {
        "login": {"code": -32000, "message": "run: my-agent login", "data": {"reason": "auth_required"}},
        "data": {"code": -32001, "message": "mine", "data": {"limit": 5, "reason": "agent_failed"}},
        "": {"code": -32001, "message": "mine", "data": {"reason": "agent_failed"}},
    }
