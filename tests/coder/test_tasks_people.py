"""Coding tasks in which somebody else has a part: the user who is asked, and agents that are delegated to."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from client.stage import Scripted
from coder.editor import FORMS
from coder.script import Asked, use
from coder.served_coder import Coder, tree, write

COLORS = ["red", "blue"]


def accepted(**content: object) -> dict:
    return {"action": "accept", "content": content}


def test_todos_are_the_plan_that_the_editor_shows(coder: Coder, project: Path) -> None:
    begun = [
        {"content": "Look", "status": "in_progress"},
        {"content": "Mend", "status": "pending"},
    ]
    over = [{**todo, "status": "completed"} for todo in begun]
    editor = coder(project, [use("write_todos", todos=begun), use("write_todos", todos=over), "Done."])

    turn = editor.prompt("Mend it")

    plans = [{e["content"]: e["status"] for e in plan["entries"]} for plan in turn.of("plan")]
    assert plans[0] == {"Look": "in_progress", "Mend": "pending"}
    assert plans[-1] == {"Look": "completed", "Mend": "completed"}
    assert editor.asked == []


def test_a_question_is_a_form_and_its_answer_goes_to_the_model(coder: Coder, project: Path) -> None:
    editor = coder(
        project, [use("ask_user", question="Which color?", options=COLORS), "Blue it is."], **FORMS
    )
    editor.forms = [accepted(choice="blue")]

    turn = editor.prompt("Paint it")

    [form] = editor.asked
    assert "Which color?" in form["message"]
    assert json.dumps(form["requestedSchema"]).count("blue") >= 1
    assert "blue" in coder.model.last.result
    assert "red" not in coder.model.last.result.partition(": ")[2]
    assert (turn.use["status"], turn.last_message) == ("completed", "Blue it is.")
    assert "Which color?" in turn.use["title"]


def test_a_form_that_is_declined_is_told_and_the_turn_goes_on(coder: Coder, project: Path) -> None:
    editor = coder(
        project, [use("ask_user", question="Which color?", options=COLORS), "I take red."], **FORMS
    )
    editor.forms = [{"action": "decline"}]

    turn = editor.prompt("Paint it")

    assert "declined" in coder.model.last.result
    assert turn.reason == "end_turn"


def test_without_forms_choices_are_a_dialog(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("ask_user", question="Which color?", options=COLORS), "Blue it is."])
    request = editor.begin("Paint it")
    frames = editor.until(lambda frame: frame.get("method") == "session/request_permission")
    [blue] = [each["optionId"] for each in frames[-1]["params"]["options"] if each["name"] == "blue"]
    editor.serve(frames[-1], iter([blue]))

    turn = editor.finish(request, before=frames)

    assert "blue" in coder.model.last.result
    assert turn.last_message == "Blue it is."


def test_an_open_question_without_forms_ends_the_turn_and_the_next_prompt_answers_it(
    coder: Coder, project: Path
) -> None:
    editor = coder(project, [use("ask_user", question="What shall it be called?"), "Then it is Ada."])

    asked = editor.prompt("Make a file")
    answered = editor.prompt("Ada")

    assert "What shall it be called?" in asked.text
    assert asked.reason == "end_turn"
    assert "Ada" in coder.model.last.result
    assert answered.last_message == "Then it is Ada."


def test_a_sub_agent_works_with_a_fresh_mind_and_is_shown_below_its_call(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    edit = use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}])

    def sub_agent(asked: Asked) -> object:
        assert "Write two for one in a.py" in asked.prompts[-1]
        assert "a secret of the parent" not in asked.text
        assert not {"delegate", "ask_user", "present_plan"} & asked.tools
        return use("read_file", path="a.py")

    editor = coder(
        project,
        [
            use("delegate", task="Write two for one in a.py"),
            sub_agent,
            edit,
            "The sub-agent is done.",
            "All is done.",
        ],
    )

    turn = editor.prompt("Have it done; a secret of the parent", "allow_once")

    assert tree(project) == {"a.py": "two\n"}
    delegated, read, edited = turn.uses
    assert {each["status"] for each in turn.uses} == {"completed"}
    assert "coder" in delegated["title"]
    assert "Write two" in delegated["title"]
    assert delegated["rawOutput"]["status"] == "completed"
    assert [read["kind"], edited["kind"]] == ["read", "edit"]
    assert "The sub-agent is done." in coder.model.last.result
    assert turn.last_message == "All is done."
    parents = {each.get("_meta", {}).get("coupler", {}).get("parent") for each in (read, edited)}
    assert parents == {delegated["toolCallId"]}


def test_several_sub_agents_explore_side_by_side_and_change_nothing(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n", "b.py": "two\n"})

    def explores(asked: Asked) -> object:
        name = asked.prompts[-1].split()[-1]
        if not asked.results:
            assert "edit_file" not in asked.tools
            return use("read_file", path=name, call_id=f"read-{name}")
        return f"{name} says {asked.result.strip()[-3:]}"

    editor = coder(
        project,
        [
            (
                use("delegate", task="Tell what is in a.py", agent="explore"),
                use("delegate", task="Tell what is in b.py", agent="explore"),
            ),
            *[explores] * 4,
            "Both were read.",
        ],
    )

    turn = editor.prompt("Look at both")

    first, second = coder.model.last.results
    assert "a.py says one" in first
    assert "b.py says two" in second
    assert [each["kind"] for each in turn.uses].count("read") == 2
    assert turn.last_message == "Both were read."


ECHO = """
from coupler import Turn, serve

async def echo(turn: Turn) -> None:
    async with turn.tool("Write it down", kind="edit", path="echo.txt") as call:
        if await call.permitted():
            await turn.files.write("echo.txt", turn.text)
    await turn.say(f"You said: {turn.text}")

serve(echo)
"""


@pytest.fixture
def echo(tmp_path: Path) -> str:
    """Settings that name another agent: one that writes down what it is told, and says it."""
    write(tmp_path, {"echo.py": ECHO})
    command = [sys.executable, "-m", "coupler", "serve", str(tmp_path / "echo.py")]
    return f"[agents.echo]\ntitle = 'Echo'\ncommand = {json.dumps(command)}\n"


def test_another_agent_does_a_part_and_asks_through_this_session(
    coder: Coder, project: Path, echo: str
) -> None:
    served = coder.served(config=echo)
    coder.model.plays(use("delegate", task="Say hello", agent="echo"), "It has said hello.")
    editor = served.opened(project)

    turn = editor.prompt("Let echo say hello", "allow_once", "allow_once")

    assert tree(project) == {"echo.txt": "Say hello"}
    delegated = turn.uses[0]
    assert "echo" in delegated["title"].lower()
    assert "Say hello" in delegated["title"]
    assert delegated["rawOutput"]["agent"] == "echo"
    assert delegated["rawOutput"]["status"] == "completed"
    assert "You said: Say hello" in coder.model.last.result
    assert "Say hello" in str(editor.asked[0])
    assert "echo.txt" in str(editor.asked[1])
    served.leave()


def test_only_agents_that_are_known_by_name_are_delegated_to(coder: Coder, project: Path) -> None:
    editor = coder(
        project, [use("delegate", task="x", agent="sh -c 'touch made'"), "There is no such agent."]
    )

    turn = editor.prompt("Delegate")

    assert (tree(project), turn.use["status"], editor.asked) == ({}, "failed", [])
    assert "coder" in coder.model.last.result


def test_a_cancel_ends_another_agent_too(coder: Coder, project: Path, tmp_path: Path) -> None:
    slow = Scripted(
        tmp_path,
        1,
        """
        hello()
        send(result(read(), {"sessionId": "s1"}))
        prompt = read()
        send(say("working"))
        read_until(is_cancel)
        send(end(prompt, "cancelled"))
        read()
        """,
    )
    served = coder.served(config=f"[agents.slow]\ncommand = {json.dumps(shlex.join(slow.command))}\n")
    coder.model.plays(use("delegate", task="Take your time", agent="slow"))
    editor = served.opened(project)
    request = editor.begin("Delegate")
    before = editor.until(lambda frame: "working" in str(frame.get("params")), "allow_once")

    editor.cancel()
    turn = editor.finish(request, before=before)

    assert turn.reason == "cancelled"
    assert turn.uses[0]["status"] == "failed"
    served.leave()
