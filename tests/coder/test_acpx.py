"""A client that nobody here wrote, acpx, drives the coder over `coupler serve`."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
from pathlib import Path

import pytest

import forked
from coder.script import ScriptedModel, use
from coder.served_coder import KEY, surroundings, tree, write
from labs import others
from raw_client import COUPLER, PATIENCE
from workflow.served_project import Shown

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

DENIED = 5
"""The exit code of acpx when something was not permitted, whatever became of it."""

EDIT = use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}])


@pytest.fixture(scope="module")
def acpx() -> list[str]:
    """Its command. Where it cannot be had the test is skipped; under CI that is an error."""
    try:
        return others.acpx()
    except others.MissingError as error:
        if os.environ.get("CI"):
            pytest.fail(str(error))
        pytest.skip(str(error))


def asked(
    acpx: list[str], model: ScriptedModel, project: Path, *words: str
) -> subprocess.CompletedProcess[str]:
    """What becomes of one prompt that acpx is given."""
    *options, prompt = words
    served = ["--agent", shlex.join([*COUPLER, "serve"])]
    env = os.environ | surroundings(project.parent / "home", model.server.url)
    command = [*acpx, *served, *options, "exec", prompt]
    return forked.run(command, cwd=project, env=env, capture_output=True, text=True, timeout=3 * PATIENCE)


def test_acpx_has_a_file_edited_and_a_command_run(
    acpx: list[str], scripted_model: ScriptedModel, project: Path
) -> None:
    write(project, {"a.py": "one\n"})
    scripted_model.plays(
        use("read_file", path="a.py"), EDIT, use("run_command", command="cat a.py > b.py"), "It says two."
    )

    done = asked(acpx, scripted_model, project, "--approve-all", "--format", "json", "Make it two")

    assert tree(project) == {"a.py": "two\n", "b.py": "two\n"}
    frames = [json.loads(line) for line in done.stdout.splitlines()]
    updates = [frame["params"]["update"] for frame in frames if frame.get("method") == "session/update"]
    [answer] = [frame for frame in frames if "stopReason" in frame.get("result", {})]
    shown = Shown(updates, answer)
    assert shown.reason == "end_turn"
    assert shown.last_message == "It says two."
    assert [call["kind"] for call in shown.calls.values()] == ["read", "edit", "execute"]
    assert {call["status"] for call in shown.calls.values()} == {"completed"}
    assert done.returncode == 0, done.stderr
    assert KEY not in done.stdout + done.stderr
    assert scripted_model.is_over


def test_acpx_says_no_and_prints_what_the_coder_says_to_that(
    acpx: list[str], scripted_model: ScriptedModel, project: Path
) -> None:
    write(project, {"a.py": "one\n"})
    scripted_model.plays(use("read_file", path="a.py"), EDIT, "Then it stays.")

    done = asked(acpx, scripted_model, project, "--deny-all", "--format", "quiet", "Make it two")

    assert tree(project) == {"a.py": "one\n"}
    assert done.stdout == "Then it stays.\n"
    assert done.returncode == DENIED, done.stderr
