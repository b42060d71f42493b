"""`kill -9` of Coupler while children of every kind work: none of them is left."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

import forked
from raw_client import COUPLER, RawClient

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="guards watch over process groups")

PATIENCE = 20.0

MARK = "COUPLER_TEST_KILLED"
"""A variable that all processes below one that a test starts have, with a value of that test's own."""

# Has a child, and a grandchild in a session of its own.
WORKER = """#!/bin/sh
cd "$(dirname "$0")"
sh -c 'setsid sh -c "touch grandchild; exec sleep 300" & touch child; wait' &
touch itself
wait
"""


class Place:
    """A directory with a program that works for long, and the processes that were started in it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.mark = str(directory)
        self.worker = directory / "claude"
        self.worker.write_text(WORKER)
        self.worker.chmod(0o755)
        path = f"{directory}{os.pathsep}{os.environ['PATH']}"
        self.env = {**os.environ, "PATH": path, MARK: self.mark}

    def living(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                if process.environ().get(MARK) == self.mark and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
            except psutil.Error:
                continue
        return found

    def left(self) -> list[psutil.Process]:
        """Those that are there after all the time that a guard takes."""
        deadline = time.monotonic() + PATIENCE
        while (left := self.living()) and time.monotonic() < deadline:
            time.sleep(0.05)
        return left

    def wait_until_it_works(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not all((self.directory / name).exists() for name in ("itself", "child", "grandchild")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    place = Place(tmp_path)
    yield place
    for process in place.living():
        process.kill()


@pytest.fixture
def output(tmp_path: Path) -> Iterator[IO[bytes]]:
    with (tmp_path / "output").open("wb") as file:
        yield file


STEPS = {
    "a native agent": '{id: it, agent: "claude:native", prompt: go}',
    "an ACP agent": "{id: it, agent: ./claude, prompt: go}",
    "a command": "{id: it, run: ./claude}",
}


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_nothing_outlives_a_run_that_is_killed(step: str, place: Place, output: IO[bytes]) -> None:
    (place.directory / "flow.yaml").write_text(f"steps:\n  - {step}\n")
    process = forked.Popen(
        [*COUPLER, "run", "./flow.yaml"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=place.directory,
        env=place.env,
        start_new_session=True,
    )
    place.wait_until_it_works(process)
    assert len(place.living()) >= 3

    process.kill()
    process.wait()

    assert place.left() == []


def test_nothing_outlives_a_served_native_agent_that_is_killed(place: Place) -> None:
    with RawClient(*COUPLER, "serve", "--", "claude:native", cwd=place.directory, env=place.env) as client:
        client.initialize()
        client.send(client.prompt_request(client.new_session(str(place.directory)), "go"))
        place.wait_until_it_works(client.process)

        client.process.kill()
        client.process.wait()

        assert place.left() == []


def test_no_mcp_server_outlives_a_doctor_that_is_killed(
    place: Place, coupler_home: Path, output: IO[bytes]
) -> None:
    coupler_home.mkdir(parents=True, exist_ok=True)
    # Servers get only some of our variables.
    (coupler_home / "coupler.toml").write_text(
        f"[mcp.works]\ncommand = '{place.worker}'\nenv = {{{MARK} = '{place.mark}'}}\n"
    )
    process = forked.Popen(
        [*COUPLER, "doctor", "--timeout", "600"],
        stdin=subprocess.DEVNULL,
        stdout=output,
        stderr=output,
        cwd=place.directory,
        env=place.env,
    )
    place.wait_until_it_works(process)
    assert place.worker.name in {each.name() for each in place.living()}

    process.kill()
    process.wait()

    assert place.left() == []


KILLS = 400
LONGEST = 0.015
"""Seconds after it began to start a child in which a starter is killed: it takes some milliseconds."""

# Copies of this process start children until they are killed; tells how many of them that were.
STARTERS = f"""
import asyncio, os, random, signal, sys, time
from coupler.runtime.process import Child

async def start(report):
    while True:
        os.write(report, b".")
        Child.spawn(["sleep", "300"])

def start_and_kill(number, seconds):
    heard, report = os.pipe()
    pid = os.fork()
    if pid == 0:
        asyncio.run(start(report))
    os.close(report)
    os.read(heard, 1)
    os.read(heard, number)
    time.sleep(seconds)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    count = 1 + len(os.read(heard, 65536))
    os.close(heard)
    return count

chance = random.Random(int(sys.argv[1]))
kills = [(chance.randint(1, 3), chance.uniform(0, {LONGEST})) for _ in range({KILLS})]
print(sum(start_and_kill(*kill) for kill in kills))
"""


@pytest.mark.long
def test_none_of_the_children_of_hundreds_of_killed_starters_slips_through(
    place: Place, unmeasured: None
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", STARTERS, str(time.time_ns())],
        env=place.env,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert int(done.stdout) >= KILLS
    assert place.left() == []
