"""Descendants: found wherever they are below us, and ended."""

import subprocess
import sys

import psutil

from coupler.runtime.process import Descendants, child_pids

SLEEPER = [sys.executable, "-c", "import time; time.sleep(60)"]
PARENT = [
    sys.executable,
    "-c",
    "import subprocess, sys, time\n"
    "child = subprocess.Popen(['sleep', '60'], start_new_session=True)\n"
    "print(child.pid, flush=True)\n"
    "time.sleep(60)",
]


def test_children_of_children_are_ended_also_when_their_parent_went_first() -> None:
    spared = child_pids()
    with subprocess.Popen(PARENT, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        grandchild = psutil.Process(int(parent.stdout.readline()))
        grandchild.suspend()
        found = Descendants(spared)

        found.terminate()
        found.kill()

        parent.wait(10)
        gone, _ = psutil.wait_procs([grandchild], timeout=10)
        assert gone or grandchild.status() == psutil.STATUS_ZOMBIE


def test_those_that_were_there_before_are_spared() -> None:
    with subprocess.Popen(SLEEPER) as before:
        spared = child_pids()
        assert before.pid in spared
        assert not Descendants(spared).alive()
        Descendants(spared).kill()
        assert before.poll() is None
        before.kill()


def test_the_dead_do_not_count() -> None:
    spared = child_pids()
    with subprocess.Popen(SLEEPER) as child:
        found = Descendants(spared)
        assert found.alive()
        child.kill()
        psutil.wait_procs([psutil.Process(child.pid)], timeout=10)
        assert not found.alive()
