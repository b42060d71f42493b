"""The guard: what it ends and removes when its owner is gone, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coupler.runtime.guard import GuardEntry, guard_child, guarded_file, one_guard_for_all
from runtime.children import children_called, words_of

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="the guard ends process groups")

PATIENCE = 20.0

# Starts children as `Child` does, names what they write, releases the second of them, and is killed.
OWNER = """
import os, subprocess, sys
from coupler.runtime.guard import guard_child

def start(script):
    heard, stdout = os.pipe()
    entry = guard_child([stdout])
    child = subprocess.Popen(["sh", "-c", script], start_new_session=True, stdout=stdout)
    os.close(stdout)
    return child, entry, os.read(heard, 100).decode().strip()

started = []
for script in sys.argv[1:]:
    started.append(start(script.removeprefix("unknown ")))
    if not script.startswith("unknown "):
        started[-1][1].begins(started[-1][0].pid)
if len(started) > 1:
    started[1][1].release()
print(*(pid for *_, pid in started), flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


def living(pid: int) -> list[psutil.Process]:
    try:
        process = psutil.Process(pid)
        return [] if process.status() == psutil.STATUS_ZOMBIE else [process]
    except psutil.NoSuchProcess:
        return []


def wait_for_end(process: psutil.Process) -> None:
    """Wait until it has ended, but not until somebody has reaped it."""
    deadline = time.monotonic() + PATIENCE
    while living(process.pid):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def processes_of_a_killed_owner(*scripts: str) -> list[psutil.Process]:
    """The processes that the scripts name, once the guard has ended what it ends."""
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, *scripts], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdin is not None and owner.stdout is not None
        processes = [psutil.Process(int(word)) for word in owner.stdout.readline().split()]
        [shell] = [each for each in psutil.Process(owner.pid).children() if "coupler-guard" in words_of(each)]
        owner.stdin.close()
        assert owner.wait(PATIENCE) == -signal.SIGKILL
    wait_for_end(shell)
    return processes


CASES = {
    "a child of the child": "sleep 300 & echo $!; wait",
    "one that ignores SIGTERM": "trap '' TERM; sleep 300 & echo $!; wait",
    "one that is stopped": "sleep 300 & kill -STOP $!; echo $!; wait",
    "one whose leader is gone": "sleep 300 & echo $!",
    "one in a session of its own": "setsid sh -c 'echo $$; exec >&- sleep 300' & wait",
    "an orphan in a session of its own, which holds stdout": "setsid sh -c 'echo $$; exec sleep 300' &",
    "a child whose group was not told yet": "unknown echo $$; exec sleep 300",
    "what such a child has started": "unknown setsid sh -c 'echo $$; exec >&- sleep 300' & wait",
}


@pytest.mark.parametrize("script", CASES.values(), ids=CASES)
def test_what_a_killed_owner_has_started_ends(script: str) -> None:
    [process] = processes_of_a_killed_owner(script)

    wait_for_end(process)


def test_daemons_and_released_children_are_left_alone() -> None:
    orphaned = "while [ -e /proc/$PPID/exe ]; do sleep 0.01; done"
    daemon = f"setsid sh -c '{orphaned}; exec 3>&1 >/dev/null; echo $$ >&3; exec 3>&- sleep 300' </dev/null &"
    released = "echo $$; exec sleep 300"

    processes = processes_of_a_killed_owner(daemon, released)

    assert [bool(living(process.pid)) for process in processes] == [True, True]
    for process in processes:
        process.kill()


def test_guarded_files_go_when_their_owner_was_killed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a file; $(date).sh", "released.sh")]
    for file in files:
        file.touch()
    story = """
import sys
from coupler.runtime.guard import guarded_file
first, second = map(guarded_file, sys.argv[1:])
first.__enter__()
second.__enter__()
second.__exit__(None, None, None)
print(flush=True)
sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", story, *map(str, files)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        [shell] = psutil.Process(owner.pid).children()
        owner.kill()

    wait_for_end(shell)
    assert [file.exists() for file in files] == [False, True]


@pytest.fixture
def entry() -> Iterator[GuardEntry]:
    """A child that the guard knows, or would know: nobody has its pipe."""
    heard, stdout = os.pipe()
    entry = guard_child([stdout])
    yield entry
    entry.release()
    os.close(heard)
    os.close(stdout)


def guards() -> list[psutil.Process]:
    return children_called("coupler-guard")


def test_a_guard_has_none_of_our_secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    with guarded_file("/nonexistent"):
        [shell] = guards()
        assert "API_KEY" not in shell.environ()


def test_one_shell_guards_all_and_is_gone_with_the_last_of_them(entry: GuardEntry) -> None:
    [shell] = guards()
    with guarded_file("/nonexistent"):
        assert guards() == [shell]
    entry.release()
    entry.release()

    assert guards() == []


def test_the_shell_can_be_kept_for_what_comes() -> None:
    with one_guard_for_all():
        assert guards() == []
        with guarded_file("/nonexistent"):
            [shell] = guards()
        with guarded_file("/nonexistent"):
            assert guards() == [shell]

    assert guards() == []


def test_a_shell_that_has_died_is_replaced_by_one_that_knows_as_much(
    entry: GuardEntry, tmp_path: Path
) -> None:
    [shell] = guards()
    shell.kill()
    shell.wait(PATIENCE)
    with guarded_file("/nonexistent"):
        [other] = guards()

    assert other != shell


def test_a_fork_has_nothing_to_do_with_the_guard(entry: GuardEntry) -> None:
    [shell] = guards()
    pid = os.fork()
    if pid == 0:
        entry.release()
        os._exit(0 if not psutil.Process().children() else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert guards() == [shell]
    assert shell.status() != psutil.STATUS_ZOMBIE
