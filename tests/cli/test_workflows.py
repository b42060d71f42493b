"""`coupler workflows`, and `coupler trust` for them, as a person and a script use them."""

from __future__ import annotations

import io
import json
import re
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

import forked
from coupler.cli.main import command
from coupler.cli.output import Output
from coupler.cli.workflows import LISTING, TEMPLATES, Row
from coupler.workflow.language.library import Library
from raw_client import COUPLER, PATIENCE

REVIEW = """\
name: review
description: Review a change
inputs:
  target: {required: true, description: Branch or path}
  rounds: {type: integer, default: 2}
  where: {enum: [dev, staging]}
  words: {rest: true}
secrets: [TOKEN]
steps:
  - {id: diff, if: inputs.rounds > 1, run: "git diff {{ inputs.target }}"}
  - id: both
    parallel:
      - {id: left, run: make left}
      - [{id: right, run: make right, goto: last}, {id: last, run: make}]
  - {id: fixes, for_each: steps.diff.stdout | lines, steps: [{id: fix, run: "fix {{ item }}"}]}
outputs: {fixes: "{{ steps.fixes.results | length }}", list: [1, a]}
hooks: {end: [{run: clean}]}
"""
EVIL = 'description: "one \\e]0;owned\\atwo \\u202Ethree"\nsteps: [{run: make}]\n'
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    project = tmp_path.resolve() / "app"
    (project / ".git").mkdir(parents=True)
    monkeypatch.chdir(project)
    return project


@pytest.fixture
def directory(project: Path) -> Path:
    directory = project / ".coupler" / "workflows"
    directory.mkdir(parents=True)
    return directory


def run(*arguments: str) -> Result:
    return CliRunner().invoke(command, arguments)


def workflows(*arguments: str) -> Result:
    return run("workflows", *arguments)


class TestListing:
    def test_each_is_a_line_with_its_state(self, directory, coupler_home):
        (directory / "review.yaml").write_text(REVIEW)
        (directory / "broken.yaml").write_text("steps:\n  - rn: make\n")
        users = coupler_home / "workflows"
        users.mkdir(parents=True)
        (users / "mine.yaml").write_text(EVIL)

        listed = workflows("list")

        assert [line.split("\t") for line in listed.stdout.splitlines()] == [
            [
                "broken",
                "project",
                "broken",
                str(directory / "broken.yaml"),
                ".coupler/workflows/broken.yaml:2: the step does nothing; did you mean `run` by `rn`?",
            ],
            ["mine", "user", "ready", str(users / "mine.yaml"), "one two three"],
            ["review", "project", "not trusted", str(directory / "review.yaml"), "Review a change"],
        ]
        assert listed.stderr == "Some are not trusted yet: read them, then run `coupler trust`.\n"
        rows = json.loads(workflows("list", "--json").stdout)
        assert [(row["name"], row["state"]) for row in rows] == [
            ("broken", "broken"),
            ("mine", "ready"),
            ("review", "not trusted"),
        ]

    def test_on_a_terminal_it_is_a_table(self):
        stream = io.StringIO()
        LISTING.write_table(
            [Row("a", "user", "ready", "/f", "Does it"), Row("bb", "user", "broken", "/f", "x")],
            Output(stream),
        )
        assert [line.rstrip() for line in stream.getvalue().splitlines()] == [
            "NAME  ORIGIN  STATE   DESCRIPTION",
            "a     user    ready   Does it",
            "bb    user    broken  x",
        ]

    def test_names_that_hide_others_or_are_no_commands_are_told(self, directory, coupler_home):
        for place in (directory, coupler_home / "workflows"):
            place.mkdir(parents=True, exist_ok=True)
            (place / "twice.yaml").write_text("steps: [{run: make}]\n")
        (directory / "runs.yaml").write_text("steps: [{run: make}]\n")
        (directory / "odd.yaml").write_text("name: odd.yml\nsteps: [{run: make}]\n")

        told = workflows("list").stderr
        assert "`twice` is the project's: your own one is not used here." in told
        reasons = ("`/runs` is about runs: give it", "`odd.yml` means the path of a file: give it")
        checked = workflows("validate").stdout
        for reason in reasons:
            assert reason in told
            assert reason in checked
        assert ".coupler/workflows/odd.yaml:1:7: warning: it cannot be called" in checked

    def test_where_there_is_none_it_says_how_to_begin(self, project, coupler_home):
        listed = workflows("list")
        assert (listed.exit_code, listed.stdout) == (0, "")
        assert listed.stderr == "There is no workflow yet: `coupler workflows new NAME` begins one.\n"
        assert not coupler_home.exists()


class TestShowing:
    def test_it_tells_how_to_run_it_and_what_it_does(self, directory):
        (directory / "review.yaml").write_text(REVIEW)
        assert workflows("show", "review").stdout == (
            """\
review: Review a change
  .coupler/workflows/review.yaml

Usage: coupler run review target=TEXT [rounds=INTEGER] [where=dev|staging] [TEXT...]

Inputs:
  target=TEXT     Branch or path (required)
  rounds=INTEGER  default 2
  where=TEXT      one of dev, staging
  words=TEXT      also the words without a name

Secrets, from the environment:
  TOKEN

Steps:
  diff   run       git diff {{ inputs.target }}  [if inputs.rounds > 1]
  both   parallel  2 branches
    branch 1
      left  run       make left
    branch 2
      right  run       make right  [may go to last]
      last   run       make
  fixes  for_each  for each item of steps.diff.stdout | lines
      fix  run       fix {{ item }}

When it ends:
  run_1  run       clean

Outputs:
  fixes  {{ steps.fixes.results | length }}
  list   [1,"a"]
"""
        )

    def test_nothing_that_a_terminal_obeys_gets_through(self, directory):
        evil = '"\\e]0;owned\\a\\u202E\\e[2Jx"'
        (directory / "evil.yaml").write_text(
            f"description: {evil}\ninputs: {{a: {{default: {evil}, description: {evil}}}}}\n"
            f"steps: [{{run: {evil}, description: {evil}, if: {evil}}}]\noutputs: {{o: {evil}}}\n"
        )
        for arguments in (["show", "evil"], ["list"], ["validate"], ["graph", "evil"], ["list", "--json"]):
            told = workflows(*arguments)
            assert not CONTROL.search(told.output), arguments

    def test_a_broken_or_unknown_one_ends_with_sentences(self, directory):
        (directory / "broken.yaml").write_text("steps:\n  - rn: make\n")
        told = workflows("show", "broken")
        assert (told.exit_code, told.stdout) == (2, "")
        assert told.stderr == (
            ".coupler/workflows/broken.yaml:2:5: error: the step does nothing; did you mean `run` by `rn`?\n"
        )
        told = workflows("graph", "brken")
        assert (told.exit_code, told.stdout) == (1, "")
        assert told.stderr == (
            "coupler workflows: there is no workflow `brken`; did you mean `broken`? "
            "`coupler workflows list` shows those there are\n"
        )

    def test_every_line_about_a_step_stands_in_80_columns(self, directory):
        words = "word " * 30
        (directory / "long.yaml").write_text(
            f"steps:\n  - {{id: a, run: echo}}\n  - {{id: b, if: steps.a.stdout, run: {words}}}\n"
            f"outputs: {{all: {words}}}\n"
        )
        shown = workflows("show", "long").stdout.splitlines()
        assert max(map(len, shown)) < 80
        assert "               [if steps.a.stdout]" in shown


class TestChecking:
    def test_problems_are_lines_as_compilers_write_them(self, directory):
        (directory / "good.yaml").write_text("steps: [{run: make}]\n")
        (directory / "odd.yaml").write_text("steps:\n  - stop: Done\n  - run: make\n")
        (directory / "wrong.yaml").write_text("steps:\n  - run: echo {{ inputs.x }}\n")

        told = forked.run(
            [*COUPLER, "workflows", "validate"], capture_output=True, text=True, timeout=PATIENCE
        )

        assert told.stdout.splitlines() == [
            ".coupler/workflows/odd.yaml:3:5: warning: `run_2` is never reached: "
            "the step before, `stop_1`, always stops",
            ".coupler/workflows/wrong.yaml:2:18: error: there is no input `x`; `inputs` has none",
        ]
        assert told.stderr == "3 workflows checked: 1 error and 1 warning.\n"
        assert told.returncode == 2

    def test_a_number_that_python_cannot_read_is_a_problem_of_its_line(self, project):
        (project / "long.yaml").write_text(f"steps:\n  - set:\n      x: {'9' * 5000} + 1\n")
        told = workflows("validate", "long.yaml")
        assert told.stdout == (
            "long.yaml:3:10: error: the expression cannot be read: "
            "a number has more than 4,096 bits: calculate with smaller ones\n"
        )
        assert told.exit_code == 2

    def test_warnings_are_errors_only_if_that_is_wanted(self, project):
        (project / "odd.yaml").write_text("steps:\n  - stop: Done\n  - run: make\n")
        assert workflows("validate", "odd.yaml").exit_code == 0
        assert workflows("validate", "--strict", "odd.yaml").exit_code == 2

    def test_what_is_well_is_said_so(self, project):
        (project / "good.yaml").write_text("steps: [{run: make}]\n")
        told = workflows("validate", "good.yaml", "./good.yaml")
        assert (told.exit_code, told.stdout) == (0, "")
        assert told.stderr == "2 workflows checked: all is well.\n"

    def test_programs_get_json(self, project):
        file = project / "wrong.yaml"
        file.write_text("steps:\n  - run: echo {{ inputs.x }}\n")
        told = workflows("validate", "--json", "wrong.yaml")
        assert (told.exit_code, told.stderr) == (2, "")
        assert json.loads(told.stdout) == [
            {
                "file": str(file),
                "line": 2,
                "column": 18,
                "severity": "error",
                "message": "there is no input `x`; `inputs` has none",
            }
        ]


class TestBeginning:
    @pytest.mark.parametrize("template", TEMPLATES)
    def test_an_example_is_a_workflow_without_problems_and_is_trusted(self, project, template):
        told = workflows("new", "first", "--template", template)
        assert (
            told.stdout == ".coupler/workflows/first.yaml is a workflow now. Run it with: coupler run first\n"
        )
        errors = Library(".").check("first").errors
        assert errors == ()
        assert workflows("list").stdout.split("\t")[:3] == ["first", "project", "ready"]

    @pytest.mark.parametrize("has_repository", [False, True], ids=["no repository", "no commit"])
    def test_an_agent_that_has_no_change_to_review_says_so_in_a_sentence(
        self, tmp_path, monkeypatch, has_repository
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
        if has_repository:
            subprocess.run(["git", "init", "-q"], check=True)
        assert workflows("new", "first", "--template", "agent").exit_code == 0

        done = forked.run([*COUPLER, "run", "first"], capture_output=True, text=True, timeout=PATIENCE)

        assert done.returncode == 3
        assert (
            "coupler run: diff: The command ended with exit code 1: "
            "This directory is in no git repository with a commit.\n"
        ) in done.stderr
        assert "usage" not in done.stderr

    def test_a_file_or_a_name_that_is_taken_is_left_alone(self, directory):
        (directory / "first.yaml").write_text("name: other\nsteps: [{run: make}]\n")
        for name in ("first", "other"):
            told = workflows("new", name)
            assert told.exit_code == 1
            assert "choose another name" in told.stderr
        assert (directory / "first.yaml").read_text().startswith("name: other")

    @pytest.mark.parametrize("name", ["../out", "a b", "a.yaml", ""])
    def test_a_name_is_one_word(self, project, name):
        told = workflows("new", name)
        assert told.exit_code == 2
        assert "a workflow's name must be" in told.stderr
        assert not (project / ".coupler").exists()

    def test_it_may_be_among_the_users_own(self, project, coupler_home):
        assert workflows("new", "mine", "--user").exit_code == 0
        assert (coupler_home / "workflows" / "mine.yaml").exists()
        assert not (project / ".coupler").exists()


def test_the_graph_is_mermaid(directory):
    (directory / "review.yaml").write_text(REVIEW)
    assert workflows("graph", "review").stdout.startswith("flowchart TD\n  begin((start))\n")


def test_the_schema_is_that_of_the_language(project):
    schema = json.loads(workflows("schema").stdout)
    assert schema["title"] == "A workflow of Coupler"


class TestTrusting:
    @pytest.fixture
    def script(self, project: Path, directory: Path) -> Path:
        (directory / "test.yaml").write_text("steps: [{run_file: ../../test.sh}]\n")
        script = project / "test.sh"
        script.write_text("make\nmake test\n")
        return script

    def test_the_files_of_the_workflows_are_shown_and_remembered(self, script):
        told = run("trust", "--yes")
        assert told.stderr == (
            "These files are run by workflows; read them first:\n"
            "  .coupler/workflows/test.yaml  (1 line)\n"
            "  test.sh  (2 lines)\n"
        )
        assert told.stdout == (
            "2 files of workflows are trusted, as shown. `coupler trust --forget` withdraws that.\n"
        )
        assert workflows("list").stdout.split("\t")[2] == "ready"
        assert "are trusted already, as they are now." in run("trust").stdout

    def test_a_script_that_changed_has_to_be_trusted_again(self, script):
        run("trust", "--yes")
        script.write_text("rm -rf /\n")
        assert workflows("list").stdout.split("\t")[2] == "not trusted"
        told = run("trust")
        assert told.exit_code == 2
        assert "  test.sh  (1 line)\n" in told.stderr
        assert "test.yaml" not in told.stderr

    def test_what_is_forgotten_is_trusted_no_longer(self, script, project):
        run("trust", "--yes")
        told = run("trust", "--forget")
        assert told.stdout == (
            f"{project / '.coupler' / 'workflows' / 'test.yaml'} is no longer trusted.\n"
            f"{script} is no longer trusted.\n"
        )
        assert workflows("list").stdout.split("\t")[2] == "not trusted"

    def test_settings_and_workflows_are_one_question(self, script, project):
        (project / "coupler.toml").write_text('[agents.own]\ncommand = "own-agent"\n')
        told = run("trust", "--yes")
        assert told.stderr.splitlines()[0].endswith(
            "coupler.toml sets what is used only in trusted projects:"
        )
        assert [line.split()[-1] for line in told.stdout.splitlines()] == ["it.", "that."]
        assert len(run("trust", "--list").stdout.splitlines()) == 3

    def test_a_workflow_that_is_elsewhere_is_named_by_its_file(self, project):
        (project / "ci").mkdir()
        (project / "ci" / "test.yaml").write_text("steps: [{run_file: ../test.sh}]\n")
        (project / "test.sh").write_text("make\n")

        told = run("trust", "ci/test.yaml", "--yes")

        assert told.stdout.startswith("2 files of workflows are trusted")
        assert told.stderr.splitlines()[1:] == ["  ci/test.yaml  (1 line)", "  test.sh  (1 line)"]
        assert run("trust", "ci/test.yaml").stdout.startswith("ci/test.yaml is trusted already")
        assert len(run("trust", "--forget", "ci/test.yaml").stdout.splitlines()) == 2
        assert run("trust", "ci/none.yaml").exit_code == 1

    def test_a_broken_one_is_left_out(self, script, directory):
        (directory / "broken.yaml").write_text("stps: []\n")
        told = run("trust", "--yes")
        assert "Note: .coupler/workflows/broken.yaml is broken, and is left out.\n" in told.stderr
        assert told.stdout.startswith("2 files")


class TestTheGuide:
    PAGE = (Path(__file__).parent.parent.parent / "docs" / "workflows.md").read_text()

    def test_its_examples_are_well_but_for_the_one_that_is_not(self, project):
        for number, text in enumerate(re.findall(r"```yaml\n(.*?)```", self.PAGE, re.DOTALL)):
            file = "check.yaml" if "check.yaml" in text else f"{number}.yaml"
            (project / file).write_text(text)
            told = workflows("validate", file)
            if file != "check.yaml":
                assert (told.exit_code, told.stdout) == (0, "")
            else:
                assert f"$ coupler workflows validate check.yaml\n{told.stdout}{told.stderr}```" in self.PAGE

    def test_it_begins_one_as_it_says(self, project):
        assert f"$ coupler workflows new lines\n{workflows('new', 'lines').stdout}```" in self.PAGE
