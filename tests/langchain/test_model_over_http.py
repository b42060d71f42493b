"""A served agent whose model is behind an address: real HTTP, real stdio, and all that can go wrong there."""

import time
from pathlib import Path

import pytest

from agent.steps import cancel, end_of, final_call, leave, tool_updates
from labs.langchain.acting import introduced, surroundings
from labs.langchain.model_server import (
    RATE_LIMITED,
    TOO_LONG,
    UNAUTHORIZED,
    ModelServer,
    Reply,
    breaks_off,
    call_deltas,
    calls,
    refuses,
    says,
    strictly,
)
from raw_client import PATIENCE, is_answer_to, serve, texts

TARGET = Path(__file__).parents[1] / "labs" / "langchain" / "graphs" / "over_http.py"


@pytest.fixture(scope="module")
def behind_address(tmp_path_factory):
    """The server, and a client of the agent; both are shared by the tests of this module."""
    home = tmp_path_factory.mktemp("home")
    with ModelServer([]) as server:
        client = serve(TARGET, env={**surroundings(home), "MODEL_URL": server.url})
        with client:
            introduced(client)
            yield server, client
            leave(client)


@pytest.fixture
def talk(behind_address):
    server, client = behind_address

    def begin(*replies):
        server.replies = replies
        server.asked.clear()
        server.hold()
        client._held.clear()
        return server, client, client.new_session()

    return begin


def test_text_streams_and_what_was_used_is_told(talk):
    server, client, session = talk(says("Hel", "lo", usage=(20, 2)))

    updates, answer = client.prompt(session, "hi")

    assert texts(updates) == "Hello"
    assert sum(update["sessionUpdate"] == "agent_message_chunk" for update in updates) == 2
    assert answer["result"]["stopReason"] == "end_turn"
    assert server.asked[0]["stream"] is True


def test_a_tool_call_goes_there_and_back_under_one_id(talk):
    server, client, session = talk(calls("add", "call_abc", a=1, b=2), says("three"))

    updates, _ = client.prompt(session, "add")

    assert texts(updates) == "three"
    assert {update["toolCallId"] for update in tool_updates(updates)} == {"call_abc"}
    assert final_call(updates)["status"] == "completed"
    answered = server.asked[1]["messages"][-1]
    assert (answered["role"], answered["tool_call_id"], answered["content"]) == ("tool", "call_abc", "3")


def test_the_next_prompt_knows_the_conversation(talk):
    server, client, session = talk(says("first"), says("second"))

    client.prompt(session, "one")
    client.prompt(session, "two")

    said = [(message["role"], message["content"]) for message in server.asked[1]["messages"]]
    assert said == [("user", "one"), ("assistant", "first"), ("user", "two")]


@pytest.mark.parametrize(
    ("finish", "stop"), [("length", "max_tokens"), ("content_filter", "refusal"), ("stop", "end_turn")]
)
def test_why_it_stopped_is_the_stop_reason(talk, finish, stop):
    _, client, session = talk(says("so far", finish=finish))
    updates, answer = client.prompt(session, "hi")
    assert (texts(updates), answer["result"]["stopReason"]) == ("so far", stop)


@pytest.mark.parametrize(
    "refused",
    [says("I w", finish="content_filter"), refuses(400, "The prompt was filtered", "content_filter")],
)
def test_what_a_filter_refuses_is_no_part_of_the_conversation_afterwards(talk, refused):
    server, client, session = talk(says("yes"), refused, says("fine"))
    client.prompt(session, "good")

    _, answer = client.prompt(session, "bad")
    client.prompt(session, "better")

    assert answer["result"]["stopReason"] == "refusal"
    asked = [message["content"] for message in server.asked[2]["messages"]]
    assert asked == ["good", "yes", "better"]


@pytest.mark.parametrize(
    ("reply", "kind", "hint"),
    [
        (UNAUTHORIZED, "auth", "check the API key"),
        (RATE_LIMITED, "rate_limit", "try again in 7 seconds"),
        (TOO_LONG, "context_length", "begin a new session"),
        (refuses(404, "no such model", "model_not_found"), "no_model", "check the name"),
        (refuses(503, "overloaded"), "unavailable", "try again later"),
        (refuses(400, "m does not support tools"), "refused", "m does not support tools"),
        (refuses(402, "insufficient balance"), "quota", "insufficient balance"),
        (refuses(429, "You exceeded your current quota", "insufficient_quota"), "quota", "plan and billing"),
    ],
)
def test_an_error_says_what_it_is_and_what_to_do_and_the_session_goes_on(talk, reply, kind, hint):
    _, client, session = talk(reply, says("again"))

    _, answer = client.prompt(session, "hi")

    error = answer["error"]
    assert error["data"]["kind"] == kind
    assert hint in error["message"]
    assert "key-of-the-tests" not in str(answer)
    updates, answer = client.prompt(session, "hi")
    assert (texts(updates), answer["result"]["stopReason"]) == ("again", "end_turn")


VIDEO = {"type": "resource", "resource": {"uri": "file:///a.mp4", "blob": "AAAA", "mimeType": "video/mp4"}}


@pytest.mark.parametrize(
    ("block", "refused"),
    [
        ({"type": "text", "text": "a long story"}, TOO_LONG),
        ({"type": "image", "data": "AAAA", "mimeType": "image/x-odd"}, refuses(400, "You uploaded nonsense")),
        (VIDEO, says("never asked for")),  # langchain_openai itself refuses it
    ],
)
def test_a_prompt_that_the_model_cannot_read_is_no_end_of_the_conversation(talk, block, refused):
    server, client, session = talk(says("yes"), refused)
    client.prompt(session, "good")

    answer = client.call("session/prompt", {"sessionId": session, "prompt": [block]})
    assert "error" in answer

    server.replies = [says("fine")]
    updates, _ = client.prompt(session, "better")
    assert texts(updates) == "fine"
    assert [message["content"] for message in server.asked[-1]["messages"]] == ["good", "yes", "better"]


@pytest.mark.parametrize(
    ("reply", "kind", "retryable", "kept"),
    [
        (breaks_off(type="server_error", code=None), "unavailable", True, []),
        (breaks_off("half", type="tokens", code="rate_limit_exceeded"), "rate_limit", True, ["half"]),
        (breaks_off("half", type="insufficient_quota", code="insufficient_quota"), "quota", False, ["half"]),
    ],
)
def test_a_provider_that_fails_in_the_middle_of_its_answer_is_told_and_what_was_read_is_kept(
    talk, reply, kind, retryable, kept
):
    server, client, session = talk(reply, says("again"))

    data = client.prompt(session, "hi")[1]["error"]["data"]
    client.prompt(session, "and now?")

    assert (data["kind"], data["retryable"]) == (kind, retryable)
    said = [message["content"] for message in server.asked[-1]["messages"]]
    assert said == ["hi", *kept, "and now?"]


def test_how_long_to_wait_is_told_as_a_number(talk):
    _, client, session = talk(RATE_LIMITED)
    data = client.prompt(session, "hi")[1]["error"]["data"]
    assert (data["retryAfter"], data["retryable"]) == (7.0, True)


def test_a_connection_that_breaks_in_the_middle_never_passes_for_an_answer(talk):
    _, client, session = talk(says("half an ans", is_cut=True), says("whole"))

    updates, answer = client.prompt(session, "hi")

    assert texts(updates) == "half an ans"
    assert answer["error"]["data"]["kind"] == "network"
    updates, _ = client.prompt(session, "again")
    assert texts(updates) == "whole"


def test_a_cancel_while_the_model_is_silent_is_answered_at_once_and_kept(talk):
    server, client, session = talk(says("so", " far", holds=True), says("after"))
    request = client.prompt_request(session, "hi")
    client.send(request)
    client.read_until(lambda frame: "so" in str(frame.get("params", {}).get("update", {}).get("content")))
    client.send(cancel(session))

    _, answer = end_of(client, request)
    server.release()

    assert is_answer_to(answer, request["id"])
    assert answer["result"]["stopReason"] == "cancelled"
    updates, _ = client.prompt(session, "go on")
    assert texts(updates) == "after"


def is_told(**fields):
    """Whether an update says that much."""

    def matches(frame):
        update = frame.get("params", {}).get("update", {})
        return fields.items() <= update.items()

    return matches


BESIDE = Reply(
    [*call_deltas(0, "done", "add", {"a": 1, "b": 2}), *call_deltas(1, "open", "wait", {"seconds": 30})],
    "tool_calls",
)
POINTS = [
    pytest.param(
        [Reply(call_deltas(0, "c", "add", {"a": 1, "b": 2}), "tool_calls", holds=True)],
        is_told(sessionUpdate="tool_call"),
        id="while arguments are written",
    ),
    pytest.param([calls("wait", "c", seconds=30)], is_told(status="in_progress"), id="in a tool"),
    pytest.param([BESIDE], is_told(status="completed"), id="beside a call that is done"),
    pytest.param(
        [calls("add", "c", a=1, b=2), says("so", " far", holds=True)],
        is_told(sessionUpdate="agent_message_chunk"),
        id="in the answer after a tool",
    ),
]


@pytest.mark.parametrize(("replies", "reached"), POINTS)
def test_after_a_cancel_a_provider_that_is_strict_takes_the_conversation(talk, replies, reached):
    server, client, session = talk(*replies)
    request = client.prompt_request(session, "hi")
    client.send(request)
    client.read_until(reached)

    client.send(cancel(session))
    _, answer = end_of(client, request)
    server.release()
    assert answer["result"]["stopReason"] == "cancelled"

    server.replies = [strictly(says("after"))]
    for prompt in ("go on", "and on"):
        updates, answer = client.prompt(session, prompt)
        assert texts(updates) == "after", answer


def test_an_agent_that_takes_no_notice_of_the_editors_mcp_servers_says_so_in_the_log(talk):
    _, client, _ = talk(says("fine"))
    server = {"name": "unused", "command": "true", "args": [], "env": []}
    answer = client.call("session/new", {"cwd": "/", "mcpServers": [server]})

    client.prompt(answer["result"]["sessionId"], "hi")

    deadline = time.monotonic() + PATIENCE
    while b"middleware=[acp.tools()]" not in client.stderr:
        assert time.monotonic() < deadline, client.stderr
        time.sleep(0.01)
