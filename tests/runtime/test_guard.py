"""Guards: what they end when their owner is gone, and what they leave alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator

import psutil
import pytest

from coupler.runtime.guard import GroupGuard
from runtime.children import children_called

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="guards watch over process groups")

PATIENCE = 20.0

OWNER = """
import os, subprocess, sys
from coupler.runtime.guard import GroupGuard as Guard

child = subprocess.Popen(["sh", "-c", sys.argv[1]], start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
guard = Guard.over(child.pid)
print(child.pid, flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group."""
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize(
    "work",
    [
        "sleep 300 & echo; wait",
        pytest.param("trap '' TERM; sleep 300 & echo; wait", id="which ignores SIGTERM"),
        pytest.param("sleep 300 & echo", id="whose leader is gone"),
    ],
)
def test_a_group_ends_when_its_owner_was_killed(work: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, work], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None and owner.stdout is not None
    group = int(owner.stdout.readline())
    members = members_of(group)
    assert members
    owner.stdin.close()
    assert owner.wait(PATIENCE) == -signal.SIGKILL
    owner.stdout.close()

    _, alive = psutil.wait_procs(members, timeout=PATIENCE)

    assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []


def test_a_guard_has_none_of_our_secrets(
    sleeper: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("API_KEY", "secret")
    guard = GroupGuard.over(sleeper.pid)
    assert guard is not None
    [watching] = children_called("coupler-guard")
    assert "API_KEY" not in watching.environ()
    guard.dismiss()


def test_a_dismissed_guard_is_gone_and_has_touched_nothing(sleeper: subprocess.Popen[bytes]) -> None:
    guard = GroupGuard.over(sleeper.pid)
    assert guard is not None
    [watching] = children_called("coupler-guard")

    guard.dismiss()
    guard.dismiss()

    assert not watching.is_running()
    assert sleeper.poll() is None


def test_a_guard_that_is_forgotten_is_dismissed(sleeper: subprocess.Popen[bytes]) -> None:
    GroupGuard.over(sleeper.pid)
    assert not children_called("coupler-guard")
    assert sleeper.poll() is None


def members_of(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, psutil.Error):
            continue
    return found
