"""Code that blocks the loop is named, with file and line."""

import asyncio
import os
import threading

import pytest

from agent.steps import leave
from coupler.agent.startup import shutdown as module
from coupler.agent.startup.shutdown import Watchdog
from wire.stage import run


def test_blocking_code_is_named_by_file_and_line(start):
    client = start("""
        import time
        from coupler.agent.startup import shutdown
        shutdown.BLOCKING_LIMIT = shutdown.WATCHDOG_INTERVAL = 0.05

        async def agent(turn):
            await turn.say("started")
            time.sleep(0.5)
    """)
    client.initialize()

    _, answer = client.prompt(client.new_session())
    leave(client)

    assert answer["result"] == {"stopReason": "end_turn"}
    log = client.stderr.decode()
    assert log.count("blocks the event loop") == 1
    assert "app.py:8 (agent: time.sleep(0.5))" in log


def test_the_agents_own_line_is_named_and_not_the_librarys(start):
    client = start("""
        import subprocess, sys
        from coupler.agent.startup import shutdown
        shutdown.BLOCKING_LIMIT = shutdown.WATCHDOG_INTERVAL = 0.05

        async def agent(turn):
            subprocess.run([sys.executable, "-c", "import time; time.sleep(0.5)"])
    """)
    client.initialize()
    client.prompt(client.new_session())
    leave(client)

    assert "app.py:7 (agent: subprocess.run(" in client.stderr.decode()


def test_code_that_awaits_is_left_alone(start):
    client = start("""
        import asyncio
        from coupler.agent.startup import shutdown
        shutdown.BLOCKING_LIMIT = 0.2
        shutdown.WATCHDOG_INTERVAL = 0.01

        async def agent(turn):
            await asyncio.sleep(0.1)
    """)
    client.initialize()
    client.prompt(client.new_session())
    leave(client)

    assert client.stderr == b""


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(module, "BLOCKING_LIMIT", 0.05)
    monkeypatch.setattr(module, "WATCHDOG_INTERVAL", 0.01)


class TestThread:
    def test_it_sleeps_while_nothing_is_busy_and_ends_with_the_loop(self, quick):
        async def scenario():
            watchdog = Watchdog(lambda: False, 0, lambda: None)
            watchdog.wake()
            first = watchdog._thread
            watchdog.wake()
            while watchdog._needed.is_set():
                await asyncio.sleep(0)
            assert watchdog._thread is first
            return watchdog

        watchdog = run(scenario())
        watchdog.wake()
        watchdog._thread.join(10)
        assert not watchdog._thread.is_alive()

    def test_a_client_that_left_meanwhile_is_noticed_once(self, quick):
        reading, writing = os.pipe()
        reported = threading.Event()
        times = []

        async def scenario():
            watchdog = Watchdog(lambda: not reported.is_set(), reading, lambda: times.append(1))
            watchdog._report = reported.set
            watchdog.wake()
            os.close(writing)
            assert reported.wait(10)
            while watchdog._needed.is_set():
                await asyncio.sleep(0)
            return watchdog

        watchdog = run(scenario())
        watchdog.wake()
        watchdog._thread.join(10)
        os.close(reading)
        assert times == [1]
