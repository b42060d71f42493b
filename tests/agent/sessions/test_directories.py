"""Additional directories: refused unless every one is right, never shrunk, never revived."""

import pytest

from agent.sessions.steps import reopen, setup
from agent.steps import error_of
from raw_client import texts

ROOTS = """
async def agent(turn):
    await turn.say(" ".join(turn.session.roots))
"""


@pytest.fixture
def more(tmp_path):
    (tmp_path / "more").mkdir()
    return str(tmp_path / "more")


def test_they_are_roots_of_the_session_beside_its_directory(share, tmp_path, more):
    client, _ = share(ROOTS)
    session = client.call("session/new", setup(None, tmp_path, additionalDirectories=[more]))["result"][
        "sessionId"
    ]

    assert texts(client.prompt(session)[0]) == f"{tmp_path} {more}"
    [entry] = [
        each for each in client.call("session/list", {})["result"]["sessions"] if each["sessionId"] == session
    ]
    assert entry["additionalDirectories"] == [more]


@pytest.mark.parametrize("wrong", ["", "relative", "/no/such/place", __file__, 7, None])
def test_one_wrong_entry_refuses_the_whole(share, tmp_path, more, wrong):
    client, _ = share(ROOTS)
    before = client.call("session/list", {})["result"]

    answer = client.call("session/new", setup(None, tmp_path, additionalDirectories=[more, wrong]))

    assert error_of(answer) == (-32602, "invalid_params")
    assert "additionalDirectories[1]" in answer["error"]["data"]["path"]
    assert client.call("session/list", {})["result"] == before


@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_session_that_is_opened_again_has_exactly_those_that_are_named_now(share, tmp_path, more, method):
    client, _ = share(ROOTS)
    session = client.call("session/new", setup(None, tmp_path, additionalDirectories=[more]))["result"][
        "sessionId"
    ]

    reopen(client, method, session, tmp_path)

    assert texts(client.prompt(session)[0]) == str(tmp_path)
