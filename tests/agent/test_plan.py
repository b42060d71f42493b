"""Plans: entries that are started, completed and added; each change sends the whole plan."""

import pytest

from agent.steps import OBEDIENT
from raw_client import texts


def plans(updates):
    return [
        [(entry["content"], entry["priority"], entry["status"]) for entry in update["entries"]]
        for update in updates
        if update["sessionUpdate"] == "plan"
    ]


def test_a_plan_begins_with_everything_pending_and_of_medium_priority(converse):
    client, session = converse("""
        async def agent(turn):
            await turn.plan("a", "b")
    """)

    assert plans(client.prompt(session)[0]) == [[("a", "medium", "pending"), ("b", "medium", "pending")]]


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ("start('a')", [("a", "medium", "in_progress"), ("b", "medium", "pending")]),
        ("start(0)", [("a", "medium", "in_progress"), ("b", "medium", "pending")]),
        ("complete('b')", [("a", "medium", "pending"), ("b", "medium", "completed")]),
        ("complete(-1)", [("a", "medium", "pending"), ("b", "medium", "completed")]),
        ("prioritize('a', 'high')", [("a", "high", "pending"), ("b", "medium", "pending")]),
        (
            "add('c', priority='low')",
            [("a", "medium", "pending"), ("b", "medium", "pending"), ("c", "low", "pending")],
        ),
    ],
)
def test_each_change_sends_the_whole_plan(share, change, expected):
    client, session = share(OBEDIENT)

    updates, _ = client.prompt(session, f"plan = await turn.plan('a', 'b')\nawait plan.{change}")

    first, second = plans(updates)

    assert first == [("a", "medium", "pending"), ("b", "medium", "pending")]
    assert second == expected


def test_a_plan_can_be_looked_at(converse):
    client, session = converse("""
        async def agent(turn):
            plan = await turn.plan("a", "b")
            await plan.complete("a")
            await turn.say(f"{len(plan)} " + " ".join(f"{entry.content}:{entry.status}" for entry in plan))
    """)

    assert texts(client.prompt(session)[0]) == "2 a:completed b:pending"


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ("'a', 'b'", "ValueError: the plan has no entry 'x'; it has 'a', 'b'"),
        ("", "ValueError: the plan has no entry 'x'; it has none"),
    ],
)
def test_an_entry_that_is_not_there_is_named_with_those_that_are(share, entries, message):
    client, session = share(OBEDIENT)

    answer = client.prompt(session, f"plan = await turn.plan({entries})\nawait plan.complete('x')")[1]

    assert answer["error"]["message"] == message


def test_two_entries_of_one_text_are_told_apart_by_their_index(converse):
    client, session = converse("""
        async def agent(turn):
            plan = await turn.plan("again", "again")
            await plan.start("again")
            await plan.start(1)
    """)

    assert [status for *_, status in plans(client.prompt(session)[0])[-1]] == ["in_progress"] * 2
