"""Any sequence of turns, each ended in any way: every reply is its own, and the session is never stuck."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from client.stage import run, unhurried
from coupler import Turn, connect
from coupler.client.session import RemoteSession
from coupler.events import Stop, Text


async def agent(turn: Turn) -> None:
    """Says its number of pieces; with a `!` it then goes on for ever."""
    name, count = turn.text.rstrip("!").split(":")
    for number in range(int(count)):
        await turn.say(f"{name}.{number} ")
        await asyncio.sleep(0)
    if turn.text.endswith("!"):
        await asyncio.Event().wait()


def words(name: int, count: int) -> str:
    return "".join(f"{name}.{number} " for number in range(count))


async def awaited(session: RemoteSession, name: int, count: int) -> None:
    reply = await session.prompt(f"{name}:{count}")
    assert (reply.text, reply.stop_reason) == (words(name, count), "end_turn")


async def iterated(session: RemoteSession, name: int, count: int) -> None:
    events = [event async for event in session.prompt(f"{name}:{count}")]
    assert "".join(event.text for event in events if isinstance(event, Text)) == words(name, count)
    assert events[-1] == Stop("end_turn")


async def left_by_break(session: RemoteSession, name: int, count: int) -> None:
    seen = ""
    async for event in session.prompt(f"{name}:{count + 1}!"):
        assert isinstance(event, Text)
        seen += event.text
        if seen.count(" ") > count // 2:
            break
    assert words(name, count + 1).startswith(seen)


async def left_by_block(session: RemoteSession, name: int, count: int) -> None:
    async with session.prompt(f"{name}:{count}!") as prompt:
        for _ in range(count):
            await asyncio.sleep(0)
    reply = await prompt
    assert reply.stop_reason == "cancelled"
    assert words(name, count).startswith(reply.text)


async def cancelled_task(session: RemoteSession, name: int, count: int) -> None:
    async def wait() -> None:
        await session.prompt(f"{name}:{count}")

    waiting = asyncio.create_task(wait())
    for _ in range(3 * count):
        await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])


WAYS = [awaited, iterated, left_by_break, left_by_block, cancelled_task]

turns = st.lists(st.tuples(st.sampled_from(WAYS), st.integers(0, 12)), max_size=12)


@settings(unhurried, max_examples=20)
@given(st.lists(turns, min_size=1, max_size=3))
def test_turns_of_several_sessions_end_in_every_way_without_a_trace(plans: list[list]) -> None:  # type: ignore[type-arg]
    async def talk(session: RemoteSession, plan: list) -> None:  # type: ignore[type-arg]
        for number, (way, count) in enumerate(plan):
            await way(session, number, count)
        await awaited(session, 99, 2)
        assert session._prompt is None

    async def story() -> None:
        async with connect(agent) as remote:
            sessions = [await remote.new() for _ in plans]
            async with asyncio.TaskGroup() as group:
                for session, plan in zip(sessions, plans, strict=True):
                    group.create_task(talk(session, plan))

    run(story())
