"""Conversations in a graph's own checkpointer: those that others began, and those that it has lost."""

import pytest

from agent.sessions.steps import conversation, listed, reopen
from agent.steps import leave
from labs.langchain.acting import HERE, Stage, by_id, introduced, surroundings
from raw_client import serve, texts

REMEMBERING = HERE / "graphs" / "remembering.py"


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def client(home):
    stage = Stage(REMEMBERING, home)
    yield stage.client
    stage.close()


def test_a_thread_that_was_begun_elsewhere_is_listed_replayed_and_gone_on_with(client):
    [found] = [each for each in listed(client) if each["sessionId"] == "elsewhere"]
    assert (found["title"], found["cwd"]) == ("How much is one and one?", "/")

    updates, _ = reopen(client, "session/load", "elsewhere", "/")

    assert conversation(updates) == [
        ("user", "How much is one and one?\nQuickly."),
        ("thought", "Easy."),
        ("agent", "Let me see."),
        ("agent", "Two."),
    ]
    call = by_id(updates)["sum"]
    assert (call["name"], call["status"], call["rawInput"]) == ("add", "completed", {"a": 1, "b": 1})
    assert texts(client.prompt("elsewhere", "and now?")[0]) == "6 messages"


def test_a_thread_without_messages_is_no_session(client):
    assert "empty" not in [each["sessionId"] for each in listed(client)]


def test_an_id_that_nobody_knows_is_still_refused(client):
    _, answer = reopen(client, "session/load", "nowhere", "/")

    assert answer["error"]["code"] == -32002


def test_a_conversation_that_its_checkpointer_has_lost_begins_anew_and_says_so(tmp_path):
    with serve(REMEMBERING, env=surroundings(tmp_path)) as first:
        introduced(first)
        session = first.new_session("/")
        first.prompt(session, "one")
        leave(first)
    with serve(REMEMBERING, env=surroundings(tmp_path)) as second:
        introduced(second)
        reopen(second, "session/load", session, "/")

        updates, _ = second.prompt(session, "two")

        assert "does not remember this conversation" in texts(updates)
        assert texts(updates).endswith("1 messages")
        leave(second)
