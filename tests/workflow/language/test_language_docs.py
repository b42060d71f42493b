"""The pages about the language say what the code says, and their examples do what they say."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from client.stage import run
from coupler.fields.nodes import MappingNode
from coupler.fields.shapes import WRONG
from coupler.store.store import Store
from coupler.workflow.engine.front import Approval, FrontEnd, PermissionQuestion, QuestionAnswer, UserMessage
from coupler.workflow.engine.run import EngineOptions, start_run
from coupler.workflow.journal.run_events import Place, Result, RunFinished, StepFinished, happening_in
from coupler.workflow.language.inputs import bind_inputs, inputs_in_words, parse_input
from coupler.workflow.language.library import Library
from coupler.workflow.language.model import Input, all_tables, step_tables
from coupler.workflow.language.shapes import WorkflowNotes
from coupler.workflow.language.yaml_source import parse_yaml
from tables import table
from workflow.acp_stub import AcpStub
from workflow.project import ACP_PROGRAMS

ROOT = Path(__file__).parents[3]
LANGUAGE, WRITING = ROOT / "docs" / "workflow-language.md", ROOT / "docs" / "workflows.md"
MCP_SERVER = ROOT / "tests" / "agent" / "servers" / "plain.py"


@table(
    "key", [pytest.param(key, id=f"{table.name}-{key.name}") for table in all_tables() for key in table.keys]
)
def test_the_example_of_a_key_is_a_value_for_it(key):
    tree = parse_yaml(f"{key.name}: {key.example}", "f.yaml")
    assert isinstance(tree, MappingNode)
    notes = WorkflowNotes("f.yaml", tree.position)
    assert key.shape.read(tree.values[key.name], key.name, notes) is not WRONG, notes.problems


# The examples


def examples_of(page: Path) -> dict[str, str]:
    """The workflows of a page by the headings that they stand under; a second one there is `heading 2`."""
    examples: dict[str, str] = {}
    heading = ""
    for title, text in re.findall(r"^#+ ([^\n]*)$|^```yaml\n(.*?)^```", page.read_text(), re.M | re.S):
        heading = title or heading
        if text:
            number = 1 + sum(name.partition("#")[0] == heading for name in examples)
            examples[heading if number == 1 else f"{heading}#{number}"] = text
    return examples


EXAMPLES = examples_of(LANGUAGE) | examples_of(WRITING)
OF_A_MISTAKE = "Checking"
"""The example that is not valid, which `tests/cli/test_workflows.py` shows."""

GIT = """
case "$1" in
    diff) echo '+a = eval(input())' ;;
    branch) echo topic ;;
    grep) echo "app.py:1: $4"; echo "app.py:7: $4" ;;
    ls-files) echo app.py; echo lib.py ;;
esac
"""
FILES = {
    "app.py": "a = 1\nb = 2\n",
    "lib.py": "c = 3\n",
    "report.txt": "All is well.\n",
    "lint.yaml": 'inputs: {target: {required: true}}\nsteps: [{run: "true"}]\noutputs: {problems: 0}\n',
    "schemas/findings.json": '{"type": "object", "required": ["findings"]}',
}
FINDINGS = {"findings": [{"text": "Code from outside"}, {"text": "Two spaces"}]}


@dataclass(frozen=True)
class Play:
    """What an example is run with, and how it ends. Every question is answered, and approvals as it says."""

    words: str = ""
    """Inputs, as on a command line."""
    programs: Mapping[str, str] = field(default_factory=dict)
    says: object = "Done."
    """The answer of all agents."""
    runs: tuple[str, ...] = ()
    """Commands that an agent asks to run, and may."""
    is_yes: bool = True
    exit_code: int = 0
    others: Mapping[str, str] = field(default_factory=dict)
    """The steps that do not end with success."""
    mocks: Mapping[str, str] = field(default_factory=dict)
    """What stands for the results of some steps."""
    stdout: Mapping[str, str] = field(default_factory=dict)
    """What some of the commands write."""
    outputs: Mapping[str, object] = field(default_factory=dict)
    message: str = ""


PLAYS: list[tuple[str, Play]] = [
    (
        "The workflow language",
        Play("target=main", says=FINDINGS, outputs=FINDINGS, stdout={"diff": "+a = eval(input())\n"}),
    ),
    (
        "The workflow language",
        Play(
            "target=main",
            says=FINDINGS,
            is_yes=False,
            exit_code=130,
            others={"gate": "cancelled"},
            message="gate was denied",
        ),
    ),
    (
        "The workflow language",
        Play(
            "target=main",
            says=FINDINGS,
            outputs=FINDINGS,
            programs={"git": 'test "$1" != commit'},
            others={"commit": "failed"},
        ),
    ),
    (
        "Inputs",
        Play("target=src report=report.txt token=s3cr3t-value", stdout={"run_1": "2 rounds in dev\n"}),
    ),
    (
        "Expressions",
        Play(
            stdout={
                "letter": 'Hello Ann!\nHello Bob!\n{"names": ["Ann", "Bob", "Eve"]} no branch yet\n',
                "run_4": "topic is no release\n",
            }
        ),
    ),
    ("Scopes", Play(stdout={"run_3": "10 12\n"})),
    ("run", Play(stdout={"run_2": "2 lines with TODO\n", "run_3": "<a b><TODO><1 2><true>"})),
    ("run", Play(programs={"git": "exit 1"}, stdout={"run_2": "0 lines with TODO\n"})),
    (
        "http",
        Play(mocks={"open": '[{"number": 1}]', "issue": '{"number": 2}'}, stdout={"run_3": "200 2\n"}),
    ),
    ("http", Play(mocks={"open": "[]"}, others={"issue": "skipped", "run_3": "skipped"})),
    ("agent", Play(says={"findings": ["A typo"]})),
    ("converse", Play()),
    ("approve", Play(stdout={"run_2": "deploying\n"})),
    ("approve", Play(is_yes=False, others={"gate": "denied", "run_2": "skipped"})),
    ("approve#2", Play(runs=("git push origin",))),
    (
        "approve#2",
        Play(is_yes=False, exit_code=3, others={"run_1": "failed"}, message="run_1: it was denied"),
    ),
    ("ask", Play(stdout={"run_2": "1.2\n"})),
    ("parallel", Play(stdout={"run_2": "success success\n"})),
    ("parallel#2", Play(stdout={"release.sign": "signed app.tar\n", "release.announce": "signed app.tar\n"})),
    ("for_each", Play(outputs={"first": "2"}, stdout={"sizes[1].count": "1\n"})),
    (
        "while",
        Play(stdout={"while_2[2].run_1": "try 2\n", "run_4": "success after 1 rounds\n"}),
    ),
    (
        "while",
        Play(
            programs={"make": "exit 2"},
            others={"tests": "failed"},
            stdout={"run_4": "failed after 2 rounds\n"},
        ),
    ),
    (
        "break and continue",
        Play(
            stdout={"run_2": "3 rounds\n"},
            others={
                "hosts[0].continue_1": "skipped",
                "hosts[0].break_3": "skipped",
                "hosts[2].continue_1": "skipped",
            },
        ),
    ),
    ("call", Play(stdout={"run_2": "0 problems\n"})),
    ("set", Play()),
    ("stop", Play(outputs={"change": None}, message="Nothing was changed.")),
    (
        "stop",
        Play("dry=no", exit_code=7, message="This is not implemented.", others={"stop_1": "skipped"}),
    ),
    ("When something fails", Play(stdout={"run_2": "success\n", "done": "done\n"})),
    (
        "When something fails",
        Play(
            programs={"curl": "exit 22"},
            others={"fetch": "failed"},
            stdout={"run_2": "failed\n", "done": "done\n"},
        ),
    ),
    ("mcp_servers", Play()),
    ("Defaults", Play()),
    ("Hooks", Play()),
    (
        "Hooks",
        Play(
            programs={"make": "exit 2"},
            exit_code=3,
            others={"tests": "failed"},
            stdout={"hooks.error.run_1": "tests failed: exit\n"},
            message="tests: The command ended with exit code 2; withheld from its environment: GITHUB_TOKEN, "
            "TICKETS_TOKEN (list them under `secrets` of the workflow to pass them on)",
        ),
    ),
    ("Resuming", Play()),
    ("The first one", Play("directory=schemas", programs={"du": "echo 8.0K"}, outputs={"size": "8.0K"})),
    ("Completion in an editor", Play()),
]


def test_every_example_is_run_and_there_is_one_of_each_kind_of_step():
    assert {example for example, _ in PLAYS} == EXAMPLES.keys() - {OF_A_MISTAKE}
    assert [kind for kind in step_tables() if not any(f"{kind}:" in text for text in EXAMPLES.values())] == []


class Present(FrontEnd):
    """Somebody who answers everything, and says one thing in a conversation."""

    def __init__(self, is_yes: bool) -> None:
        self._is_yes = is_yes
        self._has_spoken = False

    async def approve(
        self, place: Place, question: str, default: bool | None, wish: PermissionQuestion | None = None
    ) -> Approval:
        return Approval(self._is_yes, "user")

    async def ask(self, place: Place, question: str, answer: Input) -> QuestionAnswer:
        return QuestionAnswer("1.2", parse_input(answer, "1.2", "."), "user")

    async def message(self, place: Place, reply: str) -> UserMessage | None:
        if self._has_spoken:
            return None
        self._has_spoken = True
        return UserMessage("Thank you.")


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, unmeasured: None) -> Path:
    """A directory with the files that examples name; the programs that they start come first on the PATH."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name in ("curl", "make", "npm"):
        _write_program(programs / name, "exit 0")
    _write_program(programs / "git", GIT)
    _write_program(programs / "tickets-mcp", f"exec '{sys.executable}' -ISB '{MCP_SERVER}' fine")
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("GITHUB_TOKEN", "ghp-of-a-test")
    monkeypatch.setenv("TICKETS_TOKEN", "tickets-of-a-test")
    return tmp_path


def _write_program(file: Path, script: str) -> None:
    file.write_text(f"#!/bin/sh\n{script}\n")
    file.chmod(0o755)


@pytest.mark.parametrize(
    ("example", "play"),
    [
        pytest.param(example, play, id=f"{example}-{number}".replace(" ", "-"))
        for number, (example, play) in enumerate(PLAYS)
    ],
)
def test_an_example_does_what_it_says(project: Path, example: str, play: Play) -> None:
    (project / "example.yaml").write_text(EXAMPLES[example])
    for name, script in play.programs.items():
        _write_program(project / "bin" / name, script)
    agents = [_agent(project / "bin", ACP_PROGRAMS[name], play) for name in ("claude", "codex", "gemini")]

    finished, results = run(_run(project, play))

    others = {path: result.status for path, result in results.items() if result.status != "success"}
    assert others == play.others, results
    assert finished.exit_code == play.exit_code, finished
    assert finished.message == play.message
    assert finished.outputs == play.outputs
    assert {path: results[path].stdout for path in play.stdout} == play.stdout
    assert [tool for agent in agents for tool in agent.tools] == [(command, True) for command in play.runs]


def _agent(programs: Path, name: str, play: Play) -> AcpStub:
    agent = AcpStub(programs, name).answers({"says": play.says, "runs": play.runs})
    program = programs / name
    # So that it takes the servers of examples that have an address, whoever is there.
    able = '"loadSession": True, "mcpCapabilities": {"http": True}'
    program.write_text(program.read_text().replace('"loadSession": True', able))
    return agent


async def _run(project: Path, play: Play) -> tuple[RunFinished, dict[str, Result]]:
    """How the example in the directory ends, and all of its steps by their paths."""
    bundle = Library(str(project)).bundle_of("example.yaml")
    inputs = bind_inputs(bundle.main, inputs_in_words(play.words.split(), bundle.main), str(project))
    mocks = {name: project / f"{name}.mock" for name in play.mocks}
    for name, content in play.mocks.items():
        mocks[name].write_text(content)
    store = Store.open(str(project / "runs.db"))
    try:
        async with start_run(
            store, bundle, inputs, cwd=str(project), way=EngineOptions(Present(play.is_yes), mocks=mocks)
        ) as started:
            finished = await started.engine.run()
        entries = await store.runs.entries(started.run.id, kinds=("step_finished",), is_whole=True)
    finally:
        store.close()
    ended = [happening_in(entry.body) for entry in entries]
    return finished, {str(each.place): each.result for each in ended if isinstance(each, StepFinished)}
