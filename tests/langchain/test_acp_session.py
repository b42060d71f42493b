"""`acp.session` in a served agent: a part of the state that is kept with the session, and nothing more."""

import pytest

from coupler import acp

COUNTS = """
@tool
async def recall(key: str = "") -> str:
    "What was kept."
    return repr(acp.kept(key or None))

agent = agent_with(acp.session({options}), tools=[recall, lookup])
"""
MAP = 'state=lambda state: {"messages": len(state["messages"])}'


def keeping(order, options):
    return order(COUNTS.replace("{options}", options))


def recalled(at, **arguments):
    ((_, content),) = at.does(("recall", arguments))
    return content


@pytest.mark.parametrize(
    ("snapshots", "first", "second"),
    [
        ("none", "None", "None"),
        ("initial", "{'messages': 1}", "{'messages': 5}"),
        ("final", "None", "{'messages': 4}"),
        ("all", "{'messages': 1}", "{'messages': 5}"),
    ],
)
def test_the_state_is_kept_when_it_is_wanted(order, snapshots, first, second):
    at = keeping(order, f'{MAP}, snapshots="{snapshots}"')

    assert (recalled(at), recalled(at)) == (first, second)


def test_what_was_kept_survives_that_the_session_is_closed_and_opened_again(order):
    at = keeping(order, f'{MAP}, id="mine"')
    recalled(at)
    assert "result" in at.client.call("session/close", {"sessionId": at.id})
    params = {"sessionId": at.id, "cwd": str(at.cwd), "mcpServers": []}
    assert "result" in at.client.call("session/resume", params)

    assert recalled(at, key="mine") == "{'messages': 4}"
    assert recalled(at) == "None"


def test_the_id_can_be_made_of_the_state(order):
    at = keeping(order, "id=lambda state: f\"after {len(state['messages'])}\"")
    recalled(at)

    assert recalled(at, key="after 4") == "{}"


def test_no_update_tells_of_it(order):
    plain = order("agent = agent_with(tools=[lookup])")
    plain.does(("lookup", {"topic": "tea"}))
    told = [update["sessionUpdate"] for update in plain.updates]
    at = keeping(order, f'{MAP}, snapshots="all"')
    at.does(("lookup", {"topic": "tea"}))

    assert [update["sessionUpdate"] for update in at.updates] == told


def test_a_moment_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match="did you mean 'final'"):
        acp.session(snapshots="finale")
