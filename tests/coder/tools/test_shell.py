"""Commands of the coder: how they run, what their model and their user see of them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from agent.steps import asks, cancel, end_of, final_call, text_of
from raw_client import PATIENCE
from runtime.test_child import gone_within


def run(at, command, **more):
    """What the model is told of one command."""
    ((status, content),) = at.does(["run_command", {"command": command, **more}])
    assert status == "success", content
    return content


def test_a_command_is_asked_about_and_shown_by_its_very_words(desk, project):
    at = desk()
    assert run(at, "echo out; echo err >&2; exit 3") == "out\nerr\n(exit code 3)"

    (question,) = at.asked
    assert question["params"]["toolCall"]["rawInput"]["command"] == "echo out; echo err >&2; exit 3"
    call = final_call(at.updates)
    assert (call["kind"], call["status"], call["title"]) == (
        "execute",
        "failed",
        "Run echo out; echo err >&2; exit 3",
    )
    assert text_of(call) == "out\nerr\n\nexit code 3"
    assert call["rawOutput"] == {"exitCode": 3, "signal": None, "timedOut": False}


def test_the_user_sees_that_a_command_took_too_long(desk):
    at = desk()
    run(at, "printf begun; exec sleep 600", timeout=0.5)
    assert text_of(final_call(at.updates)).startswith("begun\nit was ended after 0.5 s")


def test_it_is_bash_where_there_is_bash(desk):
    assert run(desk(), "a=(1 2 3); [[ ${#a[@]} == 3 ]] && echo {x,y}") == "x y\n(exit code 0)"


def test_nobody_answers_questions_and_programs_are_told_so(desk):
    told = run(desk(), 'read -r answer || echo nothing; echo "$GIT_TERMINAL_PROMPT $PAGER $GIT_EDITOR"')
    assert told == "nothing\n0 cat true\n(exit code 0)"


def test_a_signal_is_told(desk):
    assert run(desk(), "kill -KILL $$") == "(ended by SIGKILL)"


def test_a_command_over_its_time_is_ended_and_the_model_told_what_to_do(desk):
    told = run(desk(), "echo begun; sleep 600", timeout=0.5)
    assert told == "begun\n(it was ended after 0.5 s: give it more, or let it run in the background)"


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ({"command": " "}, "the command is empty"),
        ({"command": "true", "directory": "/"}, "outside of the session's directories"),
        ({"command": "true", "directory": "nowhere"}, "there is no directory nowhere"),
        ({"command": "true", "timeout": 0}, "a number of seconds up to 3600"),
        ({"command": "true", "timeout": 3601}, "background=true"),
    ],
)
def test_what_cannot_be_run_is_an_error_and_nobody_is_asked(desk, arguments, problem):
    at = desk()
    ((status, content),) = at.does(["run_command", arguments])
    assert status == "error"
    assert problem in content
    assert at.asked == []


def test_of_long_output_the_model_gets_both_ends_and_the_name_of_the_whole(desk):
    at = desk()
    told = run(at, "seq -f 'line %g' 1 20000; exit 1")

    assert told.startswith("line 1\nline 2\n")
    assert re.search(r"line 20000\n\(this is not all: .*\)\n\(exit code 1\)$", told)
    assert len(told) < 30_000
    path = Path(re.search(r"the whole is in (\S+),", told)[1])
    assert path.read_text() == "".join(f"line {number}\n" for number in range(1, 20_001))
    assert path.is_relative_to(at.home / "outputs")
    assert (path.stat().st_mode & 0o777, path.parent.stat().st_mode & 0o777) == (0o600, 0o700)

    ((status, part),) = at.does(["read_file", {"path": str(path), "offset": 10_000, "limit": 1}])
    assert status == "success"
    assert "line 10000" in part
    assert at.asked == []


def test_what_is_secret_is_in_no_kept_output(desk):
    at = desk(env={"DEPLOY_TOKEN": "hunter2-hunter2-hunter2"})
    told = run(at, "yes $DEPLOY_TOKEN | head -2000")
    path = Path(re.search(r"the whole is in (\S+),", told)[1])
    assert "hunter2" not in path.read_text()
    assert path.read_text().count("[secret:DEPLOY_TOKEN]\n") == 2000


def test_colours_and_progress_bars_do_not_reach_the_model(desk):
    at = desk()
    told = run(at, r"printf '\033[31mred\033[0m\n10%%\r50%%\r100%%\ndone\r\n'")
    assert told == "red\n100%\ndone\n(exit code 0)"


def test_a_cancel_ends_the_command_and_all_that_it_started(desk, project):
    at = desk()
    request = at.begin(["run_command", {"command": "sleep 600 & echo $! > pid; echo there; wait"}])
    *_, question = at.client.read_until(asks("session/request_permission"))
    outcome = {"outcome": "selected", "optionId": "allow_once"}
    at.client.send({"id": question["id"], "result": {"outcome": outcome}})
    at.client.read_until(
        lambda frame: "there" in str(frame.get("params", {}).get("update", {}).get("content"))
    )
    at.client.send(cancel(at.session))

    _, answer = end_of(at.client, request)

    assert answer["result"] == {"stopReason": "cancelled"}
    assert gone_within(PATIENCE, int((project / "pid").read_text()))


class TestInTheEditor:
    def in_terminal(self, output: str, *, truncated: bool = False) -> dict:
        return {
            "terminal/create": {"result": {"terminalId": "t1"}},
            "terminal/wait_for_exit": {"result": {"exitCode": 2}},
            "terminal/output": {"result": {"output": output, "truncated": truncated}},
            "terminal/release": {"result": {}},
        }

    def test_commands_run_in_its_terminal_with_the_surroundings_of_one_whom_nobody_answers(
        self, desk, project
    ):
        at = desk(terminal=True)
        ((_, told),) = at.does(
            ["run_command", {"command": "make test"}], replies=self.in_terminal("out\x1b[0m\n")
        )

        assert told == "out\n(exit code 2)"
        created = next(frame["params"] for frame in at.asked if frame["method"] == "terminal/create")
        assert (created["command"], created["args"]) == ("bash", ["-c", "make test"])
        assert created["cwd"] == str(project)
        assert {"name": "GIT_TERMINAL_PROMPT", "value": "0"} in created["env"]
        terminal, ending = final_call(at.updates)["content"]
        assert terminal == {"type": "terminal", "terminalId": "t1"}
        assert ending["content"]["text"] == "exit code 2"

    def test_what_its_terminal_has_forgotten_is_not_passed_off_as_the_whole(self, desk):
        at = desk(terminal=True)
        replies = self.in_terminal("the end\n", truncated=True)
        ((_, told),) = at.does(["run_command", {"command": "make"}], replies=replies)
        assert told.startswith("… (the editor's terminal has forgotten the beginning)\nthe end\n")

    def test_jobs_in_the_background_run_here(self, desk, project):
        at = desk(terminal=True)
        ((_, told),) = at.does(
            ["run_command", {"command": "echo there; exec sleep 600", "background": True}], replies={}
        )
        assert told.endswith("there")
        assert [frame["method"] for frame in at.asked] == ["session/request_permission"]
        at.does(["stop_command", {"id": "job_1"}], replies={})
