"""Modes and options, changed by either side, also while a turn runs."""

import pytest

from agent.sessions.steps import kinds, reopen, setup
from agent.steps import begin, error_of, update_of
from raw_client import texts

CHOOSY = """
import asyncio
from coupler import Agent, Choice, Group, Mode, Select, Toggle

class Choosy(Agent):
    modes = [Mode("ask", "Ask first"), Mode("act")]
    options = [
        Select("model", [Group("Big", [Choice("opus", "Opus")]), Group("Small", ["mini"])], category="model"),
        Toggle("web", default=True),
    ]

    async def prompt(self, turn):
        session = turn.session
        if turn.text == "wait":
            await turn.say("started")
            await asyncio.Event().wait()
        elif turn.text.startswith("set "):
            session.set_mode(turn.text.removeprefix("set "))
        elif turn.text == "use mini":
            session.set_option("model", "mini")
        await turn.say(f"{session.mode} {session.options['model']} {session.options['web']}")

    async def mode_changed(self, session):
        if session.options["model"] == "mini" and session.mode == "act":
            raise ValueError("the small model may not act")
"""
BOOLEANS = {"session": {"configOptions": {"boolean": {}}}}


def values_of(options):
    return {option["id"]: option["currentValue"] for option in options}


def read_updates(client, count):
    return [update_of(client.read()) for _ in range(count)]


def test_a_new_session_says_what_can_be_chosen(share):
    client, _ = share(CHOOSY, **BOOLEANS)

    result = client.call("session/new", setup(None, "/"))["result"]

    assert result["modes"]["currentModeId"] == "ask"
    assert [mode["name"] for mode in result["modes"]["availableModes"]] == ["Ask", "Act"]
    mode, model, web = result["configOptions"]
    assert (mode["id"], mode["category"], mode["type"]) == ("mode", "mode", "select")
    assert [group["name"] for group in model["options"]] == ["Big", "Small"]
    assert (web["type"], web["currentValue"]) == ("boolean", True)


def test_a_client_that_knows_no_booleans_gets_a_select_and_can_use_it(share):
    client, _ = share(CHOOSY)
    result = client.call("session/new", setup(None, "/"))["result"]
    assert result["configOptions"][2]["type"] == "select"
    change = {"sessionId": result["sessionId"], "configId": "web", "value": "off"}

    answer = client.call("session/set_config_option", change)

    assert values_of(answer["result"]["configOptions"])["web"] == "off"
    assert texts(client.prompt(result["sessionId"])[0]) == "ask opus False"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_mode", {"modeId": "act"}),
        ("session/set_config_option", {"configId": "mode", "value": "act"}),
    ],
)
def test_both_ways_to_set_the_mode_are_one(share, method, params):
    client, session = share(CHOOSY, **BOOLEANS)

    answer = client.call(method, {"sessionId": session, **params})

    mode, options = read_updates(client, 2)
    assert (mode["sessionUpdate"], mode["currentModeId"]) == ("current_mode_update", "act")
    assert options["sessionUpdate"] == "config_option_update"
    assert values_of(options["configOptions"])["mode"] == "act"
    if "configOptions" in answer["result"]:
        assert values_of(answer["result"]["configOptions"])["mode"] == "act"
    assert texts(client.prompt(session)[0]).startswith("act ")


def test_the_agent_changes_mode_and_options_in_a_turn(share):
    client, session = share(CHOOSY, **BOOLEANS)

    updates, _ = client.prompt(session, "set act")
    assert kinds(updates)[-3:] == ["current_mode_update", "config_option_update", "agent_message_chunk"]

    updates, _ = client.prompt(session, "use mini")
    assert kinds(updates) == ["config_option_update", "agent_message_chunk"]
    assert values_of(updates[0]["configOptions"])["model"] == "mini"


def test_a_change_is_answered_while_a_turn_runs(share):
    client, session = share(CHOOSY, **BOOLEANS)
    prompt = begin(client, session, "wait")

    answer = client.call("session/set_mode", {"sessionId": session, "modeId": "act"})

    assert answer["result"] == {}
    client.send({"method": "session/cancel", "params": {"sessionId": session}})
    assert client.answer_to(prompt)["result"]["stopReason"] == "cancelled"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("session/set_mode", {"modeId": "none"}),
        ("session/set_config_option", {"configId": "none", "value": "x"}),
        ("session/set_config_option", {"configId": "model", "value": "none"}),
        ("session/set_config_option", {"configId": "mode", "value": "none"}),
        ("session/set_config_option", {"configId": "model", "type": "boolean", "value": True}),
        ("session/set_config_option", {"configId": "web", "value": "on"}),
        ("session/set_config_option", {"configId": "web", "value": True}),
    ],
)
def test_what_is_not_offered_is_refused_and_nothing_changes(share, method, params):
    client, session = share(CHOOSY, **BOOLEANS)

    answer = client.call(method, {"sessionId": session, **params})

    assert error_of(answer) == (-32602, "invalid_params")
    assert texts(client.prompt(session)[0]) == "ask opus True"


def test_the_agent_may_refuse_a_change_which_is_then_taken_back(share):
    client, session = share(CHOOSY, **BOOLEANS)
    client.prompt(session, "use mini")

    answer = client.call("session/set_mode", {"sessionId": session, "modeId": "act"})

    assert error_of(answer) == (-32603, "agent_failed")
    assert "the small model may not act" in answer["error"]["message"]
    assert texts(client.prompt(session)[0]) == "ask mini True"


def test_what_was_chosen_holds_after_a_restart(start, tmp_path):
    first = start(CHOOSY)
    first.initialize(**BOOLEANS)
    session = first.new_session(str(tmp_path))
    first.call("session/set_mode", {"sessionId": session, "modeId": "act"})
    change = {"sessionId": session, "configId": "web", "type": "boolean", "value": False}
    first.call("session/set_config_option", change)
    first.process.kill()
    first.process.wait()
    second = start(CHOOSY)
    second.initialize(**BOOLEANS)

    _, answer = reopen(second, "session/resume", session, tmp_path)

    assert answer["result"]["modes"]["currentModeId"] == "act"
    assert values_of(answer["result"]["configOptions"]) == {"mode": "act", "model": "opus", "web": False}
