"""A cancel in the very moment in which a step's work is over: its result is kept, and nothing is repeated.

To have both at once, `coupler run` is stopped (SIGSTOP), the work of the step comes to its end, the cancel is
sent, and the program goes on.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

import forked
from cli.typing_at import Typist
from client.stage import Scripted
from coder.waiting import pid_in, until
from raw_client import COUPLER, PATIENCE
from workflow.agent_stage import Script
from workflow.served_project import opened, served, write_workflow

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc says what a stopped process has got")

COMMANDS = 40
LONGEST_DELAY = 0.006
"""Seconds after a command's line in which the cancel comes."""

CANCELS = ("SIGTERM", "SIGINT", "coupler runs cancel")


class Project:
    """A directory with a workflow that is run and resumed."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.run = ""

    def write(self, text: str, agent: Scripted | None = None) -> None:
        command = "" if agent is None else json.dumps(shlex.join(agent.command))
        (self.directory / "flow.yaml").write_text(textwrap.dedent(text).replace("AGENT", command))

    def read(self, name: str) -> list[str]:
        file = self.directory / name
        return file.read_text().splitlines() if file.exists() else []

    def start(self, *words: str) -> forked.Popen:
        return forked.Popen(
            [*COUPLER, *(words or ("run", "./flow.yaml")), "--json"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.directory,
            start_new_session=True,
        )

    @contextmanager
    def running(self) -> Iterator[forked.Popen]:
        """`coupler run`, which is gone afterwards."""
        process = self.start()
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def ended(self, process: forked.Popen) -> int:
        """The exit code of a run; its id is noted."""
        written, errors = process.communicate(timeout=PATIENCE)
        self.run = self.run or json.loads(written.splitlines()[0])["run"]
        self.errors = errors.decode()
        return int(process.returncode)

    def resume(self) -> dict[str, Any]:
        """Run to the end; all that happened since, by the kind of the last event of each."""
        process = self.start("resume", self.run)
        written, errors = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0, errors.decode()
        return {event["event"]: event for event in map(json.loads, written.splitlines())}


@pytest.fixture
def project(tmp_path: Path, coupler_home: Path) -> Project:
    return Project(tmp_path)


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    """A process that does nothing meanwhile; what comes for it waits."""
    os.kill(pid, signal.SIGSTOP)
    until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def cancelled(project: Project, pid: int, how: str) -> Iterator[None]:
    """The cancel of a run whose process is stopped; it waits there when this is entered."""
    if how.startswith("SIG"):
        os.kill(pid, getattr(signal, how))
        yield
        return
    canceller = forked.Popen([*COUPLER, *how.split()[1:], _listed(project)[0]], cwd=project.directory)
    until(lambda: _has_waiting(pid, signal.SIGINT))
    yield
    assert canceller.wait(PATIENCE) == 0


def _listed(project: Project) -> list[str]:
    """The id, start and status of the run; nothing if there is none yet."""
    words = [*COUPLER, "runs", "list"]
    done = forked.run(words, cwd=project.directory, capture_output=True, text=True, check=True)
    return [word for line in done.stdout.splitlines() for word in line.split("\t")[:3]]


def _status(project: Project) -> str:
    return _listed(project)[2] if project.run else ""


def _has_waiting(pid: int, number: signal.Signals) -> bool:
    status = Path(f"/proc/{pid}/status").read_text()
    (waiting,) = (line.split()[1] for line in status.splitlines() if line.startswith("ShdPnd:"))
    return bool(int(waiting, 16) >> (number - 1) & 1)


def _is_over(pid: int) -> bool:
    """Whether a process has ended, although its parent has not looked yet."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("how", CANCELS)
@pytest.mark.parametrize("end", ["", "exit 3"], ids=["good", "bad"])
def test_a_command_that_has_ended_when_the_cancel_comes_is_not_run_again(
    project: Project, how: str, end: str
) -> None:
    os.mkfifo(project.directory / "gate")
    project.write(f"""
        steps:
          - id: work
            run: "echo $$ > pid; read line < gate; echo work >> done; echo told; {end}"
            on_error: continue
          - {{id: after, run: echo after >> done}}
        hooks:
          cancel: [{{id: seen, run: "echo {{{{ steps.work.stdout | trim }}}} >> hook"}}]
        outputs: {{code: "{{{{ steps.work.exit_code }}}}", text: "{{{{ steps.work.stdout }}}}"}}
    """)

    with project.running() as process, ExitStack() as cancelling:
        pid = pid_in(project.directory / "pid")
        with stopped(process.pid):
            (project.directory / "gate").write_text("go\n")
            until(lambda: _is_over(pid))
            cancelling.enter_context(cancelled(project, process.pid, how))
        code = project.ended(process)
    assert (code, project.read("done"), project.read("hook")) == (130, ["work"], ["told"]), project.errors
    finished = project.resume()["run_finished"]

    assert project.read("done") == ["work", "after"]
    assert finished["outputs"] == {"code": 3 if end else 0, "text": "told\n"}


def test_a_command_that_a_shutdown_ends_with_us_is_repeated(project: Project) -> None:
    project.write("""
        steps:
          - id: work
            run: echo begun >> done; echo $$ > pid; test -e go || sleep 600
            on_error: continue
    """)

    with project.running() as process:
        pid = pid_in(project.directory / "pid")
        with stopped(process.pid):
            os.kill(pid, signal.SIGTERM)
            until(lambda: _is_over(pid))
            os.kill(process.pid, signal.SIGTERM)
        assert project.ended(process) == 130
    (project.directory / "go").touch()
    project.resume()

    assert project.read("done") == ["begun", "begun"]


def test_commands_of_all_branches_are_kept(project: Project) -> None:
    for item in "ab":
        os.mkfifo(project.directory / f"gate-{item}")
    project.write("""
        steps:
          - id: each
            for_each: [a, b]
            max_concurrent: 2
            steps:
              - id: work
                run: "echo $$ > pid-{{ item }}; read line < gate-{{ item }}; echo {{ item }} >> done"
          - {id: after, run: echo after >> done}
    """)

    with project.running() as process:
        pids = [pid_in(project.directory / f"pid-{item}") for item in "ab"]
        with stopped(process.pid):
            for item in "ab":
                (project.directory / f"gate-{item}").write_text("go\n")
            until(lambda: all(map(_is_over, pids)))
            os.kill(process.pid, signal.SIGTERM)
        assert project.ended(process) == 130
    project.resume()

    assert sorted(project.read("done")) == ["a", "after", "b"]


SAID = '["All is well."]'
ANSWERING = f"""
import time
SAID = {SAID!r}

for prompt in prompts():
    note("prompted", text_of(prompt))
    while not os.path.exists("go"):
        time.sleep(0.005)
    send(say(SAID), end(prompt))
    open("answered", "w").close()
"""


@pytest.mark.parametrize(
    "step",
    ["agent: AGENT", "agent: AGENT, output: {type: array}", "converse: AGENT, max_turns: 1"],
    ids=["an answer", "an output", "a conversation"],
)
def test_an_agent_that_has_answered_when_the_cancel_comes_is_not_asked_again(
    project: Project, script: Script, step: str
) -> None:
    agent = script(ANSWERING)
    outputs = 'outputs: {said: "{{ steps.x.text }}"}'
    project.write(f"steps: [{{id: x, {step}, prompt: go}}]\n{outputs}", agent)

    with project.running() as process:
        until(lambda: agent.noted("prompted"))
        with stopped(process.pid):
            (project.directory / "go").touch()
            until((project.directory / "answered").exists)
            os.kill(process.pid, signal.SIGTERM)
        assert project.ended(process) == 130
    finished = project.resume()["run_finished"]

    assert finished["outputs"] == {"said": SAID}
    assert len(agent.noted("prompted")) == 1


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancel_while_hooks_of_an_agent_run_does_not_take_its_answer(
    project: Project, script: Script, cancels: int
) -> None:
    agent = script(ANSWERING)
    (project.directory / "go").touch()
    os.mkfifo(project.directory / "gate")
    project.write(
        """
        agents:
          helper:
            agent: AGENT
            hooks: {end: [{id: tidy, run: "echo $$ > pid; read line < gate; echo tidied >> done"}]}
        steps: [{id: x, agent: helper, prompt: go}]
        outputs: {said: "{{ steps.x.text }}"}
        """,
        agent,
    )

    with project.running() as process:
        pid = pid_in(project.directory / "pid")
        for _ in range(cancels):
            os.kill(process.pid, signal.SIGTERM)
            until(lambda: not _has_waiting(process.pid, signal.SIGTERM))
        if cancels == 1:
            (project.directory / "gate").write_text("go\n")
        else:
            until(lambda: _is_over(pid))
        assert project.ended(process) == 130
    finished = project.resume()["run_finished"]

    assert finished["outputs"] == {"said": SAID}
    assert agent.noted("prompted") == ["go"]
    assert project.read("done") == (["tidied"] if cancels == 1 else [])


def test_an_answer_at_the_terminal_is_kept_although_the_run_is_cancelled(
    project: Project, tmp_path: Path
) -> None:
    project.write("""
        steps:
          - {id: gate, run: echo went >> done, approve: Go on?}
          - {id: name, ask: Which name?}
        outputs: {name: "{{ steps.name.text }}"}
    """)
    env = {**os.environ, "TERM": "xterm-256color"}

    with Typist(*COUPLER, "run", "./flow.yaml", cwd=tmp_path, env=env) as person:
        person.sees("? gate: Go on? [y/N] ")
        with stopped(person.process.pid):
            person.types("y\n")
            person.sees("[y/N] y\n")
            os.kill(person.process.pid, signal.SIGTERM)
        assert person.ends() == 130
    assert project.read("done") == []
    run = _listed(project)[0]
    with Typist(*COUPLER, "resume", run, cwd=tmp_path, env=env) as person:
        person.sees("? name: Which name?")
        with stopped(person.process.pid):
            person.types("Ann\n")
            person.sees("> Ann\n")
            os.kill(person.process.pid, signal.SIGTERM)
        assert person.ends() == 130
    assert project.read("done") == ["went"]
    project.run = run

    assert project.resume()["run_finished"]["outputs"] == {"name": "Ann"}


def test_an_answer_in_an_editor_is_kept_although_the_turn_is_cancelled(tmp_path: Path) -> None:
    write_workflow(
        tmp_path / "workflows", "go", "steps: [{id: gate, run: echo went >> done, approve: Go on?}]"
    )

    with served(home=tmp_path, cwd=tmp_path) as client:
        editor = opened(client, tmp_path)
        turn = editor.begin("/go")
        frames = editor.until("session/request_permission")
        answer = {"outcome": {"outcome": "selected", "optionId": "allow"}}
        cancel = {"method": "session/cancel", "params": {"sessionId": editor.session}}
        client.send({"id": frames[-1]["id"], "result": answer}, cancel)
        first = editor.finish(turn, before=[frame for frame in frames if "id" not in frame])
        assert (first.reason, (tmp_path / "done").exists()) == ("cancelled", False)

        assert editor.prompt("/resume").reason == "end_turn"
        assert not editor.asked
    assert (tmp_path / "done").read_text() == "went\n"


@pytest.mark.parametrize("how", CANCELS)
def test_no_command_that_has_ended_runs_again_whenever_the_cancel_comes(project: Project, how: str) -> None:
    """Each command says in a file what it has done, and in another that it was told to end before it had."""
    run = "trap 'echo {id} >> told; exit 1' TERM; echo {id} >> done"
    steps = [f'  - {{id: s{n}, run: "{run.format(id=f"s{n}")}"}}' for n in range(COMMANDS)]
    # However late the first cancel comes, the run is not over.
    steps.insert(-1, '  - {id: waits, run: "until [ -e again ]; do sleep 0.02; done"}')
    project.write("\n".join(["steps:", *steps, ""]))
    chance = random.Random()
    cancels = 0

    while _status(project) != "success":
        process = project.start(*(("resume", project.run) if project.run else ()))
        cancelling = threading.Thread(target=_cancel_soon, args=(project, process, how, chance.random()))
        cancelling.start()
        project.ended(process)
        cancelling.join()
        assert _status(project) in ("success", "cancelled"), project.errors
        cancels += 1
        (project.directory / "again").touch()

    done, told = Counter(project.read("done")), Counter(project.read("told"))
    assert set(done) == {f"s{n}" for n in range(COMMANDS)}
    assert {id: times for id, times in done.items() if times > 1 + told[id]} == {}
    assert cancels > 1


def _cancel_soon(project: Project, process: forked.Popen, how: str, moment: float) -> None:
    """Cancel the run some time after the next command has written its line."""
    before = len(project.read("done"))
    while len(project.read("done")) == before:
        if process.poll() is not None:
            return
    if how.startswith("SIG"):
        time.sleep(moment * LONGEST_DELAY)
        process.send_signal(getattr(signal, how))
    else:
        forked.run(
            [*COUPLER, *how.split()[1:], _listed(project)[0]], cwd=project.directory, capture_output=True
        )
