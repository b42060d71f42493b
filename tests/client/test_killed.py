"""What is left of agents whose client was killed: nothing, wherever it was hit."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import psutil
import pytest

from client.stage import BARE, Scripted

Script = Callable[[str], Scripted]

RUNS = 200
AT_ONCE = 4
LONGEST = 0.25
"""Seconds after its start within which a client is killed; by then it has ended its agent, or is about to."""

PATIENCE = 20.0

MARK = "COUPLER_TEST_RUN"

# An agent that leaves what it started, and whose children do not listen.
CARELESS = """
import subprocess, time
for prompt in prompts():
    subprocess.Popen(["sh", "-c", "trap '' TERM; sleep 300 & wait"])
    for _ in range(10):
        send(say("x"))
        time.sleep(0.005)
    send(end(prompt))
"""


def marked(mark: str) -> list[psutil.Process]:
    """The living processes that were started below a client of this test."""
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == mark and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except psutil.Error:
            continue
    return found


@pytest.mark.long
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="guards watch over process groups")
def test_two_hundred_clients_that_are_killed_anywhere_leave_no_process(
    script: Script, unmeasured: None, tmp_path: object
) -> None:
    agent = script(CARELESS)
    mark = str(tmp_path)
    points = random.Random(RUNS)
    choices = (signal.SIGKILL, signal.SIGTERM)

    def kill_some(_: int) -> list[int]:
        killings = [(points.uniform(0, LONGEST), points.choice(choices)) for _ in range(RUNS // AT_ONCE)]
        schedule = ",".join(f"{seconds}:{int(number)}" for seconds, number in killings)
        done = subprocess.run(
            [sys.executable, BARE / "killing.py", schedule, *agent.command],
            env={**os.environ, MARK: mark},
            capture_output=True,
            text=True,
            timeout=50,
        )
        assert done.returncode == 0, done.stderr
        return [int(code) for code in done.stdout.split()]

    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = [code for some in pool.map(kill_some, range(AT_ONCE)) for code in some]

    assert len(codes) == RUNS
    assert sum(code < 0 for code in codes) > RUNS / 2, "hardly a client was hit"
    assert agent.received_of("session/prompt"), "no client came as far as a prompt"
    deadline = time.monotonic() + PATIENCE
    while (left := marked(mark)) and time.monotonic() < deadline:
        psutil.wait_procs(left, timeout=0.5)
    assert not left
