"""Agents in this process: the same words, the same promises, and no process."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from client.stage import run, until
from coupler import Agent, AgentError, Policy, Turn, connect
from coupler.events import Stop, Text, ToolCall


async def echo(turn: Turn) -> None:
    await turn.say(turn.text)


def test_a_function_a_class_and_an_instance_are_agents() -> None:
    class Counter(Agent):
        """Counts its prompts."""

        def __init__(self) -> None:
            self.prompts = 0

        async def prompt(self, turn: Turn) -> None:
            self.prompts += 1
            await turn.say(str(self.prompts))

    async def replies(target: object) -> list[str]:
        async with connect(target) as remote:
            assert remote.info is not None
            sessions = [await remote.new(), await remote.new()]
            return [(await session.prompt("x")).text for session in (*sessions, *sessions)]

    async def story() -> None:
        assert await replies(echo) == ["x"] * 4
        assert await replies(Counter) == ["1", "1", "2", "2"]
        assert await replies(Counter()) == ["1", "2", "3", "4"]

    run(story())


def test_a_plain_function_is_an_agent_too() -> None:
    def shout(turn: Turn) -> None:
        turn.say(turn.text.upper())

    async def story() -> None:
        async with connect(shout) as remote:
            assert (await (await remote.new()).prompt("hello")).text == "HELLO"

    run(story())


def test_sessions_are_opened_where_connect_says(tmp_path: Path) -> None:
    async def where(turn: Turn) -> None:
        await turn.say(turn.session.cwd)

    async def story() -> None:
        async with connect(where, cwd=tmp_path) as remote:
            assert (await (await remote.new()).prompt("")).text == str(tmp_path)
            with pytest.raises(AgentError, match="does not exist") as caught:
                await remote.new(cwd=tmp_path / "gone")
            assert (caught.value.kind, caught.value.code) == ("session", -32602)

    run(story())


def test_ten_thousand_updates_are_whole_and_in_order() -> None:
    async def count(turn: Turn) -> None:
        for number in range(10_000):
            await turn.say(f"{number} ")

    async def story() -> None:
        expected = "".join(f"{number} " for number in range(10_000))
        async with connect(count) as remote:
            session = await remote.new()
            assert (await session.prompt("")).text == expected
            texts = [event.text async for event in session.prompt("") if isinstance(event, Text)]
            assert "".join(texts) == expected

    run(story())


def test_an_exception_is_an_error_that_quotes_it_and_the_session_lives_on() -> None:
    async def fragile(turn: Turn) -> None:
        if turn.text == "break":
            raise ZeroDivisionError("by nothing")
        await turn.say("fine")

    async def story() -> None:
        async with connect(fragile) as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="ZeroDivisionError: by nothing") as caught:
                await session.prompt("break")
            assert (caught.value.kind, caught.value.code) == ("prompt", -32603)
            assert (await session.prompt("go")).text == "fine"

    run(story())


def test_a_permission_goes_there_and_back() -> None:
    async def careful(turn: Turn) -> None:
        async with turn.tool("Delete notes.txt", kind="delete") as call:
            await turn.say("yes" if await call.permitted() else "no")

    async def story() -> None:
        async with connect(careful) as remote:
            for permissions, said, status in (
                (Policy.allow_all(), "yes", "completed"),
                (Policy.deny_all(), "no", "failed"),
                (lambda request: request.tool_call.title == "Delete notes.txt", "yes", "completed"),
                (None, "no", "failed"),
            ):
                reply = await (await remote.new(permissions=permissions)).prompt("go")
                assert reply.text == said
                assert [(call.kind, call.status) for call in reply.tool_calls] == [("delete", status)]

    run(story())


def test_a_cancel_reaches_the_code_and_its_last_words_reach_the_reply() -> None:
    async def worker(turn: Turn) -> None:
        async with turn.tool("Work"):
            await turn.say("working")
            await asyncio.Event().wait()

    async def story() -> None:
        async with connect(worker) as remote:
            session = await remote.new()
            async with session.prompt("go") as turn:
                async for event in turn:
                    if isinstance(event, Text):
                        break
            reply = await turn
            assert (reply.text, reply.stop_reason) == ("working", "cancelled")
            assert [call.status for call in reply.tool_calls] == ["failed"]

    run(story())


def test_a_cancel_in_an_open_dialog_ends_both_sides() -> None:
    async def careful(turn: Turn) -> None:
        async with turn.tool("Delete", kind="delete") as call:
            await call.permitted()

    async def story() -> None:
        opened, closed = asyncio.Event(), asyncio.Event()

        async def dialog(request: object) -> bool:
            opened.set()
            try:
                return await asyncio.Event().wait()
            finally:
                closed.set()

        async with connect(careful) as remote:
            session = await remote.new(permissions=dialog)
            async with session.prompt("go") as turn:
                await opened.wait()
            assert (await turn).stop_reason == "cancelled"
            await closed.wait()

    run(story())


def test_sessions_overlap_and_one_that_waits_stops_no_other() -> None:
    async def story() -> None:
        released = asyncio.Event()

        async def patient(turn: Turn) -> None:
            if turn.text == "wait":
                await released.wait()
            await turn.say(turn.text)

        async with connect(patient) as remote:
            one, two = await remote.new(), await remote.new()
            async with one.prompt("wait") as waiting:
                with pytest.raises(AgentError, match="running prompt"):
                    await one.prompt("again")
                assert (await two.prompt("quick")).text == "quick"
                released.set()
                assert (await waiting).text == "wait"

    run(story())


def test_closing_with_a_running_turn_ends_the_turn() -> None:
    ended: list[str] = []

    async def worker(turn: Turn) -> None:
        await turn.say("working")
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(turn.text)

    async def story() -> float:
        async with connect(worker) as remote:
            session = await remote.new()
            turn = session.prompt("go")
            await anext(aiter(await turn.__aenter__()))
            started = time.monotonic()
        assert ended == ["go"]
        with pytest.raises(AgentError) as caught:
            await turn
        assert caught.value.kind == "closed"
        return time.monotonic() - started

    assert run(story()) < 3


def test_code_that_swallows_the_cancel_is_left_behind() -> None:
    released = threading.Event()

    async def stubborn(turn: Turn) -> None:
        await turn.say("working")
        while not released.is_set():
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                continue

    async def story() -> float:
        async with connect(stubborn) as remote:
            session = await remote.new()
            turn = session.prompt("go")
            await anext(aiter(await turn.__aenter__()))
            started = time.monotonic()
        spent = time.monotonic() - started
        released.set()
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.wait(left)
        return spent

    assert run(story()) < 5


def test_an_agent_can_drive_another() -> None:
    async def inner(turn: Turn) -> None:
        async with turn.tool("Look", kind="read"):
            await turn.say(f"<{turn.text}>")

    async def outer(turn: Turn) -> None:
        async with connect(inner) as remote:
            async for event in (await remote.new()).prompt(turn.text):
                if isinstance(event, Text):
                    await turn.say(event.text)

    async def story() -> None:
        async with connect(outer) as remote:
            assert (await (await remote.new()).prompt("x")).text == "<x>"

    run(story())


def test_events_have_the_same_types_as_from_a_process() -> None:
    async def worker(turn: Turn) -> None:
        await turn.think("hm")
        async with turn.tool("Look", kind="read", id="c"):
            pass
        await turn.say("done")

    async def story() -> None:
        async with connect(worker) as remote:
            session = await remote.new()
            events = [event async for event in session.prompt("go")]
            statuses = [event.status for event in events if isinstance(event, ToolCall)]
            assert (statuses[0], statuses[-1]) == ("pending", "completed")
            assert events[-1] == Stop("end_turn")
            assert [type(event).__name__ for event in events if not isinstance(event, ToolCall)] == [
                "Thought", "Text", "Stop",
            ]  # fmt: skip

    run(story())


def test_cancelling_the_start_leaves_nothing() -> None:
    async def story() -> None:
        async def start() -> None:
            async with connect(echo):
                raise AssertionError("it started")

        starting = asyncio.create_task(start())
        await asyncio.sleep(0)
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    run(story())
