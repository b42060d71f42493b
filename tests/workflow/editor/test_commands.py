"""Workflows as slash commands of a served project, over the real `coupler serve`."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.steps import leave
from raw_client import COUPLER, PATIENCE, Frame, RawClient
from workflow.served_project import opened, served, write_workflow

HELLO = """
description: Greets somebody
inputs:
  who: {required: true, rest: true}
  loud: boolean
steps:
  - id: greet
    run: echo Hello {{ inputs.who }}
outputs: {said: "{{ steps.greet.stdout | trim }}"}
"""
BYE = """
description: Takes leave
steps: [{run: echo bye}]
"""

ABOUT_RUNS = {"resume": "[run]", "runs": None}
OF_CODER = {"add-dir": "path", "export": "[--force] [file]", "mcp": None, "memory": None, "usage": None}
BESIDES = {**ABOUT_RUNS, **OF_CODER}
"""The commands that there are without any workflow, and without a model."""
"""The commands that are always there."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


@pytest.fixture
def client(home: Path, project: Path) -> Iterator[RawClient]:
    with served(home=home, cwd=project) as client:
        yield client
        leave(client)


def commands_in(frame: Frame) -> dict[str, Any] | None:
    """The commands that a frame tells of, with their hints."""
    update = frame.get("params", {}).get("update", {})
    if update.get("sessionUpdate") != "available_commands_update":
        return None
    return {each["name"]: each.get("input", {}).get("hint") for each in update["availableCommands"]}


def test_workflows_are_commands_within_a_second_of_the_session_and_again_when_files_change(
    client: RawClient, home: Path, project: Path
) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    began = time.monotonic()
    editor = opened(client, project)

    first = client.read_until(lambda frame: commands_in(frame) is not None)[-1]
    assert commands_in(first) == {"hello": "[loud=BOOLEAN] who", **BESIDES}
    assert time.monotonic() - began < 1 + 1  # a second for a machine that is busy with other tests

    write_workflow(project / ".coupler" / "workflows", "bye", BYE)
    both = {"bye": None, "hello": "[loud=BOOLEAN] who", **BESIDES}
    client.read_until(lambda frame: commands_in(frame) == both)
    (home / "workflows" / "hello.yaml").unlink()
    client.read_until(lambda frame: commands_in(frame) == {"bye": None, **BESIDES})
    assert "/hello" not in editor.prompt(" ").last_message


def test_fifty_workflows_are_commands_within_a_second_too(
    client: RawClient, home: Path, project: Path
) -> None:
    for number in range(50):
        write_workflow(home / "workflows", f"hello-{number}", HELLO)
    began = time.monotonic()
    opened(client, project)

    first = client.read_until(lambda frame: commands_in(frame) is not None)[-1]

    assert len(commands_in(first) or ()) == 50 + len(BESIDES)
    assert time.monotonic() - began < 1 + 1  # a second for a machine that is busy with other tests


def test_a_run_outlives_its_workflow_and_goes_on_when_that_is_back(
    client: RawClient, home: Path, project: Path
) -> None:
    asking = "steps: [{id: name, ask: Who?}]\noutputs: {who: '{{ steps.name.text }}'}"
    file = write_workflow(home / "workflows", "ask", asking)
    editor = opened(client, project)
    run = editor.prompt("/ask").run
    file.unlink()

    gone = editor.prompt("Ann")
    assert gone.reason == "end_turn"
    assert "There is no workflow `/ask`" in gone.last_message
    assert f"The run `{run}` still waits at **name**; `/abort` ends it." in gone.last_message
    assert (gone.meta["status"], gone.meta["run"]) == ("parked", run)

    write_workflow(home / "workflows", "ask", asking)
    assert editor.prompt("Ann").last_message == "Ann"


@pytest.mark.parametrize("blocks", [[], [{"type": "text", "text": " \n"}]])
def test_an_empty_prompt_is_answered_with_the_workflows(
    client: RawClient, home: Path, project: Path, blocks: list[Frame]
) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    editor = opened(client, project)

    shown = editor.finish(editor.begin(*blocks))

    assert "- `/hello [loud=BOOLEAN] who`: Greets somebody" in shown.last_message


def test_a_broken_file_hides_no_other_and_is_named_once(client: RawClient, home: Path, project: Path) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    broken = write_workflow(home / "workflows", "broken", "stepz: []\n")
    editor = opened(client, project)

    first = editor.prompt("/hello Ann")
    assert "`broken` is left out" in first.messages[0]
    assert f"{broken}:1:1: `stepz` is no key of a workflow; did you mean `steps`?" in first.messages[0]
    assert first.last_message == "Hello Ann"

    assert editor.prompt("/hello Ann").messages == ["Hello Ann"]
    called = editor.prompt("/broken")
    assert called.reason == "end_turn"
    assert "did you mean `steps`?" in called.last_message


def test_what_is_no_workflow_is_answered_with_those_there_are(
    client: RawClient, home: Path, project: Path
) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    secret = write_workflow(project, "secret", BYE)
    editor = opened(client, project)

    plain = editor.prompt("good morning")
    assert plain.answer["error"]["code"] == -32000, "that is for the model, and there is none"

    unknown = editor.prompt("/helo Ann")
    assert unknown.reason == "end_turn"
    assert "There is no command `/helo`. Did you mean `/hello`?" in unknown.last_message
    assert (unknown.meta["status"], unknown.meta["error"]["kind"]) == ("not_started", "refused")

    # A path is the word of whoever starts a program, and not of a chat.
    for path in (f"/{secret}", "/./secret.yaml", "/secret.yaml"):
        assert editor.prompt(path).calls == {}


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        ("/hello", "- input `who` is missing: give it as who=TEXT"),
        ("/hello loud=maybe Ann", "- input `loud` has to be true or false, not `maybe`"),
        ("/hello --input whom=Ann", "- there is no input `whom`: did you mean `who`?"),
    ],
)
def test_inputs_that_are_missing_or_wrong_are_refused_with_the_usage(
    client: RawClient, home: Path, project: Path, typed: str, sentence: str
) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    refused = opened(client, project).prompt(typed)

    assert refused.reason == "refusal"
    assert sentence in refused.last_message
    assert "/hello [loud=BOOLEAN] who\n" in refused.last_message
    assert refused.meta["status"] == "not_started"
    # Clients forget a prompt that is refused, and all that was answered to it, unless there is such a call.
    (check,) = refused.calls.values()
    assert (check["title"], check["status"]) == ("Check the inputs of /hello", "completed")
    (error,) = check["rawOutput"]["errors"]
    assert f"- {error}".startswith(sentence)


def test_a_workflow_of_the_project_runs_when_it_is_trusted(
    client: RawClient, home: Path, project: Path
) -> None:
    write_workflow(project / ".coupler" / "workflows", "hello", HELLO)
    editor = opened(client, project)

    refused = editor.prompt("/hello Ann")
    assert (refused.reason, refused.calls) == ("end_turn", {})
    assert "not trusted yet" in refused.last_message
    assert "`coupler trust`" in refused.last_message
    assert "hello.yaml" in refused.last_message

    trusted = subprocess.run(
        [*COUPLER, "trust", "--yes", str(project)],
        env={**os.environ, "COUPLER_HOME": str(home)},
        capture_output=True,
        timeout=PATIENCE,
    )
    assert trusted.returncode == 0, trusted.stderr
    assert editor.prompt("/hello Ann").last_message == "Hello Ann"


def test_a_file_that_is_served_alone_runs_with_every_prompt(home: Path, project: Path) -> None:
    file = write_workflow(project, "hello", HELLO)
    with served(str(file), home=home, cwd=project) as client:
        editor = opened(client, project)

        assert editor.prompt("Ann and  Bob").last_message == "Hello Ann and  Bob"
        assert editor.prompt("").reason == "refusal"
        # Its own command starts it, and any other slash is nothing special.
        assert editor.prompt("/hello Ann").last_message == "Hello Ann"
        assert editor.prompt("/hello").reason == "refusal"
        assert editor.prompt("/tmp is full").last_message == "Hello /tmp is full"
        leave(client)


@pytest.mark.parametrize("inputs", ["", "{env: {default: prod}}", "{env: {default: prod}, loud: boolean}"])
def test_any_prompt_starts_a_workflow_that_needs_nothing(home: Path, project: Path, inputs: str) -> None:
    env = "{{ inputs.env }}" if inputs else "prod"
    flow = f"inputs: {inputs or '{}'}\nsteps: [{{id: x, run: 'echo to {env}'}}]\n"
    file = write_workflow(project, "bye", flow + "outputs: {said: '{{ steps.x.stdout | trim }}'}\n")
    with served(str(file), home=home, cwd=project) as client:
        editor = opened(client, project)
        told = client.read_until(lambda frame: commands_in(frame) is not None)[-1]
        assert [*(commands_in(told) or ())] == ["bye"]

        for typed in ("go", ".", "", "please begin", "/bye", "/help"):
            assert editor.prompt(typed).last_message == "to prod", typed
        if inputs:
            assert editor.prompt("go with env=test").last_message == "to test"
            assert editor.prompt("/bye test env=test").reason == "refusal"
        leave(client)


LINK = {"type": "resource_link", "uri": "file:///a.py", "name": "a.py"}
FILE = {"type": "resource", "resource": {"uri": "file:///a.py", "text": "who=Bob loud=maybe"}}


@pytest.mark.parametrize(
    ("mentioned", "spelled"),
    [
        (LINK, "[Resource: a.py](file:///a.py)"),
        (FILE, "[Resource: a.py](file:///a.py)\n```\nwho=Bob loud=maybe\n```"),
    ],
)
def test_files_behind_a_command_are_part_of_its_text_and_never_inputs(
    client: RawClient, home: Path, project: Path, mentioned: Frame, spelled: str
) -> None:
    write_workflow(home / "workflows", "hello", HELLO)
    editor = opened(client, project)

    shown = editor.finish(editor.begin({"type": "text", "text": "/hello loud=yes Ann and"}, mentioned))

    assert shown.last_message == f"Hello Ann and\n\n{spelled}"


def test_a_file_that_is_all_there_is_for_an_input_is_its_path(
    client: RawClient, home: Path, project: Path
) -> None:
    text = "inputs: {what: {type: file, required: true}}\nsteps: [{id: cat, run: 'cat {{ inputs.what }}'}]\n"
    write_workflow(
        home / "workflows", "show", f"{text}outputs: {{said: '{{{{ steps.cat.stdout | trim }}}}'}}"
    )
    (project / "a b.py").write_text("print(1)")
    editor = opened(client, project)
    link = {"type": "resource_link", "uri": f"{(project / 'a b.py').as_uri()}#L1:2", "name": "a b.py"}

    shown = editor.finish(editor.begin({"type": "text", "text": "/show "}, link))

    assert shown.last_message == "print(1)"


def test_a_workflow_that_is_called_like_a_command_for_runs_is_left_out(
    client: RawClient, home: Path, project: Path
) -> None:
    write_workflow(home / "workflows", "runs", BYE)
    shown = opened(client, project).prompt("/runs")

    assert "`/runs` is about runs: give it another `name`" in shown.messages[0]
    assert shown.last_message == "No workflow was run in this directory yet."


@pytest.mark.parametrize("option", ["--no-store", "--store=own.db"])
def test_runs_are_kept_where_sessions_are(home: Path, project: Path, option: str) -> None:
    asking = "steps: [{id: name, ask: Who?}]\noutputs: {who: '{{ steps.name.text }}'}"
    write_workflow(home / "workflows", "ask", asking)
    with served(option, home=home, cwd=project) as client:
        editor = opened(client, project)
        editor.prompt("/ask")
        assert editor.prompt("Ann").last_message == "Ann"
        leave(client)

    assert (project / "own.db").exists() == option.endswith("own.db")
    assert [*home.rglob("coupler.db")] == []
