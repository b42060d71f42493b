"""A fork is as good as a start: nothing that a program can see of itself is different."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import forked
from raw_client import COUPLER, PATIENCE
from tables import table

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="elsewhere everything is really started"),
    pytest.mark.usefixtures("unmeasured"),
]

REPORT = """
import gc, json, os, signal, sys, time

def described(stream):
    raw = getattr(stream.buffer, "raw", stream.buffer)
    return [str(stream), stream.errors, stream.line_buffering, stream.write_through, str(raw)]

report = {
    "main": [sys.argv, sys.orig_argv, sys.path, sys.flags, sys.modules["__main__"].__file__],
    "place": [os.getcwd(), os.getppid(), os.getpid() == os.getsid(0), time.tzname, os.umask(0o77)],
    "environ": dict(os.environ),
    "descriptors": sorted(int(name) for name in os.listdir("/proc/self/fd") if int(name) < 64),
    "given": [os.path.samestat(os.fstat(number), os.stat("given")) for number in GIVEN],
    "streams": [described(each) for each in (sys.__stdin__, sys.stderr)],
    "signals": [
        str(getattr(handler, "__qualname__", handler))
        for handler in map(signal.getsignal, (signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP))
    ],
    "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, ())),
}
json.dump(report, open(os.environ["REPORT"], "w"))
"""


@pytest.mark.parametrize("session", [False, True], ids=["", "a session of its own"])
@pytest.mark.parametrize(
    "variables",
    [{}, {"TZ": "Asia/Tokyo", "MORE": "\udcff and ü"}, {"PYTHONPATH": "/elsewhere"}, {"LC_ALL": "C"}],
    ids=" ".join,
)
def test_a_program_sees_the_same(tmp_path: Path, session: bool, variables: dict[str, str]) -> None:
    directory = tmp_path / "there"
    directory.mkdir()
    with (directory / "given").open("w") as given:
        target = tmp_path / "target.py"
        target.write_text(f"GIVEN = [{given.fileno()}]\n{REPORT}\nasync def agent(turn): ...\n")

        def report(module: ModuleType, home: str) -> Any:
            file = tmp_path / "report"
            file.unlink(missing_ok=True)
            done = module.run(
                [*COUPLER, "serve", str(target), "--no-store"],
                cwd=directory,
                env={**os.environ, "REPORT": str(file), "COUPLER_HOME": str(tmp_path / home), **variables},
                stdin=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[given.fileno()],
                start_new_session=session,
                timeout=PATIENCE,
                check=True,
            )
            assert file.exists(), done.stderr.decode()
            seen = json.loads(file.read_text())
            assert seen["environ"].pop("COUPLER_HOME").endswith(home)
            return seen

        started, forked_one = report(subprocess, "started"), report(forked, "forked")

    assert forked_one == started
    assert started["place"][1] == os.getpid()


@table("words", [["--version"], ["no-such-command"], ["exec"], ["serve", "/no/such/file.py"]])
def test_it_says_the_same_and_ends_alike(words: list[str]) -> None:
    ends = []
    for module in (subprocess, forked):
        done = module.run([*COUPLER, *words], input="", capture_output=True, text=True, timeout=PATIENCE)
        ends.append((done.returncode, done.stdout, done.stderr))

    assert ends[0] == ends[1]


def test_the_imports_are_not_repeated(tmp_path: Path) -> None:
    """Without this, nothing would be gained and nothing above would be proven."""
    target = tmp_path / "target.py"
    target.write_text(
        "import sys\nprint('click' in sys.modules, file=sys.stderr)\nasync def agent(turn): ..."
    )

    seen = []
    for module in (subprocess, forked):
        variables = {**os.environ, "COUPLER_HOME": str(tmp_path / module.__name__)}
        command = [*COUPLER, "serve", str(target)]
        done = module.run(command, input="", env=variables, capture_output=True, text=True, timeout=PATIENCE)
        seen.append(done.stderr)

    assert seen == ["False\n", "True\n"]


def test_a_kill_is_told(tmp_path: Path) -> None:
    target = tmp_path / "target.py"
    target.write_text("import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")

    done = forked.run([*COUPLER, "serve", str(target)], stdin=subprocess.DEVNULL, timeout=PATIENCE)

    assert done.returncode == -9
