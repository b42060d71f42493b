"""Commands that nobody watches: how they ended, what they wrote, and that nothing of them stays."""

import asyncio
import sys
from pathlib import Path

import psutil
import pytest

from coupler.runtime.commands import CommandResult, run_command
from coupler.runtime.environment import Environment, SpawnError
from runtime.test_child import gone_within

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these commands are POSIX programs")

ENVIRONMENT = Environment.exact({"PATH": "/usr/bin:/bin"})


def result(line: str, *, largest: int = 1000, **more: object) -> CommandResult:
    command = ["sh", "-c", line]
    return asyncio.run(run_command(command, cwd="/", env=ENVIRONMENT, largest=largest, **more))


def test_it_tells_how_a_command_ended_and_what_it_wrote():
    assert result("echo out; echo err >&2; exit 3") == (3, "out\nerr\n", "")
    assert result("echo out; echo err >&2; exit 3", hears_stderr=True) == (3, "out\n", "err\n")


def test_a_command_reads_what_it_is_given():
    assert result("tr a-z A-Z", input=b"said") == (0, "SAID", "")


def test_the_beginning_is_kept_of_what_is_too_much_and_the_command_gets_to_its_end():
    long = "head -c 300000 /dev/zero | tr '\\0' x"
    assert result(f"{long}; {long} >&2; exit 5", largest=10, hears_stderr=True) == (5, "x" * 10, "x" * 10)


def test_bytes_that_are_no_text_are_replaced():
    assert result(r"printf 'a\377b'").output == "a�b"


def test_who_no_longer_waits_leaves_nothing_running(tmp_path: Path):
    async def wait_for_a_moment() -> psutil.Process:
        file = tmp_path / "pid"
        command = ["sh", "-c", f"echo $$ > {file}; exec sleep 600"]
        running = asyncio.ensure_future(run_command(command, cwd="/", env=ENVIRONMENT, largest=10))
        while not file.exists() or not file.read_text().strip():
            await asyncio.sleep(0.01)
        process = psutil.Process(int(file.read_text()))
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        return process

    assert gone_within(20, asyncio.run(wait_for_a_moment()).pid)


def test_what_cannot_be_started_is_said():
    with pytest.raises(SpawnError, match="nothing-of-that-name"):
        asyncio.run(run_command(["nothing-of-that-name"], cwd="/", env=ENVIRONMENT, largest=10))
