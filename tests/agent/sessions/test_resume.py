"""`session/resume`: go on without a replay."""

from agent.sessions.steps import REMEMBERS, conversation, reopen, restarted
from agent.steps import error_of, update_of


def test_a_session_is_resumed_without_its_history_and_remembers(start, tmp_path):
    client, session = restarted(start, REMEMBERS, tmp_path, "one")

    updates, answer = reopen(client, "session/resume", session, tmp_path)

    assert (updates, answer["result"]) == ([], {})
    assert conversation(client.prompt(session, "two")[0]) == [("agent", "2: two")]


def test_what_was_used_up_before_is_told_after_the_answer(start, tmp_path):
    source = """
    async def agent(turn):
        await turn.usage(10, 100, cost=0.25)
    """
    client, session = restarted(start, source, tmp_path, "one")

    before, _ = reopen(client, "session/resume", session, tmp_path)
    update = update_of(client.read_until(lambda frame: "usage_update" in str(frame))[-1])

    assert before == []
    assert (update["used"], update["cost"]["amount"]) == (10, 0.25)


def test_mcp_servers_may_be_left_out(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    session = client.new_session(str(tmp_path))

    answer = client.call("session/resume", {"sessionId": session, "cwd": str(tmp_path)})

    assert answer["result"] == {}


def test_an_unknown_session_is_refused(converse, tmp_path):
    client, _ = converse(REMEMBERS)

    _, answer = reopen(client, "session/resume", "sess_unknown", tmp_path)

    assert error_of(answer) == (-32002, "unknown_session")


def test_ids_of_tool_calls_are_not_used_again_after_a_restart(start, tmp_path):
    source = """
    async def agent(turn):
        try:
            async with turn.tool("Look", id="same"):
                pass
        except ValueError as error:
            await turn.say(str(error))
    """
    client, session = restarted(start, source, tmp_path, "one")
    reopen(client, "session/resume", session, tmp_path)

    updates, _ = client.prompt(session, "two")

    assert "announced before" in conversation(updates)[0][1]
