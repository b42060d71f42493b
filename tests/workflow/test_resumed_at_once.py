"""`coupler resume` at once after a `kill -9`, while the killed run's programs ignore SIGTERM."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

import forked
from coupler.store.store import Store
from raw_client import COUPLER, RawClient

pytestmark = pytest.mark.skipif(not hasattr(os, "killpg"), reason="guards watch over process groups")

PATIENCE = 20.0

# The first one ignores SIGTERM, and so does its grandchild; each that comes after notes who still lives.
STUBBORN = """#!/bin/sh
cd "$(dirname "$0")"
trap '' TERM
for pid in $(cat started 2>/dev/null); do
    case $(ps -o stat= -p "$pid") in ''|Z*) ;; *) echo "$pid" >> beside ;; esac
done
if [ -e started ]; then echo again >> second; exit 3; fi
sh -c 'setsid sh -c "echo \\$\\$ >> grandchild; while :; do sleep 300; done" & while :; do sleep 300; done' &
while [ ! -s grandchild ]; do sleep 0.01; done
echo "$$ $(cat grandchild)" > starting
mv starting started
while :; do sleep 300; done
"""

STEPS = {
    "a native agent": '{id: it, agent: "claude:native", prompt: go}',
    "an ACP agent": "{id: it, agent: ./claude, prompt: go}",
    "a command": "{id: it, run: ./claude}",
}


class Project:
    """A directory with a program that does not end when it is asked to."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "claude").write_text(STUBBORN)
        (directory / "claude").chmod(0o755)
        self.env = {**os.environ, "PATH": f"{directory}{os.pathsep}{os.environ['PATH']}"}

    def wait_for(self, name: str) -> str:
        deadline = time.monotonic() + PATIENCE
        while not (self.directory / name).exists():
            assert time.monotonic() < deadline, f"there is no {name}"
            time.sleep(0.01)
        return (self.directory / name).read_text()

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        with (self.directory / "output").open("ab") as output:
            return forked.Popen(
                [*COUPLER, *words],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                cwd=self.directory,
                env=self.env,
                start_new_session=True,
            )

    @property
    def beside(self) -> bool:
        return (self.directory / "beside").exists()


@pytest.fixture
def project(tmp_path: Path) -> Iterator[Project]:
    project = Project(tmp_path)
    yield project
    for process in psutil.process_iter(["cwd"]):
        if process.info["cwd"] == str(tmp_path):
            process.kill()


def _last_run() -> str:
    store = Store.open()
    try:
        return store.runs.blocking.ids()[0]
    finally:
        store.close()


@pytest.mark.parametrize("step", STEPS.values(), ids=STEPS)
def test_a_run_goes_on_when_the_programs_of_the_killed_one_have_ended(step: str, project: Project) -> None:
    (project.directory / "flow.yaml").write_text(f"steps:\n  - {step}\n")
    process = project.start("run", "./flow.yaml")
    project.wait_for("started")

    process.kill()
    process.wait()
    resumed = project.start("resume", _last_run())
    resumed.wait()

    assert (project.directory / "second").exists(), (project.directory / "output").read_text()
    assert not project.beside
    assert f"the process {process.pid} was killed: waiting" in (project.directory / "output").read_text()


def test_a_served_session_is_loaded_when_the_programs_of_the_killed_agent_have_ended(
    project: Project,
) -> None:
    command = [*COUPLER, "serve", "--", "claude:native"]
    with RawClient(*command, cwd=project.directory, env=project.env) as client:
        client.initialize()
        session = client.new_session(str(project.directory))
        client.send(client.prompt_request(session, "go"))
        project.wait_for("started")
        client.process.kill()
        client.process.wait()

    with RawClient(*command, cwd=project.directory, env=project.env) as client:
        client.initialize()
        client.call("session/load", {"sessionId": session, "cwd": str(project.directory), "mcpServers": []})
        client.send(client.prompt_request(session, "go"))
        project.wait_for("second")

    assert not project.beside
