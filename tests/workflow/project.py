"""A project in which the real `coupler run` is started, with stub programs before all others on the PATH."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import forked
from providers.stub import Stub
from raw_client import COUPLER, PATIENCE
from workflow.acp_stub import AcpStub

ACP_PROGRAMS = {
    "claude": "claude-agent-acp",
    "codex": "codex-acp",
    "gemini": "gemini",
    "copilot": "copilot",
    "opencode": "opencode",
}
"""What is started for a name of the catalogue, if it is installed."""

GIT = {
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "Ann",
    "GIT_AUTHOR_EMAIL": "ann@example.com",
    "GIT_COMMITTER_NAME": "Ann",
    "GIT_COMMITTER_EMAIL": "ann@example.com",
}
OTHERS = ("OPENAI_API_KEY", "OPENAI_BASE_URL", "OPENAI_MODEL", "CLAUDECODE", "NO_COLOR")
"""Variables of whoever runs the tests, which are not the tests' concern."""


class Ran:
    """A run that is over: its exit code, what it wrote, and what happened, in order."""

    def __init__(self, done: subprocess.CompletedProcess[str]) -> None:
        self.exit_code = done.returncode
        self.stderr = done.stderr
        self.stdout = done.stdout
        self.events: list[dict[str, Any]] = [json.loads(line) for line in done.stdout.splitlines()]

    def __repr__(self) -> str:
        return f"exit code {self.exit_code}\n{self.stdout[-4000:]}\n{self.stderr[-4000:]}"

    def of(self, kind: str, path: str | None = None) -> list[dict[str, Any]]:
        """The events of a kind, and of one step if that is said."""
        events = [event for event in self.events if event["event"] == kind]
        return [each for each in events if path is None or each.get("place", {}).get("path") == path]

    @property
    def id(self) -> str:
        return str(self.of("run_started")[0]["run"])

    @property
    def end(self) -> dict[str, Any]:
        return self.of("run_finished")[-1]

    @property
    def outputs(self) -> dict[str, Any]:
        outputs: dict[str, Any] = self.end.get("outputs", {})
        return outputs

    def result(self, path: str) -> dict[str, Any]:
        """What became of a step, the last time that the run came by."""
        result: dict[str, Any] = self.of("step_finished", path)[-1]["result"]
        return result

    @property
    def statuses(self) -> dict[str, str]:
        return {each["place"]["path"]: each["result"]["status"] for each in self.of("step_finished")}


class Project:
    """A directory with files, programs that are found first, and variables."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "project"
        self.programs = directory / "bin"
        self.directory.mkdir()
        self.programs.mkdir()
        path = f"{self.programs}{os.pathsep}{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        self.env = {name: value for name, value in os.environ.items() if name not in OTHERS}
        self.env |= {"PATH": path, "TMPDIR": str(directory), **GIT}

    def agent(self, name: str) -> AcpStub:
        """An agent of the catalogue, in its form that speaks ACP."""
        return AcpStub(self.programs, ACP_PROGRAMS[name])

    def native(self, name: str) -> Stub:
        """An agent's own command line."""
        return Stub(self.programs, name)

    def program(self, name: str, script: str) -> None:
        """A program that is a script of the shell; its calls are logged."""
        file = self.programs / name
        log = self.programs / f"{name}.calls"
        file.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" >> '{log}'\n{script}\n")
        file.chmod(0o755)

    def calls(self, name: str) -> list[str]:
        """The words that such a program was called with, call by call."""
        log = self.programs / f"{name}.calls"
        return log.read_text().splitlines() if log.exists() else []

    def write(self, name: str, text: str) -> Path:
        file = self.directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def read(self, name: str) -> str:
        return (self.directory / name).read_text()

    def git(self, *words: str) -> str:
        done = subprocess.run(
            ["git", *words],
            cwd=self.directory,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    def commit(self, message: str) -> None:
        """Commit all that there is; the first time, make a repository of the project."""
        if not (self.directory / ".git").exists():
            self.git("init", "--quiet", "--initial-branch=main")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--message", message)

    def run(self, workflow: Path | str, *words: str) -> Ran:
        """`coupler run` without a terminal, which tells all that happens."""
        return self.coupler("run", str(workflow), "--json", *words)

    def resume(self, run: str, *words: str) -> Ran:
        return self.coupler("resume", run, "--json", *words)

    def coupler(self, *words: str) -> Ran:
        return Ran(self.coupler_text(*words))

    def coupler_text(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Any command without a terminal, as it writes for people."""
        done: subprocess.CompletedProcess[str] = forked.run(
            [*COUPLER, *words],
            cwd=self.directory,
            env=self.env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=2 * PATIENCE,
        )
        return done
