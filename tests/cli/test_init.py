"""`coupler init`, as a person and a script use it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import forked
from coupler.coder.model.credentials import PROVIDERS
from raw_client import COUPLER, PATIENCE

EXAMPLE = ".coupler/workflows/overview.yaml"
ANY_SECRET = "sk-never-shown-0123456789"
AGENT = """#!/usr/bin/env python3
from coupler import serve
async def agent(turn):
    await turn.say("It is a test: " + str("app.py" in turn.text))
serve(agent)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without agents, keys and editors."""
    home, programs = tmp_path.resolve() / "home", tmp_path / "programs"
    home.mkdir()
    programs.mkdir()
    for name in ("git", "sh", "head", "find", "env", "python3"):
        found = subprocess.run(["which", name], capture_output=True, text=True, check=True).stdout.strip()
        (programs / name).symlink_to(found)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", str(programs))
    for name in ("COUPLER_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME", "COUPLER_MODEL"):
        monkeypatch.delenv(name, raising=False)
    for provider in PROVIDERS.values():
        for name in provider.variables:
            monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path.resolve() / "app"
    project.mkdir()
    monkeypatch.chdir(project)
    return project


def coupler(*arguments: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return forked.run(
        [*COUPLER, *map(str, arguments)],
        capture_output=True,
        encoding="utf-8",
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
        timeout=PATIENCE,
    )


def init(*arguments: object, **environment: str) -> str:
    ended = coupler("init", *arguments, **environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    return ended.stdout


def files_of(directory: Path) -> list[str]:
    return sorted(str(each.relative_to(directory)) for each in directory.rglob("*") if each.is_file())


class TestInAnEmptyDirectory:
    def test_without_a_terminal_it_asks_nothing_and_writes_both_files(self, project):
        said = init()
        assert files_of(project) == [EXAMPLE, "coupler.toml"]
        assert f"In {project}:\n  coupler.toml: written\n  {EXAMPLE}: written\n" in said
        assert "coupler run overview" in said

    def test_the_settings_hold_and_every_line_of_them_could(self, project):
        init()
        text = (project / "coupler.toml").read_text()
        assert set(tomllib.loads(text)) == {"permissions"}
        # Without the marks of comments, what only explains is no TOML any more; the examples are.
        example = [
            line[2:] for line in text.splitlines() if line.startswith(("# [", "# ")) and is_toml(line[2:])
        ]
        (project / "coupler.toml").write_text("\n".join(example))
        assert set(tomllib.loads("\n".join(example))) == {"agents", "coder", "mcp", "secrets"}
        assert coupler("trust", "--yes").returncode == 0

    def test_the_example_is_valid_and_trusted_and_runs_without_an_agent(self, project):
        init()
        checked = coupler("workflows", "validate", "--strict")
        assert (checked.returncode, checked.stderr) == (0, "1 workflow checked: all is well.\n")

        ended = coupler("run", "overview")

        assert ended.returncode == 0, ended.stderr
        assert "files: 1" in ended.stdout
        assert "summary: null" not in ended.stdout

    def test_the_example_works_with_an_agent_that_is_there(self, project, tmp_path):
        program = tmp_path / "programs" / "goose"
        program.write_text(AGENT.replace("/usr/bin/env python3", sys.executable))
        program.chmod(0o755)
        (project / "app.py").write_text("")

        said = init()

        assert "agents   goose\n" in said
        assert "coupler chat goose" in said
        ended = coupler("run", "overview")
        assert ended.returncode == 0, ended.stderr
        assert "It is a test: True" in ended.stdout

    def test_a_key_gives_the_coder_a_model_and_is_told_by_its_name_alone(self, project):
        said = init("--yes", ANTHROPIC_API_KEY=ANY_SECRET)

        written = (project / "coupler.toml").read_text()
        model = f"anthropic:{PROVIDERS['anthropic'].example}"
        assert tomllib.loads(written)["coder"]["model"] == model
        assert 'agent: {default: "coder"' in (project / EXAMPLE).read_text()
        assert "keys     ANTHROPIC_API_KEY" in said
        assert ANY_SECRET not in said + written + (project / EXAMPLE).read_text()
        # It holds: what was written is trusted.
        assert f"In this directory {model} is used" in coupler("login", "coder", "--list").stdout

    def test_a_model_of_this_machine_needs_no_key(self, project, home):
        assert "coupler models install" in init()
        file = home / ".local/share/coupler/models/small.gguf"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(b"GGUF")
        init("--force")
        assert tomllib.loads((project / "coupler.toml").read_text())["coder"] == {"model": "local:small"}

    def test_what_is_named_is_taken(self, project):
        init("--agent", "claude", "--model", "ollama:small")
        assert tomllib.loads((project / "coupler.toml").read_text())["coder"] == {"model": "ollama:small"}
        assert 'agent: {default: "claude"' in (project / EXAMPLE).read_text()

    def test_a_directory_that_is_missing_is_made(self, project):
        said = init("new/one", "--agent", "none")
        assert files_of(project) == [f"new/one/{EXAMPLE}", "new/one/coupler.toml"]
        assert f"  cd {project}/new/one\n" in said


class TestWhereItIs:
    def test_in_a_repository_the_files_go_to_its_root(self, project, monkeypatch):
        (project / ".git").mkdir()
        (project / "src").mkdir()
        monkeypatch.chdir(project / "src")

        assert f"This is in the project {project}: the files go there." in init()

        assert files_of(project) == [EXAMPLE, "coupler.toml"]
        assert coupler("workflows", "list").stdout.split("\t")[:3] == ["overview", "project", "ready"]

    def test_at_home_they_are_the_users_own(self, home, project, monkeypatch):
        monkeypatch.chdir(home)
        assert "This is your home: the files are your own" in init()
        own = home / ".config/coupler"
        assert files_of(home) == [".config/coupler/coupler.toml", ".config/coupler/workflows/overview.yaml"]
        assert "allow" in (own / "coupler.toml").read_text()
        monkeypatch.chdir(project)
        assert coupler("run", "overview").returncode == 0

    def test_with_an_option_they_are_so_anywhere(self, home, project):
        init("--user")
        assert files_of(project) == []
        assert (home / ".config/coupler/coupler.toml").exists()

    @pytest.mark.parametrize(
        ("place", "sentence"),
        [("/proc/sys", "/proc/sys is read-only"), ("/dev/null/app", "/dev/null is not a directory")],
    )
    def test_where_nothing_can_be_written_it_says_so_before_anything_else(self, place, sentence):
        ended = coupler("init", place)
        assert (ended.returncode, ended.stdout) == (1, "")
        assert (
            ended.stderr
            == f"coupler init: {sentence}. Name another directory, as in `coupler init DIRECTORY`\n"
        )


class TestWhatIsThereAlready:
    def test_it_is_kept_and_that_is_told(self, project):
        (project / "coupler.toml").write_text("# mine\n")
        said = init()
        assert (project / "coupler.toml").read_text() == "# mine\n"
        assert "coupler.toml: kept as it is; --force replaces it" in said
        assert (project / EXAMPLE).exists()

    def test_a_second_time_changes_nothing(self, project):
        init()
        before = {name: (project / name).stat().st_mtime_ns for name in files_of(project)}
        said = init()
        assert said.count("kept: it is as it would be written") == 2
        assert "coupler trust" not in said
        assert {name: (project / name).stat().st_mtime_ns for name in files_of(project)} == before

    def test_a_project_with_workflows_gets_no_example(self, project):
        (project / ".coupler/workflows").mkdir(parents=True)
        (project / ".coupler/workflows/build.yaml").write_text("steps: [{run: make}]")
        assert ".coupler/workflows: kept: it has build" in init()
        assert files_of(project) == [".coupler/workflows/build.yaml", "coupler.toml"]

    def test_what_somebody_else_has_written_is_not_trusted_by_it(self, project):
        (project / "coupler.toml").write_text('[coder]\nmodel = "ollama:theirs"\n')
        (project / ".coupler/workflows").mkdir(parents=True)
        (project / EXAMPLE).write_text("steps: [{run: touch pwned}]")

        said = init()

        assert "coupler trust" in said
        assert coupler("run", "overview").returncode != 0
        assert not (project / "pwned").exists()
        assert "theirs" not in coupler("login", "coder", "--list").stdout

    def test_by_force_it_is_replaced_and_a_copy_is_kept(self, project):
        (project / "coupler.toml").write_text("# mine\n")
        said = init("--force")
        assert "coupler.toml: replaced; what was there is in coupler.toml.before-coupler" in said
        assert (project / "coupler.toml.before-coupler").read_text() == "# mine\n"
        assert "[permissions]" in (project / "coupler.toml").read_text()

    def test_a_broken_file_is_told_of_and_can_be_replaced(self, project):
        (project / "coupler.toml").write_text("permisions = 1\n")

        ended = coupler("init")

        assert (ended.returncode, ended.stdout) == (1, "")
        assert ended.stderr == (
            f"coupler init: unknown key `permisions` in {project}/coupler.toml line 1; "
            "did you mean `permissions`?\n`coupler init --force` replaces the file, and keeps a copy.\n"
        )
        assert files_of(project) == ["coupler.toml"]
        init("--force")
        assert (project / "coupler.toml.before-coupler").read_text() == "permisions = 1\n"

    def test_a_broken_file_of_the_users_is_told_of(self, project, home):
        own = home / ".config/coupler/coupler.toml"
        own.parent.mkdir(parents=True)
        own.write_text("permisions = 1\n")
        ended = coupler("init", "--force")
        assert ended.returncode == 1
        assert f"unknown key `permisions` in {own} line 1" in ended.stderr
        assert files_of(project) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--agent", "claud"], "there is no agent 'claud', did you mean 'claude'?"),
        (["--model", "small"], "the model must name provider and model"),
        (["--user", "app"], "--user and a DIRECTORY exclude each other"),
    ],
)
def test_wrong_usage_ends_with_a_sentence_and_code_2(project, arguments, sentence):
    ended = coupler("init", *arguments)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert sentence in ended.stderr
    assert files_of(project) == []


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
class TestOnATerminal:
    def test_a_person_is_asked_twice_and_may_mistype(self, project):
        shown, code = on_terminal("small\nollama:small\nclau\nclaude\n")

        assert code == 0
        assert "Model [none]:" in shown
        assert "the model must name provider and model" in shown
        assert "Ready here: coder, none." in shown
        assert "did you mean 'claude'?" in shown
        assert tomllib.loads((project / "coupler.toml").read_text())["coder"] == {"model": "ollama:small"}
        assert 'agent: {default: "claude"' in (project / EXAMPLE).read_text()

    def test_who_leaves_before_the_last_answer_leaves_nothing_behind(self, project):
        shown, code = on_terminal("ollama:small\n\x04")
        assert code == 1
        assert "Agent [coder]:" in shown
        assert files_of(project) == []

    def test_who_is_in_a_hurry_is_asked_nothing(self, project):
        shown, code = on_terminal("", "--yes")
        assert (code, "Model [" in shown) == (0, False)
        assert files_of(project) == [EXAMPLE, "coupler.toml"]


def on_terminal(answers: str, *arguments: str) -> tuple[str, int]:
    """What a person sees, and the exit code."""
    import pty

    ours, theirs = pty.openpty()
    process = forked.Popen([*COUPLER, "init", *arguments], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    os.write(ours, answers.encode())
    seen = b""
    try:
        while data := os.read(ours, 65536):
            seen += data
    except OSError:
        pass  # how Linux tells that the other side has left
    finally:
        os.close(ours)
    return seen.decode(), process.wait(PATIENCE)


def is_toml(line: str) -> bool:
    try:
        return bool(tomllib.loads(line))
    except tomllib.TOMLDecodeError:
        return False
