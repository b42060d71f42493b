"""A watch: what it ends and removes when its owner is gone, and what it leaves alone."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from coupler.runtime.guard import SharedGroupGuard
from runtime.children import children_called

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="a watch is over process groups")

PATIENCE = 20.0

# Runs three commands under one watch, of which the second is over; then it is killed.
OWNER = """
import os, subprocess, sys
from coupler.runtime.guard import SharedGroupGuard as Watch

def start(file):
    child = subprocess.Popen(["sh", file], start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
    return child

watch = Watch()
files = sys.argv[1:]
children = [start(file) for file in files]
overs = [watch.over(child.pid, file) for child, file in zip(children, files)]
for over in overs:
    over.__enter__()
overs[1].__exit__(None, None, None)
print(*(child.pid for child in children), flush=True)
sys.stdin.read()
os.kill(os.getpid(), 9)
"""

DEAF = "trap '' TERM; sleep 300 & echo; wait"


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process that leads a group."""
    process = subprocess.Popen(["sleep", "300"], start_new_session=True)
    yield process
    process.kill()
    process.wait()


def watching() -> list[psutil.Process]:
    return children_called("coupler-watch")


def members_of(group: int) -> list[psutil.Process]:
    return [each for each in psutil.process_iter() if os.getpgid(each.pid) == group]


def test_groups_end_and_their_files_go_when_their_owner_was_killed(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("a file; $(date).sh", "over.sh", "deaf.sh")]
    for file in files:
        file.write_text(DEAF if file.name == "deaf.sh" else "sleep 300 & echo; wait")
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, *map(str, files)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert owner.stdin is not None and owner.stdout is not None
    first, over, deaf = map(int, owner.stdout.readline().split())
    members = [*members_of(first), *members_of(deaf)]
    try:
        assert len(members) == 4

        owner.stdin.close()
        assert owner.wait(PATIENCE) == -signal.SIGKILL
        owner.stdout.close()
        _, alive = psutil.wait_procs(members, timeout=PATIENCE)

        assert [process for process in alive if process.status() != psutil.STATUS_ZOMBIE] == []
        assert [file.exists() for file in files] == [False, True, False]
        assert len(members_of(over)) == 2
    finally:
        os.killpg(over, signal.SIGKILL)


def test_a_file_that_is_expected_goes_when_its_owner_was_killed_before_it_was_run(tmp_path: Path) -> None:
    file = tmp_path / "a script.sh"
    file.touch()
    imports = "import sys; from coupler.runtime.guard import SharedGroupGuard"
    story = f"{imports}; guard = SharedGroupGuard(); guard.expect(sys.argv[1])"
    with subprocess.Popen(
        [sys.executable, "-c", f"{story}; print(flush=True); sys.stdin.read()", str(file)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as owner:
        assert owner.stdout is not None
        owner.stdout.readline()
        shells = psutil.Process(owner.pid).children()
        owner.kill()

    psutil.wait_procs(shells, timeout=PATIENCE)
    assert not file.exists()


def test_one_shell_watches_over_all_and_is_gone_when_the_watch_is_closed(
    sleeper: subprocess.Popen[bytes],
) -> None:
    with SharedGroupGuard() as watch:
        assert watching() == []
        with watch.over(sleeper.pid, "a"), watch.over(sleeper.pid, "b"):
            [shell] = watching()
        with watch.over(sleeper.pid, "c"):
            assert watching() == [shell]

    assert watching() == []
    assert sleeper.poll() is None


def test_a_shell_that_has_died_is_replaced(sleeper: subprocess.Popen[bytes]) -> None:
    with SharedGroupGuard() as watch:
        with watch.over(sleeper.pid, "a"):
            [shell] = watching()
            shell.kill()
            shell.wait(PATIENCE)
        with watch.over(sleeper.pid, "b"):
            assert len(watching()) == 1
            assert watching() != [shell]
