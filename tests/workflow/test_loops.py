"""Loops that know where they are and can be left, through the real `coupler run`."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

import pytest

from workflow.project import Project

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="`run` steps need a POSIX shell")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return Project(tmp_path)


def written(project: Project, text: str) -> Path:
    return project.write("flow.yaml", textwrap.dedent(text))


def test_loop_tells_which_round_it_is_and_where_the_loop_around_it_is(project: Project) -> None:
    flow = written(
        project,
        """
        steps:
          - id: rows
            for_each: [a, b]
            steps:
              - id: cells
                for_each: [x, y]
                steps:
                  - id: cell
                    run: echo {{ loop.outer.index }}{{ loop.index }} {{ loop.first }} {{ loop.last }} >> log
              - id: again
                while: steps.told is not defined
                steps: [{id: told, run: "echo {{ loop.first }} {{ loop.outer.last }} >> log"}]
        """,
    )

    ran = project.run(flow)

    assert ran.exit_code == 0, ran
    assert project.read("log").splitlines() == [
        "00 true false",
        "01 false true",
        "true false",
        "10 true false",
        "11 false true",
        "true true",
    ]
