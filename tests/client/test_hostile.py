"""Agents that flood, lie and never read, and callbacks that break every rule: each costs itself alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from client.stage import Scripted, is_running, run, until
from coupler import AgentError, connect
from coupler.client.observation import Observation, Received, TurnFinished
from coupler.client.pool import SessionPool
from coupler.client.quirks import Usual
from coupler.client.remote import RemoteAgent
from coupler.client.reply import Budget, Reply
from coupler.wire import peer as peer_module

Script = Callable[[str], Scripted]

ECHO = """
    for prompt in prompts():
        send(say("done"), end(prompt))
"""

SERVE = """
        for line in sys.stdin:
            frame = json.loads(line)
            if frame.get("method") in ("initialize", "session/new"):
                send(result(frame, {**HELLO, "sessionId": "s1"}))
""".strip()


class Rude(BaseException):
    """Like the failure of a test: no Exception, and no end of the program either."""


def rude(*given: Any) -> Any:
    raise Rude("no")


@pytest.mark.parametrize("is_async", [False, True])
def test_a_check_may_raise_anything_and_who_prompted_gets_it(script: Script, is_async: bool) -> None:
    async def later(reply: Reply) -> bool:
        await asyncio.sleep(0)
        raise Rude("no")

    async def story() -> None:
        async with script(ECHO).connect() as remote:
            session = await remote.new()
            with pytest.raises(Rude):
                async with asyncio.timeout(5):
                    await session.prompt("go", until=later if is_async else rude)
            assert (await session.prompt("on")).text == "done"

    run(story())


def test_an_observer_may_raise_anything_and_nothing_is_lost(script: Script) -> None:
    async def story() -> None:
        async with script(ECHO).connect(on_event=rude) as remote:
            session = await remote.new()
            async with asyncio.timeout(5):
                assert (await session.prompt("go")).text == "done"

    run(story())


@pytest.mark.parametrize("is_async", [False, True])
def test_a_policy_that_raises_anything_allows_nothing_and_is_answered(script: Script, is_async: bool) -> None:
    agent = script("""
        for prompt in prompts():
            send(permission("p"))
            send(say(json.dumps("error" in answer_to("p"))), end(prompt))
    """)

    async def later(request: object) -> bool:
        raise Rude("no")

    async def story() -> None:
        loop = asyncio.get_running_loop()
        told: list[dict[str, Any]] = []
        loop.set_exception_handler(lambda _, context: told.append(context))
        async with agent.connect() as remote:
            session = await remote.new(permissions=later if is_async else rude)
            async with asyncio.timeout(5):
                assert (await session.prompt("go")).text == "true"
        assert [type(context["exception"]) for context in told] == [Rude]

    run(story())


def test_a_turn_that_is_cancelled_just_when_it_is_to_be_judged_ends_at_once(script: Script) -> None:
    cancelling: list[asyncio.Task[None]] = []

    async def story() -> None:
        async with script(ECHO).connect() as remote:
            session = await remote.new()

            def cancel(observation: Observation) -> None:
                if isinstance(observation, TurnFinished):
                    cancelling.append(asyncio.create_task(session.cancel()))

            session.on_event(cancel)
            async with asyncio.timeout(5):
                reply = await session.prompt("go", until=lambda reply: pytest.fail("judged"))
            assert (reply.text, reply.stop_reason) == ("done", "cancelled")
            await asyncio.gather(*cancelling)

    run(story())


def test_a_turn_that_is_cancelled_just_when_its_late_content_is_waited_for_ends_at_once(
    script: Script,
) -> None:
    class Slow(Usual):
        linger = 30.0

    async def story() -> None:
        async with script(ECHO).connect(quirks=Slow()) as remote:
            session = await remote.new()
            cancelling: list[asyncio.Task[None]] = []

            def cancel(observation: Observation) -> None:
                if isinstance(observation, Received):
                    cancelling.append(asyncio.create_task(session.cancel()))

            session.on_event(cancel)
            async with asyncio.timeout(5):
                assert (await session.prompt("go")).text == "done"
            await asyncio.gather(*cancelling)

    run(story())


def test_closing_an_agent_that_is_being_started_again_leaves_no_process(script: Script) -> None:
    agent = script("""
        read()
        if len(open(sys.argv[1]).read().split('"pid"')) > 2:
            note("second", True)
            read_until(lambda frame: False)
        send(result({"id": 1}, HELLO))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            await until(lambda: not remote.is_running)
            opening = asyncio.create_task(remote.new())
            await until(lambda: agent.noted("second"))
        assert not any(map(is_running, agent.noted("pid")))
        with pytest.raises(AgentError) as caught:
            await opening
        assert caught.value.kind == "closed"

    run(story())


def test_an_agent_that_asks_and_never_reads_does_not_fill_our_memory(script: Script, tmp_path: Path) -> None:
    (tmp_path / "big.txt").write_text("x" * 1_000_000)
    agent = script("""
        import threading
        for prompt in prompts():
            path = prompt["params"]["prompt"][0]["text"]
            for number in range(500):
                frame = request(f"r{number}", "fs/read_text_file", sessionId="s1", path=path)
                write(json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\\n")
            write(json.dumps({"jsonrpc": "2.0", **say("asked")}).encode() + b"\\n")
            threading.Event().wait()
    """)
    most = 0

    async def story() -> None:
        nonlocal most
        async with agent.connect(files="read", cwd=str(tmp_path)) as remote:
            session = await remote.new()
            with pytest.raises(AgentError) as caught:
                prompt = asyncio.ensure_future(
                    session.prompt(str(tmp_path / "big.txt"), timeout=2, grace=0.1)
                )
                while not prompt.done():
                    most = max(most, remote.peer.outbox.unsent)
                    await asyncio.sleep(0.01)
                await prompt
            assert caught.value.kind == "deadline"

    run(story())
    assert most < 64_000_000, f"{most} bytes"


def test_an_agent_that_sends_small_questions_and_never_reads_is_ended(
    script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peer_module, "UNREAD_TIMEOUT", 0.5)
    agent = script("""
        for prompt in prompts():
            while True:
                write(b'{"jsonrpc": "2.0", "id": 1, "method": "nonsense"}\\n' * 1000)
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match=r"100\d\d answers \(\d+ bytes\) unread for 0.5 s") as caught:
                await session.prompt("go")
            assert caught.value.kind == "died"

    run(story())


def test_an_agent_of_a_pool_whose_wish_is_cancelled_as_it_starts_is_not_lost(
    script: Script, tmp_path: Path
) -> None:
    slow = script(f"""
        import signal, time
        signal.signal(signal.SIGTERM, lambda *_: (time.sleep(0.3), os._exit(0)))
        {SERVE}
        note("end", True)
        time.sleep(60)
    """)
    held = script(f"""
        import time
        while not os.path.exists({str(tmp_path / "go")!r}):
            time.sleep(0.01)
        note("go", True)
        {SERVE}
    """)
    third = script(ECHO)

    async def lease(pool: Any, agent: Scripted) -> None:
        async with pool.session(agent.command):
            pass

    async def story() -> None:
        made: list[RemoteAgent] = []

        def make(*given: Any, **options: Any) -> RemoteAgent:
            made.append(connect(*given, **options))
            return made[-1]

        async with SessionPool(make, most=2) as pool:
            await lease(pool, slow)
            starting = asyncio.create_task(lease(pool, held))
            await until(lambda: held.noted("pid"))
            waiting = asyncio.create_task(lease(pool, third))
            await until(lambda: slow.noted("end"))
            (tmp_path / "go").touch()
            await until(lambda: made[1].is_running)
            starting.cancel()
            await asyncio.wait([starting])
            await waiting

    run(story())


def test_a_cost_below_zero_does_not_fill_up_a_budget(script: Script) -> None:
    agent = script("""
        for number, prompt in enumerate(prompts()):
            session = prompt["params"]["sessionId"]
            cost = {"amount": 2 if session == "s2" else -100, "currency": "USD"}
            send(update("usage_update", session, used=1, size=2, cost=cost), end(prompt))
    """)

    async def story() -> None:
        budget = Budget(cost=1)
        async with agent.connect() as remote:
            lying, honest = await remote.new(), await remote.new()
            await lying.prompt("go", budget=budget)
            for session in (honest, lying):
                with pytest.raises(AgentError, match="the budget of 1 is spent"):
                    await session.prompt("go", budget=budget)

    run(story())


def test_a_session_that_cannot_be_set_as_wanted_is_closed_again(script: Script) -> None:
    agent = script("""
        number = 0
        while True:
            frame = read()
            if frame["method"] == "initialize":
                capabilities = {"sessionCapabilities": {"close": {}}}
                send(result(frame, {"protocolVersion": 1, "agentCapabilities": capabilities}))
            elif frame["method"] == "session/new":
                number += 1
                modes = {"currentModeId": "a", "availableModes": [{"id": "a", "name": "A"}]}
                send(result(frame, {"sessionId": f"s{number}", "modes": modes}))
            elif frame["method"] == "session/prompt":
                send(permission("p", None, "s1"))
                send(say(json.dumps("error" in answer_to("p")), "s2"), end(frame))
            else:
                send(result(frame, {}))
    """)

    async def story() -> None:
        async with agent.connect() as remote:
            with pytest.raises(AgentError, match="does not offer the mode"):
                await remote.new(mode="b")
            session = await remote.new(mode="a")
            assert [frame["params"] for frame in agent.received_of("session/close")] == [{"sessionId": "s1"}]
            assert (await session.prompt("go")).text == "true"

    run(story())
