"""`coupler resume` runs no file that nobody has trusted, whichever way leads to it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workflow.project import Project, Ran
from workflow.served_project import opened, served

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

FLOW = """
steps:
  - {id: first, run: echo first}
  - {id: second, run: exit 3}
"""
EVIL = FLOW.replace("exit 3", "touch stolen").replace("echo first", "touch stolen")

# The step kills the run in its midst.
INTERRUPTED = """
steps:
  - {id: deploy, run: "kill -9 $PPID; sleep 300", once: true}
  - {id: after, run: echo after}
"""

WITH_AGENT = """
steps:
  - {id: first, run: echo first}
  - {id: second, agent: "bot.py:agent", prompt: go}
"""
FAILING_AGENT = "raise SystemExit(3)\n"
EVIL_AGENT = "open('stolen', 'w').close()\n"

WAYS = ([], ["--from", "first"], ["--yes"])


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path)
    (project.directory / ".git").mkdir()
    return project


def trust(project: Project) -> None:
    assert project.coupler_text("trust", "--yes").returncode == 0


def is_refused(project: Project, ran: Ran) -> bool:
    return (
        ran.exit_code == 1
        and "not trusted yet" in ran.stderr
        and "`coupler trust`" in ran.stderr
        and not (project.directory / "stolen").exists()
    )


@pytest.mark.parametrize("given", ["flow", "./.coupler/workflows/flow.yaml"])
def test_changed_steps_have_to_be_trusted_although_they_are_forced(project: Project, given: str):
    file = project.write(".coupler/workflows/flow.yaml", FLOW)
    if given == "flow":
        trust(project)
    run = project.run(given).id
    file.write_text(EVIL)

    for way in WAYS:
        ran = project.resume(run, "--force", *way)
        assert is_refused(project, ran), (way, ran)

    trust(project)
    assert project.resume(run, "--force").exit_code == 0
    assert (project.directory / "stolen").exists()


@pytest.mark.parametrize("given", ["flow", "./.coupler/workflows/flow.yaml"])
def test_a_changed_python_agent_of_the_directory_is_a_changed_workflow(project: Project, given: str):
    project.write(".coupler/workflows/flow.yaml", WITH_AGENT)
    agent = project.write("bot.py", FAILING_AGENT)
    if given == "flow":
        trust(project)
    run = project.run(given).id
    agent.write_text(EVIL_AGENT)

    for way in WAYS:
        ran = project.resume(run, *way)
        assert "has changed since the run began" in ran.stderr, (way, ran)
        ran = project.resume(run, "--force", *way)
        assert is_refused(project, ran), (way, ran)


@pytest.mark.parametrize("given", ["flow", "./.coupler/workflows/flow.yaml"])
def test_steps_after_one_that_is_said_to_be_done_have_to_be_trusted(project: Project, given: str):
    file = project.write(".coupler/workflows/flow.yaml", INTERRUPTED)
    if given == "flow":
        trust(project)
    run = project.run(given).id
    file.write_text(INTERRUPTED.replace("echo after", "touch stolen"))

    changed = project.resume(run, "--done", "deploy")
    forced = project.resume(run, "--force", "--done", "deploy")

    assert "has changed since the run began" in changed.stderr
    assert is_refused(project, forced), forced

    trust(project)
    ran = project.resume(run, "--force", "--done", "deploy")
    assert (ran.exit_code, ran.statuses) == (0, {"deploy": "success", "after": "success"})
    assert (project.directory / "stolen").exists()


def test_trust_that_was_withdrawn_is_asked_for_before_a_step_is_said_to_be_done(project: Project):
    project.write(".coupler/workflows/flow.yaml", INTERRUPTED)
    trust(project)
    run = project.run("flow").id
    assert project.coupler_text("trust", "--forget").returncode == 0

    assert is_refused(project, project.resume(run, "--done", "deploy"))
    # Nothing was marked as done by the one that was refused.
    trust(project)
    assert project.resume(run).exit_code == 5


def test_a_path_stays_consent_for_what_has_not_changed(project: Project):
    project.write("flow.yaml", FLOW)
    run = project.run("./flow.yaml").id

    for way in WAYS:
        ran = project.resume(run, *way)
        assert (ran.exit_code, ran.statuses["second"]) == (3, "failed"), (way, ran)


def test_trust_that_was_withdrawn_is_asked_for_again(project: Project):
    project.write(".coupler/workflows/flow.yaml", FLOW)
    trust(project)
    run = project.run("flow").id
    assert project.coupler_text("trust", "--forget").returncode == 0

    for way in WAYS:
        assert is_refused(project, project.resume(run, *way)), way


def test_an_editor_resumes_no_changed_workflow_that_is_not_trusted(project: Project, coupler_home: Path):
    file = project.write(".coupler/workflows/flow.yaml", FLOW)
    trust(project)
    with served(home=coupler_home, cwd=project.directory) as client:
        editor = opened(client, project.directory)
        editor.prompt("/flow")
        file.write_text(EVIL)

        refused = editor.prompt("/resume --force")

        assert "not trusted yet" in refused.last_message
        assert not (project.directory / "stolen").exists()
