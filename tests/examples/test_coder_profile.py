"""The profiles of the coder among the examples are what their file says, used as it says."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

import forked
from coder.conftest import coder, coders, project, scripted_model
from coder.script import use
from coder.served_coder import Coder, surroundings, tree, write
from examples.desk import EXAMPLES
from raw_client import COUPLER

__all__ = ["coder", "coders", "project", "scripted_model"]

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("unmeasured")]

PROFILES = EXAMPLES / "coder"
PATIENCE = 60


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The files of the example beside the user's own coupler.toml, which is one of them."""
    return Path(shutil.copytree(PROFILES, tmp_path / "home"))


def test_the_reviewer_reads_knows_its_guide_and_changes_nothing(
    coder: Coder, project: Path, home: Path
) -> None:
    write(project, {"a.py": "a = 1\n", "secrets/key.txt": "hidden\n"})
    before = tree(project)
    coder.model.plays(use("read_file", path="a.py"), use("read_file", path="secrets/key.txt"), "Line 1.")
    served = coder.served("--agent", "reviewer", home=home)

    turn = served.opened(project).prompt("Review it")

    assert [each["status"] for each in turn.uses] == ["completed", "failed"]
    first = coder.model.asked[0]
    assert "Praise nothing." in first.system
    assert "What a review looks for" in first.system
    assert not {"write_file", "edit_file"} & first.tools
    assert tree(project) == before
    served.leave()


def test_the_tester_writes_tests_and_is_sent_on_until_they_pass(
    coder: Coder, project: Path, home: Path
) -> None:
    write(project, {"Makefile": "test:\n\t@test -f tests/test_a.py || { echo no test of a; exit 1; }\n"})
    coder.model.plays(
        use("write_file", path="src/a.py", content="a = 2\n"),
        "Done.",
        use("write_file", path="tests/test_a.py", content="assert True\n"),
        "Now it is.",
    )
    served = coder.served("--agent", "tester", home=home)

    turn = served.opened(project).prompt("Write tests")

    assert [each["status"] for each in turn.uses] == ["failed", "completed"]
    assert "`edit(src/**)`" in coder.model.asked[1].result
    assert any("no test of a" in str(each["content"]) for each in coder.model.asked[2].messages)
    assert "src/a.py" not in tree(project)
    assert tree(project)["tests/test_a.py"] == "assert True\n"
    served.leave()


def test_both_are_modes_of_the_coder_and_names_for_exec(coder: Coder, project: Path, home: Path) -> None:
    served = coder.served(home=home)
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})["result"]
    modes = {mode["id"] for mode in answer["modes"]["availableModes"]}
    assert {"reviewer", "tester"} <= modes
    served.leave()

    coder.model.plays("Nothing is wrong.")
    done = forked.run(
        [*COUPLER, "exec", "reviewer", "Review what is not committed yet"],
        cwd=project,
        env={**os.environ, **surroundings(home, coder.model.server.url)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )

    assert (done.returncode, done.stdout) == (0, "Nothing is wrong.\n"), done.stderr
