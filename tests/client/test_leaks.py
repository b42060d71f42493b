"""What is left after many connections: nothing."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from client.stage import Scripted, run
from coupler import AgentError, Turn, connect

pytestmark = pytest.mark.long

Script = Callable[[str], Scripted]

CYCLES = 50


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir()}


def children() -> set[int]:
    return {child.pid for child in psutil.Process().children()}


async def leaves_nothing(cycle: Callable[[], object]) -> None:
    """Run a cycle many times; afterwards everything is as after the first."""
    await cycle()  # type: ignore[misc]
    gc.collect()
    before = (threading.active_count(), len(descriptors()), children())
    for _ in range(CYCLES):
        await cycle()  # type: ignore[misc]
    gc.collect()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert (threading.active_count(), len(descriptors()), children()) == before


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_fifty_processes_leave_no_task_thread_descriptor_or_process(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say('a'), end(prompt))")

    async def cycle() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            assert (await session.prompt("go")).text == "a"

    run(leaves_nothing(cycle))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_fifty_failures_leave_no_more(script: Script) -> None:
    agent = script("hello(); read(); os._exit(1)")

    async def cycle() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError):
                await remote.new()
        with pytest.raises(AgentError):
            async with connect("no-such-program"):
                pass

    run(leaves_nothing(cycle))


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_fifty_agents_in_this_process_leave_no_more() -> None:
    async def echo(turn: Turn) -> None:
        await turn.say(turn.text)

    async def cycle() -> None:
        async with connect(echo) as remote:
            session = await remote.new()
            assert (await session.prompt("go")).text == "go"
            async for _ in session.prompt("left"):
                break

    run(leaves_nothing(cycle))


def test_connecting_in_a_loop_that_is_not_the_main_threads_works(script: Script) -> None:
    agent = script("for prompt in prompts(): send(say('a'), end(prompt))")
    texts: list[str] = []

    async def story() -> None:
        async with agent.connect() as remote:
            texts.append((await (await remote.new()).prompt("go")).text)

    thread = threading.Thread(target=lambda: run(story()))
    thread.start()
    thread.join()
    assert texts == ["a"]
