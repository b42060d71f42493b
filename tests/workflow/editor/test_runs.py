"""Runs as an editor sees them: steps as tool calls, dialogs, cancels, and runs that go on.

All tests share one `coupler serve`, with a session each in a directory of its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agent.sessions.steps import reopen
from agent.steps import leave, still_serves, text_of
from raw_client import RawClient
from workflow.acp_stub import AcpStub
from workflow.served_project import Editor, coupler, opened, served, write_workflow

CANCEL_LIMIT = 6.0
"""Seconds after which a cancelled turn has to be answered."""

WORKFLOWS = {
    "build": """
        inputs: {name: {rest: true, default: app}}
        steps:
          - id: compile
            run: echo building {{ inputs.name }}; echo careful >&2
          - id: maybe
            description: Only sometimes
            if: false
            run: echo never
          - id: size
            set: {bytes: "40 + 2"}
          - id: check
            description: Check it
            run: exit 7
            on_error: continue
        outputs: {log: "{{ steps.compile.stdout | trim }}", bytes: "{{ vars.bytes }}"}
    """,
    "again": """
        steps:
          - id: flaky
            description: Try it
            run: test -e mark || { touch mark; echo first; exit 3; }; echo second
            retry: {attempts: 3, delay: 1ms}
    """,
    "fails": """
        steps:
          - {id: before, run: echo ok}
          - {id: broken, run: "echo why; exit 9"}
          - {id: after, run: echo never}
    """,
    "mended": """
        steps:
          - {id: before, run: echo ok}
          - {id: needs, run: test -e mended}
    """,
    "gates": """
        steps:
          - id: sure
            approve: {question: "Deploy to production?", on_deny: fail}
          - id: deploy
            run: echo deployed
    """,
    "long-gate": """
        steps:
          - {id: sure, approve: "Deploy?\\nTo production, with all data."}
    """,
    "skips": """
        steps:
          - {id: sure, approve: {question: "Really?", on_deny: skip}}
          - {id: after, run: echo after}
    """,
    "stops": """
        steps:
          - {id: sure, approve: {question: "Really?", on_deny: stop}}
          - {id: after, run: echo after}
    """,
    "gated": """
        steps:
          - id: deploy
            description: Deploy it
            run: echo deployed
            approve: "Deploy to {{ run.workflow }}?"
    """,
    "patient": """
        steps:
          - {id: sure, approve: {question: "Really?", timeout: 50ms, default: allow}}
    """,
    "slow": """
        hooks: {cancel: [{id: tidy, run: touch tidied}]}
        steps:
          - {id: first, run: echo one >> done}
          - id: wait
            for_each: [1]
            steps: [{id: rest, run: "test -e go && exit 0; echo sleeping; sleep 600"}]
    """,
    "hides": """
        secrets: [EDITOR_WORD]
        steps:
          - id: tell
            description: Tell {{ secrets.EDITOR_WORD }}
            run: printf '%s' {{ secrets.EDITOR_WORD }}
          - {id: fail, run: "echo {{ secrets.EDITOR_WORD }} >&2; exit 3", on_error: continue}
          - {id: sure, approve: "Use {{ secrets.EDITOR_WORD }}?"}
        outputs: {token: "{{ steps.tell.stdout }}"}
    """,
    "asks_tools": """
        steps: [{id: fix, agent: opencode, prompt: fix it, approve: {tools: [edit]}}]
    """,
    "agents": """
        steps:
          - {id: fix, agent: opencode, prompt: fix it, tools: {allow: ["edit"]}}
        outputs: {said: "{{ steps.fix.text }}"}
    """,
}
WORD = "abracadabra-simsalabim"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of the served process, with its workflows, and stubs of programs."""
    place = tmp_path_factory.mktemp("served")
    for name, text in WORKFLOWS.items():
        write_workflow(place / "workflows", name, text)
    (place / "bin").mkdir()
    AcpStub(place / "bin", "opencode").answers(
        {"when": "fix it", "edits": {"app.py": "x = 2\n"}, "says": "It is fixed."}
    )
    return place


@pytest.fixture(scope="module")
def client(place: Path) -> Iterator[RawClient]:
    env = {"EDITOR_WORD": WORD, "PATH": f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"}
    with served(home=place, cwd=place, env=env) as client:
        yield client
        leave(client)


@pytest.fixture
def editor(client: RawClient, tmp_path: Path) -> Editor:
    still_serves(client)
    client._held.clear()
    return opened(client, tmp_path)


# What is shown


def test_steps_are_tool_calls_with_their_output_and_the_plan_follows_them(editor: Editor) -> None:
    shown = editor.prompt("/build the thing")

    assert shown.reason == "end_turn"
    assert shown.call("compile")["kind"] == "execute"
    assert shown.call("compile")["title"] == "echo building the thing; echo careful >&2"
    assert sorted(shown.output("compile").split("\n")) == ["", "building the thing", "careful"]
    assert shown.statuses[f"{shown.run}/compile"] == ["pending", "in_progress", "completed"]
    assert shown.call("size")["rawOutput"] == {"bytes": 42}
    assert shown.status("check") == "failed"
    assert "exit code 7" in shown.output("check")
    assert f"{shown.run}/maybe" not in shown.calls
    assert shown.plan == {
        "echo building the thing; echo careful >&2": "completed",
        "Only sometimes (skipped)": "completed",
        "set bytes": "completed",
        "Check it (failed)": "completed",
    }
    assert shown.last_message == "- **log**: building the thing\n- **bytes**: 42"
    assert shown.meta == {
        "run": shown.run,
        "workflow": "build",
        "status": "success",
        "exitCode": 0,
        "outputs": {"log": "building the thing", "bytes": 42},
    }


def test_another_attempt_is_news_of_the_same_call(editor: Editor) -> None:
    shown = editor.prompt("/again")

    assert [*shown.calls] == [f"{shown.run}/flaky"]
    assert shown.call("flaky")["title"] == "Try it (attempt 2 of 3)"
    assert shown.call("flaky")["_meta"]["coupler"]["attempt"] == 2
    assert shown.output("flaky").startswith("first\n")
    assert "attempt 2 of 3" in shown.output("flaky")
    assert shown.output("flaky").endswith("second\n")
    assert shown.status("flaky") == "completed"


def test_a_failed_run_ends_with_its_message_and_what_went_wrong_for_programs(editor: Editor) -> None:
    shown = editor.prompt("/fails")

    assert shown.reason == "end_turn"
    assert shown.last_message.startswith("broken: ")
    assert f"`coupler resume {shown.run}`" in shown.last_message
    assert shown.meta["status"] == "failed"
    assert shown.meta["exitCode"] == 3
    assert shown.meta["step"] == "broken"
    assert shown.meta["error"]["kind"] == "exit"
    assert shown.status("broken") == "failed"
    assert shown.plan == {
        "echo ok": "completed",
        "echo why; exit 9 (failed)": "completed",
        "echo never": "pending",
    }


def test_secrets_are_shown_nowhere(editor: Editor) -> None:
    shown = editor.prompt("/hides", "allow")

    assert shown.reason == "end_turn"
    assert WORD not in json.dumps([shown.updates, shown.answer, editor.asked])
    assert "EDITOR_WORD" in shown.last_message


def test_what_an_agent_says_and_does_is_shown_under_its_step(editor: Editor, tmp_path: Path) -> None:
    shown = editor.prompt("/agents")

    assert shown.messages == ["It is fixed.", "It is fixed."]  # as it was said, and as the output
    step = shown.call("fix")
    assert step["kind"] == "think"
    (call,) = [each for id, each in shown.calls.items() if id != step["toolCallId"]]
    assert (call["title"], call["kind"], call["status"]) == ("Edit app.py", "edit", "completed")
    assert call["locations"] == [{"path": str(tmp_path / "app.py")}]
    assert call["_meta"]["coupler"] == {
        "run": shown.run,
        "step": "fix",
        "attempt": 1,
        "parent": step["toolCallId"],
    }
    assert shown.answer["result"]["usage"]["totalTokens"] == 120


# Dialogs


def test_a_yes_lets_the_run_go_on(editor: Editor) -> None:
    shown = editor.prompt("/gates", "allow")

    (asked,) = editor.asked
    assert asked["toolCall"]["toolCallId"] == f"{shown.run}/sure"
    assert asked["toolCall"]["title"] == "Deploy to production?"
    assert [option["kind"] for option in asked["options"]] == ["allow_once", "reject_once"]
    assert shown.statuses[f"{shown.run}/sure"] == ["pending", "in_progress", "completed"]
    assert shown.output("deploy") == "deployed\n"


@pytest.mark.parametrize(
    ("workflow", "status", "goes_on"),
    [("gates", "failed", False), ("skips", "success", True), ("stops", "cancelled", False)],
)
def test_a_no_fails_skips_or_stops(editor: Editor, workflow: str, status: str, goes_on: bool) -> None:
    shown = editor.prompt(f"/{workflow}", "deny")

    assert (shown.reason, shown.meta["status"]) == ("end_turn", status)
    assert shown.statuses[f"{shown.run}/sure"] == ["pending", "failed"]
    assert len(shown.calls) == 1 + goes_on
    assert shown.output("sure") == "denied"
    assert shown.plan[("Deploy to production?" if workflow == "gates" else "Really?") + " (denied)"]


def test_a_question_of_several_lines_stands_there_once(editor: Editor) -> None:
    editor.prompt("/long-gate", "allow")

    (asked,) = editor.asked
    assert asked["toolCall"]["title"] == "Deploy?"
    assert text_of(asked["toolCall"]).count("To production") == 1


def test_a_gate_is_asked_under_the_call_of_its_step(editor: Editor) -> None:
    shown = editor.prompt("/gated", "allow")

    (asked,) = editor.asked
    assert asked["toolCall"]["toolCallId"] == f"{shown.run}/deploy"
    assert asked["toolCall"]["title"] == "Deploy to gated?"
    assert shown.statuses[f"{shown.run}/deploy"] == ["pending", "in_progress", "completed"]


def test_a_question_that_nobody_answers_in_time_is_taken_back_and_has_its_default(editor: Editor) -> None:
    request = editor.begin("/patient")
    frames = editor.until("session/request_permission")
    shown = editor.finish(request, before=frames)

    assert shown.reason == "end_turn"
    assert shown.status("sure") == "completed"


@pytest.mark.parametrize(("answer", "status"), [("allow", "completed"), ("deny", "failed")])
def test_a_tool_call_of_an_agent_is_asked_about_under_its_step(
    editor: Editor, tmp_path: Path, answer: str, status: str
) -> None:
    shown = editor.prompt("/asks_tools", answer)

    (asked,) = editor.asked
    (call,) = [each for id, each in shown.calls.items() if id != f"{shown.run}/fix"]
    assert asked["toolCall"]["toolCallId"] == call["toolCallId"]
    assert asked["toolCall"]["title"] == "Edit app.py"
    assert str(tmp_path / "app.py") in text_of(asked["toolCall"])
    assert call["status"] == status
    assert (tmp_path / "app.py").exists() == (answer == "allow")


# Cancel


def test_a_cancel_ends_what_runs_settles_every_call_and_leaves_a_run_that_can_be_resumed(
    editor: Editor, tmp_path: Path
) -> None:
    request = editor.begin("/slow")
    frames = editor.until("sleeping", "tool_call_update")
    began = time.monotonic()
    editor.cancel()
    shown = editor.finish(request, before=frames)

    assert time.monotonic() - began < CANCEL_LIMIT
    assert shown.reason == "cancelled"
    assert shown.meta["status"] == "cancelled"
    assert {step: shown.status(step) for step in ("first", "wait", "wait[0].rest")} == {
        "first": "completed",
        "wait": "failed",
        "wait[0].rest": "failed",
    }
    assert shown.call("wait[0].rest")["_meta"]["coupler"]["outcome"] == "cancelled"
    assert shown.call("wait[0].rest")["_meta"]["coupler"]["step"] == "wait[0].rest"
    assert (tmp_path / "tidied").exists()
    assert "`/resume`" in shown.last_message

    (tmp_path / "go").touch()
    resumed = editor.prompt("/resume")
    assert (resumed.reason, resumed.run) == ("end_turn", shown.run)
    assert resumed.status("wait[0].rest+2") == "completed"
    assert (tmp_path / "done").read_text() == "one\n"


def test_a_cancelled_run_can_be_resumed_in_a_terminal_and_the_session_is_free(
    editor: Editor, place: Path, tmp_path: Path
) -> None:
    request = editor.begin("/slow")
    frames = editor.until("sleeping", "tool_call_update")
    editor.cancel()
    shown = editor.finish(request, before=frames)
    assert editor.prompt("/build").reason == "end_turn"

    (tmp_path / "go").touch()
    assert coupler(place, "resume", shown.run).returncode == 0


def test_a_failed_run_is_tried_again_from_where_it_failed(editor: Editor, tmp_path: Path) -> None:
    failed = editor.prompt("/mended")
    assert failed.reason == "end_turn"
    assert failed.run in editor.prompt("/runs").last_message
    editor.prompt("/build")
    (tmp_path / "mended").touch()
    resumed = editor.prompt(f"/resume {failed.run}")

    assert (resumed.reason, resumed.run) == ("end_turn", failed.run)
    assert [*resumed.calls] == [f"{failed.run}/needs+2"]
    nothing = editor.prompt("/resume")
    assert (nothing.reason, nothing.calls) == ("end_turn", {})


def test_a_run_whose_process_was_killed_goes_on_in_the_session_that_is_loaded_again(
    place: Path, tmp_path: Path
) -> None:
    with served(home=place, cwd=place) as first:
        editor = opened(first, tmp_path)
        editor.begin("/slow")
        editor.until("sleeping", "tool_call_update")
        first.process.kill()
    (tmp_path / "go").touch()
    with served(home=place, cwd=place) as second:
        reopen(second, "session/load", editor.session, tmp_path)
        loaded = Editor(second, editor.session)
        told = loaded.prompt("/runs")
        resumed = loaded.prompt("/resume")
        leave(second)

    assert "was interrupted" in told.messages[0]
    assert "`/resume`" in told.messages[0]
    assert resumed.reason == "end_turn"
    assert (tmp_path / "done").read_text() == "one\n"
