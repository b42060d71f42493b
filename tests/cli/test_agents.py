"""`coupler agents`: the list, and the doctor in front of agents well and ill."""

from __future__ import annotations

import io
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

import forked
from client.stage import Scripted
from coupler.cli.main import command

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parent.parent.parent
PATIENCE = 120.0

REFERENCE = shlex.join([sys.executable, "-m", "coupler", "serve", str(ROOT / "examples" / "reference.py")])


@pytest.fixture
def scripted(tmp_path):
    made = []

    def make(body):
        made.append(Scripted(tmp_path, len(made), body))
        return made[-1]

    return make


def agents(*words, env=None, cwd=None):
    return forked.run(
        [sys.executable, "-m", "coupler", "agents", *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
        check=False,
    )


def examined(agent, *words):
    command = shlex.join(agent.command) if isinstance(agent, Scripted) else agent
    done = agents("doctor", command, "--json", *words)
    diagnosis = json.loads(done.stdout)
    assert done.returncode == (0 if diagnosis["is_healthy"] else 1), done.stderr
    return diagnosis, {finding["about"]: finding for finding in diagnosis["findings"]}


class TestTheList:
    def test_it_says_what_is_installed_what_is_not_and_what_to_do(self, tmp_path, coupler_home, monkeypatch):
        (tmp_path / "goose").write_text("#!/bin/sh\n")
        (tmp_path / "goose").chmod(0o755)
        coupler_home.mkdir()
        (coupler_home / "coupler.toml").write_text('[agents.mine]\ncommand = "goose mine"\n')
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv("COUPLER_HOME", str(coupler_home))
        monkeypatch.chdir(tmp_path)
        stream = io.StringIO()
        monkeypatch.setenv("COLUMNS", "200")
        stream.isatty = lambda: True
        monkeypatch.setattr("sys.stdout", stream)
        monkeypatch.setenv("NO_COLOR", "1")

        command.main(["agents"], standalone_mode=False)

        lines = [line.rstrip() for line in stream.getvalue().splitlines()]
        assert lines[0].split() == ["NAME", "START", "COMMAND"]
        assert "goose     installed      goose acp" in lines
        assert "mine      installed      goose mine" in lines
        assert lines[-1].strip() == f"from {coupler_home}/coupler.toml line 1"
        kimi = lines.index("kimi      not installed  kimi acp")
        assert lines[kimi + 1].strip() == "Install it with `uv tool install kimi-cli`."
        gemini = lines.index("gemini    not installed  gemini --acp")
        assert "is offered no files through Coupler" in lines[gemini + 2]

    def test_a_pipe_gets_a_line_with_tabs_for_each(self, tmp_path):
        done = agents(env={"PATH": str(tmp_path)}, cwd=tmp_path)
        rows = {line.split("\t")[0]: line.split("\t") for line in done.stdout.splitlines()}
        assert rows["kimi"][1:] == [
            "missing",
            "kimi acp",
            "Kimi Code",
            "Install it with `uv tool install kimi-cli`.",
        ]
        assert rows["coder"][1::3] == ["installed", ""]

    def test_programs_get_the_same_as_json(self, tmp_path):
        for name in ("npx", "codex"):
            (tmp_path / name).write_text("#!/bin/sh\n")
            (tmp_path / name).chmod(0o755)
        rows = {row["name"]: row for row in json.loads(agents("--json", env={"PATH": str(tmp_path)}).stdout)}
        assert {"claude", "codex", "gemini", "copilot", "opencode", "goose", "kimi", "vibe", "qwen"} <= {
            *rows
        }
        codex, goose = rows["codex"], rows["goose"]
        assert (codex["state"], codex["command"][0], codex["native_installed"]) == ("fetched", "npx", True)
        assert (goose["state"], goose["configured_in"]) == ("missing", None)
        assert (goose["files"], rows["gemini"]["files"]) == (None, "none")

    def test_a_project_that_is_not_trusted_is_told_and_left_out(self, tmp_path):
        (tmp_path / ".git").mkdir()
        (tmp_path / "coupler.toml").write_text('[agents.evil]\ncommand = "evil"\n')
        done = agents(cwd=tmp_path)
        assert "evil" not in done.stdout
        assert "`agents` in" in done.stderr
        assert "run `coupler trust`" in done.stderr

    def test_a_wrong_file_is_told(self, coupler_home):
        coupler_home.mkdir()
        (coupler_home / "coupler.toml").write_text("[agents.mine]\ncomand = 'x'\n")
        done = agents()
        assert done.returncode == 1
        assert "did you mean `command`?" in done.stderr


class TestTheDoctor:
    def test_the_reference_agent_is_healthy(self):
        diagnosis, found = examined(REFERENCE)
        assert diagnosis["is_healthy"], diagnosis["findings"]
        assert {*found} == {
            "initialize", "start", "login", "turn", "mcp", "cancel", "end", "stdout", "load",
        }  # fmt: skip
        assert found["mcp"]["sentence"] == "a server that was passed on is used by the model"
        assert found["cancel"]["sentence"].startswith("ended with cancelled")
        assert diagnosis["seconds"].keys() == {"spawn", "first byte", "initialize", "session/new", "turn"}
        assert diagnosis["agent"]["title"] == "Reference agent"
        assert diagnosis["capabilities"]["loadSession"] is True

    def test_people_get_a_table_with_remedies(self, scripted):
        agent = scripted("""
        write(b"Welcome to the agent!\\n")
        for prompt in prompts():
            send(end(prompt))
        """)
        done = agents("doctor", shlex.join(agent.command))
        assert done.returncode == 1
        lines = done.stdout.splitlines()
        assert lines[0] == shlex.join(agent.command)
        noise = next(number for number, line in enumerate(lines) if "Welcome to the agent!" in line)
        assert lines[noise].startswith("problem  stdout")
        assert lines[noise + 1].strip().startswith("-> nothing but messages may be written there")
        assert lines[-1].endswith(": 2 problems")

    def test_a_turn_without_a_word_is_a_hidden_failure(self, scripted):
        _, found = examined(scripted("for prompt in prompts():\n    send(end(prompt))"))
        assert found["turn"]["level"] == "problem"
        assert "FailsEmpty" in found["turn"]["remedy"]

    def test_updates_after_the_answer_are_told(self, scripted):
        agent = scripted("for prompt in prompts():\n    send(say('a'), end(prompt), say('late'))")
        _, found = examined(agent)
        assert (found["order"]["level"], "linger" in found["order"]["remedy"]) == ("problem", True)

    def test_commands_that_are_offered_after_the_answer_are_no_fault(self, scripted):
        late = "update('available_commands_update', availableCommands=[])"
        agent = scripted(f"for prompt in prompts():\n    send(say('a'), end(prompt), {late})")
        _, found = examined(agent)
        assert "order" not in found

    def test_our_own_agent_without_a_model_says_so_and_what_to_do(self, tmp_path, monkeypatch):
        for name in ("COUPLER_MODEL", "ANTHROPIC_API_KEY", "OPENAI_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.delenv(name, raising=False)
        diagnosis, found = examined("coder")
        wrong = [name for name, finding in found.items() if finding["level"] == "problem"]
        assert wrong == ["setup"], diagnosis["findings"]
        assert found["setup"]["sentence"].startswith("No model is set: run `coupler login coder`")

    def test_an_agent_that_wants_a_login_says_how(self, scripted):
        agent = scripted("""
        hi = {**HELLO, "authMethods": [{"id": "key", "name": "Key"}]}
        send(result(read(), hi))
        send(error(read(), -32000, "log in first"))
        read()
        """)
        diagnosis, found = examined(agent)
        assert found["login"]["level"] == "problem"
        assert found["login"]["remedy"].startswith("run `coupler login ")
        assert diagnosis["auth_methods"] == [{"id": "key", "name": "Key"}]
        assert "turn" not in found

    def test_an_agent_that_outlives_its_input_is_told_and_ended(self, scripted):
        agent = scripted("""
        import time
        try:
            for prompt in prompts():
                send(say("hi"), end(prompt))
        except SystemExit:
            while True:
                time.sleep(0.1)
        """)
        _, found = examined(agent)
        assert found["end"]["level"] == "problem"
        assert "after its input was closed" in found["end"]["sentence"]
        assert not any(psutil.pid_exists(pid) for pid in agent.noted("pid"))

    def test_what_it_leaves_behind_is_counted(self, scripted):
        agent = scripted("""
        import subprocess
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
        note("child", child.pid)
        for prompt in prompts():
            send(say("hi"), end(prompt))
        """)
        _, found = examined(agent)
        [child] = agent.noted("child")[:1]
        assert found["end"]["sentence"] == f"it ended and left processes behind: {child}"
        assert not psutil.pid_exists(child) or psutil.Process(child).status() == psutil.STATUS_ZOMBIE

    def test_a_load_that_is_promised_and_refused_is_a_problem(self, scripted):
        agent = scripted("""
        hi = {"protocolVersion": 1, "agentCapabilities": {"loadSession": True}}
        while True:
            frame = read()
            match frame.get("method"):
                case "initialize": send(result(frame, hi))
                case "session/new": send(result(frame, {"sessionId": "s1"}))
                case "session/prompt": send(say("hi"), end(frame))
                case "session/load": send(error(frame, -32002, "no such session"))
        """)
        _, found = examined(agent)
        assert found["load"]["level"] == "problem"
        assert "-32002" in found["load"]["sentence"]

    def test_an_agent_that_ignores_a_cancel_is_told(self, scripted):
        agent = scripted("""
        for prompt in prompts():
            send(say("hi"))
            if "Count" in text_of(prompt):
                read_until(is_cancel)
                send(error(prompt, -32603, "aborted"))
            else:
                send(end(prompt))
        """)
        _, found = examined(agent)
        assert found["cancel"]["level"] == "problem"
        assert "aborted" in found["cancel"]["sentence"]

    def test_a_program_that_says_nothing_is_given_up(self, scripted):
        agent = scripted("import time\nsys.stderr.write('starting\\n')\nread()\ntime.sleep(600)")
        diagnosis, found = examined(agent, "--timeout", "1")
        assert "did not come within 1 s" in found["conversation"]["sentence"]
        assert "many need an argument such as acp" in found["conversation"]["remedy"]
        assert "starting" in diagnosis["stderr"]

    def test_a_program_that_is_not_there_is_told(self):
        _, found = examined("/nowhere/agent --acp")
        assert "/nowhere/agent" in found["conversation"]["sentence"]

    def test_an_agent_of_the_catalogue_that_is_not_installed_says_what_to_do(self, tmp_path):
        done = agents("doctor", "goose", env={"PATH": str(tmp_path)})
        assert done.returncode == 1
        assert done.stderr.startswith("coupler agents doctor: Goose is not installed. Install Goose")

    @pytest.mark.parametrize(
        ("agent", "words"),
        [
            ("claude", "Its ACP form is not installed. Install"),
            ("claude:native", "`coupler agents doctor claude` takes its ACP form."),
            ("openai", '`coupler exec openai "hello"` shows whether it answers.'),
        ],
    )
    def test_what_is_driven_without_acp_is_not_examined_and_that_is_told_at_once(
        self, tmp_path, agent, words
    ):
        (tmp_path / "claude").write_text("#!/bin/sh\nsleep 60\n")
        (tmp_path / "claude").chmod(0o755)
        done = agents("doctor", agent, env={"PATH": str(tmp_path), "OPENAI_API_KEY": "k"})
        assert (done.returncode, done.stdout) == (1, "")
        assert "is driven without ACP here, and `coupler agents doctor` is for ACP forms." in done.stderr
        assert words in done.stderr
