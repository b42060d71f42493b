"""Titles, usage, notices and compactions: said in the way that the client can show."""

import pytest

from agent.sessions.steps import conversation, kinds, reopen
from agent.steps import OBEDIENT, error_of

NOTICES = {"session": {"notices": {}}}
COMPACTION = {"session": {"compaction": {}}}


def test_usage_is_reported_with_its_cost(share):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, "await turn.usage(10, 100, cost=0.25)")

    assert updates[-1] == {
        "sessionUpdate": "usage_update",
        "used": 10,
        "size": 100,
        "cost": {"amount": 0.25, "currency": "USD"},
    }


@pytest.mark.parametrize("call", ["usage(-1, 5)", "usage(1, 2.5)", "usage(1, 2, cost=-1)", "usage(1, 2**70)"])
def test_usage_that_makes_no_sense_fails_in_the_agent(share, call):
    client, session = share(OBEDIENT)

    assert error_of(client.prompt(session, f"await turn.{call}")[1]) == (-32603, "agent_failed")


def test_the_first_prompt_is_the_title_until_the_agent_gives_another(share):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, "# Ask\nturn.session.set_title('Mine')")

    titles = [update["title"] for update in updates if update["sessionUpdate"] == "session_info_update"]
    assert titles == ["# Ask", "Mine"]
    assert kinds(client.prompt(session, "pass")[0]) == []


def test_a_notice_is_a_notice_for_clients_that_show_them(share):
    client, session = share(OBEDIENT, **NOTICES)

    updates, _ = client.prompt(session, "await turn.notice('Slow', 'The model is busy.', severity='warning')")

    assert updates[-1] == {
        "sessionUpdate": "notice",
        "severity": "warning",
        "title": "Slow",
        "description": "The model is busy.",
    }
    assert "notice" not in kinds(reopen(client, "session/load", session, "/")[0])


def test_a_notice_is_a_message_for_the_others(share):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(
        session, "await turn.say('a')\nawait turn.notice('Slow', severity='warning')\nawait turn.say('b')"
    )

    assert conversation(updates) == [("agent", "a"), ("agent", "Warning: Slow"), ("agent", "b")]


@pytest.mark.parametrize("call", ["notice('')", "notice('x', severity='bad')", "notice(7)"])
def test_a_notice_that_is_none_fails_in_the_agent(share, call):
    client, session = share(OBEDIENT)

    assert error_of(client.prompt(session, f"await turn.{call}")[1]) == (-32603, "agent_failed")


COMPACT = (
    "async with turn.compaction() as it:\n    await it.summarize('We ')\n    await it.summarize('talked.')"
)


def test_a_compaction_is_shown_with_its_summary_and_replayed_whole(share):
    client, session = share(OBEDIENT, **COMPACTION)

    updates, _ = client.prompt(session, COMPACT)

    live = [update for update in updates if update["sessionUpdate"].startswith("compaction")]
    assert [update.get("status") for update in live] == ["in_progress", None, None, "completed"]
    assert [update["content"]["text"] for update in live[1:3]] == ["We ", "talked."]
    assert len({update["compactionId"] for update in live}) == 1
    replayed, _ = reopen(client, "session/load", session, "/")
    [whole] = [update for update in replayed if update["sessionUpdate"].startswith("compaction")]
    assert whole["status"] == "completed"
    assert "".join(block["text"] for block in whole["summary"]) == "We talked."


def test_a_compaction_is_a_message_for_clients_that_cannot_show_it(share):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, COMPACT)

    assert conversation(updates) == [
        ("agent", "Summarizing the earlier conversation…"),
        ("agent", "The earlier conversation was summarized:\n\nWe talked."),
    ]


def test_a_compaction_that_fails_says_why(share):
    client, session = share(OBEDIENT, **COMPACTION)

    updates, answer = client.prompt(session, "async with turn.compaction():\n    raise ValueError('full')")

    assert (updates[-1]["status"], updates[-1]["error"]) == ("failed", "ValueError: full")
    assert "error" in answer
