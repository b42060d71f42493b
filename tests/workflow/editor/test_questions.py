"""Questions of branches that run beside each other: one at a time, each named, each answered for itself.

Between every two messages the session is closed and loaded again, as when an editor was shut.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from agent.sessions.steps import reopen
from agent.steps import leave, still_serves
from raw_client import RawClient
from workflow.acp_stub import AcpStub
from workflow.served_project import Editor, Shown, opened, served, write_workflow

WORKFLOWS = {
    "two_asks": """
        steps:
          - id: both
            parallel:
              - [{id: age, ask: "How old?", type: integer}, {id: after, run: echo once >> ages}]
              - [{id: name, ask: "Which name?"}, {id: then, run: echo once >> names}]
        outputs: {all: "{{ steps.name.text }} {{ steps.age.output }}"}
    """,
    "talk_and_ask": """
        steps:
          - id: both
            parallel:
              - {id: talk, converse: opencode}
              - {id: name, ask: "Which name?"}
        outputs: {all: "{{ steps.name.text }}: {{ steps.talk.text }}"}
    """,
    "sure_and_ask": """
        steps:
          - id: both
            parallel:
              - {id: name, ask: "Which name?"}
              - [{id: sure, approve: "Really?"}, {id: go, run: echo went >> gone}]
        outputs: {all: "{{ steps.name.text }} {{ steps.sure.approved }}"}
    """,
    "loop_of_asks": """
        steps:
          - id: each
            for_each: [red, blue]
            max_concurrent: 2
            steps: [{id: why, ask: "Why {{ item }}?"}]
        outputs: {all: "{{ steps.each.results | map(attribute='why') | map(attribute='text') | join(' ') }}"}
    """,
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("questions")
    for name, text in WORKFLOWS.items():
        write_workflow(place / "workflows", name, text)
    (place / "bin").mkdir()
    return place


@pytest.fixture(scope="module")
def agent(place: Path) -> AcpStub:
    rules = [{"when": word, "says": f"You said {word}."} for word in ("hello", "bye")]
    return AcpStub(place / "bin", "opencode").answers(*rules)


@pytest.fixture(scope="module")
def client(place: Path, agent: AcpStub) -> Iterator[RawClient]:
    env = {"PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with served(home=place, cwd=place, env=env) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


def asked_at(shown: Shown) -> str:
    """The one step that the last message names as the one that waits."""
    assert (shown.reason, shown.meta["status"]) == ("end_turn", "parked")
    (step,) = re.findall(r"\*\*(.+?)\*\*", shown.last_message)
    return str(step)


def load_again(editor: Editor, cwd: Path) -> None:
    editor.client.call("session/close", {"sessionId": editor.session})
    editor.client._held.clear()
    reopen(editor.client, "session/load", editor.session, cwd)


def answered(editor: Editor, cwd: Path, shown: Shown, answers: Mapping[str, list[str]]) -> Shown:
    """Give each step its answers when it asks, until the run is over."""
    left = {step: [*texts] for step, texts in answers.items()}
    run = shown.run
    while shown.meta["status"] == "parked":
        text = left[asked_at(shown)].pop(0)
        load_again(editor, cwd)
        shown = editor.prompt(text)
        assert shown.run == run
    assert not any(left.values()), "a step was not asked"
    return shown


def test_two_questions_are_asked_one_after_the_other_and_a_wrong_answer_is_asked_for_again(
    editor: Editor, tmp_path: Path
) -> None:
    first = editor.prompt("/two_asks")
    assert asked_at(first) == "both.age"
    load_again(editor, tmp_path)
    wrong = editor.prompt("Ada")
    assert asked_at(wrong) == "both.age"
    assert "That will not do" in wrong.last_message
    last = answered(editor, tmp_path, wrong, {"both.age": ["36"], "both.name": ["Ada"]})

    assert last.last_message == "Ada 36"
    assert [(tmp_path / name).read_text() for name in ("ages", "names")] == ["once\n", "once\n"]


def test_a_conversation_and_a_question_beside_it_get_what_is_meant_for_them(
    editor: Editor, agent: AcpStub, tmp_path: Path
) -> None:
    answers = {"both.talk": ["hello", "bye", ""], "both.name": ["Ada"]}
    last = answered(editor, tmp_path, editor.prompt("/talk_and_ask"), answers)

    assert last.last_message == "Ada: You said bye."
    assert agent.prompts == ["hello", "bye"]


def test_a_dialog_beside_a_question_is_answered_in_the_same_turn_and_once(
    editor: Editor, tmp_path: Path
) -> None:
    first = editor.prompt("/sure_and_ask", "allow")
    last = answered(editor, tmp_path, first, {"both.name": ["Ada"]})

    (dialog,) = editor.asked
    assert dialog["toolCall"]["toolCallId"] == f"{first.run}/both.sure"
    assert last.last_message == "Ada true"
    assert (tmp_path / "gone").read_text() == "went\n"


def test_a_dialog_that_was_closed_takes_no_answer_that_is_meant_for_a_question(
    editor: Editor, tmp_path: Path
) -> None:
    request = editor.begin("/sure_and_ask")
    frames = editor.until("session/request_permission")
    editor.client.send({"id": frames[-1]["id"], "result": {"outcome": {"outcome": "cancelled"}}})
    first = editor.finish(request, before=frames)
    assert asked_at(first) == "both.name"
    load_again(editor, tmp_path)
    last = editor.prompt("Ada", "allow")

    assert last.last_message == "Ada true"


def test_the_iterations_of_a_loop_ask_one_after_the_other(editor: Editor, tmp_path: Path) -> None:
    answers = {"each[0].why": ["warm"], "each[1].why": ["cold"]}
    last = answered(editor, tmp_path, editor.prompt("/loop_of_asks"), answers)

    assert last.last_message == "warm cold"
