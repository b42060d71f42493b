"""A prompt is one object: awaited, iterated or entered, from one task or several, answered or not."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import time
from collections.abc import Callable

import pytest

from client.stage import Scripted, run, until
from coupler import AgentError
from coupler.client import connection as connection_module
from coupler.client import prompt as lane_module
from coupler.client.reply import Reply
from coupler.events import Event, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.schema.v1 import EmbeddedResource, ImageContent, ResourceLink, TextContent, TextResourceContents

Script = Callable[[str], Scripted]

ECHO = "for prompt in prompts(): send(say(text_of(prompt)), end(prompt))"

# Says one word, then waits for the cancel, and says one more before it gives in.
UNTIL_CANCELLED = """
    for prompt in prompts():
        if text_of(prompt) == "work":
            send(say("working "))
            read_until(is_cancel)
            send(say("stopped"), end(prompt, "cancelled"))
        else:
            send(say(text_of(prompt)), end(prompt))
"""

DEAF = """
    for prompt in prompts():
        if text_of(prompt) == "work":
            send(say("working"))
        else:
            send(say(text_of(prompt)), end(prompt))
"""


def test_awaiting_gives_the_reply(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            reply = await (await remote.new()).prompt("hello")
            assert (reply.text, reply.stop_reason, reply.rounds) == ("hello", "end_turn", 1)

    run(story())


def test_iterating_gives_the_events_and_at_the_end_the_stop(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            session = await remote.new()
            events = [event async for event in session.prompt("hello")]
            assert events == [Text("hello"), Stop("end_turn")]

    run(story())


def test_entering_and_leaving_after_the_end_cancels_nothing(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async with session.prompt("hello") as turn:
                assert [event async for event in turn] == [Text("hello"), Stop("end_turn")]
                assert (await turn).text == "hello"

    run(story())
    assert agent.received_of("session/cancel") == []


def test_nothing_is_sent_before_it_is_wanted(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            forgotten = session.prompt("never")
            events = aiter(session.prompt("nor this"))
            await forgotten.cancel()
            await session.cancel()
            await session.prompt("hello")
            del events

    run(story())
    assert [frame["params"]["prompt"][0]["text"] for frame in agent.received_of("session/prompt")] == [
        "hello"
    ]
    assert agent.received_of("session/cancel") == []


def test_a_reply_holds_everything_that_was_reported(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            entries = [{"content": "read", "priority": "high", "status": "pending"}]
            done = [{"content": "read", "priority": "high", "status": "completed"}]
            send(
                update("agent_thought_chunk", content={"type": "text", "text": "hm"}),
                say("I "), say("look."),
                update("plan", entries=entries),
                update("tool_call", toolCallId="c1", title="Read", kind="read", rawInput={"path": "a"}),
                update("tool_call", toolCallId="c2", title="Run", status="in_progress"),
                update("tool_call_update", toolCallId="c1", status="completed",
                       content=[{"type": "content", "content": {"type": "text", "text": "done"}}]),
                update("usage_update", used=10, size=200_000, cost={"amount": 0.5, "currency": "EUR"}),
                update("plan", entries=done),
                update("agent_thought_chunk", content={"type": "text", "text": "aha"}),
                say("Found it."),
                end(prompt, usage={"totalTokens": 7, "inputTokens": 3, "outputTokens": 4}),
            )
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            reply = await session.prompt("look")
            assert reply.text == "I look.\n\nFound it."
            assert reply.thoughts == "hm\n\naha"
            assert reply.stop_reason == "end_turn"
            read, ran = reply.tool_calls
            assert (read.id, read.title, read.kind, read.status) == ("c1", "Read", "read", "completed")
            assert read.raw_input == {"path": "a"}
            assert read.content[0].content.text == "done"  # type: ignore[union-attr]
            assert (ran.id, ran.kind, ran.status, ran.is_open) == ("c2", "other", "in_progress", True)
            assert [(entry.content, entry.status) for entry in reply.plan] == [("read", "completed")]
            usage = reply.usage
            assert (usage.context_used, usage.context_size, usage.cost) == (10, 200_000, 0.5)
            assert (usage.total, usage.input, usage.is_estimated) == (7, 3, False)
            assert session.plan == reply.plan
            assert session.usage is not None and session.usage.used == 10
            assert session.tool_calls == {"c1": read, "c2": ran}

    run(story())


def test_events_come_in_the_order_in_which_they_were_sent(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(
                update("agent_thought_chunk", content={"type": "text", "text": "t"}),
                say("a"),
                update("tool_call", toolCallId="c", title="T"),
                update("plan", entries=[]),
                update("tool_call_update", toolCallId="c", status="failed"),
                update("usage_update", used=1, size=2),
                say("b"),
                end(prompt),
            )
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            events = [event async for event in session.prompt("go")]
            assert [type(event) for event in events] == [
                Thought, Text, ToolCall, Plan, ToolCall, Usage, Text, Stop,
            ]  # fmt: skip
            assert [event.status for event in events if isinstance(event, ToolCall)] == ["pending", "failed"]

    run(story())


def test_with_chunk_and_answer_in_one_write_every_reply_holds_the_text(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            session = await remote.new()
            texts = [(await session.prompt(str(number))).text for number in range(1000)]
            assert texts == [str(number) for number in range(1000)]

    run(story())


FLOOD = """
    for prompt in prompts():
        updates = [say(f"{number} ") for number in range(20_000)]
        send(*updates, end(prompt))
"""


def test_twenty_thousand_updates_are_in_the_reply_in_order(script: Script) -> None:
    async def story() -> None:
        async with script(FLOOD).connect() as remote:
            reply = await (await remote.new()).prompt("go")
            assert reply.text == "".join(f"{number} " for number in range(20_000))

    run(story())


def test_twenty_thousand_updates_come_as_events_in_order(script: Script) -> None:
    async def story() -> None:
        async with script(FLOOD).connect() as remote:
            session = await remote.new()
            texts = [event.text async for event in session.prompt("go") if isinstance(event, Text)]
            assert "".join(texts) == "".join(f"{number} " for number in range(20_000))

    run(story())


def test_awaiting_twice_gives_the_same_reply_and_asks_once(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("hello")
            assert await prompt is await prompt

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_iterating_and_then_awaiting_gives_the_whole_reply(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("hello")
            assert [event async for event in prompt] == [Text("hello"), Stop("end_turn")]
            assert (await prompt).text == "hello"
            assert [event async for event in prompt] == []

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_awaiting_and_then_iterating_still_tells_how_it_ended(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            prompt = (await remote.new()).prompt("hello")
            await prompt
            assert [event async for event in prompt] == [Stop("end_turn")]

    run(story())


def test_two_tasks_can_await_one_prompt(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("hello")

            async def wait() -> Reply:
                return await prompt

            one, two = await asyncio.gather(wait(), wait())
            assert one is two

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_one_task_can_iterate_while_another_awaits(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            prompt = (await remote.new()).prompt("hello")

            async def wait() -> Reply:
                return await prompt

            waiting = asyncio.create_task(wait())
            assert [event async for event in prompt] == [Text("hello"), Stop("end_turn")]
            assert (await waiting).text == "hello"

    run(story())


def test_two_tasks_cannot_iterate_one_prompt_and_the_first_goes_on(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("a"))
            read_until(lambda frame: frame.get("method") == "session/new")
            send(say("b"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("hello")
            events = aiter(prompt)
            assert await anext(events) == Text("a")
            second = asyncio.create_task(anext(events))
            await asyncio.sleep(0)
            with pytest.raises(AgentError, match="another task") as caught:
                async for _ in prompt:
                    pass
            assert caught.value.kind == "busy"
            opening = asyncio.create_task(remote.new())
            assert await second == Text("b")
            assert [event async for event in events] == [Stop("end_turn")]
            opening.cancel()

    run(story())
    assert agent.received_of("session/cancel") == []


def test_a_second_prompt_on_a_busy_session_is_refused_at_once(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async with session.prompt("work") as turn:
                second = session.prompt("more")
                for _ in range(2):
                    with pytest.raises(AgentError, match="running prompt") as caught:
                        await second
                    assert (caught.value.kind, caught.value.stderr) == ("busy", "")
                with pytest.raises(AgentError, match="running prompt"):
                    async for _ in second:
                        pass
                with pytest.raises(AgentError, match="running prompt"):
                    async with second:
                        pass
                await second.cancel()
                assert await anext(aiter(turn)) == Text("working ")
            # The one that was refused can be sent once the session is free.
            assert (await second).text == "more"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1
    assert len(agent.received_of("session/prompt")) == 2


def test_prompts_of_different_sessions_overlap(script: Script) -> None:
    agent = script("""
        open_sessions(2)
        one, two = read(), read()
        send(say("first", "s1"), say("second", "s2"), end(two), end(one))
        read()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            sessions = [await remote.new(), await remote.new()]

            async def ask(number: int) -> str:
                return (await sessions[number].prompt("go")).text

            assert await asyncio.gather(ask(0), ask(1)) == ["first", "second"]

    run(story())


def test_leaving_the_block_cancels_the_turn_and_waits_for_its_end(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async with session.prompt("work") as turn:
                assert await anext(aiter(turn)) == Text("working ")
            reply = await turn
            assert (reply.text, reply.stop_reason) == ("working stopped", "cancelled")
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_an_error_in_the_block_cancels_the_turn(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(ZeroDivisionError):
                async with session.prompt("work"):
                    raise ZeroDivisionError
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_inside_a_block_a_loop_can_be_left_and_taken_up_again(script: Script) -> None:
    agent = script(FLOOD)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async with session.prompt("go") as turn:
                texts: list[str] = []
                async for event in turn:
                    assert isinstance(event, Text)
                    texts.append(event.text)
                    break
                texts += [event.text async for event in turn if isinstance(event, Text)]
            assert "".join(texts) == "".join(f"{number} " for number in range(20_000))

    run(story())
    assert agent.received_of("session/cancel") == []


def test_breaking_out_of_a_loop_cancels_the_turn_and_the_next_prompt_waits_for_that(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async for event in session.prompt("work"):
                assert event == Text("working ")
                break
            reply = await session.prompt("again")
            assert reply.text == "again"

    run(story())
    methods = [frame["method"] for frame in agent.received[2:]]
    assert methods == ["session/prompt", "session/cancel", "session/prompt"]


def test_breaking_out_with_nothing_after_it_cancels_all_the_same(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async for _ in session.prompt("work"):
                break
            await until(lambda: agent.received_of("session/cancel"))

    run(story())


def test_an_error_in_a_loop_cancels_the_turn(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(ZeroDivisionError):
                async for _ in session.prompt("work"):
                    raise ZeroDivisionError
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_an_iterator_can_be_closed_by_hand(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("work")
            async with contextlib.aclosing(aiter(prompt)) as events:
                assert await anext(events) == Text("working ")
            assert (await prompt).stop_reason == "cancelled"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_an_iterator_that_outlives_its_loop_is_dropped_in_silence(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)
    kept: list[object] = []

    async def story() -> None:
        async with agent.connect() as remote:
            events = aiter((await remote.new()).prompt("work"))
            await anext(events)
            kept.append(events)

    run(story())
    kept.clear()
    gc.collect()


def test_cancelling_the_task_that_awaits_sends_cancel_and_waits_for_the_answer(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            prompt = session.prompt("work")

            async def wait() -> Reply:
                return await prompt

            waiting = asyncio.create_task(wait())
            await until(lambda: agent.received_of("session/prompt"))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            reply = await prompt
            assert (reply.text, reply.stop_reason) == ("working stopped", "cancelled")
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_cancelling_the_task_that_iterates_does_the_same(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            seen: list[Event] = []

            async def read() -> None:
                async for event in session.prompt("work"):
                    seen.append(event)  # noqa: PERF401

            reading = asyncio.create_task(read())
            await until(lambda: seen)
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            assert seen == [Text("working ")]
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_cancelling_twice_does_not_wait_and_the_next_prompt_does(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "work":
                read_until(is_cancel)
                read_until(lambda frame: frame.get("method") == "session/new")
                send(end(prompt, "cancelled"))
            else:
                send(say(text_of(prompt)), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()

            async def wait() -> Reply:
                return await session.prompt("work")

            waiting = asyncio.create_task(wait())
            await until(lambda: agent.received_of("session/prompt"))
            waiting.cancel()
            await until(lambda: agent.received_of("session/cancel"))
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
            opening = asyncio.create_task(remote.new())  # what the agent waits for before it gives in
            assert (await session.prompt("again")).text == "again"
            opening.cancel()

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_a_timeout_around_a_prompt_is_a_timeout(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.2):
                    await session.prompt("work")
            assert (await session.prompt("again")).text == "again"

    run(story())


def test_a_session_can_be_cancelled_from_another_task_and_the_waiter_gets_the_reply(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            prompt = session.prompt("work")

            async def wait() -> Reply:
                return await prompt

            waiting = asyncio.create_task(wait())
            await until(lambda: agent.received_of("session/prompt"))
            await asyncio.gather(session.cancel(), session.cancel(), prompt.cancel())
            reply = await waiting
            assert (reply.text, reply.stop_reason) == ("working stopped", "cancelled")
            await session.cancel()

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_a_cancel_that_crosses_the_answer_changes_nothing(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("done"), end(prompt))
            if text_of(prompt) == "work":
                read_until(is_cancel)
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            prompt = session.prompt("work")
            async with prompt:
                prompt._begin_cancel()  # before anything was read
            reply = await prompt
            assert (reply.text, reply.stop_reason) == ("done", "end_turn")
            assert (await session.prompt("again")).text == "done"

    run(story())


def test_an_agent_that_never_answers_the_cancel_is_given_up(script: Script) -> None:
    agent = script(DEAF)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async with session.prompt("work", grace=0.2) as turn:
                assert await anext(aiter(turn)) == Text("working")
            with pytest.raises(AgentError, match=r"did not end the turn within 0\.2 s") as caught:
                await turn
            assert caught.value.kind == "prompt"
            with pytest.raises(AgentError, match="did not end the turn"):
                async for _ in turn:
                    pass
            assert (await session.prompt("again")).text == "again"

    run(story())
    [first, _] = agent.received_of("session/prompt")
    assert [frame["params"] for frame in agent.received_of("$/cancel_request")] == [
        {"requestId": first["id"]}
    ]


def test_a_turn_that_was_left_and_never_ends_holds_up_the_next_for_the_patience_only(
    script: Script,
) -> None:
    async def story() -> None:
        async with script(DEAF).connect() as remote:
            session = await remote.new()
            async for _ in session.prompt("work", grace=0.2):
                break
            assert (await session.prompt("again")).text == "again"

    run(story())


def test_waiting_behind_a_turn_that_was_left_can_be_cancelled(script: Script) -> None:
    agent = script(DEAF)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async for _ in session.prompt("work"):
                break
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.1):
                    await session.prompt("again")

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_two_tasks_that_wait_behind_a_turn_that_was_left_send_one_prompt_once(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            async for _ in session.prompt("work"):
                break
            prompt = session.prompt("again")

            async def wait() -> Reply:
                return await prompt

            one, two = await asyncio.gather(wait(), wait())
            assert one is two

    run(story())
    assert len(agent.received_of("session/prompt")) == 2


def test_a_prompt_works_with_gather_and_wait_for(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(say(text_of(prompt), prompt["params"]["sessionId"]), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            one, two = await remote.new(), await remote.new()
            replies = await asyncio.gather(one.prompt("a"), two.prompt("b"))
            assert [reply.text for reply in replies] == ["a", "b"]
            assert (await asyncio.wait_for(one.prompt("c"), 20)).text == "c"

    run(story())


def test_cancelling_one_of_two_who_await_ends_the_turn_for_both(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("work")

            async def wait() -> Reply:
                return await prompt

            one, two = asyncio.create_task(wait()), asyncio.create_task(wait())
            await until(lambda: agent.received_of("session/prompt"))
            one.cancel()
            assert (await two).stop_reason == "cancelled"
            with pytest.raises(asyncio.CancelledError):
                await one

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_a_task_that_is_cancelled_just_when_the_answer_is_there_cancels_no_turn(script: Script) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            prompt = session.prompt("hello")

            async def wait() -> Reply:
                return await prompt

            waiting = asyncio.create_task(wait())
            await until(lambda: prompt._answered)
            assert prompt._answered is not None
            prompt._answered.add_done_callback(lambda _: waiting.cancel())
            await asyncio.wait([waiting])
            assert (await prompt).text == "hello"
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert agent.received_of("session/cancel") == []


def test_an_iterator_that_another_thread_drops_leaves_the_turn_all_the_same(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            held = [aiter(session.prompt("work"))]
            assert await anext(held[0]) == Text("working ")
            await asyncio.to_thread(held.clear)
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_an_agent_that_reads_no_more_is_as_good_as_dead(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_module, "EXIT_CODE_TIMEOUT", 0.1)
    agent = script("""
        import threading
        open_sessions()
        os.close(0)
        note("closed", True)
        threading.Event().wait()
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            await until(lambda: agent.noted("closed"))
            with pytest.raises(AgentError) as caught:
                await session.prompt("go")
            assert caught.value.kind == "died"

    run(story())


def test_a_prompt_larger_than_any_pipe_arrives_whole(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say(str(len(text_of(prompt)))), end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            assert (await (await remote.new()).prompt("ü" * 3_000_000)).text == "3000000"

    run(story())


def test_a_prompt_can_hold_any_blocks_that_the_agent_takes(script: Script) -> None:
    agent = script("""
        takes = {"promptCapabilities": {"image": True, "embeddedContext": True}}
        send(result(read(), {"protocolVersion": 1, "agentCapabilities": takes}))
        send(result(read(), {"sessionId": "s1"}))
        send(end(read()))
        read()
    """)
    blocks = [
        "look at",
        TextContent("this"),
        ResourceLink("a.py", "file:///a.py"),
        ImageContent("AAAA", "image/png"),
        EmbeddedResource(TextResourceContents("text", "file:///b.py")),
    ]

    async def story() -> None:
        async with agent.connect() as remote:
            await (await remote.new()).prompt(blocks)

    run(story())
    [frame] = agent.received_of("session/prompt")
    kinds = [block["type"] for block in frame["params"]["prompt"]]
    assert kinds == ["text", "text", "resource_link", "image", "resource"]


@pytest.mark.parametrize(
    ("block", "kind"),
    [
        (ImageContent("AAAA", "image/png"), "images"),
        (EmbeddedResource(TextResourceContents("text", "file:///b.py")), "embedded resources"),
    ],
)
def test_what_the_agent_has_not_said_to_take_is_not_sent(script: Script, block: object, kind: str) -> None:
    agent = script(ECHO)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match=f"does not take {kind}"):
                await session.prompt([block])  # type: ignore[list-item]
            assert (await session.prompt("hello")).text == "hello"

    run(story())
    assert len(agent.received_of("session/prompt")) == 1


def test_a_prompt_that_cannot_be_encoded_leaves_the_session_free(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect() as remote:
            session = await remote.new()
            broken = session.prompt([object()])  # type: ignore[list-item]
            for _ in range(2):
                with pytest.raises(TypeError):
                    await broken
            assert (await session.prompt("hello")).text == "hello"

    run(story())


def test_an_error_answer_is_quoted_and_the_session_lives_on(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "fail":
                print("the model said no", file=sys.stderr, flush=True)
                send(say("half"), error(prompt, -32603, "model overloaded", data={"retryAfter": 30}))
            else:
                send(say(text_of(prompt)), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError) as caught:
                await session.prompt("fail")
            error = caught.value
            assert error.stderr == "the model said no\n"
            assert (error.kind, error.code, error.data) == ("prompt", -32603, {"retryAfter": 30})
            assert "the agent refused session/prompt: model overloaded (-32603)" in str(error)
            assert error.exit_code is None
            events: list[Event] = []
            with pytest.raises(AgentError, match="model overloaded"):
                async for event in session.prompt("fail"):
                    events.append(event)  # noqa: PERF401
            assert events == [Text("half")]
            assert (await session.prompt("hello")).text == "hello"

    run(story())


def test_each_who_waits_gets_an_error_of_its_own(script: Script) -> None:
    agent = script("for prompt in prompts(): send(error(prompt, -1, 'no'))")

    async def story() -> None:
        async with agent.connect() as remote:
            prompt = (await remote.new()).prompt("fail")

            async def wait() -> Reply:
                return await prompt

            errors = await asyncio.gather(wait(), wait(), return_exceptions=True)
            errors += await asyncio.gather(wait(), return_exceptions=True)
            assert [str(error) for error in errors] == ["the agent refused session/prompt: no (-1)"] * 3
            assert len({id(error) for error in errors}) == 3

    run(story())


@pytest.mark.parametrize("answer", ["None", "{}", "[]", "{'stopReason': 7}"])
def test_an_answer_that_is_nonsense_is_an_error_and_the_session_lives_on(script: Script, answer: str) -> None:
    agent = script(f"""
        for number, prompt in enumerate(prompts()):
            send(result(prompt, {answer}) if number == 0 else end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="answer to session/prompt cannot be read") as caught:
                await session.prompt("hello")
            assert caught.value.kind == "prompt"
            assert (await session.prompt("hello")).stop_reason == "end_turn"

    run(story())


DIES = """
    for prompt in prompts():
        send(say("half"))
        print("segmentation fault", file=sys.stderr, flush=True)
        os._exit(139)
"""


def test_death_in_mid_turn_is_told_at_once_to_whoever_awaits(script: Script) -> None:
    async def story() -> None:
        async with script(DIES).connect() as remote:
            session = await remote.new()
            started = time.monotonic()
            with pytest.raises(AgentError) as caught:
                await session.prompt("go")
            assert time.monotonic() - started < 5
            error = caught.value
            assert (error.kind, error.exit_code, error.stderr) == ("died", 139, "segmentation fault\n")
            assert "the agent ended before it answered session/prompt" in str(error)
            assert error.reply is not None and error.reply.text == "half"
            with pytest.raises(AgentError, match="segmentation fault") as caught:
                await session.prompt("more")
            assert (caught.value.kind, caught.value.exit_code) == ("died", 139)

    run(story())


def test_death_in_mid_turn_is_told_to_whoever_iterates_after_all_that_came_before(script: Script) -> None:
    async def story() -> None:
        async with script(DIES).connect() as remote:
            session = await remote.new()
            events: list[Event] = []
            with pytest.raises(AgentError) as caught:
                async for event in session.prompt("go"):
                    events.append(event)  # noqa: PERF401
            assert events == [Text("half")]
            assert (caught.value.kind, caught.value.exit_code) == ("died", 139)
            assert caught.value.stderr == "segmentation fault\n"

    run(story())


def test_death_in_mid_turn_lets_a_block_be_left(script: Script) -> None:
    async def story() -> None:
        async with script(DIES).connect() as remote:
            session = await remote.new()
            async with session.prompt("go"):
                await remote._connection._ended.wait()

    run(story())


def test_closing_in_mid_turn_is_told_to_whoever_waits(script: Script) -> None:
    agent = script(UNTIL_CANCELLED)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()

            async def wait() -> Reply:
                return await session.prompt("work")

            waiting = asyncio.create_task(wait())
            await until(lambda: agent.received_of("session/prompt"))
        with pytest.raises(AgentError, match="the connection was closed before the agent answered") as caught:
            await waiting
        assert caught.value.kind == "closed"

    run(story())


def test_an_answer_in_two_writes_with_a_character_cut_in_half_is_whole(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            frame = json.dumps({"jsonrpc": "2.0", **say("größe")}, ensure_ascii=False).encode() + b"\\n"
            cut = frame.index("ö".encode()) + 1
            write(frame[:cut])
            write(frame[cut:])
            send(end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            assert (await (await remote.new()).prompt("go")).text == "größe"

    run(story())


def test_a_line_over_the_limit_costs_its_update_alone(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(say("before "), say("x" * 2000), say("after"), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect(frame_limit=1000) as remote:
            assert (await (await remote.new()).prompt("go")).text == "before after"

    run(story())


def test_an_answer_over_the_limit_fails_its_turn_and_the_session_lives_on(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts()):
            send(end(prompt, _meta={"x": "x" * 2000 if number == 0 else ""}))
    """)

    async def story() -> None:
        async with agent.connect(frame_limit=1000) as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="longer than") as caught:
                await session.prompt("go")
            assert caught.value.kind == "prompt"
            assert (await session.prompt("go")).stop_reason == "end_turn"

    run(story())


def test_a_reader_that_falls_too_far_behind_fails_alone_and_its_turn_is_cancelled(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "MOST_UNREAD_BYTES", 100_000)
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "flood":
                send(say("first"))
                read_until(lambda frame: frame.get("method") == "session/new")
                send(*[say("x" * 1000) for _ in range(200)])
                read_until(is_cancel)
                send(end(prompt, "cancelled"))
            else:
                send(say(text_of(prompt), prompt["params"]["sessionId"]), end(prompt))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session, other = await remote.new(), await remote.new()
            texts: list[str] = []
            with pytest.raises(AgentError, match="100000 bytes of events were not read") as caught:
                async for event in session.prompt("flood"):
                    assert isinstance(event, Text)
                    texts.append(event.text)
                    if len(texts) == 1:
                        opening = asyncio.create_task(remote.new())
                        await until(lambda: agent.received_of("session/cancel"))
                        opening.cancel()
            assert caught.value.kind == "overflow"
            assert 50_000 < len("".join(texts)) < 100_000
            assert (await other.prompt("fine")).text == "fine"
            assert (await session.prompt("again")).text == "again"

    run(story())
    assert len(agent.received_of("session/cancel")) == 1


def test_what_nobody_reads_does_not_harm_whoever_awaits_inside_a_block(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lane_module, "MOST_UNREAD_BYTES", 10_000)
    agent = script("for prompt in prompts(): send(*[say('x' * 1000) for _ in range(100)], end(prompt))")

    async def story() -> None:
        async with agent.connect() as remote:
            async with (await remote.new()).prompt("go") as turn:
                reply = await turn
            assert (len(reply.text), reply.stop_reason) == (100_000, "end_turn")

    run(story())
    assert agent.received_of("session/cancel") == []


def test_a_slow_reader_does_not_slow_another_session(script: Script) -> None:
    agent = script("""
        flood = None
        for prompt in prompts():
            if text_of(prompt) == "flood":
                send(*[say(f"{number} ", "s1") for number in range(50_000)])
                flood = prompt
            else:
                send(say(text_of(prompt), "s2"), end(prompt))
                if text_of(prompt) == "last":
                    send(end(flood))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            slow, quick = await remote.new(), await remote.new()
            turns: list[float] = []

            async def read_slowly() -> str:
                texts: list[str] = []
                async for event in slow.prompt("flood"):
                    if isinstance(event, Text):
                        texts.append(event.text)
                        await asyncio.sleep(0.001)
                return "".join(texts)

            reading = asyncio.create_task(read_slowly())
            await until(lambda: len(agent.received_of("session/prompt")) == 1)
            for number in range(20):
                started = time.monotonic()
                assert (await quick.prompt(str(number))).text == str(number)
                turns.append(time.monotonic() - started)
            await quick.prompt("last")
            assert await reading == "".join(f"{number} " for number in range(50_000))
            # The first turn waits until the agent itself has written the flood; the others wait for nobody.
            assert sorted(turns)[len(turns) // 2] < 0.5

    run(story())
