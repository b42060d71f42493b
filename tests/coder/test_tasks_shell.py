"""Coding tasks with commands: their output, their end, and that none outlives what it belongs to."""

from __future__ import annotations

import re
from pathlib import Path

from coder.editor import Editor
from coder.script import Asked, Use, use
from coder.served_coder import Coder, tree, write
from coder.waiting import is_gone, pid_in
from runtime.test_child import is_running

SAYS_BEGUN = "echo $$ > pid; echo begun $((2 * 3))"
BEGUN = "begun 6"
"""A command that tells when it runs, and what it says then, which is not in its own words."""


def job_in(text: str) -> str:
    """The id of a background job, as the model was told it."""
    found = re.search(r"job_\d+", text)
    assert found is not None, text
    return found[0]


def test_a_command_is_asked_about_by_its_very_words_and_its_output_and_exit_code_are_told(
    coder: Coder, project: Path
) -> None:
    write(project, {"src/a.txt": "x\n"})
    command = "pwd; cat a.txt > b.txt; echo wrong >&2; exit 7"
    editor = coder(project, [use("run_command", command=command, directory="src"), "It failed."])

    turn = editor.prompt("Run it", "allow_once")

    assert tree(project) == {"src/a.txt": "x\n", "src/b.txt": "x\n"}
    [question] = editor.asked
    assert command in str(question["toolCall"]["rawInput"])
    assert (turn.use["kind"], turn.use["status"]) == ("execute", "failed")
    assert turn.use["rawOutput"] == {"exitCode": 7, "signal": None, "timedOut": False}
    told = coder.model.last.result
    assert str(project / "src") in told
    assert "wrong" in told
    assert "7" in told


def test_a_refused_command_does_not_run(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("run_command", command="touch made"), "As you like."])
    turn = editor.prompt("Run it", "reject_once")
    assert (tree(project), turn.use["status"], turn.reason) == ({}, "failed", "end_turn")
    assert "not permitted" in coder.model.last.result


def test_what_is_always_allowed_is_not_asked_about_again_and_nothing_else_is_allowed_by_it(
    coder: Coder, project: Path
) -> None:
    once, other = (
        use("run_command", command="git init -q"),
        use("run_command", command="git init -q; touch x"),
    )
    editor = coder(project, [once, once, other, "Done."])

    turn = editor.prompt("Run them", "allow_always", "reject_once")

    assert [each["status"] for each in turn.uses] == ["completed", "completed", "failed"]
    assert not (project / "x").exists()


def test_output_that_is_too_long_is_kept_in_a_file_that_the_model_is_told_and_can_read(
    coder: Coder, project: Path
) -> None:
    def reads_the_middle(asked: Asked) -> Use:
        [path] = set(re.findall(r"/\S+outputs/[\w./-]+\w", asked.result))
        return use("read_file", path=path, offset=25_000, limit=2)

    editor = coder(
        project,
        [
            use("run_command", command="seq -f 'line %g of many' 1 50000"),
            reads_the_middle,
            "The middle is 25000.",
        ],
    )

    turn = editor.prompt("Count", "allow_once")

    long, part = coder.model.last.results
    assert "line 1 of many" in long
    assert "line 50000 of many" in long
    assert "line 25000 of many" not in long
    assert len(long) < 60_000
    assert "line 25000 of many" in part
    assert [each["status"] for each in turn.uses] == ["completed", "completed"]
    assert tree(project) == {}


def test_a_command_over_its_time_is_ended_with_all_that_it_started(coder: Coder, project: Path) -> None:
    command = "sh -c 'echo $$ > child; sleep 600' & echo begun; wait"
    editor = coder(project, [use("run_command", command=command, timeout=1), "Too slow."])

    turn = editor.prompt("Run it", "allow_once")

    assert "begun" in coder.model.last.result
    assert "1 s" in coder.model.last.result
    assert (turn.reason, turn.use["status"]) == ("end_turn", "failed")
    assert is_gone(pid_in(project / "child"))


def test_a_cancel_ends_a_running_command_and_the_next_prompt_goes_on(coder: Coder, project: Path) -> None:
    editor = coder(project, [use("run_command", command=f"{SAYS_BEGUN}; exec sleep 600"), "Here I am."])
    request = editor.begin("Run it")
    before = editor.until(lambda frame: BEGUN in str(frame), "allow_once")
    pid = pid_in(project / "pid")

    editor.cancel()
    turn = editor.finish(request, before=before)

    assert (turn.reason, turn.use["status"]) == ("cancelled", "failed")
    assert is_gone(pid)
    assert editor.prompt("Are you there?").last_message == "Here I am."
    assert coder.model.last.prompts == ["Run it", "Are you there?"]
    assert len(coder.model.last.results) == 1


def begun(coder: Coder, project: Path, *more: object) -> Editor:
    """A session with a background job that writes its number, and what it is told by a file."""
    command = "echo $$ > pid; echo ready; while [ ! -e end ]; do sleep 0.05; done; echo over"
    return coder(project, [use("run_command", command=command, background=True), "It runs.", *more])  # type: ignore[list-item]


def test_a_background_job_lives_over_turns_tells_what_is_new_and_is_stopped(
    coder: Coder, project: Path
) -> None:
    editor = begun(
        coder,
        project,
        lambda asked: use("command_output", id=job_in(asked.results[0]), wait=0.1),
        lambda asked: use("stop_command", id=job_in(asked.results[0])),
        "Stopped.",
    )
    editor.prompt("Start it", "allow_once")
    pid = pid_in(project / "pid")
    assert is_running(pid)

    turn = editor.prompt("Look at it, then stop it")

    _, looked, stopped = coder.model.last.results
    assert "ready" in looked + coder.model.last.results[0]
    assert stopped
    assert is_gone(pid)
    assert {each["status"] for each in turn.uses} == {"completed"}


def test_a_job_that_ends_between_turns_is_told_with_the_next_prompt(coder: Coder, project: Path) -> None:
    editor = begun(coder, project, "It has ended.")
    editor.prompt("Start it", "allow_once")
    pid = pid_in(project / "pid")
    write(project, {"end": ""})
    assert is_gone(pid)

    editor.prompt("What now?")

    assert job_in(coder.model.asked[1].results[0]) in coder.model.last.text.rpartition("It runs.")[2]


def test_a_background_job_ends_with_its_session(coder: Coder, project: Path) -> None:
    editor = begun(coder, project)
    editor.prompt("Start it", "allow_once")
    pid = pid_in(project / "pid")

    editor.close()

    assert is_gone(pid)


def test_a_background_job_ends_when_the_editor_goes(coder: Coder, project: Path) -> None:
    served = coder.served()
    coder.model.plays(
        use("run_command", command="echo $$ > pid; exec sleep 600", background=True), "It runs."
    )
    served.opened(project).prompt("Start it", "allow_once")
    pid = pid_in(project / "pid")

    served.leave()

    assert is_gone(pid)
