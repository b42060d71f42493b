"""Coupler's client drives agents on the official SDKs."""

import asyncio
import time
from pathlib import Path

import pytest

from coupler import Policy, connect
from coupler.events import Stop, Text, ToolCall

pytestmark = pytest.mark.long


def test_they_shake_hands_and_a_prompt_is_answered(sdk_agent: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path)
            reply = await session.prompt("3")
            assert reply.text == "0 1 2 "
            assert reply.stop_reason == "end_turn"

    asyncio.run(story())


def test_twenty_thousand_updates_are_in_the_reply_in_order(sdk_agent: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path)
            reply = await session.prompt("20000")
            assert reply.text == "".join(f"{i} " for i in range(20_000))

    asyncio.run(story())


def test_twenty_thousand_updates_come_as_events_in_order(sdk_agent: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        texts: list[str] = []
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path)
            async for event in session.prompt("20000"):
                match event:
                    case Text(text=text):
                        texts.append(text)
                    case Stop():
                        texts.append("stop")
        assert "".join(texts) == "".join(f"{i} " for i in range(20_000)) + "stop"

    asyncio.run(story())


def test_leaving_a_turn_cancels_it_and_the_session_lives_on(sdk_agent: list[str], tmp_path: Path) -> None:
    async def story() -> None:
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path)
            started = time.monotonic()
            async with session.prompt("slow") as turn:
                async for event in turn:
                    assert isinstance(event, Text)
                    break
            assert (await session.prompt("cancels")).text == "1"
            assert time.monotonic() - started < 5

    asyncio.run(story())


def test_cancelling_the_task_that_awaits_a_reply_cancels_the_turn(
    sdk_agent: list[str], tmp_path: Path
) -> None:
    async def story() -> None:
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await session.prompt("slow")
            assert (await session.prompt("cancels")).text == "1"

    asyncio.run(story())


@pytest.mark.parametrize(
    ("permissions", "said", "status"),
    [(Policy.allow_all(), "allowed", "completed"), (Policy.deny_all(), "rejected", "failed")],
)
def test_a_policy_answers_when_permission_is_asked(
    sdk_agent: list[str], tmp_path: Path, permissions: Policy, said: str, status: str
) -> None:
    async def story() -> None:
        async with connect(sdk_agent) as agent:
            session = await agent.new(cwd=tmp_path, permissions=permissions)
            reply = await session.prompt("ask")
            assert reply.text == said
            [call] = reply.tool_calls
            assert isinstance(call, ToolCall)
            assert (call.title, call.kind, call.status) == ("Delete notes.txt", "delete", status)

    asyncio.run(story())
