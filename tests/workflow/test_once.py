"""A step that is to run `once`, after a crash in its midst: it runs again, was done, or the run stops."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import forked
from agent.sessions.steps import reopen
from cli.typing_at import Typist
from coder.waiting import until
from raw_client import COUPLER, PATIENCE
from workflow.served_project import Editor, opened, served, write_workflow

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")

WAIT = "test -e go || sleep 600"

DEPLOY = f"""
    steps:
      - {{id: build, run: echo built >> log}}
      - {{id: deploy, run: "echo deploying >> log; {WAIT}; echo deployed", once: true}}
      - id: after
        run: "echo after '{{{{ steps.deploy.stdout | trim }}}}' {{{{ steps.deploy.exit_code }}}} >> log"
"""

LOOP = f"""
    steps:
      - {{id: rounds, set: {{n: vars.n | default(0) + 1}}}}
      - id: fixes
        for_each: [a, b]
        max_concurrent: 2
        steps:
          - id: fix
            run: "echo {{{{ item }}}}{{{{ vars.n }}}} >> log; test {{{{ vars.n }}}} = 1 || {{ {WAIT}; }}"
            output: lines
            once: true
      - {{id: twice, if: vars.n < 2, run: "true", goto: {{step: rounds, max: 1}}}}
    outputs:
      fixed: "{{{{ steps.fixes.results | map(attribute='fix') | map(attribute='output') | list }}}}"
"""


class Deployment:
    """A directory with a workflow, which was killed in the midst of a step that is to run once."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = ""

    def killed(self, text: str, lines: int) -> None:
        """Run the workflow, and kill it when so many lines are in the log."""
        (self.directory / "flow.yaml").write_text(textwrap.dedent(text))
        process = self._start("run", "./flow.yaml", "--json")
        until(lambda: len(self.log) >= lines)
        process.kill()
        written, _ = process.communicate()
        self.run = json.loads(written.splitlines()[0])["run"]

    def resume(self, *words: str, code: int = 0) -> str:
        """What the command writes; in scripts, nobody is there to be asked."""
        process = self._start("resume", self.run, *words)
        written, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == code, errors
        return str(written + errors)

    def show(self) -> str:
        words = [*COUPLER, "runs", "show", self.run]
        return str(forked.run(words, cwd=self.directory, capture_output=True, text=True).stdout)

    @property
    def log(self) -> list[str]:
        file = self.directory / "log"
        return file.read_text().splitlines() if file.exists() else []

    def _start(self, *words: str) -> forked.Popen:
        return forked.Popen(
            [*COUPLER, *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=self.directory,
        )


@pytest.fixture
def deployment(tmp_path: Path, coupler_home: Path) -> Deployment:
    return Deployment(tmp_path)


def test_without_a_terminal_both_ways_to_go_on_are_named_and_work(deployment: Deployment) -> None:
    deployment.killed(DEPLOY, lines=2)
    run = deployment.run

    told = deployment.resume(code=5)
    assert "deploy was interrupted, and is to run once: it may be done." in told
    assert f"`coupler resume {run} --done deploy`" in told
    assert f"`coupler resume {run} --yes`" in told
    assert f"`coupler resume {run} --done deploy`" in deployment.show()

    told = deployment.resume("--done", "deploy")
    assert "deploy: success after 0.0 s, marked as done" in told
    assert deployment.log == ["built", "deploying", "after  0"]
    assert "  deploy  success, 0.0 s, marked as done  echo deploying" in deployment.show()


def test_it_runs_again_if_that_is_said(deployment: Deployment) -> None:
    deployment.killed(DEPLOY, lines=2)
    (deployment.directory / "go").touch()

    deployment.resume("--yes")

    assert deployment.log == ["built", "deploying", "deploying", "after deployed 0"]
    assert "marked" not in deployment.show()


def test_a_run_that_stops_there_asks_again_when_it_is_resumed(deployment: Deployment) -> None:
    deployment.killed(DEPLOY.replace("once: true", "once: true, on_error: continue"), lines=2)

    assert "deploy was interrupted, and is not to run again" in deployment.resume("--no", code=130)
    assert "--done deploy" in deployment.resume(code=5)
    deployment.resume("--done", "deploy")

    assert deployment.log == ["built", "deploying", "after  0"]


def test_several_steps_are_named_as_their_places_are_shown(deployment: Deployment) -> None:
    deployment.killed(LOOP, lines=4)
    assert sorted(deployment.log) == ["a1", "a2", "b1", "b2"]

    told = deployment.resume("--done", "fixes[0].fix", code=1)
    assert f"no step of the run {deployment.run} that is to run `once` was interrupted there" in told
    assert "these were: " in told
    assert {"fixes#2[0].fix", "fixes#2[1].fix"} == {*told.rsplit("these were: ")[1].strip().split(", ")}
    assert "exclude each other" in deployment.resume("--done", "x", "--from", "y", code=1)

    told = deployment.resume("--done", "fixes#2[0].fix", code=5)
    assert "fixes#2[1].fix was interrupted" in told
    assert "--done 'fixes#2[1].fix'" in told
    told = deployment.resume("--done", "fixes#2[1].fix", "--quiet")

    assert json.loads(told) == {"fixed": [[], []]}
    assert len(deployment.log) == 4


def test_a_step_that_may_be_repeated_is_not_marked(deployment: Deployment) -> None:
    deployment.killed(DEPLOY.replace(", once: true", ""), lines=2)

    assert "was interrupted there: no step of it was" in deployment.resume("--done", "deploy", code=1)
    (deployment.directory / "go").touch()
    deployment.resume()

    assert deployment.log == ["built", "deploying", "deploying", "after deployed 0"]


def test_what_is_read_of_a_step_without_an_output_is_a_clear_error(deployment: Deployment) -> None:
    flow = f"""
        steps:
          - {{id: deploy, run: "echo deploying >> log; {WAIT}", output: json, once: true}}
          - {{id: after, run: "echo {{{{ steps.deploy.output.url }}}} >> log"}}
    """
    deployment.killed(flow, lines=1)

    told = deployment.resume("--done", "deploy", code=3)

    assert "`steps.deploy.output` is null: it has no `url`" in told


class TestAtATerminal:
    def resume(self, deployment: Deployment) -> Typist:
        env = {**os.environ, "TERM": "xterm-256color", "NO_COLOR": "1"}
        return Typist(*COUPLER, "resume", deployment.run, cwd=deployment.directory, env=env)

    def test_it_was_done(self, deployment: Deployment) -> None:
        deployment.killed(DEPLOY, lines=2)

        with self.resume(deployment) as person:
            person.sees("? deploy: deploy was interrupted, and is to run once: it may be done.")
            person.sees("[r]un it again, it was [d]one, or [s]top? ")
            person.types("\n")
            person.sees("Answer r, d or s: ")
            person.types("d\n")
            assert person.ends() == 0
        assert "marked as done" in person.shown
        assert deployment.log == ["built", "deploying", "after  0"]

    def test_it_runs_again(self, deployment: Deployment) -> None:
        deployment.killed(DEPLOY, lines=2)
        (deployment.directory / "go").touch()

        with self.resume(deployment) as person:
            person.sees("or [s]top? ")
            person.types("r\n")
            assert person.ends() == 0
        assert deployment.log == ["built", "deploying", "deploying", "after deployed 0"]

    def test_it_stops_or_is_left(self, deployment: Deployment) -> None:
        deployment.killed(DEPLOY, lines=2)

        for answer, code in (("s\n", 130), ("\x04", 5)):
            with self.resume(deployment) as person:
                person.sees("or [s]top? ")
                person.types(answer)
                assert person.ends() == code
        assert deployment.log == ["built", "deploying"]


@pytest.mark.parametrize(
    ("choice", "log"),
    [
        ("again", ["built", "deploying", "deploying", "after deployed 0"]),
        ("done", ["built", "deploying", "after  0"]),
        ("stop", ["built", "deploying"]),
    ],
)
def test_an_editor_offers_the_three_choices(tmp_path: Path, choice: str, log: list[str]) -> None:
    write_workflow(tmp_path / "workflows", "go", textwrap.dedent(DEPLOY))
    with served(home=tmp_path, cwd=tmp_path) as client:
        editor = opened(client, tmp_path)
        editor.begin("/go")
        until(lambda: (tmp_path / "log").exists() and "deploying" in (tmp_path / "log").read_text())
        client.process.send_signal(signal.SIGKILL)
        client.wait()
    (tmp_path / "go").touch()

    with served(home=tmp_path, cwd=tmp_path) as client:
        reopen(client, "session/load", editor.session, tmp_path)
        editor = Editor(client, editor.session)
        shown = editor.prompt("/resume", choice)

    (asked,) = editor.asked
    assert [(each["optionId"], each["name"], each["kind"]) for each in asked["options"]] == [
        ("again", "Run it again", "allow_once"),
        ("done", "It was done, go on", "allow_once"),
        ("stop", "Stop", "reject_once"),
    ]
    assert asked["toolCall"]["title"].startswith("deploy was interrupted, and is to run once")
    assert (tmp_path / "log").read_text().splitlines() == log
    (call,) = (each for id, each in shown.calls.items() if "/deploy" in id)
    assert call["status"] == ("failed" if choice == "stop" else "completed")
    assert ("marked as done" in json.dumps(call)) == (choice == "done")
    assert any("(marked as done)" in entry for entry in shown.plan) == (choice == "done")
