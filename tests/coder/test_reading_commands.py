"""Commands in the modes in which nothing changes: what reads runs, and nothing a repository names."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from coder.script import Scripted, use
from coder.served_coder import Coder, tree, write


def git(directory: Path, *words: str) -> None:
    names = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "A"}
    env = {**os.environ, **names, "GIT_COMMITTER_EMAIL": "a@b", "GIT_CONFIG_GLOBAL": os.devnull}
    subprocess.run(["git", *words], cwd=directory, check=True, capture_output=True, env=env, timeout=20)


@pytest.fixture
def project(project: Path) -> Path:
    git(project, "init", "-q", "-b", "main")
    write(project, {"a.py": "import os\n", "b.py": "x = 1\n"})
    git(project, "add", ".")
    git(project, "commit", "-qm", "Begin")
    write(project, {"a.py": "import sys\n"})
    return project


def played(coder: Coder, project: Path, mode: str, *commands: str) -> list[str]:
    """What the model is told of each command; nobody is asked."""
    editor = coder(project, [*(use("run_command", command=each) for each in commands), "Done."])
    editor.set_mode(mode)
    editor.prompt("Look around")
    assert editor.asked == []
    assert "run_command" in coder.model.last.tools
    assert not coder.model.last.tools & {"write_file", "edit_file", "stop_command"}
    return coder.model.last.results


@pytest.mark.parametrize("mode", ["planning", "read-only"])
def test_what_reads_runs_and_all_else_is_denied_in_words(coder: Coder, project: Path, mode: str) -> None:
    before = tree(project)

    log, changes, counted, made, written, both, hidden = played(
        coder,
        project,
        mode,
        "git log --format=%s",
        "git diff -- a.py | grep '^[+]import'",
        "cat a.py b.py | wc -l",
        "make test",
        "cat a.py > c.py",
        "git status && touch c.py",
        "git log --output=c.py",
    )

    assert log == "Begin\n(exit code 0)"
    assert changes == "+import sys\n(exit code 0)"
    assert counted.split() == ["2", "(exit", "code", "0)"]
    assert "`make test` is not known to only read; the mode" in made
    assert "runs only commands that read" in made
    assert "denied by `edit` in the mode" in written
    assert "`touch c.py` is not known to only read" in both
    assert "has the option --output=c.py" in hidden
    assert tree(project) == before


def test_nothing_runs_that_the_repository_names(coder: Coder, project: Path, tmp_path: Path) -> None:
    trap = tmp_path / "trap.sh"
    trap.write_text(f"#!/bin/sh\necho sprung >> {tmp_path}/sprung\ncat\n")
    trap.chmod(0o755)
    for name, value in {
        "core.fsmonitor": trap,
        "core.pager": trap,
        "pager.log": trap,
        "filter.trap.clean": trap,
        "filter.trap.smudge": trap,
        "gpg.program": trap,
        "log.showSignature": "true",
        "alias.look": f"!{trap}",
    }.items():
        git(project, "config", name, str(value))
    write(project, {".gitattributes": "* filter=trap\n", ".git/hooks/post-index-change": trap.read_text()})
    (project / ".git" / "hooks" / "post-index-change").chmod(0o755)
    for name in ("git", "cat", "env", "bash"):
        (project / "bin").mkdir(exist_ok=True)
        (project / "bin" / name).write_text(trap.read_text())
        (project / "bin" / name).chmod(0o755)
    coder.model.plays(
        use("run_command", command="git status --short"),
        use("run_command", command="git diff; git log -p --format='%s %G?'; cat a.py"),
        use("run_command", command="git look"),
        "Done.",
    )
    served = coder.served(env={"PATH": f"{project}/bin:{os.environ['PATH']}"})
    editor = served.opened(project)
    editor.set_mode("planning")

    editor.prompt("Look")

    status, shown, alias = coder.model.last.results
    assert " M a.py" in status
    assert "+import sys" in shown
    assert "may change something by `git look`" in alias
    assert not (tmp_path / "sprung").exists()
    served.leave()


def test_git_is_not_run_where_the_repository_names_what_cannot_be_switched_off(
    coder: Coder, project: Path
) -> None:
    for name in ("diff.trap.textconv", "diff.external", "core.worktree"):
        git(project, "config", name, "/tmp")

        (told,) = played(coder, project, "planning", "git diff")

        assert told.startswith(f"git is not run in this mode: the repository's own settings have {name}, by")
        git(project, "--work-tree=.", "config", "--unset", name)
    write(project, {".gitmodules": '[submodule "x"]\n\tpath = x\n\turl = ./x\n\tignore = none\n'})

    refused, looked = played(
        coder, project, "planning", "git status --short", "git status --short --ignore-submodules=all"
    )

    assert "add --ignore-submodules=all" in refused
    assert " M a.py" in looked


def test_files_elsewhere_and_secrets_are_asked_about_and_nothing_goes_to_the_background(
    coder: Coder, project: Path, tmp_path: Path
) -> None:
    write(project, {".env": "TOKEN=x"})
    write(tmp_path, {"other.txt": "elsewhere"})
    script: list[Scripted] = [
        use("run_command", command="cat .env"),
        use("run_command", command=f"cat {tmp_path}/other.txt"),
        use("run_command", command="cat a.py", background=True),
        "Done.",
    ]
    editor = coder(project, script)
    editor.set_mode("planning")

    editor.prompt("Look", "reject_once", "allow_once")

    secret, elsewhere, background = coder.model.last.results
    assert "was not done" in secret
    assert elsewhere == "elsewhere\n(exit code 0)"
    assert background == "in this mode nothing runs in the background"
