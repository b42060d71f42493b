"""`make demo` in a new clone, with a bare python3 and the package registry: it installs, and shows itself."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILT = (".*", "build", "dist", "site", "tests", "node_modules", "__pycache__")
LONGEST = 600
"""Seconds for all that is installed, on a machine that does much else."""

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]


def make_demo(clone: Path, environment: dict[str, str]) -> str:
    done = subprocess.run(
        ["make", "demo", "DEMO_ARGS=--scripted"],
        cwd=clone,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        timeout=LONGEST,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.mark.skipif(shutil.which("make") is None, reason="make is missing")
def test_a_new_clone_sets_itself_up_once_and_shows_the_workflow(tmp_path: Path) -> None:
    clone, home = tmp_path / "clone", tmp_path / "home"
    shutil.copytree(ROOT, clone, ignore=shutil.ignore_patterns(*BUILT))
    home.mkdir()
    # Where packages come from is the machine's; nothing else of this environment is known there.
    kept = {name: value for name, value in os.environ.items() if name.lower().startswith(("pip_", "http"))}
    programs = [str(Path(sys.base_prefix, "bin")), "/usr/bin", "/bin"]
    environment = {**kept, "HOME": str(home), "PATH": os.pathsep.join(programs)}

    first = make_demo(clone, environment)
    second = make_demo(clone, environment)

    assert "pip install" in first and "pip install" not in second
    for shown in (first, second):
        assert "Plan  ◐ Read a program" in shown
        assert "The notes are in NOTES.md." in shown
        assert ".venv/bin/coupler init" in shown
    assert not (home / ".config").exists() and not (home / ".local").exists()
