"""`present_plan` over stdio: the user reads the plan, and says how it is carried out or what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.script import use
from coder.served_coder import Coder, tree, write

PLAN = "# The plan\n\n1. Read a.py\n2. Write **two** for one\n\nThen run the tests."
PRESENT = use("present_plan", plan=PLAN)
EDIT = use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}])
READ = use("read_file", path="a.py")
FORMS = {"elicitation": {"form": {}}}


@pytest.fixture
def project(project: Path) -> Path:
    write(project, {"a.py": "one\n"})
    return project


def test_the_plan_is_shown_and_the_dialog_has_it_with_the_ways_to_go_on(coder: Coder, project: Path) -> None:
    editor = coder(project, [PRESENT, "Then not."])
    editor.set_mode("planning")

    turn = editor.prompt("Plan it", "keep-planning")

    [question] = editor.asked
    assert [(option["optionId"], option["kind"]) for option in question["options"]] == [
        ("interactive", "allow_once"),
        ("accept-edits", "allow_once"),
        ("keep-planning", "reject_once"),
    ]
    assert (question["toolCall"]["kind"], question["toolCall"]["title"]) == (
        "switch_mode",
        "Present the plan",
    )
    assert "Then run the tests." in str(question["toolCall"]["content"])
    assert [entry["content"] for entry in turn.of("plan")[0]["entries"]] == ["Read a.py", "Write two for one"]


def test_after_an_approval_that_wants_to_be_asked_each_edit_is_asked_about(
    coder: Coder, project: Path
) -> None:
    editor = coder(project, [READ, PRESENT, EDIT, "Done."])
    editor.set_mode("planning")

    editor.prompt("Plan it", "interactive", "allow_once")

    assert [question["toolCall"]["kind"] for question in editor.asked] == ["switch_mode", "edit"]
    assert tree(project) == {"a.py": "two\n"}
    assert "present_plan" not in coder.model.last.tools


def test_a_remark_reaches_the_model_where_the_client_can_ask_for_it(coder: Coder, project: Path) -> None:
    editor = coder(project, [PRESENT, "I plan on."], **FORMS)
    editor.set_mode("planning")
    editor.forms.append({"action": "accept", "content": {"value": "Keep the old name"}})

    turn = editor.prompt("Plan it", "keep-planning")

    assert "They say: Keep the old name" in coder.model.last.result
    assert turn.use["status"] == "failed"
    assert turn.of("current_mode_update")[1:] == []


def test_a_dialog_that_nobody_answers_ends_with_a_sentence(coder: Coder, project: Path) -> None:
    editor = coder(project, [PRESENT, "The plan waits for you."])
    editor.set_mode("planning")
    request = editor.begin("Plan it")
    frames = editor.until(lambda frame: frame.get("method") == "session/request_permission")
    refusal = {"code": -32601, "message": "there is nobody here"}
    editor.client.send({"id": frames[-1]["id"], "error": refusal})

    turn = editor.finish(request, before=frames)

    assert "nobody has approved it" in coder.model.last.result
    assert "there is nobody here" in coder.model.last.result
    assert (turn.reason, turn.last_message) == ("end_turn", "The plan waits for you.")


def test_a_rule_against_switching_keeps_the_session_planning(coder: Coder, project: Path) -> None:
    write(project, {"coupler.toml": '[permissions]\ndeny = ["switch_mode"]\n'})
    editor = coder(project, [PRESENT, EDIT, "Not allowed."])
    editor.set_mode("planning")
    before = tree(project)

    editor.prompt("Plan it")

    assert (editor.asked, tree(project)) == ([], before)


@pytest.mark.parametrize(
    ("plan", "told"), [("  ", "the plan is empty"), ("x" * 30_001, "the plan is too long")]
)
def test_a_plan_that_nobody_could_read_is_refused(coder: Coder, project: Path, plan: str, told: str) -> None:
    editor = coder(project, [use("present_plan", plan=plan), "I see."])
    editor.set_mode("planning")

    editor.prompt("Plan it")

    assert told in coder.model.last.result
    assert editor.asked == []


def test_in_other_modes_there_is_no_plan_to_present(coder: Coder, project: Path) -> None:
    editor = coder(project, [PRESENT, "I go on."])

    turn = editor.prompt("Do it")

    assert "present_plan" not in coder.model.asked[0].tools
    assert (editor.asked, turn.use["status"]) == ([], "failed")
