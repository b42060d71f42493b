"""`coupler completion`: what real shells make of it."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest

import forked
from coupler.cli.completion import BY_PARAMETER, HOW_TO_INSTALL, completable_of
from coupler.cli.main import command
from coupler.store.runs import RunRecord
from coupler.store.sessions import SessionRecord
from coupler.store.store import Store
from raw_client import COUPLER, PATIENCE
from tables import table

BASH = shutil.which("bash")
needs_bash = pytest.mark.skipif(BASH is None, reason="there is no bash")


def completion(*words: str, **environment: str):
    return forked.run(
        [*COUPLER, "completion", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        env={**os.environ, **environment},
    )


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A directory for the PATH, with `coupler` in it."""
    directory = tmp_path / "bin"
    directory.mkdir()
    program = directory / "coupler"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m coupler "$@"\n')
    program.chmod(0o755)
    return directory


@pytest.fixture
def bash(tmp_path: Path, programs: Path):
    """What bash would offer for lines that end where the cursor is."""
    directory = tmp_path / "project"
    (directory / ".git").mkdir(parents=True)

    def complete(*lines: str) -> list[list[str]]:
        calls = "".join(
            f"""
            COMP_WORDS=({line} {"''" if line.endswith(" ") else ""}); COMP_CWORD=$((${{#COMP_WORDS[@]}} - 1))
            COMPREPLY=(); options=""
            _coupler_completion coupler
            printf '%s\\037' "${{COMPREPLY[@]}}" "$options"; echo
            """
            for line in lines
        )
        # Outside of a completion there is no `compopt`: what it is told is noted instead.
        script = f'compopt() {{ options="$2"; }}\neval "$(coupler completion bash)"\n{calls}'
        done = subprocess.run(
            [str(BASH), "--norc", "-c", script],
            cwd=directory,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )
        assert (done.returncode, done.stderr) == (0, "")
        return [[word for word in line.split("\037") if word] for line in done.stdout.splitlines()]

    complete.directory = directory
    return complete


@needs_bash
class TestBash:
    def test_commands_and_options_are_completed(self, bash):
        assert bash(
            "coupler ru", "coupler runs li", "coupler runs list --st", "coupler runs list --status f",
            "coupler serve --log-l", "coupler serve --log-level de", "coupler completion z", "coupler zzz ",
        ) == [
            ["run", "runs"], ["list"], ["--status", "--store"], ["failed"], ["--log-level"], ["debug"],
            ["zsh"], [],
        ]  # fmt: skip

    def test_agents_are_completed_also_those_of_the_settings(self, bash, coupler_home):
        coupler_home.mkdir(parents=True)
        (coupler_home / "coupler.toml").write_text('[agents.claudius]\ncommand = "x"\n')
        found = bash("coupler exec clau", "coupler chat clau", "coupler serve --agent clau")
        assert found == [["claude", "claudius"]] * 3

    def test_workflows_are_completed_and_files_where_no_name_fits(self, bash, coupler_home):
        own, project = coupler_home / "workflows", bash.directory / ".coupler" / "workflows"
        for directory, file, text in (
            (own, "review.yaml", "steps: []"),
            (project, "release.yml", "# a comment\nname: rel-1\nsteps: []\n"),
            (project, "broken.yaml", "{{{"),
        ):
            directory.mkdir(parents=True, exist_ok=True)
            (directory / file).write_text(text)
        assert bash("coupler run re", "coupler workflows show b", "coupler run ./x", "coupler serve ap") == [
            ["rel-1", "review", "default"],
            ["broken", "default"],
            ["default"],
            ["default"],
        ]

    def test_runs_and_sessions_are_completed_the_newest_first(self, bash, coupler_home):
        async def keep() -> None:
            store = Store.open(str(coupler_home / "coupler.db"))
            for name in ("review-aaaa1", "review-bbbb2", "tidy-cccc3"):
                run = RunRecord(id=name, workflow=name.split("-")[0], file="f", digest="d", cwd="/")
                await store.runs.create(run)
            for number, turns in enumerate((1, 0, 2)):
                record = SessionRecord(
                    id=f"sess_{number}{number}aabbccdd",
                    agent="coder",
                    cwd="/",
                    turns=turns,
                    updated_at=number + 1,
                )
                await store.create(record)
            store.close()

        asyncio.run(keep())
        runs, sessions, nothing = bash(
            "coupler resume review", "coupler sessions show ", "coupler runs logs nope"
        )
        assert runs == ["review-bbbb2", "review-aaaa1"]
        assert sessions == ["22aabbcc", "00aabbcc"]
        assert nothing == []

    def test_a_broken_store_or_file_is_no_answer_and_no_noise(self, bash, coupler_home):
        coupler_home.mkdir(parents=True)
        (coupler_home / "coupler.db").write_text("no database " * 100)
        assert bash("coupler resume r", "coupler exec goo") == [[], ["goose"]]
        (coupler_home / "coupler.toml").write_text("[[[")
        assert bash("coupler resume r", "coupler exec goo") == [[], ["goose"]]

    @pytest.mark.skipif(sys.platform == "win32", reason="there are no such terminals")
    def test_somebody_who_presses_the_key_gets_the_word(self, programs, tmp_path):
        import pty

        ours, theirs = pty.openpty()
        process = subprocess.Popen(
            [str(BASH), "--norc", "--noprofile", "-i"],
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True, cwd=tmp_path,
            env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}", "PS1": "ready> ", "TERM": "dumb",
                 "INPUTRC": "/dev/null"},
        )  # fmt: skip
        os.close(theirs)
        try:
            seen = read_until(ours, "ready> ")
            os.write(ours, b'eval "$(coupler completion bash)"; echo lo""aded\n')
            seen += read_until(ours, "loaded")
            os.write(ours, b"echo coupler\n")
            seen += read_until(ours, "\ncoupler")
            os.write(ours, b"coupler doct\t")
            read_until(ours, "coupler doctor ")
        finally:
            process.kill()
            process.wait()
            os.close(ours)


def read_until(descriptor: int, text: str) -> str:
    seen = ""
    end = time.monotonic() + PATIENCE
    while text not in seen.replace("\r", ""):
        assert time.monotonic() < end, seen
        seen += os.read(descriptor, 65536).decode(errors="replace")
    return seen


class TestTheScript:
    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_it_begins_with_how_to_install_it(self, shell):
        done = completion(shell)
        assert (done.returncode, done.stderr) == (0, "")
        lines = done.stdout.splitlines()
        assert lines[0] == "#compdef coupler" or lines[0].startswith("# To have it in every new shell")
        assert any(f"coupler completion {shell}" in line for line in lines[:4])
        assert f"{shell}_complete" in done.stdout

    def test_without_a_name_it_is_the_users_own_shell(self):
        assert completion(SHELL="/usr/bin/fish").stdout == completion("fish").stdout
        done = completion(SHELL="/bin/tcsh")
        assert (done.returncode, done.stdout) == (2, "")
        assert "coupler completion bash|zsh|fish" in done.stderr

    @pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
    def test_the_shell_itself_can_read_it(self, shell, tmp_path):
        program = shutil.which(shell)
        if program is None:
            pytest.skip(f"there is no {shell}")
        file = tmp_path / "script"
        file.write_text(completion(shell).stdout)
        subprocess.run([program, "-n", str(file)], check=True, timeout=PATIENCE)

    @pytest.mark.parametrize(("shell", "word"), [("zsh", "1"), ("fish", "cl")])
    def test_other_shells_get_descriptions(self, shell, word):
        words = "coupler exec cl" if shell == "zsh" else "coupler exec"
        count = "2" if shell == "zsh" else word
        variables = {"COMP_WORDS": words, "COMP_CWORD": count, "_COUPLER_COMPLETE": f"{shell}_complete"}
        done = forked.run(
            COUPLER, capture_output=True, text=True, timeout=PATIENCE, env={**os.environ, **variables}
        )
        assert "Claude" in done.stdout
        assert done.stderr == ""

    @table("instruction", ["", "bash", "tcsh_complete", "bash_source", "bash_complete"])
    def test_a_question_that_is_none_is_answered_with_nothing(self, instruction):
        done = forked.run(
            COUPLER, capture_output=True, text=True, timeout=PATIENCE,
            env={**os.environ, "_COUPLER_COMPLETE": instruction},
        )  # fmt: skip
        assert (done.returncode, done.stdout.strip(), done.stderr) == (0, "", "")


def test_what_is_completed_by_command_and_parameter_is_there():
    for path, name in BY_PARAMETER:
        found: click.Command = command
        for word in path.split():
            assert isinstance(found, click.Group)
            found = found.get_command(click.Context(found), word) or pytest.fail(f"no {path}")
        assert name in {parameter.name for parameter in found.params}, path


@table(
    ("path", "name"),
    [
        ("exec", "agent"), ("login", "agent"), ("agents doctor", "agent"), ("resume", "id"),
        ("sessions delete", "ids"), ("run", "workflow"), ("trust", "directory"), ("editor", "editor"),
        ("chat", "resume"), ("replay", "trace"), ("sessions export", "output"), ("exec", "schema"),
    ],
)  # fmt: skip
def test_a_word_of_the_help_says_what_is_completed(path, name):
    found: click.Command = command
    for word in path.split():
        assert isinstance(found, click.Group)
        found = found.get_command(click.Context(found), word) or pytest.fail(f"no {path}")
    parameter = next(each for each in found.params if each.name == name)
    assert completable_of(parameter, path) is not None or not isinstance(
        parameter.type, click.types.StringParamType
    )


def test_the_manual_installs_it_as_the_script_says():
    page = (Path(__file__).parents[2] / "docs" / "completion.md").read_text()
    lines = re.findall(r"```sh\n(.*)\n```", page)
    assert [line.strip() for line in lines] == [
        next(line.strip() for line in told.splitlines() if "coupler completion" in line)
        for told in HOW_TO_INSTALL.values()
    ]
