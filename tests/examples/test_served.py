"""The examples do what they show."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.sessions.steps import conversation, kinds, reopen
from raw_client import serve, texts

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_surveyor_goes_on_where_a_link_leads_nowhere(tmp_path):
    (tmp_path / "gone.py").symlink_to(tmp_path / "nothing.py")
    (tmp_path / "here.py").write_text("a = 1\n")
    with serve(EXAMPLES / "surveyor.py") as client:
        client.initialize()

        updates, answer = client.prompt(client.new_session(str(tmp_path)), "look")

    assert answer["result"] == {"stopReason": "end_turn"}
    assert "`here.py` with 1 lines" in texts(updates)


def test_the_surveyor_says_so_where_there_is_nothing(tmp_path):
    with serve(EXAMPLES / "surveyor.py") as client:
        client.initialize()

        updates, _ = client.prompt(client.new_session(str(tmp_path)), "look")

    assert texts(updates) == f"There is no Python under {tmp_path}."


@pytest.fixture
def reference(tmp_path):
    with serve(EXAMPLES / "reference.py") as client:
        client.initialize()
        yield client, client.new_session(str(tmp_path))


def commands_in(updates):
    *_, last = (each for each in updates if each["sessionUpdate"] == "available_commands_update")
    return {command["name"] for command in last["availableCommands"]}


def test_the_reference_agent_obeys_its_commands(reference, tmp_path):
    client, session = reference

    updates, _ = client.prompt(session, "/swift")
    assert "current_mode_update" in kinds(updates)
    assert commands_in(updates) == {"note", "title", "quiet", "compact", "careful"}

    client.prompt(session, "/note buy milk")
    assert (tmp_path / "notes.txt").read_text() == "'buy milk'\n"

    updates, _ = client.prompt(session, "/title Errands")
    assert "Errands" in [each.get("title") for each in updates]

    updates, _ = client.prompt(session, "/quiet")
    assert "config_option_update" in kinds(updates)
    assert "agent_thought_chunk" not in kinds(client.prompt(session, "Go on")[0])

    updates, _ = client.prompt(session, "/compact")
    assert conversation(updates)[-1][1].endswith("There were 6 prompts.")
    assert updates[-1]["used"] == 0


def test_the_reference_agent_offers_more_with_the_large_model(reference):
    client, session = reference
    change = {"sessionId": session, "configId": "model", "value": "eagle"}

    options = client.call("session/set_config_option", change)["result"]["configOptions"]

    assert [option["id"] for option in options] == ["mode", "model", "effort", "thoughts"]


def test_the_reference_agent_goes_on_after_a_restart(tmp_path):
    with serve(EXAMPLES / "reference.py") as first:
        first.initialize()
        session = first.new_session(str(tmp_path))
        for change in ({"configId": "model", "value": "eagle"}, {"configId": "effort", "value": "high"}):
            first.call("session/set_config_option", {"sessionId": session, **change})
        first.prompt(session, "/title Errands")
    with serve(EXAMPLES / "reference.py") as second:
        second.initialize()

        replayed, answer = reopen(second, "session/load", session, tmp_path)

        assert conversation(replayed) == [("user", "/title Errands")]
        options = {each["id"]: each["currentValue"] for each in answer["result"]["configOptions"]}
        assert (options["model"], options["effort"]) == ("eagle", "high")
        updates, _ = second.prompt(session, "/compact")
        assert "There were 2 prompts." in texts(updates)
