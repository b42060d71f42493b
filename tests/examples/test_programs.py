"""The examples that drive agents do what they say, with agents that follow a script."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from examples.desk import EXAMPLES

pytestmark = pytest.mark.long

PATIENCE = 60

READER = """

from pathlib import Path
from coupler import Turn, serve

async def agent(turn: Turn) -> None:
    file = turn.text.split("Answer for the file ")[1].removesuffix(" alone.")
    with Path("asked.txt").open("a") as asked:
        asked.write(file + "\\n")
    await turn.count_tokens(90, 10)
    await turn.say(f"{file} has {len(Path(file).read_text())} characters.")

serve(agent)
"""

JUDGE = """
import json
from coupler import NotPermittedError, Turn, serve

async def agent(turn: Turn) -> None:
    changes = await turn.mcp.call("coupler", "recent_changes", {"path": "export.py"})
    wrong = await turn.mcp.call("coupler", "authors", {})
    async with turn.tool("Delete export.py", kind="delete", path="export.py") as call:
        await call.permitted()
    answer = {"severity": SEVERITY, "files": ["export.py"], "summary": changes.text.split(": ")[1].strip()}
    if wrong.is_error:
        await turn.mcp.call("coupler", "structured_output", answer)

serve(agent)
"""


@pytest.fixture
def agent(tmp_path: Path) -> Callable[[str], str]:
    """Writes an agent down; the command line that starts it."""

    def write(code: str) -> str:
        (tmp_path / "agent.py").write_text(code)
        return shlex.join([sys.executable, str(tmp_path / "agent.py")])

    return write


@pytest.fixture
def run(tmp_path: Path, unmeasured: None) -> Callable[..., subprocess.CompletedProcess[str]]:
    def run(example: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(EXAMPLES / example), *words],
            cwd=tmp_path,
            env=dict(os.environ),
            input=stdin,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        )

    return run


def answers(file: Path) -> dict[str, str]:
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    return {line["file"]: line["answer"] for line in lines}


def test_batch_asks_about_each_file_once_and_goes_on_where_it_was(agent, run, tmp_path) -> None:
    for name in ("a.py", "b.py"):
        (tmp_path / name).write_text(name * 2)
    command = agent(READER)

    first = run("batch.py", command, "How long?", "a.py")
    second = run("batch.py", command, "How long?", "a.py", "b.py", "b.py", "--at-once", "1")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert first.stderr == second.stderr == "1 of 1 files, 100 tokens\n"
    assert answers(tmp_path / "answers.jsonl") == {
        "a.py": "a.py has 8 characters.",
        "b.py": "b.py has 8 characters.",
    }
    assert (tmp_path / "asked.txt").read_text() == "a.py\nb.py\n"


def test_batch_stops_when_the_budget_is_spent_and_says_which_files_are_left(agent, run, tmp_path) -> None:
    files = [f"{number}.py" for number in range(4)]
    for name in files:
        (tmp_path / name).touch()
    words = ("batch.py", agent(READER), "How long?", *files, "--at-once", "1")

    spent = run(*words, "--tokens", "200")

    assert spent.returncode == 1
    assert [*answers(tmp_path / "answers.jsonl")] == files[:2]
    assert spent.stderr.splitlines() == [
        "2.py: the budget of 200 tokens is spent (200 used)",
        "3.py: the budget of 200 tokens is spent (200 used)",
        "2 of 4 files, 200 tokens",
    ]
    rest = run(*words)
    assert rest.returncode == 0, rest.stderr
    assert answers(tmp_path / "answers.jsonl").keys() == {*files}


def test_batch_goes_on_after_a_file_that_fails_and_keeps_what_it_cannot_read(agent, run, tmp_path) -> None:
    (tmp_path / "good.py").touch()
    command = agent(READER)

    ran = run("batch.py", command, "How long?", "missing.py", "good.py")

    assert ran.returncode == 1
    assert "missing.py: " in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("1 of 2 files, about ")
    assert [*answers(tmp_path / "answers.jsonl")] == ["good.py"]

    (tmp_path / "answers.jsonl").write_text("half a li")
    ran = run("batch.py", command, "How long?", "good.py")
    assert ran.returncode == 1
    assert ran.stderr == "batch.py: line 1 of answers.jsonl is no answer: name another file, or mend it\n"
    assert (tmp_path / "answers.jsonl").read_text() == "half a li"


@pytest.fixture
def repository(tmp_path: Path) -> None:
    own = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com", "-c", "commit.gpgsign=false"]
    (tmp_path / "export.py").touch()
    for words in (["init", "--quiet"], ["add", "export.py"], ["commit", "--quiet", "-m", "Export tables"]):
        subprocess.run(["git", *own, *words], cwd=tmp_path, check=True)


@pytest.mark.usefixtures("repository")
def test_triage_lends_its_functions_and_prints_an_answer_of_its_type(agent, run) -> None:
    ran = run("triage.py", agent(JUDGE.replace("SEVERITY", "'high'")), stdin="The export hangs")

    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout) == {
        "severity": "high",
        "files": ["export.py"],
        "summary": "Export tables",
        "question": "",
    }
    assert "It was not allowed to 'Delete export.py': allow it with the rule `delete(" in ran.stderr


@pytest.mark.usefixtures("repository")
def test_triage_says_so_if_the_answer_does_not_fit_and_if_there_is_nothing_to_judge(agent, run) -> None:
    command = agent(JUDGE.replace("SEVERITY", "'terrible'"))

    ran = run("triage.py", command, "The export hangs")
    empty = run("triage.py", command, stdin=" \n")
    nobody = run("triage.py", "no-such-agent", "The export hangs")

    assert (ran.returncode, empty.returncode, nobody.returncode) == (1, 2, 1)
    assert ran.stderr.splitlines()[-1].startswith("triage.py: ")
    assert "the report is empty" in empty.stderr
    assert "no-such-agent" in nobody.stderr
    assert "Traceback" not in ran.stderr + nobody.stderr
