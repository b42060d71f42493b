"""Coding tasks in each mode: what is possible, what is asked about, and what nothing allows."""

from __future__ import annotations

from pathlib import Path

import pytest

from coder.script import use
from coder.served_coder import Coder, clerk, tree, write

EDIT = use("edit_file", path="a.py", edits=[{"old_text": "one", "new_text": "two"}])
READ = use("read_file", path="a.py")


@pytest.fixture
def project(project: Path) -> Path:
    write(project, {"a.py": "one\n"})
    return project


def test_a_session_begins_by_asking_and_offers_all_modes(coder: Coder, project: Path) -> None:
    served = coder.served()
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})

    modes = answer["result"]["modes"]

    assert modes["currentModeId"] == "interactive"
    assert {mode["id"]: mode["name"] for mode in modes["availableModes"]} == {
        "interactive": "Ask",
        "accept-edits": "Accept edits",
        "read-only": "Read only",
        "planning": "Plan",
        "agentic": "Auto",
    }
    served.leave()


def test_accepting_edits_edits_without_asking_and_asks_for_commands(coder: Coder, project: Path) -> None:
    editor = coder(project, [READ, EDIT, use("run_command", command="touch made"), "Done."])
    editor.set_mode("accept-edits")

    turn = editor.prompt("Edit and run", "reject_once")

    assert tree(project) == {"a.py": "two\n"}
    [question] = editor.asked
    assert question["toolCall"]["kind"] == "execute"
    assert [each["status"] for each in turn.uses] == ["completed", "completed", "failed"]


@pytest.mark.parametrize("path", [".env", ".git/hooks/pre-commit", "coupler.toml"])
def test_accepting_edits_asks_for_files_that_hold_secrets_or_start_programs(
    coder: Coder, project: Path, path: str
) -> None:
    editor = coder(project, [use("write_file", path=path, content="x"), "Not that one."])
    editor.set_mode("accept-edits")

    editor.prompt("Write it", "reject_once")

    assert tree(project) == {"a.py": "one\n"}


@pytest.mark.parametrize("mode", ["read-only", "planning"])
def test_where_nothing_may_change_nothing_can(coder: Coder, project: Path, mode: str) -> None:
    editor = coder(
        project,
        [
            READ,
            use("search", pattern="one"),
            EDIT,
            use("write_file", path="b.py", content="x"),
            use("run_command", command="touch made"),
            "I only read.",
        ],
    )
    editor.set_mode(mode)

    turn = editor.prompt("Change it")

    assert tree(project) == {"a.py": "one\n"}
    assert editor.asked == []
    assert [each["status"] for each in turn.uses] == ["completed"] * 2 + ["failed"] * 3
    assert not {"edit_file", "write_file"} & coder.model.asked[0].tools
    assert {"read_file", "search", "find_files"} <= coder.model.asked[0].tools
    assert turn.reason == "end_turn"


@pytest.mark.parametrize("mode", ["read-only", "planning"])
def test_where_nothing_may_change_no_tool_of_a_server_is_used_whatever_it_claims(
    coder: Coder, project: Path, mode: str
) -> None:
    served = coder.served(config='[permissions]\nallow = ["mcp:clerk"]\n')
    coder.model.plays(
        use("read_memo", text="the memo"), "I have it.", use("read_memo", text="the memo"), "I have not."
    )
    editor = served.opened(project, clerk())

    before = editor.prompt("Read the memo")
    editor.set_mode(mode)
    after = editor.prompt("Read the memo")

    assert before.use["status"] == "completed"
    assert after.use["status"] == "failed"
    assert "read_memo" in coder.model.asked[0].tools
    assert "read_memo" not in coder.model.last.tools
    assert "there is no such tool in the mode" in coder.model.last.result


def test_a_plan_that_is_approved_is_carried_out_in_the_same_turn(coder: Coder, project: Path) -> None:
    plan = "1. Read a.py\n2. Write two for one"
    editor = coder(project, [READ, use("present_plan", plan=plan), EDIT, "It is done."])
    editor.set_mode("planning")
    request = editor.begin("Make it two")
    frames = editor.until(lambda frame: frame.get("method") == "session/request_permission")
    [accepting] = [
        option["optionId"]
        for option in frames[-1]["params"]["options"]
        if option["kind"].startswith("allow")
        and "edits" in option["name"].lower()
        and "accept" in option["name"].lower()
    ]
    editor.serve(frames[-1], iter([accepting]))
    turn = editor.finish(request, before=frames)

    assert tree(project) == {"a.py": "two\n"}
    assert len(editor.asked) == 1
    assert plan.splitlines()[1][3:] in str(turn.updates)
    switches = [update["currentModeId"] for update in turn.of("current_mode_update")]
    assert switches[-1] == "accept-edits"
    assert "edit_file" in coder.model.last.tools
    assert (turn.reason, turn.last_message) == ("end_turn", "It is done.")


def test_a_plan_that_is_not_approved_changes_nothing(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("present_plan", plan="1. Write two"), EDIT, "Then I plan on."])
    editor.set_mode("planning")

    turn = editor.prompt("Make it two", "reject_once")

    assert tree(project) == {"a.py": "one\n"}
    assert {update["currentModeId"] for update in turn.of("current_mode_update")} <= {"planning"}
    assert turn.use["status"] == "failed"
    assert "edit_file" not in coder.model.last.tools


def test_auto_asks_nobody_for_edits_and_commands_in_the_project(coder: Coder, project: Path) -> None:
    write(project, {"build/old": "x\n"})
    copying = use("run_command", command="cat a.py > b.py && rm -rf build")
    editor = coder(project, [READ, EDIT, copying, "Done."])
    editor.set_mode("agentic")

    turn = editor.prompt("Edit, copy and clean up")

    assert tree(project) == {"a.py": "two\n", "b.py": "two\n"}
    assert {each["status"] for each in turn.uses} == {"completed"}
    assert editor.asked == []


@pytest.mark.parametrize(
    "command",
    [
        "rm -rf ~",
        'rm -rf "$HOME"',
        "cd ~ && rm -rf -- *",
        "sh -c 'rm -r -f ${HOME}/'",
    ],
)
def test_no_mode_lifts_the_floor(coder: Coder, project: Path, command: str) -> None:
    """The home of the process is a directory of the test, in case that it does not hold."""
    served = coder.served(config='[permissions]\nallow = ["*"]\n')
    person = served.home.parent / f"{served.home.name}-of-the-user"
    write(person, {"precious": "mine\n"})
    coder.model.plays(use("run_command", command=command), "It is forbidden.")
    editor = served.opened(project)
    editor.set_mode("agentic")

    turn = editor.prompt("Clean up")

    assert tree(person) == {"precious": "mine\n"}
    assert tree(project) == {"a.py": "one\n"}
    assert (editor.asked, turn.use["status"], turn.reason) == ([], "failed", "end_turn")
    assert "precious" not in coder.model.last.result
    served.leave()


def test_what_a_rule_denies_is_denied_in_auto_too(coder: Coder, project: Path) -> None:
    write(project, {"coupler.toml": '[permissions]\ndeny = ["edit(a.py)"]\nask = ["execute(touch *)"]\n'})
    editor = coder(project, [READ, EDIT, use("run_command", command="touch made"), "As you wish."])
    editor.set_mode("agentic")
    before = tree(project)

    turn = editor.prompt("Edit and run", "reject_once")

    assert tree(project) == before
    assert [each["status"] for each in turn.uses] == ["completed", "failed", "failed"]


def test_a_switch_holds_from_the_next_call_on_while_the_turn_runs(coder: Coder, project: Path) -> None:
    editor = coder(project, [READ, EDIT, use("write_file", path="b.py", content="x\n"), "Done."])
    request = editor.begin("Edit twice")
    frames = editor.until(lambda frame: frame.get("method") == "session/request_permission")
    switch = editor.client.request("session/set_mode", {"sessionId": editor.session, "modeId": "read-only"})
    editor.client.send(switch)
    editor.client.answer_to(switch)
    editor.serve(frames[-1], iter(["allow_once"]))
    turn = editor.finish(request, before=frames)

    assert tree(project) == {"a.py": "two\n"}
    assert [each["status"] for each in turn.uses] == ["completed", "completed", "failed"]


def test_the_first_mode_is_the_users_and_not_loosened_by_a_project(coder: Coder, project: Path) -> None:
    write(project, {"coupler.toml": '[coder]\nmode = "agentic"\n'})
    served = coder.served(config='[coder]\nmode = "planning"\n')
    answer = served.client.call("session/new", {"cwd": str(project), "mcpServers": []})
    assert answer["result"]["modes"]["currentModeId"] == "planning"
    served.leave()
