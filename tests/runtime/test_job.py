"""Commands that run to their end, with real processes: unruly ones above all."""

import asyncio
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from coupler.runtime.commands import RunningCommand
from coupler.runtime.environment import Environment, SpawnError
from runtime.test_child import gone_within, is_running

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these commands are POSIX programs")

DEAF = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
)

# Leaves a process behind that is in a group of its own and holds the output open; tells its number.
DESERTER = """
import os, time
if not os.fork():
    os.setsid()
    print(os.getpid(), flush=True)
    time.sleep(60)
"""

# Has more to say when it is asked to end than a pipe can hold.
TALKATIVE = """
import signal, sys, time
def end(*_):
    print("y" * 500_000)
    sys.exit(5)
signal.signal(signal.SIGTERM, end)
print("READY", flush=True)
time.sleep(60)
"""


class Heard:
    """A listener that remembers; `until` waits for a text."""

    def __init__(self) -> None:
        self.output = b""
        self._changed = asyncio.Event()

    async def __call__(self, chunk: bytes) -> None:
        self.output += chunk
        self._changed.set()

    async def until(self, text: bytes) -> None:
        while text not in self.output:
            self._changed.clear()
            await self._changed.wait()


def descriptors() -> set[str]:
    return {entry.name for entry in Path("/proc/self/fd").iterdir() if entry.exists()}


def run(story: Callable[[], Awaitable[None]]) -> None:
    """Run the story; it leaves no child, no task and no descriptor."""

    async def guarded() -> None:
        await asyncio.sleep(0)
        before = descriptors() if sys.platform == "linux" else set()
        async with asyncio.timeout(30):
            await story()
        if sys.platform == "linux":
            assert descriptors() <= before
        assert asyncio.all_tasks() == {asyncio.current_task()}

    others = psutil.Process().children()  # other tests of this worker may have some
    asyncio.run(guarded())
    assert [child for child in psutil.Process().children() if child not in others] == []


async def finish(job: RunningCommand, heard: Heard) -> int | None:
    try:
        await job.hear(heard)
        await job.wait()
    finally:
        await job.end(1)
        job.close()
    await asyncio.sleep(0)
    return job.returncode


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


def test_stdout_and_stderr_come_in_order(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        job = RunningCommand.start(shell("echo a; echo b >&2; echo c; exit 3"), cwd=str(tmp_path))
        assert await finish(job, heard) == 3
        assert heard.output == b"a\nb\nc\n"

    run(story)


def test_stderr_can_be_heard_apart_from_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("coupler.runtime.commands.DRAIN_SECONDS", 20.0)

    async def story() -> None:
        stdout, stderr = Heard(), Heard()
        script = "echo a; head -c 300000 /dev/zero >&2; echo c; (sleep 0.05; echo late >&2) >/dev/null &"
        job = RunningCommand.start(shell(script), cwd=str(tmp_path), hears_stderr=True)
        try:
            await job.hear(stdout, stderr)
            assert await job.wait() == 0
        finally:
            await job.end(1)
            job.close()
        assert stdout.output == b"a\nc\n"
        assert stderr.output == bytes(300_000) + b"late\n"

    run(story)


def test_without_input_it_reads_from_the_null_device(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        program = "import os; print(os.path.samestat(os.fstat(0), os.stat(os.devnull)))"
        await finish(RunningCommand.start(python(program), cwd=str(tmp_path)), heard)
        assert heard.output == b"True\n"

    run(story)


@pytest.mark.parametrize("size", [0, 5, 3_000_000])
def test_it_reads_its_input_to_the_end(tmp_path: Path, size: int) -> None:
    async def story() -> None:
        heard = Heard()
        await finish(RunningCommand.start(["cat"], cwd=str(tmp_path), input=b"x" * size), heard)
        assert heard.output == b"x" * size

    run(story)


@pytest.mark.parametrize("script", ["exec true", "exec <&-; sleep 0.1"])
def test_input_that_nobody_wants_is_dropped(tmp_path: Path, script: str) -> None:
    async def story() -> None:
        job = RunningCommand.start(shell(script), cwd=str(tmp_path), input=b"x" * 1_000_000)
        assert await finish(job, Heard()) == 0

    run(story)


def test_all_of_a_long_output_is_heard(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        await finish(RunningCommand.start(python("print('x' * 5_000_000)"), cwd=str(tmp_path)), heard)
        assert len(heard.output) == 5_000_001

    run(story)


def test_a_slow_listener_hears_all_of_it_too(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()

        async def slowly(chunk: bytes) -> None:
            await asyncio.sleep(0.15)
            await heard(chunk)

        job = RunningCommand.start(python("print('x' * 300_000)"), cwd=str(tmp_path))
        await job.hear(slowly)
        await job.end(1)
        job.close()
        assert len(heard.output) == 300_001

    run(story)


def test_the_loop_is_not_starved_by_an_endless_output(tmp_path: Path) -> None:
    async def story() -> None:
        job = RunningCommand.start(["yes"], cwd=str(tmp_path))
        hearing = asyncio.ensure_future(job.hear(Heard()))
        slowest = 0.0
        for _ in range(50):
            before = time.perf_counter()
            await asyncio.sleep(0)
            slowest = max(slowest, time.perf_counter() - before)
        hearing.cancel()
        await job.end(1)
        job.close()
        assert slowest < 0.5

    run(story)


@pytest.mark.parametrize("redirected", ["", ">/dev/null 2>&1"])
def test_what_it_leaves_running_neither_holds_it_up_nor_outlives_it(tmp_path: Path, redirected: str) -> None:
    async def story() -> None:
        heard = Heard()
        start = time.monotonic()
        job = RunningCommand.start(shell(f"sleep 60 {redirected} & echo $!"), cwd=str(tmp_path))
        assert await finish(job, heard) == 0
        assert time.monotonic() - start < 10
        assert gone_within(5, int(heard.output))

    run(story)


def test_who_left_the_group_and_holds_the_pipe_does_not_hold_it_up(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        job = RunningCommand.start(python(DESERTER), cwd=str(tmp_path))
        try:
            assert await finish(job, heard) == 0
        finally:
            os.kill(int(heard.output), 9)

    run(story)


def test_a_deaf_command_is_killed_after_the_grace(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        job = RunningCommand.start(python(DEAF), cwd=str(tmp_path))
        hearing = asyncio.ensure_future(job.hear(heard))
        await heard.until(b"1\n")
        hearing.cancel()
        start = time.monotonic()
        await job.end(0.3)
        assert time.monotonic() - start >= 0.3
        assert not is_running(job.pid)
        assert job.returncode == -9
        job.close()

    run(story)


def test_it_is_heard_while_it_cleans_up(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        job = RunningCommand.start(python(TALKATIVE), cwd=str(tmp_path))
        hearing = asyncio.ensure_future(job.hear(heard))
        await heard.until(b"READY")
        hearing.cancel()
        await asyncio.wait([hearing])
        await job.end(20, heard)
        job.close()
        assert job.returncode == 5
        assert heard.output.count(b"y") == 500_000

    run(story)


def test_cancelling_the_end_kills_at_once(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        job = RunningCommand.start(python(DEAF), cwd=str(tmp_path))
        hearing = asyncio.ensure_future(job.hear(heard))
        await heard.until(b"1\n")
        hearing.cancel()
        ending = asyncio.ensure_future(job.end(60))
        await asyncio.sleep(0)
        ending.cancel()
        await asyncio.wait([ending])
        assert gone_within(5, job.pid)
        await job.wait()
        job.close()
        await asyncio.sleep(0)

    run(story)


def test_what_a_listener_raises_is_raised_and_does_not_keep_the_command_from_ending(tmp_path: Path) -> None:
    async def story() -> None:
        async def fail(chunk: bytes) -> None:
            raise LookupError("gone")

        job = RunningCommand.start(python(TALKATIVE), cwd=str(tmp_path))
        with pytest.raises(LookupError):
            await job.hear(fail)
        with pytest.raises(LookupError):
            await job.end(20, fail)
        job.close()
        assert job.returncode == 5

    run(story)


def test_its_environment_is_what_it_is_given(tmp_path: Path) -> None:
    async def story() -> None:
        heard = Heard()
        environment = Environment.exact({"ONLY": "this"})
        await finish(RunningCommand.start(["/usr/bin/env"], cwd=str(tmp_path), env=environment), heard)
        assert heard.output == b"ONLY=this\n"

    run(story)


def test_a_command_that_cannot_start_leaves_nothing(tmp_path: Path) -> None:
    async def story() -> None:
        with pytest.raises(SpawnError):
            RunningCommand.start(["no-such-program"], cwd=str(tmp_path), input=b"x")

    run(story)
