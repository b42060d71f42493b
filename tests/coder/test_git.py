"""What the model is told of the repository, and that a repository cannot run anything by being looked at."""

import asyncio
import os
import subprocess
import time

import pytest

from coupler.coder import prompt as git_module
from coupler.coder.prompt import git_state


def git(directory, *words, check=True):
    subprocess.run(
        ["git", "-c", "user.name=A", "-c", "user.email=a@b", *words],
        cwd=directory,
        check=check,
        capture_output=True,
        env={**os.environ, "GIT_CONFIG_GLOBAL": os.devnull},
        timeout=20,
    )


@pytest.fixture
def repository(tmp_path):
    place = tmp_path / "repository"
    place.mkdir()
    git(place, "init", "-q", "-b", "main")
    (place / "a.txt").write_text("one\n")
    git(place, "add", ".")
    git(place, "commit", "-qm", "Begin")
    return place


def state_of(directory, **environ):
    found = asyncio.run(git_state(str(directory), [str(directory)], {**os.environ, **environ}))
    return found.as_text() if found is not None else None


def test_branch_changes_and_commits_are_told(repository):
    (repository / "a.txt").write_text("two\n")
    (repository / "new.txt").write_text("")

    assert state_of(repository).splitlines()[:4] == ["Branch: main", "Changes:", " M a.txt", "?? new.txt"]
    assert state_of(repository).splitlines()[-1].endswith(" Begin")


def test_a_clean_repository_is_called_clean(repository):
    assert "Changes: none" in state_of(repository)


def test_many_changes_are_counted(repository):
    for number in range(50):
        (repository / f"{number}.txt").write_text("")

    assert "… and 30 more" in state_of(repository)


def test_a_repository_without_commits_is_one(tmp_path):
    git(tmp_path, "init", "-q", "-b", "main")

    assert state_of(tmp_path) == "Branch: main\nChanges: none"


def test_a_detached_head_is_told(repository):
    git(repository, "checkout", "-q", "--detach")

    assert state_of(repository).startswith("Branch: none (detached)")


def test_a_directory_that_is_no_repository_has_no_state(tmp_path):
    assert state_of(tmp_path, GIT_CEILING_DIRECTORIES=str(tmp_path.parent)) is None


def test_without_git_there_is_no_state(repository, tmp_path):
    assert state_of(repository, PATH=str(tmp_path)) is None


def test_a_git_that_the_project_brings_along_is_not_run(repository, tmp_path):
    program = repository / "git"
    program.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    program.chmod(0o755)

    assert state_of(repository, PATH=str(repository)) is None
    assert not (tmp_path / "ran").exists()


ARMED = {
    "a monitor": {"core.fsmonitor": "{run}"},
    "hooks": {"core.hooksPath": "{hooks}"},
    "a filter": {"filter.x.clean": "{run}", "filter.x.required": "true"},
    "a filter that stays": {"filter.x.process": "{run}"},
    "a filter with a strange name": {"filter.a=b.c.clean": "{run}"},
    "a signature": {"log.showSignature": "true", "gpg.program": "{run}"},
    "a pager": {"core.pager": "{run}", "pager.status": "true", "pager.log": "true"},
    "an external diff": {"diff.external": "{run}"},
    "an alias": {"alias.status": "!{run}", "alias.log": "!{run}"},
    "a proxy": {"core.sshCommand": "{run}", "core.gitProxy": "{run}", "credential.helper": "!{run}"},
}


@pytest.fixture
def trap(repository, tmp_path):
    """Arms a repository with settings that run a program; what it ran is there afterwards."""
    run = tmp_path / "run"
    run.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\ncat\n")
    run.chmod(0o755)
    hooks = tmp_path / "hooks"
    hooks.mkdir()
    (hooks / "post-index-change").symlink_to(run)

    def arm(settings, *words):
        for key, value in settings.items():
            git(repository, "config", *words, key, value.format(run=run, hooks=hooks))
        filters = (key.removeprefix("filter.").rpartition(".")[0] for key in settings if "filter" in key)
        (repository / ".gitattributes").write_text(f"* filter={next(filters, 'x')}\n")
        (repository / "a.txt").write_text("two\n")
        os.utime(repository / "a.txt", (time.time() + 5, time.time() + 5))
        return tmp_path / "ran"

    return arm


@pytest.mark.parametrize("settings", ARMED.values(), ids=ARMED)
def test_a_repository_runs_nothing_by_being_looked_at(repository, trap, settings):
    ran = trap(settings)

    state = state_of(repository)

    assert state is not None
    assert "a.txt" in state
    assert not ran.exists()


def test_settings_that_are_included_from_another_file_run_nothing_either(repository, trap):
    ran = trap(ARMED["a filter"], "--file", "hidden.cfg")
    git(repository, "config", "include.path", "../hidden.cfg")

    assert "a.txt" in state_of(repository)
    assert not ran.exists()
    git(repository, "status", check=False)
    assert ran.exists(), "the trap is a real one"


def test_submodules_run_nothing_either(repository, trap, tmp_path):
    ran = trap(ARMED["a filter"])
    outer = tmp_path / "outer"
    outer.mkdir()
    git(outer, "init", "-q", "-b", "main")
    git(outer, "-c", "protocol.file.allow=always", "submodule", "add", str(repository), "inner")
    inner = outer / "inner"
    for key, value in ARMED["a filter"].items():
        git(inner, "config", key, value.format(run=tmp_path / "run"))
    (inner / ".gitattributes").write_text("* filter=x\n")
    (inner / "a.txt").write_text("two\n")
    os.utime(inner / "a.txt", (time.time() + 5, time.time() + 5))
    ran.unlink(missing_ok=True)

    assert "Branch: main" in state_of(outer)
    assert not ran.exists()
    git(outer, "status", check=False)
    assert ran.exists(), "the trap is a real one"


@pytest.mark.parametrize("which", ["a monitor", "a filter", "a filter that stays", "hooks"])
def test_without_that_care_it_would(repository, trap, which):
    """The traps of the tests above are real ones."""
    ran = trap(ARMED[which])
    (repository / "a.txt").write_text("one\n")
    os.utime(repository / "a.txt", (time.time() + 5, time.time() + 5))

    git(repository, "status", check=False)

    assert ran.exists()


def test_keys_in_the_environment_are_not_gits_business(repository, tmp_path, monkeypatch):
    shown = tmp_path / "bin"
    shown.mkdir()
    program = shown / "git"
    program.write_text(f"#!/bin/sh\nenv >> {tmp_path}/environment\nexit 1\n")
    program.chmod(0o755)

    state_of(repository, PATH=f"{shown}:{os.environ['PATH']}", SECRET_API_KEY="sk-1", GIT_DIR="/nowhere")

    environment = (tmp_path / "environment").read_text()
    assert "PATH=" in environment
    assert "sk-1" not in environment
    assert "/nowhere" not in environment


def test_what_takes_too_long_is_left_out(repository, tmp_path, monkeypatch):
    monkeypatch.setattr(git_module, "GIT_TIMEOUT", 2.0)
    slow = tmp_path / "bin"
    slow.mkdir()
    program = slow / "git"
    real = subprocess.run(["which", "git"], capture_output=True, text=True, check=True).stdout.strip()
    program.write_text(f'#!/bin/sh\ncase "$*" in *status*) exec sleep 60;; esac\nexec {real} "$@"\n')
    program.chmod(0o755)

    state = state_of(repository, PATH=f"{slow}:{os.environ['PATH']}")

    assert "Branch: main" in state
    assert "looking took too long" in state
