"""Children as the client needs them, with real processes: unruly ones above all."""

import asyncio
import contextlib
import errno
import gc
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from coupler.runtime import process as exit_module
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.process import Child
from tables import table

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="these children are POSIX programs")

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
ECHO = [sys.executable, "-u", "-c", "import sys\nfor line in sys.stdin: sys.stdout.write(line)"]

# Says on stdout when it is ready, so that no test has to guess.
DEAF = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(60)
"""

# Starts a process that outlives it in its group, and tells its number.
PARENT = """
import subprocess, sys, time
program = "import signal as s, time; s.signal(s.SIGTERM, s.{action}); print(flush=True); time.sleep(60)"
grandchild = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE)
grandchild.stdout.readline()
print(grandchild.pid, flush=True)
time.sleep({lifetime})
"""

# Two more, each the child of the one before it and in a session of its own; the last tells their numbers.
DESERTERS = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.{action})
for _ in range(2):
    if os.fork():
        break
    os.setsid()
else:
    print(os.getppid(), os.getpid(), flush=True)
time.sleep(60)
"""

# A child in the group notes each signal that it gets.
TALLY = """
import os, signal, time
def note(*_):
    with open("tally", "a") as tally:
        tally.write("x")
if not os.fork():
    signal.signal(signal.SIGTERM, note)
    print("ready", flush=True)
while True:
    time.sleep(60)
"""


def python(program: str) -> list[str]:
    return [sys.executable, "-c", program]


async def read_line(child: Child) -> str:
    with os.fdopen(child.stdout_fd, "rb") as stdout:
        return (await asyncio.to_thread(stdout.readline)).decode().strip()


def is_running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone_within(seconds: float, pid: int) -> bool:
    deadline = time.monotonic() + seconds
    while is_running(pid):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_what_is_written_to_stdin_comes_back_from_stdout() -> None:
    async def story() -> None:
        child = Child.spawn(ECHO)
        with os.fdopen(child.stdin_fd, "wb") as stdin:
            stdin.write(b"hello\n")
        assert await read_line(child) == "hello"
        assert await child.wait() == 0
        await child.end()

    asyncio.run(story())


def test_a_command_may_be_one_string() -> None:
    async def story() -> None:
        child = Child.spawn(f"'{sys.executable}' -c 'raise SystemExit(7)'")
        assert await child.wait() == 7
        await child.end()

    asyncio.run(story())


@pytest.mark.skipif(sys.platform == "win32", reason="there are no sessions of processes")
def test_an_orphan_in_a_session_of_its_own_stays_in_an_ordinary_end() -> None:
    async def story() -> int:
        child = Child.spawn(["sh", "-c", "setsid sh -c 'echo $$; exec sleep 300' &"])
        orphan = int(await read_line(child))
        await child.wait()
        await child.end()
        return orphan

    orphan = asyncio.run(story())

    assert is_running(orphan)
    os.kill(orphan, signal.SIGKILL)


def test_a_child_leads_a_group_of_its_own() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        assert os.getpgid(child.pid) == child.pid
        assert os.getpgid(0) != child.pid
        await child.end(0, linger=0)

    asyncio.run(story())


def test_a_child_that_dies_at_once_is_noticed_at_once_with_its_last_words() -> None:
    async def story() -> None:
        child = Child.spawn(["/bin/sh", "-c", "echo no key is set >&2; exit 3"])
        async with asyncio.timeout(5):
            assert await child.wait() == 3
        assert child.returncode == 3
        assert child.stderr == "no key is set\n"
        await child.end()

    asyncio.run(story())


def test_death_by_a_signal_is_a_negative_return_code() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        os.kill(child.pid, signal.SIGKILL)
        assert await child.wait() == -signal.SIGKILL
        await child.end()

    asyncio.run(story())


def test_every_waiter_is_told_and_a_cancelled_one_harms_no_other() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        waiters = [asyncio.create_task(child.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiters[0].cancel()
        os.kill(child.pid, signal.SIGTERM)
        assert await asyncio.gather(*waiters[1:]) == [-signal.SIGTERM, -signal.SIGTERM]
        assert waiters[0].cancelled()
        await child.end()

    asyncio.run(story())


def test_closing_stdin_is_enough_for_a_child_that_heeds_it() -> None:
    async def story() -> None:
        child = Child.spawn(ECHO)
        await child.end(linger=10)
        assert child.returncode == 0

    asyncio.run(story())


def test_a_child_that_ignores_the_end_of_stdin_gets_sigterm() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        await child.end(10, linger=0.05)
        assert child.returncode == -signal.SIGTERM

    asyncio.run(story())


def test_a_stopped_child_gets_its_sigterm_too() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        os.kill(child.pid, signal.SIGSTOP)
        await child.end(10, linger=0.05)
        assert child.returncode == -signal.SIGTERM

    asyncio.run(story())


def test_a_child_that_ignores_sigterm_is_killed_after_the_grace() -> None:
    async def story() -> None:
        child = Child.spawn(python(DEAF))
        assert await read_line(child) == "ready"
        started = time.monotonic()
        await child.end(0.3, linger=0.1)
        assert child.returncode == -signal.SIGKILL
        assert 0.4 <= time.monotonic() - started < 5

    asyncio.run(story())


@table("action", ["SIG_DFL", "SIG_IGN"])
@table("lifetime", [60, 0])
def test_grandchildren_end_with_the_group_also_when_the_leader_died_before(
    action: str, lifetime: int
) -> None:
    async def story() -> None:
        child = Child.spawn(python(PARENT.format(action=action, lifetime=lifetime)))
        grandchild = int(await read_line(child))
        if lifetime == 0:
            await child.wait()
        assert is_running(grandchild)
        await child.end(0.2, linger=0.05)
        assert not is_running(grandchild)

    asyncio.run(story())


@pytest.mark.parametrize("action", ["SIG_DFL", "SIG_IGN"])
def test_who_left_the_group_ends_with_it_as_long_as_the_parents_live(action: str) -> None:
    async def story() -> None:
        child = Child.spawn(python(DESERTERS.format(action=action)))
        deserters = [int(word) for word in (await read_line(child)).split()]
        started = time.monotonic()
        await child.end(0.5, linger=0.05)
        assert not any(map(is_running, deserters))
        # Those that heed SIGTERM are not waited for any longer.
        assert (time.monotonic() - started < 0.5) == (action == "SIG_DFL")

    asyncio.run(story())


def test_who_stayed_in_the_group_gets_one_sigterm(tmp_path: Path) -> None:
    async def story() -> None:
        child = Child.spawn(python(TALLY), cwd=tmp_path)
        assert await read_line(child) == "ready"
        await child.end(0.3, linger=0.05)
        assert (tmp_path / "tally").read_text() == "x"

    asyncio.run(story())


def test_the_grace_ends_as_soon_as_the_last_member_does() -> None:
    async def story() -> None:
        child = Child.spawn(python(PARENT.format(action="SIG_DFL", lifetime=0)))
        await read_line(child)
        started = time.monotonic()
        await child.end(30, linger=0.05)
        assert time.monotonic() - started < 10

    asyncio.run(story())


def test_ending_twice_and_at_the_same_time_is_harmless() -> None:
    async def story() -> None:
        child = Child.spawn(SLEEPER)
        await asyncio.gather(child.end(5, linger=0.05), child.end(5, linger=0.05))
        await child.end()
        assert child.returncode == -signal.SIGTERM

    asyncio.run(story())


def test_an_end_without_grace_cuts_another_short() -> None:
    async def story() -> None:
        child = Child.spawn(python(DEAF))
        assert await read_line(child) == "ready"
        async with asyncio.timeout(5):
            await asyncio.gather(child.end(60, linger=60), child.end(0))
        assert child.returncode == -signal.SIGKILL

    asyncio.run(story())


def test_a_cancelled_end_kills_at_once() -> None:
    async def story() -> None:
        child = Child.spawn(python(DEAF))
        assert await read_line(child) == "ready"
        ending = asyncio.create_task(child.end(60, linger=60))
        await asyncio.sleep(0.05)
        ending.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await ending
        async with asyncio.timeout(5):
            assert await child.wait() == -signal.SIGKILL

    asyncio.run(story())


def test_a_flood_on_stderr_blocks_nobody_and_only_its_end_is_kept() -> None:
    flood = """
import sys
for _ in range(1600):
    sys.stderr.write("x" * 65535 + "\\n")
sys.stderr.write("the end\\n")
"""

    async def story() -> None:
        heard = 0

        def listen(chunk: bytes) -> None:
            nonlocal heard
            heard += len(chunk)

        child = Child.spawn(python(flood), stderr_limit=1000, on_stderr=listen)
        slowest = await longest_tick_while(child.wait())
        assert child.returncode == 0
        assert heard == 1600 * 65536 + len("the end\n")
        assert child.stderr == "the end\n"
        assert slowest < 0.5
        await child.end()

    asyncio.run(story())


async def longest_tick_while(work: "asyncio._CoroutineLike[object]") -> float:
    """How long the event loop was busy at most while the work was done."""
    task = asyncio.ensure_future(work)
    slowest, last = 0.0, time.monotonic()
    while not task.done():
        await asyncio.sleep(0)
        slowest, last = max(slowest, time.monotonic() - last), time.monotonic()
    return slowest


def test_a_listener_that_fails_stops_neither_the_reading_nor_the_end() -> None:
    async def story() -> None:
        failures: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: failures.append(context["exception"])
        )

        def listen(_: bytes) -> None:
            raise ValueError("no")

        child = Child.spawn(["/bin/sh", "-c", "echo one >&2; sleep 0.1; echo two >&2"], on_stderr=listen)
        await child.wait()
        assert child.stderr == "one\ntwo\n"
        assert [str(failure) for failure in failures] == ["no"]
        await child.end()

    asyncio.run(story())


def test_a_grandchild_that_holds_stderr_does_not_delay_the_news_of_death() -> None:
    async def story() -> None:
        child = Child.spawn(["/bin/sh", "-c", "sleep 60 & echo gone >&2"])
        async with asyncio.timeout(5):
            assert await child.wait() == 0
        assert child.stderr == "gone\n"
        await child.end(1, linger=0)

    asyncio.run(story())


def test_the_environment_is_inherited_overridden_and_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "kept")
    monkeypatch.setenv("CHANGED", "old")
    monkeypatch.setenv("REMOVED", "here")

    async def story() -> None:
        child = Child.spawn(
            ["/bin/sh", "-c", "echo $KEPT $CHANGED ${REMOVED-unset}"], env={"CHANGED": "new", "REMOVED": None}
        )
        assert await read_line(child) == "kept new unset"
        await child.end()

    asyncio.run(story())


def test_an_exact_environment_holds_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INHERITED", "yes")

    async def story() -> None:
        program = "import os; print(sorted(set(os.environ) - {'LC_CTYPE', '__CF_USER_TEXT_ENCODING'}))"
        child = Child.spawn(python(program), env=Environment.exact({"ONLY": "1"}))
        assert await read_line(child) == "['ONLY']"
        await child.end()

    asyncio.run(story())


def test_the_child_runs_in_the_directory_it_is_given(tmp_path: Path) -> None:
    async def story() -> None:
        child = Child.spawn(["/bin/pwd", "-P"], cwd=tmp_path)
        assert await read_line(child) == str(tmp_path.resolve())
        await child.end()

    asyncio.run(story())


def test_no_descriptor_is_left_open() -> None:
    async def story() -> None:
        for _ in range(3):
            child = Child.spawn(ECHO)
            await child.end()
        for _ in range(3):
            with contextlib.suppress(SpawnError):
                Child.spawn([__file__])

    asyncio.run(story())  # whatever the first run opens for good is open now
    before = psutil.Process().num_fds()
    asyncio.run(story())
    assert psutil.Process().num_fds() == before


def test_a_child_works_in_a_loop_of_another_thread() -> None:
    async def story() -> None:
        child = Child.spawn(["/bin/sh", "-c", "exit 5"])
        assert await child.wait() == 5
        await child.end()

    failures: list[BaseException] = []

    def run() -> None:
        try:
            asyncio.run(story())
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join(10)
    assert not thread.is_alive()
    assert failures == []


def without_pidfd(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(exit_module.os, "pidfd_open", raising=False)


def without_pidfd_and_waitid(monkeypatch: pytest.MonkeyPatch) -> None:
    without_pidfd(monkeypatch)
    monkeypatch.delattr(exit_module.os, "waitid", raising=False)


@pytest.mark.parametrize("system", [without_pidfd, without_pidfd_and_waitid])
def test_death_is_noticed_on_systems_that_offer_less(
    system: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    system(monkeypatch)

    async def story() -> None:
        child = Child.spawn(["/bin/sh", "-c", "echo bye >&2; exit 4"])
        async with asyncio.timeout(5):
            assert await child.wait() == 4
        assert child.stderr == "bye\n"
        await child.end()
        killed = Child.spawn(SLEEPER)
        await killed.end(5, linger=0)
        assert killed.returncode == -signal.SIGTERM

    asyncio.run(story())


def test_a_child_that_somebody_else_reaped_still_counts_as_ended() -> None:
    async def story() -> None:
        child = Child.spawn(["/bin/sh", "-c", "exit 0"])
        os.waitpid(child.pid, 0)
        async with asyncio.timeout(5):
            await child.wait()
        await child.end()

    asyncio.run(story())


FORGETFUL = """
import asyncio, sys
from coupler.runtime.process import Child

async def main():
    child = Child.spawn([sys.executable, "-c", "import time; time.sleep(60)"])
    print(child.pid, flush=True)
    {last}

asyncio.run(main())
"""


@pytest.mark.parametrize("last", ["pass", "raise SystemExit(1)", "1 / 0"])
def test_what_was_never_ended_is_killed_when_python_exits(last: str) -> None:
    done = subprocess.run(python(FORGETFUL.format(last=last)), capture_output=True, text=True, timeout=30)
    assert gone_within(5, int(done.stdout))


def test_a_forked_copy_of_this_process_leaves_the_child_alone() -> None:
    last = """import os
    if os.fork() == 0:
        sys.exit(0)
    os.wait()
    os.kill(child.pid, 0)
    print(child.returncode, "alive", flush=True)
    await child.end(1, linger=0)
"""
    program = FORGETFUL.format(last=last)
    done = subprocess.run(python(program), capture_output=True, text=True, timeout=30)
    assert done.stdout.split()[-2:] == ["None", "alive"]


def test_a_child_that_is_dropped_with_its_loop_is_killed_by_the_garbage_collector() -> None:
    async def story() -> int:
        return Child.spawn(SLEEPER).pid

    pid = asyncio.run(story())
    gc.collect()
    assert gone_within(5, pid)


def test_without_free_descriptors_the_start_fails_clearly_and_leaks_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    opened: list[tuple[int, int]] = []
    real_pipe = os.pipe

    def pipe() -> tuple[int, int]:
        if len(opened) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        opened.append(real_pipe())
        return opened[-1]

    async def start() -> None:
        monkeypatch.setattr(os, "pipe", pipe)
        Child.spawn(["true"])

    with pytest.raises(SpawnError, match="Too many open files") as raised:
        asyncio.run(start())

    assert raised.value.kind == "refused"
    for descriptor in (end for ends in opened for end in ends):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(descriptor)
