"""`on_deny` of an agent's tool calls: a no ends the step as the workflow says, whoever said it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tables import table
from workflow.project import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

FLOW = """
steps:
  - id: push
    agent: claude
    prompt: go
    tools: {allow: ["execute(git status)"]}
    approve: {tools: ["execute(git push *)"]GATE}
  - {id: after, run: echo after}
"""


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path) -> Project:
    project = Project(tmp_path)
    project.agent("claude").answers({"runs": ["git push origin"], "says": "I went on."})
    return project


ENDINGS = {
    "fail": (3, {"push": "failed"}, "denied"),
    "skip": (0, {"push": "denied", "after": "success"}, None),
    "stop": (130, {"push": "cancelled"}, None),
    None: (0, {"push": "success", "after": "success"}, None),
}
"""The exit code, the statuses of the steps and the kind of the failure after a no."""


@table(
    "on_deny, gate, words",
    [
        (on_deny, gate, words)
        for on_deny in ENDINGS
        for gate, words in (
            ("", ["--no"]),
            ("", []),
            (", default: deny", []),
        )
    ],
)
def test_a_no_to_a_tool_call_ends_the_step_as_on_deny_says(
    project: Project, on_deny: str | None, gate: str, words: list[str]
) -> None:
    code, statuses, kind = ENDINGS[on_deny]
    said = "" if on_deny is None else f", on_deny: {on_deny}"
    workflow = project.write("flow.yaml", FLOW.replace("GATE", said + gate))

    ran = project.run(workflow, *words)

    assert ran.exit_code == code, ran
    assert ran.statuses == statuses, ran
    assert (ran.result("push").get("error") or {}).get("kind") == kind, ran
    if kind is not None:
        assert "git push origin" in ran.result("push")["error"]["message"]
        assert f"coupler resume {ran.id} --yes" in ran.stderr


def test_a_yes_lets_the_agent_go_on_whatever_on_deny_says(project: Project) -> None:
    workflow = project.write("flow.yaml", FLOW.replace("GATE", ", on_deny: fail"))

    ran = project.run(workflow, "--yes")

    assert (ran.exit_code, ran.result("push")["text"]) == (0, "I went on."), ran


def test_a_step_that_failed_after_a_no_is_asked_again_when_the_run_is_resumed(project: Project) -> None:
    workflow = project.write("flow.yaml", FLOW.replace("GATE", ", on_deny: fail"))
    first = project.run(workflow, "--no")

    ran = project.resume(first.id, "--yes")

    assert first.exit_code == 3, first
    assert ran.exit_code == 0, ran
    assert project.agent("claude").tools == [("git push origin", False), ("git push origin", True)]


def test_on_deny_also_holds_for_a_call_that_a_rule_of_the_user_asks_about(
    project: Project, coupler_home: Path
) -> None:
    coupler_home.mkdir(parents=True, exist_ok=True)
    (coupler_home / "coupler.toml").write_text('[permissions]\nask = ["execute(git *)"]\n')
    workflow = project.write("flow.yaml", FLOW.replace("GATE", ", on_deny: fail, default: allow"))

    ran = project.run(workflow)

    assert (ran.exit_code, ran.statuses) == (3, {"push": "failed"}), ran


def test_a_no_to_what_the_gate_is_not_about_ends_nothing(project: Project, coupler_home: Path) -> None:
    coupler_home.mkdir(parents=True, exist_ok=True)
    (coupler_home / "coupler.toml").write_text('[permissions]\nask = ["execute(make *)"]\n')
    project.agent("claude").answers({"runs": ["make install"], "says": "I went on."})
    workflow = project.write("flow.yaml", FLOW.replace("GATE", ", on_deny: fail"))

    ran = project.run(workflow, "--no")

    assert (ran.exit_code, ran.result("push")["text"]) == (0, "I went on."), ran


def test_a_conversation_ends_as_on_deny_says(project: Project) -> None:
    flow = FLOW.replace("agent: claude", "converse: claude\n    max_turns: 1")
    for on_deny in ("fail", "skip", "stop"):
        code, statuses, _ = ENDINGS[on_deny]
        workflow = project.write("flow.yaml", flow.replace("GATE", f", on_deny: {on_deny}"))

        ran = project.run(workflow, "--no")

        assert (ran.exit_code, ran.statuses) == (code, statuses), ran


def test_the_hooks_of_an_agent_run_however_a_no_ends_its_step(project: Project) -> None:
    hooks = """
agents:
  pusher:
    agent: claude
    hooks:
      end: [{run: echo end >> hooks.log}]
      error: [{run: echo error >> hooks.log}]
      cancel: [{run: echo cancel >> hooks.log}]
"""
    for on_deny, told in (("fail", "error end"), ("skip", "end"), ("stop", "cancel end")):
        project.write("hooks.log", "")
        flow = hooks + FLOW.replace("GATE", f", on_deny: {on_deny}").replace("agent: claude", "agent: pusher")

        ran = project.run(project.write("flow.yaml", flow), "--no")

        assert project.read("hooks.log").split() == told.split(), (on_deny, ran)


DEFAULTS = """
steps:
  - id: work
    agent: claude
    prompt: go
    tools: {allow: ["execute(git *)", "execute(rm *)"]}
    approve: {tools: ["execute(rm *)", "execute(ls *)"], default: allow}
"""


@table(
    "command, is_run",
    [
        ("ls src", True),
        ("rm x.txt", True),
        # It may be what the user denies: the workflow's default is not the user's yes.
        ("git $X", False),
        ("ls src && git $X", False),
        # It may destroy: somebody has to see it.
        ("rm -rf $DIR", False),
        ("rm -rf /", False),
    ],
)
def test_a_workflows_default_answers_its_own_questions_alone(
    project: Project, coupler_home: Path, command: str, is_run: bool
) -> None:
    coupler_home.mkdir(parents=True, exist_ok=True)
    (coupler_home / "coupler.toml").write_text('[permissions]\ndeny = ["execute(git push *)"]\n')
    agent = project.agent("claude").answers({"runs": [command], "says": "I went on."})
    workflow = project.write("flow.yaml", DEFAULTS)

    ran = project.run(workflow)

    assert ran.exit_code == 0, ran
    assert agent.tools[-1] == (command, is_run), ran
