"""Loops that know where they are and can be left, through the real `coupler run`."""

from __future__ import annotations

import sys
import textwrap
import time
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


LEAVING = """
    steps:
      - id: hosts
        for_each: [a, b, c, d]
        steps:
          - {if: item == 'b', continue: true}
          - {id: seen, run: "echo {{ item }} >> log"}
          - {if: item == 'c', break: true}
          - {id: after, run: "echo after {{ item }} >> log"}
      - id: rounds
        while: true
        steps:
          - {if: index == 2, break: true}
          - {run: "echo {{ index }} >> log"}
      - {id: last, run: "test -e mended"}
    outputs:
      rounds: "{{ steps.hosts.results | length }} {{ steps.rounds.results | length }}"
      third: "{{ steps.hosts.results[2].seen.status }}"
"""


def test_continue_ends_a_round_and_break_the_loop_also_when_the_run_is_resumed(project: Project) -> None:
    flow = written(project, LEAVING)

    failed = project.run(flow)
    assert failed.exit_code == 3, failed
    done = ["a", "after a", "c", "0", "1"]
    assert project.read("log").splitlines() == done

    project.write("mended", "")
    resumed = project.resume(failed.id)
    assert resumed.exit_code == 0, resumed
    assert project.read("log").splitlines() == done
    assert resumed.outputs == {"rounds": "3 3", "third": "success"}


def test_a_round_that_a_killed_run_left_in_its_midst_is_left_in_the_same_way(project: Project) -> None:
    flow = written(
        project,
        """
        steps:
          - id: each
            for_each: [a, b, c]
            steps:
              - {id: look, run: "echo {{ item }} >> log; test -e second || echo no"}
              - {if: steps.look.stdout == '' , continue: true}
              - {id: work, run: "touch second; test -e mended"}
              - break: true
        """,
    )

    failed = project.run(flow)
    project.write("mended", "")
    resumed = project.resume(failed.id)

    # Whether the round goes on was decided by what `look` wrote before there was a file `second`.
    assert resumed.exit_code == 0, resumed
    assert project.read("log").splitlines() == ["a"]
    assert resumed.result("each[0].break_4")["status"] == "success"


def test_a_dry_run_and_the_check_know_how_loops_are_left(project: Project) -> None:
    flow = written(project, LEAVING)

    dry = project.coupler_text("run", str(flow), "--dry-run")
    assert dry.returncode == 0, dry.stderr
    assert "continue  end the round\n    ends the round there if its `if` is true" in dry.stdout
    assert "break  leave the loop\n    leaves the loop there if its `if` is true" in dry.stdout
    shown = project.coupler_text("workflows", "show", str(flow)).stdout
    assert "break     leave the loop  [if item == 'c']" in shown
    assert project.coupler_text("workflows", "graph", str(flow)).returncode == 0


NEEDS = """
    steps:
      - id: all
        parallel:
          - {id: test, needs: [unpack, lint], run: "echo test {{ steps.fetch.stdout | trim }} >> log"}
          - - {id: fetch, run: "echo fetched; echo fetch >> log"}
            - {id: unpack, run: "echo unpack >> log"}
          - {id: lint, needs: [fetch], run: "echo lint >> log"}
      - run: echo {{ steps.test.status }} >> log
"""


def test_a_branch_begins_when_those_that_it_needs_are_over_and_sees_their_steps(project: Project) -> None:
    flow = written(project, NEEDS)

    ran = project.run(flow)

    assert ran.exit_code == 0, ran
    assert project.read("log").splitlines() == ["fetch", "unpack", "lint", "test fetched", "success"]
    assert "[needs unpack, lint]" in project.coupler_text("workflows", "show", str(flow)).stdout
    graph = project.coupler_text("workflows", "graph", str(flow)).stdout
    assert "s5_unpack --> s3_test" in graph
    assert "s6_lint --> s3_test" in graph
    dry = project.coupler_text("run", str(flow), "--dry-run")
    order = [dry.stdout.index(f"\n  {name}  run") for name in ("fetch", "unpack", "lint", "test")]
    assert order == sorted(order), dry


def test_room_for_one_branch_is_room_for_branches_that_need_others(project: Project) -> None:
    flow = written(project, NEEDS.replace("id: all\n", "id: all\n        max_concurrent: 1\n"))

    ran = project.run(flow)

    assert ran.exit_code == 0, ran
    assert project.read("log").splitlines()[-2:] == ["test fetched", "success"]


FAILING = """
    steps:
      - id: all
        wait: settled
        parallel:
          - {id: build, run: "echo build >> log; test -e mended"}
          - {id: sign, needs: [build], run: "echo sign >> log"}
          - {id: upload, needs: [sign], run: "echo upload >> log"}
          - - {id: word, ask: "What?"}
            - {id: sure, approve: "Go on?", on_deny: stop}
      - run: echo {{ steps.build.status }} {{ steps.sign.status }} {{ steps.upload.status }} >> log
"""


def test_a_branch_whose_needs_have_failed_is_skipped_and_stays_so(project: Project) -> None:
    flow = written(project, FAILING)

    parked = project.run(flow)
    assert parked.exit_code == 5, parked
    assert parked.statuses == {"all.build": "failed", "all.sign": "skipped", "all.upload": "skipped"}

    project.write("mended", "")
    resumed = project.resume(parked.id, "--answer", "word=x", "--yes")
    assert resumed.exit_code == 0, resumed
    assert project.read("log").splitlines() == ["build", "failed skipped skipped"]


def test_a_skipped_branch_runs_if_what_it_needs_succeeds_in_another_try(project: Project) -> None:
    flow = written(project, FAILING)
    parked = project.run(flow)

    cancelled = project.resume(parked.id, "--answer", "word=x", "--no")
    assert cancelled.exit_code == 130, cancelled
    project.write("mended", "")
    resumed = project.resume(parked.id, "--yes")

    assert resumed.exit_code == 0, resumed
    assert project.read("log").splitlines() == ["build", "build", "sign", "upload", "success success success"]


def test_a_needed_branch_that_fails_ends_a_step_that_waits_for_all(project: Project) -> None:
    flow = written(
        project,
        """
        steps:
          - id: all
            parallel:
              - {id: sign, needs: [build], run: "echo sign >> log"}
              - {id: build, run: "echo build >> log; test -e mended"}
        """,
    )

    failed = project.run(flow)
    assert failed.exit_code == 3, failed
    assert failed.statuses == {"all.build": "failed", "all": "failed"}

    project.write("mended", "")
    resumed = project.resume(failed.id)
    assert resumed.exit_code == 0, resumed
    assert project.read("log").splitlines() == ["build", "build", "sign"]


def test_what_leaves_no_loop_and_what_nobody_can_wait_for_has_its_place_in_the_file(project: Project) -> None:
    flow = written(
        project,
        """\
        steps:
          - break: true
            if: run.cwd
          - id: each
            for_each: [1, 2]
            max_concurrent: 2
            steps:
              - {if: index, break: true}
              - id: beside
                parallel: [{if: index, continue: true}, {run: make}]
          - {id: alone, run: make, needs: [each]}
          - id: all
            parallel:
              - {id: a, needs: [b], run: make}
              - {id: b, needs: [c], run: make}
              - [{id: c, needs: [a, c], run: make}, {id: d, needs: [a], run: make}]
              - {id: e, needs: [aa], run: "echo {{ steps.f.stdout }}"}
              - {id: f, run: make}
          - wait: any
            parallel: [{id: g, needs: [h], run: make}, {id: h, run: make}]
        """,
    )

    checked = project.coupler_text("workflows", "validate", str(flow))

    problems = [line.removeprefix("flow.yaml:") for line in checked.stdout.splitlines() if ": error" in line]
    assert checked.returncode == 2, checked
    assert problems == [
        "2:12: error: `break` is there only inside of a loop",
        "8:28: error: `break` needs a loop that takes one item after the other: leave `max_concurrent` of "
        "`each` out",
        "10:42: error: `continue` cannot leave a branch of `beside`: put it behind that step, where all "
        "branches are over",
        "11:35: error: `needs` is for branches of `parallel`: the steps of a list run one after the other",
        "14:24: error: these branches wait for each other: a → b → c → a",
        "16:29: error: `c` is a step of this very branch: `needs` names steps of others",
        "16:60: error: `needs` stands at the first step of a branch, and holds for all of it",
        "17:25: error: no branch of `all` has the step `aa`; did you mean `a`?",
        "17:44: error: `f` runs beside this, in a branch of `all`: use it after that, or let this branch "
        "have `needs: [f]`",
        "20:31: error: `needs` does not go with `wait: any`, which is over when one branch has succeeded",
    ]


def test_many_branches_that_need_each_other_are_checked_quickly(project: Project) -> None:
    chain = [f"{{id: b{n}, needs: [b{(n + 1) % 1000}], run: make}}" for n in range(1000)]
    flow = project.write("flow.yaml", f"steps: [{{parallel: [{', '.join(chain)}]}}]")
    began = time.monotonic()
    checked = project.coupler_text("workflows", "validate", str(flow))
    assert checked.stdout.count("error: these branches wait for each other: b0 → b1 → ") == 1, checked
    assert time.monotonic() - began < 20

    flow = project.write("flow.yaml", f"steps: [{{parallel: [{', '.join([*chain, '{run: make}'])}]}}]")
    checked = project.coupler_text("workflows", "validate", str(flow))
    assert "error: with `needs` a step has at most 1,000 branches" in checked.stdout
