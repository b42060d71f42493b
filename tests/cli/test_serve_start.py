"""What ends `coupler serve` before it begins: one line for the editor's log, and nothing on stdout."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from agent.steps import error_of, leave
from coupler.cli.serve_checks import START_ERRORS, CannotStartError, check_configuration, check_workflow
from raw_client import COUPLER, PATIENCE, RawClient

ROOT = Path(__file__).parents[2]
HELLO = '{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
AGENT = "async def agent(turn):\n    await turn.say('hi')\n"
FLOW = "steps: [{run: echo hi}]\n"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir()
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = (tmp_path / "project").resolve()
    (project / ".git").mkdir(parents=True)
    (project / "app.py").write_text(AGENT)
    (project / "flow.yaml").write_text(FLOW)
    return project


def start(*words: str, home: Path, cwd: Path, **env: str) -> subprocess.CompletedProcess[str]:
    """`coupler serve` with an editor that says hello and leaves."""
    return subprocess.run(
        [*COUPLER, "serve", *words],
        input=HELLO,
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, "COUPLER_HOME": str(home), **env},
        timeout=PATIENCE,
    )


def refusal(ended: subprocess.CompletedProcess[str]) -> tuple[str, str]:
    """The code and the sentence by which a start was refused."""
    assert (ended.returncode, ended.stdout) == (1, ""), ended
    (line,) = ended.stderr.splitlines()
    program, code, sentence = line.split(": ", 2)
    assert program == "coupler serve"
    assert code in {each.code for each in START_ERRORS}
    return code, sentence


WRONG = [
    (b"[permissions", "config.invalid", "line 1, column 13", "correct this line"),
    (b"\n\xff", "config.invalid", "line 2, column 1", "not UTF-8"),
    (b"\npermisions = 1", "config.invalid", "line 2", "did you mean `permissions`?"),
    (b'permissions = "all"', "config.invalid", "line 1", "must be a table, not a text"),
    (b'[permissions]\ndeny = "edit"', "config.invalid", "line 2", "must be a list of rules, not a text"),
    (b'[permissions]\ndeny = [\n"reed"]', "config.invalid", "line 3", "did you mean `read`?"),
    (b"[mcp.a]\nurl = 'ftp://x'", "config.invalid", "line 2", "must begin with https:// or http://"),
    (b"[mcp.a]\nargs = []", "config.invalid", "line 1", "`command` or `url` is needed here"),
    (b"a = 1\nb = 2\nc = 3", "config.invalid", "line 1", "and 2 more problems"),
]


@pytest.mark.parametrize(("content", "code", "place", "remedy"), WRONG)
def test_what_is_wrong_with_a_configuration_is_told_with_its_place_and_what_to_do(
    home: Path, project: Path, content: bytes, code: str, place: str, remedy: str
) -> None:
    (project / "coupler.toml").write_bytes(content)

    with pytest.raises(CannotStartError) as refused:
        check_configuration(str(project), {"COUPLER_HOME": str(home)})

    sentence = str(refused.value)
    assert sentence.startswith(f"{code}: ")
    assert f"{project / 'coupler.toml'} {place}" in sentence
    assert remedy in sentence
    assert "\n" not in sentence


@pytest.mark.parametrize(
    ("words", "owner"),
    [
        ([], "project"),
        ([], "home"),
        (["flow.yaml"], "project"),
        (["app.py:agent"], "home"),
        (["--", "cat"], "project"),
    ],
)
def test_a_wrong_configuration_ends_it_whatever_is_served_and_whosever_it_is(
    home: Path, project: Path, words: list[str], owner: str
) -> None:
    file = (home if owner == "home" else project) / "coupler.toml"
    file.write_text("permisions = 1")

    assert refusal(start(*words, home=home, cwd=project)) == (
        "config.invalid",
        f"unknown key `permisions` in {file} line 1; did you mean `permissions`?",
    )


def test_a_wrong_variable_ends_it_too(home: Path, project: Path) -> None:
    code, sentence = refusal(start(home=home, cwd=project, COUPLER_SYNCHRONOUS="ful"))

    assert code == "config.invalid"
    assert "the variable COUPLER_SYNCHRONOUS" in sentence
    assert "did you mean `full`?" in sentence


def test_a_configuration_that_is_no_file_ends_it_and_is_not_waited_for(home: Path, project: Path) -> None:
    os.mkfifo(project / "coupler.toml")

    code, sentence = refusal(start(home=home, cwd=project))

    assert code == "config.unreadable"
    assert f"{project / 'coupler.toml'} cannot be used: it is not a regular file" in sentence


@pytest.mark.parametrize(
    ("file", "content", "code", "sentence"),
    [
        ("flwo.yaml", None, "workflow.missing", "{project}/flwo.yaml; did you mean `flow.yaml`?"),
        (
            "bad.yaml",
            "\nstepz: []\n",
            "workflow.invalid",
            "{project}/bad.yaml:2:1: `stepz` is no key of a workflow; did you mean `steps`?",
        ),
        ("bad.yaml", "steps: [{call: none.yaml}]", "workflow.invalid", "{project}/bad.yaml:1:9: "),
        (
            "bad.yaml",
            "a: 1\nb: 2\nsteps: [{run: x}]",
            "workflow.invalid",
            "and 1 more: `coupler workflows validate bad.yaml` shows all",
        ),
    ],
)
def test_what_is_wrong_with_a_workflow_is_told_with_its_place_and_what_to_do(
    project: Path, file: str, content: str | None, code: str, sentence: str
) -> None:
    if content is not None:
        (project / file).write_text(content)

    with pytest.raises(CannotStartError) as refused:
        check_workflow(file, str(project))

    assert str(refused.value).startswith(f"{code}: ")
    assert sentence.format(project=project) in str(refused.value)


def test_a_workflow_that_is_no_file_ends_it_and_is_not_waited_for(home: Path, project: Path) -> None:
    os.mkfifo(project / "pipe.yaml")

    code, sentence = refusal(start("pipe.yaml", home=home, cwd=project))

    assert code == "workflow.unreadable"
    assert "pipe.yaml is no file" in sentence


def test_what_was_sound_is_checked_again_when_it_has_changed(home: Path, project: Path) -> None:
    called = project / "called.yaml"
    called.write_text(FLOW)
    (project / "flow.yaml").write_text("steps: [{call: called.yaml}]")
    (project / "coupler.toml").write_text('[permissions]\ndeny = ["edit(.git/**)"]\n')
    for _ in range(2):
        ended = start("flow.yaml", home=home, cwd=project)
        assert (ended.returncode, ended.stderr) == (0, "")
    assert len([*(home / "cache" / "sound").iterdir()]) == 1

    called.write_text("stepz: []")
    assert refusal(start("flow.yaml", home=home, cwd=project))[0] == "workflow.invalid"
    called.write_text(FLOW)
    (project / "coupler.toml").write_text("permisions = 1")
    assert refusal(start("flow.yaml", home=home, cwd=project))[0] == "config.invalid"


def test_nothing_heavy_is_loaded_to_know_that_all_is_sound(home: Path, project: Path) -> None:
    (project / "coupler.toml").write_text('[permissions]\ndeny = ["edit(.git/**)"]\n')
    environ = {"COUPLER_HOME": str(home)}
    program = f"""
import sys
sys.modules |= dict.fromkeys(["asyncio", "click", "msgspec", "pathlib", "tomllib", "yaml"])
from coupler.agent.startup.preflight import PreflightCache as Soundness
soundness = Soundness({str(project)!r}, {environ!r}, "flow.yaml")
soundness.remember([{str(project / "flow.yaml")!r}], ["image"])
assert soundness.needs_look and soundness.recall() == ["image"]
assert Soundness({str(project)!r}, {environ!r}, None).recall() is None
assert not Soundness({str(home)!r}, {environ!r}, None).needs_look
"""
    done = subprocess.run([sys.executable, "-c", program], env={**os.environ, **environ}, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_a_session_in_a_directory_with_a_wrong_file_is_refused_and_no_other(
    home: Path, project: Path, tmp_path: Path
) -> None:
    wrong = tmp_path / "wrong"
    (wrong / ".git").mkdir(parents=True)
    (wrong / "coupler.toml").write_text("permisions = 1")
    with RawClient(*COUPLER, "serve", cwd=project, env={"COUPLER_HOME": str(home)}) as client:
        client.initialize()
        opened = client.new_session(str(project))

        answer = client.call("session/new", {"cwd": str(wrong), "mcpServers": []})

        assert error_of(answer) == (-32603, "config_wrong")
        assert "coupler.toml line 1; did you mean `permissions`?" in answer["error"]["message"]
        assert client.call("session/prompt", prompt_of(opened))["result"]["stopReason"] == "end_turn"
        (wrong / "coupler.toml").write_text("")
        assert client.new_session(str(wrong))
        leave(client)


def prompt_of(session: str) -> dict[str, object]:
    return {"sessionId": session, "prompt": [{"type": "text", "text": "/what"}]}


def test_the_manual_has_every_error_at_start() -> None:
    page = (ROOT / "docs" / "cli.md").read_text()
    for each in START_ERRORS:
        assert f"| `{each.code}` | {each.sentence} | {each.remedy} |" in page
