"""A client that nobody here wrote, acpx, runs a project's workflows over `coupler serve`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

import forked
from labs import others
from raw_client import COUPLER, PATIENCE
from workflow.served_project import Shown, write_workflow

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

DENIED = 5
"""The exit code of acpx when something was not permitted, whatever became of it."""

HELLO = """
description: Greet somebody
inputs: {name: {rest: true, required: true}}
steps:
  - {id: sure, approve: "Greet {{ inputs.name }}?", on_deny: skip}
  - {id: greet, if: steps.sure.approved, run: "echo Hello, {{ inputs.name }}!"}
outputs: {said: "{{ steps.greet.stdout | default('Nobody was greeted.', true) | trim }}"}
"""


@pytest.fixture(scope="module")
def acpx() -> list[str]:
    """Its command. Where it cannot be had the test is skipped; under CI that is an error."""
    try:
        return others.acpx()
    except others.MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path) -> Path:
    """A project whose workflows are trusted."""
    directory = tmp_path / "project"
    write_workflow(directory / ".coupler" / "workflows", "hello", HELLO)
    assert ran([*COUPLER, "trust", "--yes"], directory).returncode == 0
    return directory


def test_acpx_is_told_the_commands_sees_the_steps_says_yes_and_gets_the_outputs(
    acpx: list[str], project: Path
) -> None:
    done = asked(acpx, project, "--approve-all", "--format", "json", "/hello Ada Lovelace")

    frames = [json.loads(line) for line in done.stdout.splitlines()]
    updates = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    told = [each for each in updates if each["sessionUpdate"] == "available_commands_update"]
    command, *_about_runs = told[0]["availableCommands"]
    assert command == {"name": "hello", "description": "Greet somebody", "input": {"hint": "name"}}
    [answer] = [frame for frame in frames if "stopReason" in frame.get("result", {})]
    shown = Shown(updates, answer)
    assert shown.reason == "end_turn"
    assert (shown.status("sure"), shown.output("greet")) == ("completed", "Hello, Ada Lovelace!\n")
    assert shown.meta["outputs"] == {"said": "Hello, Ada Lovelace!"}
    assert done.returncode == 0, done.stderr


def test_acpx_says_no_and_prints_what_came_out(acpx: list[str], project: Path) -> None:
    done = asked(acpx, project, "--deny-all", "--format", "quiet", "/hello Ada")

    assert done.stdout == "Nobody was greeted.\n"
    assert done.returncode == DENIED, done.stderr


def asked(acpx: list[str], project: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """What becomes of one prompt that acpx is given, with a home of its own."""
    *options, prompt = words
    served = ["--agent", shlex.join([*COUPLER, "serve"])]
    return ran([*acpx, *served, *options, "exec", prompt], project, HOME=str(project.parent))


def ran(command: list[str], cwd: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        command, cwd=cwd, env=os.environ | variables, capture_output=True, text=True, timeout=2 * PATIENCE
    )
