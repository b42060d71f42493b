"""`run` steps get no variable that holds a secret, but those that the workflow lists under `secrets`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from workflow.project import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

SECRET = {
    "GITHUB_TOKEN": "ghp_0123456789abcdefABCDEF",
    "NPM_TOKEN": "npm_0123456789abcdefABCDEF",
    "DATABASE_URL": "postgres://app:s3cr3t-s3cr3t@db.example.com/app",
}
OPEN = {
    "SSH_AUTH_SOCK": "/tmp/ssh-AbCdEf0123456789Xy/agent.4711",
    "SSH_AGENT_PID": "4711",
    "GPG_AGENT_INFO": "/run/user/1000/gnupg/S.gpg-agent:0:1",
    "XAUTHORITY": "/run/user/1000/.Xauthority",
    "OLDPWD": "/srv/AbCdEf0123456789AbCdEf/app",
    "TOKEN_LIMIT": "4000-of-them-at-most",
    "API_URL": "https://api.example.com/v1",
    "LANG": "C",
}


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path) -> Project:
    project = Project(tmp_path)
    project.env |= {**SECRET, **OPEN}
    return project


def variables(project: Project, file: str = "env.txt") -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in project.read(file).splitlines())


def test_a_command_gets_what_is_no_secret_and_what_the_workflow_lists(project: Project) -> None:
    workflow = project.write(
        "flow.yaml",
        """
        secrets: [GITHUB_TOKEN]
        steps:
          - {id: a, run: env > env.txt, env: {DEPLOY_KEY: "{{ secrets.GITHUB_TOKEN }}"}}
          - {id: b, run: env > bash.txt, shell: bash}
        """,
    )

    ran = project.run(workflow)

    assert ran.exit_code == 0, ran
    for file in ("env.txt", "bash.txt"):
        found = variables(project, file)
        assert {name for name in SECRET if name in found} == {"GITHUB_TOKEN"}
        assert {name: found.get(name) for name in OPEN if name != "OLDPWD"} == {
            name: value for name, value in OPEN.items() if name != "OLDPWD"
        }
    assert variables(project)["DEPLOY_KEY"] == SECRET["GITHUB_TOKEN"]


def test_a_step_that_fails_is_told_what_was_withheld_by_name_alone(project: Project) -> None:
    workflow = project.write(
        "flow.yaml",
        """
        secrets: [GITHUB_TOKEN]
        steps:
          - {id: works, run: "true"}
          - {id: differs, run: exit 1, ok_codes: [1]}
          - {id: fails, run: "echo no login >&2; exit 4"}
        """,
    )

    ran = project.run(workflow)

    assert ran.exit_code == 3, ran
    message = ran.result("fails")["error"]["message"]
    assert message == (
        "The command ended with exit code 4: no login; withheld from its environment: "
        "DATABASE_URL, NPM_TOKEN (list them under `secrets` of the workflow to pass them on)"
    )
    assert message in ran.stderr
    assert "s3cr3t" not in ran.stdout + ran.stderr
    assert [each for each in ("works", "differs") if "withheld" in str(ran.of("step_finished", each))] == []


def test_nothing_is_said_where_nothing_was_withheld(project: Project) -> None:
    for name in SECRET:
        del project.env[name]

    ran = project.run(project.write("flow.yaml", "steps: [{id: fails, run: exit 4}]"))

    assert ran.result("fails")["error"]["message"] == "The command ended with exit code 4."


def test_a_called_workflow_lists_its_own(project: Project) -> None:
    project.write("inner.yaml", "secrets: [NPM_TOKEN]\nsteps: [{run: env > env.txt}]")
    workflow = project.write("flow.yaml", "secrets: [GITHUB_TOKEN]\nsteps: [{call: inner.yaml}]")

    assert project.run(workflow).exit_code == 0

    assert {name for name in SECRET if name in variables(project)} == {"NPM_TOKEN"}


def test_agents_keep_their_environment(project: Project) -> None:
    claude = project.agent("claude").answers({"says": "hello"})

    ran = project.run(project.write("flow.yaml", "steps: [{agent: claude, prompt: go}]"))

    assert ran.exit_code == 0, ran
    assert claude.starts[0]["env"].items() >= SECRET.items()
