"""Agents that speak at the same time, word by word in turns, in a pipe and in an editor."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from workflow.agent_stage import Script
from workflow.project import Project
from workflow.served_project import opened, served, write_workflow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="its agents wait for each other by files")

TAKING_TURNS = """
import pathlib, time

def wait_for(name):
    while not pathlib.Path(name).exists():
        time.sleep(0.001)

for prompt in prompts():
    for number, word in enumerate(WORDS):
        send(say(word))
        pathlib.Path(f"ME{number}").touch()
        wait_for(f"OTHER{number}")
    if "ME" == "a":
        # The other step is over, and shown so, before this one goes on.
        wait_for("b-over")
        send(say("Still here."))
    send(end(prompt))
"""

WORDS = ["The ", "first ", "line\n", "and ", "the ", "last. "]

FLOW = """
steps:
  - id: both
    parallel:
      - {id: a, agent: ONE, prompt: go}
      - - {id: b, agent: TWO, prompt: go}
        - {id: after, run: touch b-over}
"""


def flow(script: Script) -> str:
    agents = [
        script(TAKING_TURNS.replace("WORDS", repr(WORDS)).replace("ME", me).replace("OTHER", other))
        for me, other in (("a", "b"), ("b", "a"))
    ]
    one, two = (json.dumps(shlex.join(agent.command)) for agent in agents)
    return FLOW.replace("ONE", one).replace("TWO", two)


def test_a_pipe_gets_whole_lines_of_each(tmp_path: Path, script: Script) -> None:
    project = Project(tmp_path)
    project.write("flow.yaml", flow(script))

    done = project.coupler_text("run", "./flow.yaml")
    run = done.stdout.split("the run ")[1].split()[0]

    assert done.returncode == 0, done
    for written in (done.stdout, project.coupler_text("runs", "logs", run).stdout):
        lines = [line.strip() for line in written.splitlines() if " > " in line]
        assert [line for line in lines if line.startswith("both.a")] == [
            "both.a > The first line",
            "both.a > and the last. Still here.",
        ]
        assert [line for line in lines if "both" in line and not line.startswith("both.a")] == [
            "both.b > The first line",
            "both.b > and the last.",
        ]


def test_an_editor_shows_each_message_whole_though_another_branch_has_ended(
    tmp_path: Path, script: Script
) -> None:
    project, home = Project(tmp_path), tmp_path / "home"
    write_workflow(home / "workflows", "flow", flow(script))
    with served(home=home, cwd=project.directory) as client:
        shown = opened(client, project.directory).prompt("/flow")

    said = [message for message in shown.messages if message.startswith("**both")]
    assert sorted(each.partition("\n\n")[2].strip() for each in said) == [
        "The first line\nand the last.",
        "The first line\nand the last. Still here.",
    ]


TYPED = """
for prompt in prompts():
    send(say('{"files": '), say('["app.py"]}'), end(prompt))
"""


def test_a_typed_answer_stands_in_the_call_of_its_step_and_not_in_the_chat(
    tmp_path: Path, script: Script
) -> None:
    project, home = Project(tmp_path), tmp_path / "home"
    agent = json.dumps(shlex.join(script(TYPED).command))
    schema = "{type: object, properties: {files: {type: array, items: {type: string}}}, required: [files]}"
    write_workflow(
        home / "workflows",
        "flow",
        f"steps: [{{id: list, agent: {agent}, prompt: go, output: {schema}}}]\n"
        "outputs: {first: '{{ steps.list.output.files[0] }}'}\n",
    )
    with served(home=home, cwd=project.directory) as client:
        shown = opened(client, project.directory).prompt("/flow")

    assert shown.messages == ["app.py"]
    assert '{"files": ["app.py"]}' in shown.output("list")
    assert shown.call("list")["rawOutput"] == {"files": ["app.py"]}
