"""An agent's own state: saved with the turn, found again, and refused if it cannot be saved."""

import pytest

from agent.sessions.steps import reopen
from agent.steps import OBEDIENT, error_of
from raw_client import texts


@pytest.mark.parametrize("value", ["b'\\x00\\xff'", "{'a': [1, None, 'x']}", "'text'", "0", "[]"])
def test_it_is_what_it_was_after_a_restart(start, tmp_path, value):
    first = start(OBEDIENT)
    first.initialize()
    session = first.new_session(str(tmp_path))
    first.prompt(session, f"turn.session.state = {value}")
    first.process.kill()
    first.process.wait()
    second = start(OBEDIENT)
    second.initialize()
    reopen(second, "session/resume", session, tmp_path)

    updates, _ = second.prompt(session, "await turn.say(repr(turn.session.state))")

    assert texts(updates) == repr(eval(value))


def test_what_cannot_be_saved_fails_the_turn_and_the_session_lives_on(share):
    client, session = share(OBEDIENT)

    _, answer = client.prompt(session, "turn.session.state = object()")

    assert error_of(answer) == (-32603, "agent_failed")
    assert "session.state" in answer["error"]["message"]
    _, answer = client.prompt(session, "turn.session.state = 1\nawait turn.say('fine')")
    assert answer["result"] == {"stopReason": "end_turn"}


def test_without_a_store_nothing_is_kept_and_nothing_is_advertised(start, tmp_path, coupler_home):
    client = start(OBEDIENT, "--no-store")
    capabilities = client.initialize()["result"]["agentCapabilities"]
    session = client.new_session(str(tmp_path))
    client.prompt(session, "await turn.say('hello')")

    assert not capabilities.get("loadSession")
    assert capabilities["sessionCapabilities"].keys() == {"close", "additionalDirectories"}
    for method in ("session/load", "session/resume", "session/list", "session/delete", "session/fork"):
        answer = client.call(method, {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
        assert answer["error"]["code"] == -32601
    assert client.call("session/close", {"sessionId": session})["result"] == {}
    assert not [*coupler_home.glob("*.db*")]
