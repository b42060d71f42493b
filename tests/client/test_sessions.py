"""Sessions as an agent offers them: loaded, resumed, forked, listed, deleted, closed, and after its death."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted, run, until
from coupler import AgentError
from coupler.client.limits import EventRecord
from coupler.client.observation import Observation, SessionOpened
from coupler.events import Text, ToolCall
from coupler.events.events import plain_text_of

Script = Callable[[str], Scripted]

KEEPER = """
    CAPABILITIES = {"loadSession": True, "sessionCapabilities": {
        "resume": {}, "list": {}, "delete": {}, "close": {}, "fork": {}}}
    while True:
        frame = read()
        method = frame.get("method")
        if method == "initialize":
            send(result(frame, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}))
        elif method == "session/new":
            send(result(frame, {"sessionId": "s1"}))
        elif method == "session/load":
            id = frame["params"]["sessionId"]
            send(say("once ", id), say("more", id), result(frame, None))
        elif method == "session/resume":
            send(result(frame, {}))
        elif method == "session/fork":
            send(result(frame, {"sessionId": "fork of " + frame["params"]["sessionId"]}))
        elif method == "session/list":
            page = int(frame["params"].get("cursor") or 0)
            sessions = [{"sessionId": f"old{page}", "cwd": "/"}]
            send(result(frame, {"sessions": sessions, **({"nextCursor": str(page + 1)} if page < 2 else {})}))
        elif method == "session/prompt":
            send(say("heard", frame["params"]["sessionId"]), end(frame))
        elif "id" in frame:
            send(result(frame, {}))
"""


def test_a_loaded_session_has_its_history_as_its_record_and_goes_on(script: Script) -> None:
    async def story() -> None:
        seen: list[Observation] = []
        async with script(KEEPER).connect(on_event=seen.append) as remote:
            session = await remote.load("old")
            assert [(entry.event, entry.late) for entry in session.record] == [(Text("once more"), False)]
            assert (await session.prompt("go")).text == "heard"
            assert SessionOpened("old", "load") in seen

    run(story())


def test_sessions_are_resumed_forked_listed_deleted_and_closed(script: Script) -> None:
    agent = script(KEEPER)

    async def story() -> None:
        async with agent.connect() as remote:
            assert (await (await remote.resume("old")).prompt("go")).text == "heard"
            fork = await remote.fork("old")
            assert (fork.id, (await fork.prompt("go")).text) == ("fork of old", "heard")
            assert [info.session_id for info in await remote.list()] == ["old0", "old1", "old2"]
            await remote.delete("old")
            await fork.close()
            with pytest.raises(AgentError, match="closed"):
                await fork.prompt("go")

    run(story())
    assert [frame["params"]["sessionId"] for frame in agent.received_of("session/delete")] == ["old"]
    assert [frame["params"]["sessionId"] for frame in agent.received_of("session/close")] == ["fork of old"]


@pytest.mark.parametrize("call", ["load", "resume", "fork", "delete"])
def test_what_the_agent_does_not_offer_is_not_asked_for(script: Script, call: str) -> None:
    agent = script("for prompt in prompts(): send(end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError, match=f"the agent does not offer session/{call}") as caught:
                await getattr(remote, call)("old")
            assert caught.value.kind == "session"

    run(story())
    assert [frame["method"] for frame in agent.received] == ["initialize"]


def test_a_load_that_fails_leaves_the_id_free(script: Script) -> None:
    agent = script("""
        send(result(read(), {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}))
        send(error(read(), -32002, "Resource not found"))
        send(result(read(), {}))
        send(end(read()))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError, match="Resource not found") as caught:
                await remote.load("old")
            assert (caught.value.kind, caught.value.code) == ("session", -32002)
            assert (await (await remote.load("old")).prompt("go")).is_complete

    run(story())


def test_a_list_without_an_end_is_refused(script: Script, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coupler.client.remote.MOST_PAGES", 5)
    agent = script("""
        capabilities = {"sessionCapabilities": {"list": {}}}
        send(result(read(), {"protocolVersion": 1, "agentCapabilities": capabilities}))
        while True:
            send(result(read(), {"sessions": [], "nextCursor": "again"}))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError, match="no end"):
                await remote.list()

    run(story())


def test_an_agent_that_died_is_started_again_for_the_next_session(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "die":
                os._exit(3)
            send(say("alive"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            first = await remote.new()
            with pytest.raises(AgentError) as caught:
                await first.prompt("die")
            assert (caught.value.kind, caught.value.exit_code) == ("died", 3)
            assert not remote.is_running and first.is_over
            second = await remote.new()
            assert remote.is_running
            assert (await second.prompt("go")).text == "alive"
            with pytest.raises(AgentError, match="exit code: 3"):
                await first.prompt("go")

    run(story())
    assert len(agent.noted("pid")) == 2


def test_an_agent_is_restarted_on_demand(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say(str(os.getpid())), end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            one = (await (await remote.new()).prompt("go")).text
            await remote.restart()
            other = (await (await remote.new()).prompt("go")).text
            assert one != other

    run(story())


def test_a_temporary_directory_lives_as_long_as_its_session(script: Script) -> None:
    agent = script("for prompt in prompts(): send(end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            closed, left = await remote.new(cwd="temporary"), await remote.new(cwd="temporary")
            assert Path(closed.cwd).is_dir() and Path(left.cwd).is_dir()
            await closed.close()
            assert not Path(closed.cwd).exists() and Path(left.cwd).is_dir()
        assert not Path(left.cwd).exists()

    run(story())
    opened = [frame["params"]["cwd"] for frame in agent.received_of("session/new")]
    assert len(set(opened)) == 2


def test_additional_directories_are_for_agents_that_take_them(script: Script) -> None:
    async def story() -> None:
        async with script("for prompt in prompts(): pass").connect() as remote:
            with pytest.raises(AgentError, match="does not take additional directories"):
                await remote.new(additional_directories=["/etc"])

    run(story())


def test_updates_after_the_answer_are_kept_and_told_as_late(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("in time", messageId="1"), end(prompt), say(" too late", messageId="1"))
            send(update("session_info_update", title="T"))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            seen: list[Observation] = []
            session.on_event(seen.append)
            reply = await session.prompt("go")
            assert reply.text == "in time"
            await until(lambda: session.title == "T")
            late = [entry.event for entry in session.record if entry.late]
            assert late == [Text(" too late", "1")]
            assert [getattr(one, "late", False) for one in seen].count(True) == 1

    run(story())


def test_text_belongs_to_the_turn_in_which_it_comes_whatever_its_message_id(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts(), 1):
            send(say(f"answer {number}", messageId="msg_0"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            replies = [await session.prompt("go") for _ in range(3)]
            assert [reply.text for reply in replies] == ["answer 1", "answer 2", "answer 3"]
            assert not [entry for entry in session.record if entry.late]

    run(story())


def test_late_text_of_an_agent_that_was_late_before_is_no_part_of_the_next_reply(script: Script) -> None:
    agent = script("""
        import time
        for prompt in prompts():
            send(say(text_of(prompt)), end(prompt))
            time.sleep(0.01)
            send(say(" and more"))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert (await session.prompt("one")).text == "one"
            await until(lambda: any(entry.late for entry in session.record))
            assert [(await session.prompt(text)).text for text in ("two", "three")] == ["two", "three"]

    run(story())


LATE = """
    import time
    for prompt in prompts():
        send(say(text_of(prompt)), end(prompt))
        time.sleep(0.01)
        send(say(" and more"))
"""


def test_late_text_is_no_part_of_the_next_reply_though_nothing_was_late_before(script: Script) -> None:
    agent = script(LATE)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            texts = [(await session.prompt(text)).text for text in ("one", "two", "three")]
            assert texts == ["one", "two", "three"]

    run(story())


def test_late_text_is_no_part_of_the_next_round(script: Script) -> None:
    agent = script(LATE)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            reply = await session.prompt("one", until=lambda reply: reply.rounds > 1 or "two")
            assert reply.text == "two"

    run(story())


def test_an_agent_that_never_falls_silent_is_prompted_all_the_same(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("coupler.client.session.LONGEST_SILENCE_WAIT", 0.2)
    agent = script("""
        import threading, time
        def talk():
            while True:
                send(say("."))
                time.sleep(0.005)
        for number, prompt in enumerate(prompts()):
            send(end(prompt))
            if not number:
                threading.Thread(target=talk, daemon=True).start()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            await session.prompt("one")
            await until(lambda: any(entry.late for entry in session.record))
            assert (await session.prompt("two")).is_complete

    run(story())


def test_calls_with_empty_ids_are_calls_of_their_own(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            call = {"toolCallId": "", "status": "pending"}
            send(update("tool_call", title="one", **call), update("tool_call", title="two", **call))
            for text in "12":
                content = [{"type": "content", "content": {"type": "text", "text": text}}]
                send(update("tool_call_update", toolCallId="", status="completed", content=content))
            send(update("tool_call", title="three", **call))
            send(update("tool_call_update", toolCallId="", status="failed"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            reply = await (await remote.new()).prompt("go")
            calls = reply.tool_calls
            assert [(call.title, call.status) for call in calls] == [
                ("one", "completed"),
                ("two", "completed"),
                ("three", "failed"),
            ]
            assert [plain_text_of(call.content[0]) for call in calls[:2]] == ["1", "2"]
            assert len({call.id for call in calls} - {""}) == 3

    run(story())


def test_the_record_keeps_turns_apart_that_have_no_message_ids(script: Script) -> None:
    async def story() -> None:
        async with script(
            "for prompt in prompts(): send(say(text_of(prompt)), end(prompt))"
        ).connect() as remote:
            session = await remote.new()
            await session.prompt("one")
            await session.prompt("two")
            assert [entry.event for entry in session.record] == [Text("one"), Text("two")]

    run(story())


def test_a_prompt_for_an_agent_that_is_gone_says_so(script: Script) -> None:
    async def story() -> None:
        async with script("for prompt in prompts(): os._exit(3)").connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="ended before it answered"):
                await session.prompt("one")
            with pytest.raises(
                AgentError, match="has ended, so that nothing was sent: open another"
            ) as caught:
                await session.prompt("two")
            assert (caught.value.kind, caught.value.exit_code) == ("died", 3)
            await remote.close()
            with pytest.raises(AgentError, match="has ended, so that nothing was sent"):
                await session.prompt("three")

    run(story())


def test_the_record_of_a_message_that_goes_on_stays_one_entry() -> None:
    record = EventRecord(1_000_000)
    record.add_text(Text("a"), False)
    record.add_text(Text("b"), False)
    assert record.entries() == ((Text("ab"), False),)
    record.add_text(Text("c"), False)
    record.add(ToolCall(id="t"), False, 10)
    record.add_text(Text("d"), True)
    record.add(ToolCall(id="t", status="completed"), True, 20)
    assert record.entries() == (
        (Text("abc"), False),
        (ToolCall(id="t", status="completed"), True),
        (Text("d"), True),
    )
