"""Secret inputs that are typed into a chat: used by the run, and kept by nobody."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.steps import leave
from coupler.schema.v1 import TextContent
from coupler.workflow.editor.arguments import secret_spans, slash_command_in
from coupler.workflow.language.reader import read_text
from raw_client import COUPLER, PATIENCE, RawClient
from tables import table
from workflow.served_project import Editor, opened, served, write_workflow

SECRET = "hunter2-and-more"
DEPLOY = """
inputs:
  token: {required: true, secret: true}
  target: {default: here}
steps:
  - {id: name, ask: Who?}
  - {id: use, run: "printf %s {{ inputs.token }} | tail -c 4 && echo :{{ inputs.target }}"}
outputs: {said: "{{ steps.use.stdout | trim }}"}
"""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    write_workflow(home / "workflows", "deploy", DEPLOY)
    return home


@pytest.fixture
def project(tmp_path: Path) -> Path:
    project = tmp_path / "project"
    (project / ".git").mkdir(parents=True)
    return project


@pytest.fixture
def client(home: Path, project: Path) -> Iterator[RawClient]:
    with served("--log-level=debug", home=home, cwd=project) as client:
        yield client
        leave(client)


def assert_kept_nowhere(home: Path, client: RawClient) -> None:
    """Neither in a file of the store, whole or not yet written back, nor in a log."""
    files = [file for file in home.rglob("*") if file.is_file()]
    assert any(file.name == "coupler.db" for file in files)
    for file in files:
        if file.parent.name != "workflows":
            assert SECRET.encode() not in file.read_bytes(), file
    assert SECRET.encode() not in client.stderr


def test_a_secret_that_is_typed_reaches_the_run_and_is_kept_nowhere(
    client: RawClient, home: Path, project: Path
) -> None:
    editor = opened(client, project)
    # Before its workflow is known, all that is typed is hidden.
    editor.until("available_commands_update", "deploy")
    asked = editor.prompt(f"/deploy token={SECRET} target=there")
    assert "`token` is secret" in asked.messages[0]
    assert editor.prompt("Ann").last_message == "more:there"
    # Said once is enough, and a secret in quotes is one as well.
    again = editor.prompt(f'/deploy --input token="{SECRET}"')
    assert "is secret" not in again.messages[0]
    assert editor.prompt("Ann").last_message == "more:here"

    shown = subprocess.run(
        [*COUPLER, "sessions", "export", editor.session],
        env={**os.environ, "COUPLER_HOME": str(home)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert "/deploy token=[secret:inputs.token] target=there" in shown.stdout
    listed = client.call("session/list", {})["result"]["sessions"]
    assert [each["title"] for each in listed] == ["/deploy token=[secret:inputs.token] target=there"]
    assert_kept_nowhere(home, client)


@pytest.mark.parametrize(
    "typed",
    [
        f"/deplyo token={SECRET}",
        f"/deploy tokn={SECRET}",
        f"/deploy --input {SECRET}",
        f"/deploy token={SECRET} depth=3",
        f"/deploy {SECRET}\nand {SECRET}",
        f"/resume token={SECRET}",
        f"/resume deploy-12345 {SECRET}",
    ],
)
def test_what_is_mistyped_around_a_secret_keeps_it_from_nobody_either(
    client: RawClient, home: Path, project: Path, typed: str
) -> None:
    editor = opened(client, project)
    refused = editor.prompt(typed)
    assert refused.reason in ("refusal", "end_turn")
    assert SECRET not in json.dumps([refused.updates, refused.answer])
    assert_kept_nowhere(home, client)


def test_a_workflow_that_has_changed_a_moment_ago_keeps_no_secret_either(
    client: RawClient, home: Path, project: Path
) -> None:
    write_workflow(home / "workflows", "deploy", "inputs: [token]\nsteps: [{ask: Who?}]\n")
    editor = opened(client, project)
    editor.prompt("/deploy token=known")
    editor.prompt("/abort")
    write_workflow(home / "workflows", "deploy", DEPLOY)

    editor.prompt(f"/deploy token={SECRET}")

    assert_kept_nowhere(home, client)


def test_a_run_that_waits_gets_its_secret_again_after_the_editor_was_closed(
    home: Path, project: Path
) -> None:
    with served(home=home, cwd=project) as client:
        editor = opened(client, project)
        run = editor.prompt(f"/deploy token={SECRET}").run
        leave(client)

    with served(home=home, cwd=project) as client:
        loaded = {"sessionId": editor.session, "cwd": str(project), "mcpServers": []}
        assert "result" in client.call("session/load", loaded)
        told = client.read_until(lambda frame: "available_commands_update" in str(frame))[-1]
        assert "its secret inputs again" in str(told)
        editor = Editor(client, editor.session)

        refused = editor.prompt("Ann")
        assert "resume" in (refused.commands or {"resume"})
        assert refused.reason == "end_turn"
        assert "`/resume token=…`" in refused.last_message
        assert "/abort" in refused.last_message

        again = editor.prompt(f"/resume token={SECRET}")
        assert (again.run, again.reason) == (run, "end_turn")
        assert "Who?" in again.last_message
        assert editor.prompt("Ann").last_message == "more:here"
        leave(client)
        assert_kept_nowhere(home, client)


def test_a_file_that_is_served_alone_keeps_no_secret_either(home: Path, project: Path) -> None:
    text = "inputs: {token: {secret: true, rest: true}}\nsteps: [{run: echo}]"
    file = write_workflow(project, "alone", text)
    with served(str(file), home=home, cwd=project) as client:
        assert opened(client, project).prompt(SECRET).reason == "end_turn"
        leave(client)
        assert_kept_nowhere(home, client)


WORKFLOW = "inputs: {token: {secret: true}, target: string, notes: {rest: true}}\nsteps: [{run: x}]\n"
ONLY = "inputs: {token: {secret: true, required: true}, target: string}\nsteps: [{run: x}]\n"


@table(
    ("workflow", "typed", "hidden"),
    [
        (WORKFLOW, "target=main and so on", []),
        (WORKFLOW, "token=abc target=main", ["abc"]),
        (WORKFLOW, "-i token=abc", ["abc"]),
        (WORKFLOW, "--input=token=a=b", ["a=b"]),
        (WORKFLOW, "token='a b' rest", ["'a b'"]),
        (WORKFLOW, r'"token=a \" b" rest', [r'a \" b"']),
        (WORKFLOW, "--input abc rest", ["abc"]),
        (ONLY, "abc def", ["abc", "def"]),
        (ONLY, "token=abc tagret=x", ["abc", "x"]),
        (ONLY, "token=abc main", ["abc"]),
    ],
)
def test_what_stands_for_secret_inputs_is_found_as_it_was_typed(
    workflow: str, typed: str, hidden: list[str]
) -> None:
    spans = secret_spans(typed, read_text(workflow, "/flows/deploy.yaml"))
    assert [typed[span.start : span.end] for span in spans] == hidden


def test_a_secret_that_goes_on_in_another_block_is_hidden_in_both() -> None:
    typed = slash_command_in((TextContent('/deploy token="abc'), TextContent('def" main')))
    assert typed is not None
    hidden = typed.arguments.hidden(read_text(ONLY, "/flows/deploy.yaml"))
    assert [*hidden.values()] == ['"abc', 'def"']
