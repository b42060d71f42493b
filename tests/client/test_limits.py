"""Agents that never stop to speak: what is held of them is bounded, and the reply says what was cut."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from client.stage import Scripted, run, until
from coupler import AgentError, Limits, connect
from coupler.agent.turn import Turn
from coupler.client.limits import EventRecord, HeldCalls
from coupler.client.observation import Observation, Received
from coupler.client.reply import Reply
from coupler.events import Notice, Text, ToolCall

Script = Callable[[str], Scripted]

TALKS = """
    for prompt in prompts():
        for number in range(100):
            send(say("x" * 100))
        send(update("tool_call", toolCallId="c", title="Look", status="completed"), end(prompt))
"""


def replied(agent: Scripted, limits: Limits, **options: Any) -> tuple[Reply, list[Observation]]:
    seen: list[Observation] = []

    async def story() -> Reply:
        async with agent.connect(limits=limits, on_event=seen.append) as remote:
            return await (await remote.new(**options)).prompt("go")

    return run(story()), seen


def test_text_over_the_limit_is_cut_and_the_reply_says_how_much(script: Script) -> None:
    reply, seen = replied(script(TALKS), Limits(characters=1_050))
    assert reply.text == "x" * 1_050
    assert reply.cut is not None
    assert (reply.cut.characters, reply.cut.limits) == (8_950, ("characters = 1,050",))
    assert str(reply.cut) == "8,950 characters left out, over the limit characters = 1,050"
    assert (reply.stop_reason, reply.is_complete, reply.is_text_cut) == ("end_turn", False, True)
    assert [call.status for call in reply.tool_calls] == ["completed"]
    with pytest.raises(AgentError, match="not whole: 8,950 characters") as caught:
        reply.raise_for_stop()
    assert caught.value.kind == "limit"
    events = [one.event for one in seen if isinstance(one, Received)]
    assert sum(len(event.text) for event in events if isinstance(event, Text)) == 1_050
    [notice] = [event for event in events if isinstance(event, Notice)]
    assert "over a limit (characters = 1,050)" in notice.title


def test_what_is_within_the_limits_is_whole(script: Script) -> None:
    reply, _ = replied(script(TALKS), Limits(characters=10_000, items=2))
    assert (len(reply.text), reply.cut, reply.is_complete) == (10_000, None, True)


def test_the_next_turn_begins_to_count_anew(script: Script) -> None:
    async def story() -> None:
        async with script(TALKS).connect(limits=Limits(characters=5_000)) as remote:
            session = await remote.new()
            cuts = [(await session.prompt("go")).cut for _ in range(2)]
            assert [cut and cut.characters for cut in cuts] == [5_000, 5_000]

    run(story())


def test_messages_and_calls_are_counted_and_the_known_ones_still_end(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            for number in range(10):
                send(update("tool_call", toolCallId=f"c{number}", title="Look", status="pending"))
                send(update("tool_call", toolCallId="", title="Unnamed"))
                send(say("ab", messageId=f"m{number}"))
            for number in range(10):
                send(update("tool_call_update", toolCallId=f"c{number}", status="completed"))
            send(end(prompt))
    """)
    reply, seen = replied(agent, Limits(items=6))
    assert [(call.id, call.status) for call in reply.tool_calls if "c" in call.id] == [
        ("c0", "completed"),
        ("c1", "completed"),
    ]
    assert reply.text == "ab\n\nab"
    assert reply.cut is not None
    assert (reply.cut.characters, reply.cut.updates) == (16, 24)
    told = {one.event.id for one in seen if isinstance(one, Received) and isinstance(one.event, ToolCall)}
    assert len(told) == 4


def test_the_newest_calls_are_held_and_all_are_told(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            content = [{"type": "content", "content": {"type": "text", "text": "x" * 10_000}}]
            for number in range(50):
                call = dict(toolCallId=f"c{number}", title="Look", status="completed", content=content)
                send(update("tool_call", **call))
            send(say("done"), end(prompt))
    """)
    reply, seen = replied(agent, Limits(held_bytes=100_000))
    assert [call.id for call in reply.tool_calls] == [f"c{number}" for number in range(42, 50)]
    assert reply.cut is not None
    assert (reply.cut.tool_calls, reply.is_complete, reply.text) == (42, True, "done")
    calls = [one for one in seen if isinstance(one, Received) and isinstance(one.event, ToolCall)]
    assert len(calls) == 50


def test_a_call_that_says_the_same_again_and_again_is_held_once() -> None:
    held, call = HeldCalls(1_000_000), ToolCall(id="c", raw_output="x" * 100_000)
    assert all(held.weigh(call, 100_100) < 310_000 for _ in range(1_000))
    assert [*held.excess()] == []


def test_a_record_drops_its_oldest_entries() -> None:
    record = EventRecord(10_000)
    for number in range(20):
        record.add(ToolCall(id=f"c{number}"), False, 500)
    record.add_text(Text("a"), False)
    for _ in range(3_000):
        record.add_text(Text("b"), False)
    kept = record.entries()
    assert record.left_out == 21 - len(kept)
    assert kept[-1] == (Text("a" + "b" * 3_000), False)
    assert [event.id for event, _ in kept if isinstance(event, ToolCall)] == ["c17", "c18", "c19"]
    record.add(ToolCall(id="c19", status="completed"), False, 600)
    assert len(record.entries()) == len(kept)


def test_decisions_that_nobody_waits_for_are_bounded(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            for number in range(50):
                send(permission(number + 10, toolCallId=f"c{number}", rawInput={"text": "x" * 10_000}))
            for number in range(50):
                answer_to(number + 10)
            send(end(prompt))
    """)
    reply, _ = replied(agent, Limits(held_bytes=100_000), permissions="deny-all")
    assert 0 < len(reply.permissions) < 10
    assert reply.cut is not None and reply.cut.permissions == 50 - len(reply.permissions)
    assert len(reply.tool_calls) == len(reply.permissions)


def test_limits_that_are_no_numbers_are_told_where_they_are_given() -> None:
    with pytest.raises(TypeError, match="limit characters= is a whole number, not '5'"):
        Limits(characters="5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit items= is 1 at least, not 0"):
        Limits(items=0)
    with pytest.raises(TypeError, match="limits= is a Limits"):
        connect("agent", limits=5)  # type: ignore[arg-type]


COUNTS_WHAT_IT_WROTE = """
    for prompt in prompts():
        for number in range(400):
            send(say("x" * 10_000))
            note("sent", number)
        send(end(prompt))
"""


def test_a_slow_reader_lets_the_agent_wait_and_loses_nothing(script: Script) -> None:
    agent = script(COUNTS_WHAT_IT_WROTE)

    async def story() -> None:
        async with agent.connect(limits=Limits(unread_bytes=100_000)) as remote:
            text = ""
            prompt = (await remote.new()).prompt("go")
            async for event in prompt:
                if not text:
                    await until(lambda: remote._connection is not None and remote._connection._is_paused)
                    await asyncio.sleep(0.3)  # it would write on meanwhile, if it could
                    assert len(agent.noted("sent")) < 60
                text += event.text if isinstance(event, Text) else ""
            assert len(text) == 4_000_000

    run(story())


def test_an_agent_in_this_process_waits_for_a_slow_reader_too() -> None:
    said = 0

    async def talks(turn: Turn) -> None:
        nonlocal said
        for _ in range(400):
            await turn.say("x" * 10_000)
            said += 1

    async def story() -> None:
        async with connect(talks, limits=Limits(unread_bytes=100_000)) as remote:
            text = ""
            async for event in (await remote.new()).prompt("go"):
                if not text:
                    await asyncio.sleep(0.2)  # it would go on meanwhile, if it could
                    assert said < 200
                text += event.text if isinstance(event, Text) else ""
            assert len(text) == 4_000_000

    run(story())


def test_whoever_reads_slowly_can_still_ask_await_and_leave(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) != "flood":
                send(say("other", prompt["params"]["sessionId"]), end(prompt))
                continue
            for _ in range(100):
                send(say("x" * 10_000))
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect(limits=Limits(unread_bytes=10_000)) as remote:
            session = await remote.new()
            async for _ in session.prompt("flood"):
                other = await remote.new()  # its answer comes behind the flood
                break
            async with session.prompt("flood") as prompt:
                async for _ in prompt:
                    break
                assert len((await prompt).text) == 1_000_000
            async for _ in session.prompt("flood"):
                assert (await other.prompt("hi")).text == "other"
                break

    run(story())


def test_after_a_cancel_what_still_comes_is_dropped_and_the_agent_ended(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            while True:
                send(say("x" * 10_000))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            taken = 0
            async with session.prompt("go", grace=1.0) as prompt:
                async for _ in prompt:
                    break
                await prompt.cancel()
                taken = sum(len(one.event.text) for one in session.record if isinstance(one.event, Text))
            with pytest.raises(AgentError, match="did not end the turn within 1 s"):
                await prompt
            assert taken < 16_777_216 + 2_000_000
            await until(lambda: not remote.is_running)
            assert await remote.new()

    run(story())
