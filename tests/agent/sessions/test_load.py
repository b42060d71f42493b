"""`session/load`: the whole conversation again, before the answer."""

import pytest

from agent.sessions.steps import REMEMBERS, conversation, kinds, reopen, restarted, setup
from agent.steps import begin, end_of, error_of


def test_a_session_is_loaded_after_a_restart_and_goes_on_where_it_was(start, tmp_path):
    client, session = restarted(start, REMEMBERS, tmp_path, "one", "two")

    updates, answer = reopen(client, "session/load", session, tmp_path)

    assert "error" not in answer
    assert conversation(updates) == [
        ("user", "one"),
        ("agent", "1: one"),
        ("user", "two"),
        ("agent", "2: two"),
    ]
    updates, _ = client.prompt(session, "three")
    assert conversation(updates) == [("agent", "3: three")]


def test_the_blocks_of_the_user_come_back_as_they_were_sent(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    session = client.new_session(str(tmp_path))
    blocks = [
        {"type": "text", "text": "look", "annotations": {"priority": 1.0}, "_meta": {"a": [1]}},
        {"type": "resource_link", "uri": "file:///a", "name": "a", "size": 3},
        {"type": "resource", "resource": {"uri": "file:///b", "text": "b\n", "mimeType": "text/plain"}},
    ]
    client.call("session/prompt", {"sessionId": session, "prompt": blocks})
    client._held.clear()

    updates, _ = reopen(client, "session/load", session, tmp_path)

    users = [update for update in updates if update["sessionUpdate"] == "user_message_chunk"]
    assert [update["content"] for update in users] == blocks
    assert len({update["messageId"] for update in users}) == 1


def test_tool_calls_come_back_once_and_in_their_final_state(converse, tmp_path):
    client, _ = converse(
        """
        async def agent(turn):
            async with turn.tool("Look", kind="search", name="look", path="a.txt", input={"q": 1}) as call:
                await call.output("one ")
                await call.output("two")
                await call.result({"found": 2})
            try:
                async with turn.tool("Break") as call:
                    raise ValueError("broken")
            except ValueError:
                await turn.say("done")
        """
    )
    session = client.new_session(str(tmp_path))
    client.prompt(session, "go")

    updates, _ = reopen(client, "session/load", session, tmp_path)

    look, broken = [update for update in updates if update["sessionUpdate"].startswith("tool_call")]
    assert look["sessionUpdate"] == broken["sessionUpdate"] == "tool_call"
    assert (look["title"], look["status"], look["kind"], look["name"]) == (
        "Look",
        "completed",
        "search",
        "look",
    )
    assert look["content"] == [{"type": "content", "content": {"type": "text", "text": "one two"}}]
    assert look["locations"] == [{"path": str(tmp_path / "a.txt")}]
    assert (look["rawInput"], look["rawOutput"]) == ({"q": 1}, {"found": 2})
    assert broken["status"] == "failed"
    assert "broken" in broken["content"][0]["content"]["text"]


def test_text_in_pieces_of_all_lengths_comes_back_whole_and_in_its_place(converse, tmp_path):
    client, _ = converse(
        """
        async def agent(turn):
            for number in range(6000):
                await turn.say(f"{number} ")
                if number % 100 == 0:
                    await turn.say("long " * 40)
                if number % 500 == 0:
                    await turn.think("hm ")
                    await turn.say("")
                if number % 1000 == 0:
                    async with turn.tool("Look"):
                        pass
        """
    )
    session = client.new_session(str(tmp_path))
    sent, _ = client.prompt(session, "go")

    loaded, _ = reopen(client, "session/load", session, tmp_path)

    assert told(loaded)[1:] == told(sent)


def told(updates):
    """What was said, thought and done, with what follows itself in one piece."""
    pieces = []
    for update in updates:
        kind, content = update["sessionUpdate"], update.get("content")
        text = content["text"] if isinstance(content, dict) else ""
        if pieces and pieces[-1][:2] == [kind, update.get("messageId")] and text:
            pieces[-1][2] += text
        elif kind != "tool_call_update" and (text or kind == "tool_call"):
            pieces.append([kind, update.get("messageId"), text])
    return pieces


def test_plan_mode_title_and_usage_come_back_as_they_were_last(start, tmp_path):
    source = """
    from coupler import Agent, Mode

    class Planner(Agent):
        modes = [Mode("ask", "Ask first"), Mode("act", "Just act")]

        async def prompt(self, turn):
            plan = await turn.plan("Think", "Write")
            await plan.complete("Think")
            turn.session.set_mode("act")
            turn.session.set_title("A better title")
            await turn.usage(100, 1000, cost=0.5, currency="EUR")
    """
    client, session = restarted(start, source, tmp_path, "go")

    updates, answer = reopen(client, "session/load", session, tmp_path)

    by_kind = {update["sessionUpdate"]: update for update in updates}
    assert [entry["status"] for entry in by_kind["plan"]["entries"]] == ["completed", "pending"]
    assert by_kind["current_mode_update"]["currentModeId"] == "act"
    assert by_kind["session_info_update"]["title"] == "A better title"
    assert by_kind["usage_update"]["used"] == 100
    assert by_kind["usage_update"]["cost"] == {"amount": 0.5, "currency": "EUR"}
    assert kinds(updates).count("plan") == 1
    assert answer["result"]["modes"]["currentModeId"] == "act"


def test_an_unknown_session_is_refused_and_nothing_is_made_of_it(converse, tmp_path):
    client, _ = converse(REMEMBERS)

    updates, answer = reopen(client, "session/load", "sess_unknown", tmp_path)

    assert updates == []
    assert error_of(answer) == (-32002, "unknown_session")
    assert error_of(client.prompt("sess_unknown", "x")[1]) == (-32002, "unknown_session")


def test_a_session_is_not_loaded_into_another_directory(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    (tmp_path / "other").mkdir()
    session = client.new_session(str(tmp_path))

    _, answer = reopen(client, "session/load", session, tmp_path / "other")

    assert error_of(answer) == (-32602, "invalid_params")
    assert str(tmp_path) in answer["error"]["message"]


@pytest.mark.parametrize(
    ("cwd", "problem"), [("a", "absolute"), ("/none", "does not exist"), (__file__, "not a directory")]
)
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
def test_a_wrong_directory_is_refused(share, method, cwd, problem):
    client, session = share(REMEMBERS)

    _, answer = reopen(client, method, session, cwd)

    assert error_of(answer) == (-32602, "invalid_params")
    assert problem in answer["error"]["message"]


def test_a_session_whose_turn_runs_is_not_loaded(converse, tmp_path):
    client, _ = converse(
        """
        import asyncio

        async def agent(turn):
            await turn.say("started")
            await asyncio.Event().wait()
        """
    )
    session = client.new_session(str(tmp_path))
    begin(client, session)

    answer = client.call("session/load", setup(session, tmp_path))

    assert error_of(answer) == (-32600, "session_busy")


def test_a_prompt_right_behind_a_load_finds_the_session_open(start, tmp_path):
    client, session = restarted(start, REMEMBERS, tmp_path, "one")

    load = client.request("session/load", setup(session, tmp_path))
    prompt = client.prompt_request(session, "two")
    client.send(load, prompt)

    assert "result" in client.answer_to(load)
    updates, answer = end_of(client, prompt)
    assert answer["result"] == {"stopReason": "end_turn"}
    assert conversation(updates)[-1] == ("agent", "2: two")


def test_a_session_that_a_live_process_holds_is_refused_and_its_process_is_named(start, tmp_path):
    first = start(REMEMBERS)
    first.initialize()
    session = first.new_session(str(tmp_path))
    first.prompt(session, "one")
    second = start(REMEMBERS)
    second.initialize()

    _, answer = reopen(second, "session/load", session, tmp_path)

    assert error_of(answer) == (-32600, "session_held")
    assert answer["error"]["data"]["pid"] == first.process.pid
    assert str(first.process.pid) in answer["error"]["message"]
    first.process.kill()
    first.process.wait()
    updates, answer = reopen(second, "session/load", session, tmp_path)
    assert "result" in answer
    assert conversation(updates) == [("user", "one"), ("agent", "1: one")]


def test_what_a_crash_left_open_is_shown_as_interrupted(start, tmp_path):
    source = """
    import asyncio

    async def agent(turn):
        async with turn.tool("Long work") as call:
            await call.output("so far")
            await turn.say("started")
            await asyncio.Event().wait()
    """
    first = start(source)
    first.initialize()
    session = first.new_session(str(tmp_path))
    begin(first, session, "go")
    # What was said becomes durable within a quarter of a second; the tool call is durable at once.
    first.process.kill()
    first.process.wait()
    second = start(source)
    second.initialize()

    updates, answer = reopen(second, "session/load", session, tmp_path)

    assert "result" in answer
    assert conversation(updates)[0] == ("user", "go")
    [call] = [update for update in updates if update["sessionUpdate"].startswith("tool_call")]
    assert call["status"] == "failed"
    assert "interrupted" in call["content"][-1]["content"]["text"]
