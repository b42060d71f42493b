"""A pool: agents and sessions used again, never by two at once, and ended with it."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from client.stage import Scripted, is_running, run, until
from coupler import AgentError, Policy, Pool

Script = Callable[[str], Scripted]

COUNTER = """
    CAPABILITIES = {"sessionCapabilities": {"close": {}}}
    opened, heard = 0, {}
    while True:
        frame = read()
        method = frame.get("method")
        if method == "initialize":
            send(result(frame, {"protocolVersion": 1, "agentCapabilities": CAPABILITIES}))
        elif method == "session/new":
            opened += 1
            send(result(frame, {"sessionId": f"s{opened}"}))
        elif method == "session/prompt":
            id = frame["params"]["sessionId"]
            heard[id] = heard.get(id, 0) + 1
            send(say(f"{os.getpid()} {id} {heard[id]}", id), end(frame))
        elif "id" in frame:
            send(result(frame, {}))
"""


def test_the_same_wish_gets_the_same_process_and_session_again(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool() as pool:
            said = []
            for _ in range(3):
                async with pool.session(agent.command, cwd="/") as session:
                    said.append((await session.prompt("go")).text)
            assert [text.split()[1:] for text in said] == [["s1", "1"], ["s1", "2"], ["s1", "3"]]

    run(story())
    assert len(agent.noted("pid")) == 1


def test_leases_at_the_same_time_share_a_process_and_never_a_session(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool() as pool:
            together = asyncio.Barrier(8)

            async def lease() -> str:
                async with pool.session(agent.command, cwd="/") as session:
                    await together.wait()
                    return session.id

            ids = await asyncio.gather(*(lease() for _ in range(8)))
            assert len(set(ids)) == 8

    run(story())
    assert len(agent.noted("pid")) == 1


def test_another_option_is_another_session_and_another_directory_another_process(
    script: Script, tmp_path: Path
) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool() as pool:
            async with pool.session(agent.command, cwd="/") as session:
                first = session.id
            async with pool.session(agent.command, cwd="/", additional_directories=()) as session:
                assert session.id != first
            async with pool.session(agent.command, cwd=tmp_path) as session:
                assert session.cwd == str(tmp_path)
            async with pool.session(agent.command, cwd="/", fresh=True) as session:
                assert session.id not in (first, None)

    run(story())
    assert len(agent.noted("pid")) == 2


def test_who_decides_is_the_one_who_has_the_session_now(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission(prompt["id"] + 100, kind="edit"))
            chosen = answer_to(prompt["id"] + 100)["result"]["outcome"]["optionId"]
            send(say(chosen), end(prompt))
    """)

    async def story() -> None:
        async with Pool() as pool:
            async with pool.session(agent.command, cwd="/", permissions=Policy.allow_all()) as session:
                assert (await session.prompt("go")).text == "yes"
            async with pool.session(agent.command, cwd="/") as session:
                assert (await session.prompt("go")).text == "no"

    run(story())
    assert len(agent.received_of("session/new")) == 1


def test_an_agent_that_has_died_is_replaced(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool() as pool:
            async with pool.session(agent.command, cwd="/") as session:
                pid = int((await session.prompt("go")).text.split()[0])
                os.kill(pid, signal.SIGKILL)
                await until(lambda: session.is_over)
            async with pool.session(agent.command, cwd="/") as session:
                assert int((await session.prompt("go")).text.split()[0]) != pid

    run(story())


def test_a_pool_of_one_waits_for_the_agent_in_use_and_ends_the_one_that_is_not(script: Script) -> None:
    one, other = script(COUNTER), script(COUNTER)

    async def story() -> None:
        async with Pool(most=1) as pool:
            got_it = asyncio.Event()

            async def want_the_other() -> None:
                async with pool.session(other.command, cwd="/"):
                    got_it.set()

            async with pool.session(one.command, cwd="/"):
                waiting = asyncio.create_task(want_the_other())
                await until(lambda: pool._changed._waiters)  # type: ignore[attr-defined]
                assert not got_it.is_set()
            await waiting
            assert not is_running(one.noted("pid")[0])

    run(story())


def test_what_nobody_uses_is_ended_after_a_while(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool(idle=0.05) as pool:
            async with pool.session(agent.command, cwd="/"):
                pass
            pid = agent.noted("pid")[0]
            await until(lambda: not is_running(pid))
            async with pool.session(agent.command, cwd="/") as session:
                assert (await session.prompt("go")).text.endswith("s1 1")

    run(story())


def test_an_idle_session_is_closed_while_its_agent_is_in_use(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool(idle=0.05) as pool:
            async with pool.session(agent.command, cwd="/"):
                async with pool.session(agent.command, cwd="/") as session:
                    idle = session.id
                await until(lambda: agent.received_of("session/close"))
            assert [frame["params"]["sessionId"] for frame in agent.received_of("session/close")] == [idle]

    run(story())


def test_an_agent_that_cannot_be_started_leaves_the_pool_usable(script: Script, tmp_path: Path) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        async with Pool(most=1) as pool:
            with pytest.raises(AgentError, match="does not exist"):
                async with pool.session([str(tmp_path / "nothing")], cwd="/"):
                    pass
            async with pool.session(agent.command, cwd="/") as session:
                assert (await session.prompt("go")).text

    run(story())


def test_a_turn_that_still_runs_is_cancelled_before_the_session_is_given_on(script: Script) -> None:
    agent = script("""
        for prompt in prompts():
            if text_of(prompt) == "slow":
                send(say("slow"))
                read_until(is_cancel)
                send(end(prompt, "cancelled"))
            else:
                send(say("done"), end(prompt))
    """)

    async def story() -> None:
        async with Pool() as pool:
            async with pool.session(agent.command, cwd="/") as session:
                events = aiter(session.prompt("slow"))
                await anext(events)
            async with pool.session(agent.command, cwd="/") as session:
                assert (await session.prompt("go")).text == "done"
                del events

    run(story())


def test_a_closed_pool_gives_nothing(script: Script) -> None:
    agent = script(COUNTER)

    async def story() -> None:
        pool = Pool()
        with pytest.raises(AgentError, match="not open"):
            async with pool.session(agent.command, cwd="/"):
                pass

    run(story())


def test_nothing_is_permitted_in_a_session_that_nobody_has(script: Script) -> None:
    # given an agent that asks for something after its turn, and says in the next one what it was told
    agent = script("""
        heard = "nothing"
        for prompt in prompts():
            send(say(heard), end(prompt))
            if heard == "nothing":
                read_until(lambda frame: frame.get("method") == "session/new")
                send(permission(7, kind="edit", title="Edit"))
                heard = answer_to(7)["result"]["outcome"].get("optionId")
                note("heard", heard)
    """)

    async def story() -> None:
        async with Pool() as pool:
            async with pool.session(agent.command, cwd="/", permissions=Policy.allow_all()) as session:
                await session.prompt("go")
            # when it asks while the session is the pool's
            wish = asyncio.create_task(_open_another(pool, agent))
            await until(lambda: agent.noted("heard"))
            wish.cancel()
            await asyncio.wait([wish])
        # then it is told no, whatever the last user had permitted
        assert agent.noted("heard") == ["no"]

    run(story())


async def _open_another(pool: Pool, agent: Scripted) -> None:
    async with pool.session(agent.command, cwd="/", fresh=True):
        pass
