"""The rules of coupler.toml hold for agents that the command line drives, whatever policy is chosen."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

import forked
from cli.test_configured_agents import WISHING
from client.stage import Scripted
from providers.stub import Stub, path_with
from raw_client import COUPLER, PATIENCE
from workflow.agent_stage import Script
from workflow.conftest import script as script

WISHES = [
    *(("edit", "app.py"), ("edit", "docs/a.md"), ("execute", "make test"), ("execute", "git push origin")),
    *(("execute", "make clean"), ("execute", "sh -c 'git push'")),
]
RULES = """
[permissions]
allow = ["execute(make *)"]
ask = ["execute(make clean)"]
deny = ["edit(*.py)", "execute(git push *)"]
"""


@pytest.fixture
def agent(script: Script, coupler_home: Path, tmp_path: Path) -> Scripted:
    coupler_home.mkdir(parents=True, exist_ok=True)
    (coupler_home / "coupler.toml").write_text(RULES)
    (tmp_path / "work").mkdir()
    return script(WISHING.replace("WISHES", repr(WISHES)))


def execute(agent: str, tmp_path: Path, *words: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, "exec", agent, "go on", *words],
        cwd=tmp_path / "work",
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        **more,
    )


def test_exec_keeps_to_them_beside_whatever_policy_is_chosen(agent: Scripted, tmp_path: Path) -> None:
    for words, docs, make in (
        ((), "no", "yes"),
        (("--permissions", "allow-all"), "yes", "yes"),
        (("--permissions", "deny-all"), "no", "no"),
        (("--allow", "edit(**)"), "yes", "yes"),
        (("--deny", "execute(make test)"), "no", "no"),
    ):
        done = execute(shlex.join(agent.command), tmp_path, "--files", "write", *words)

        assert agent.noted("done")[-1] == {
            "app.py": "no",
            "docs/a.md": docs,
            "make test": make,
            "git push origin": "no",
            "make clean": "no",
            "sh -c 'git push'": "no",
            "write": False,
        }, (words, done)
        assert not (tmp_path / "work" / "written.py").exists()
        assert "is denied by `execute(git push *)` in" in done.stderr


def test_a_project_can_make_them_stricter_and_no_laxer(agent: Scripted, tmp_path: Path) -> None:
    (tmp_path / "work" / "coupler.toml").write_text(
        '[permissions]\nallow = ["edit"]\ndeny = ["execute(make test)"]\n'
    )

    execute(shlex.join(agent.command), tmp_path)

    done = agent.noted("done")[-1]
    assert (done["docs/a.md"], done["make test"]) == ("no", "no")


def test_a_wrong_rule_starts_nothing_and_says_where_it_stands(
    agent: Scripted, coupler_home: Path, tmp_path: Path
) -> None:
    (coupler_home / "coupler.toml").write_text('[permissions]\ndeny = ["excute(ls)"]\n')

    for command in ("exec", "chat"):
        done = forked.run(
            [*COUPLER, command, shlex.join(agent.command), *(["go on"] if command == "exec" else [])],
            cwd=tmp_path / "work",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert done.returncode == 2
        assert "did you mean `execute`?" in done.stderr
        assert "coupler.toml line 2" in done.stderr
    assert agent.noted("prompt") == []


def test_a_chat_keeps_to_them(agent: Scripted, tmp_path: Path) -> None:
    forked.run(
        [*COUPLER, "chat", shlex.join(agent.command), "--permissions", "allow-all"],
        cwd=tmp_path / "work",
        input="go on\n",
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    done = agent.noted("done")[-1]
    assert (done["git push origin"], done["make test"], done["docs/a.md"]) == ("no", "yes", "yes")


def test_a_program_that_asks_nobody_is_not_started_where_they_could_not_hold(
    agent: Scripted, tmp_path: Path
) -> None:
    (tmp_path / "bin").mkdir()
    program = Stub(tmp_path / "bin", "claude").streams("claude-old")
    for words in (("--permissions", "allow-all"), ("--mode", "bypassPermissions")):
        done = execute(
            "claude:native", tmp_path, *words, env={**os.environ, "PATH": path_with(tmp_path / "bin")}
        )

        assert done.returncode == 2, done
        assert "asks for no permission, so `" in done.stderr
        assert "cannot be enforced: use its ACP form" in done.stderr
    assert program.runs == []
