"""Commands in the background: they outlive the turn, can be looked at and stopped, and leave nothing."""

from __future__ import annotations

import re
from pathlib import Path

import psutil
import pytest

from agent.steps import leave
from coder.script import use
from coder.served_coder import KEY, Coder
from coder.waiting import until
from labs.langchain.desk import Desk

SLEEPER = "echo $$ > pid; echo ready; exec sleep 600"
WAITER = "echo $$ > pid; echo ready; while [ ! -e end ]; do sleep 0.05; done; echo over; exit 5"


def process_in(file: Path) -> psutil.Process:
    until(lambda: file.exists() and file.read_text().strip())
    return psutil.Process(int(file.read_text()))


def is_gone(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def begin(at: Desk, command: str) -> str:
    ((status, told),) = at.does(["run_command", {"command": command, "background": True}])
    assert status == "success", told
    return told


def test_a_job_runs_on_over_turns_and_each_look_tells_what_is_new(desk, project):
    at = desk()
    told = begin(at, WAITER)
    assert told == (
        'It runs in the background as job_1: command_output("job_1") gives what it writes from now on, '
        'stop_command("job_1") ends it.\nready'
    )
    assert not is_gone(process_in(project / "pid"))

    ((_, nothing),) = at.does(["command_output", {"id": "job_1"}])
    (project / "end").touch()
    ((_, last),) = at.does(["command_output", {"id": "job_1", "wait": 60}])

    assert re.fullmatch(r"\(nothing new was written\)\n\(job_1 runs, for \d+ s by now\)", nothing)
    assert last == "over\n(job_1 has ended with exit code 5)"
    assert at.asked == []


def test_a_job_that_cannot_work_is_told_at_once(desk):
    at = desk()
    told = begin(at, "echo the port is taken; exit 1")
    assert told == (
        "It did not stay in the background.\nthe port is taken\n(job_1 has ended with exit code 1)"
    )
    assert at.does() == [["prompt", "[]"]]


def test_a_stopped_job_is_gone_with_all_that_it_started(desk, project):
    at = desk()
    begin(at, "sleep 600 & echo $! > pid; wait")
    process = process_in(project / "pid")

    ((status, told),) = at.does(["stop_command", {"id": "job_1"}])

    assert status == "success"
    assert re.search(r"\(job_1 was stopped after \d+ s\)$", told)
    until(lambda: is_gone(process))
    ((_, again),) = at.does(["stop_command", {"id": "job_1"}])
    assert again.startswith("It does not run any more.")
    assert at.does() == [["prompt", "[]"]]


def test_a_job_is_asked_about_like_any_command(desk, project):
    at = desk()
    ((status, _),) = at.does(["run_command", {"command": SLEEPER, "background": True}], answer="reject_once")
    assert status == "error"
    assert not (project / "pid").exists()


def test_an_unknown_job_is_an_error_that_names_those_that_there_are(desk):
    at = desk()
    ((_, none),) = at.does(["command_output", {"id": "job_7"}])
    begin(at, SLEEPER)
    ((status, one),) = at.does(["stop_command", {"id": "job_7"}])

    assert none == "there is no job 'job_7'\nNo command was started in the background."
    assert status == "error"
    assert re.fullmatch(
        r"there is no job 'job_7'\njob_1: `echo \$\$ > pid; echo ready; exec sleep 600` runs, for .* by now",
        one,
    )
    at.does(["stop_command", {"id": "job_1"}])


def test_a_job_that_ends_between_turns_is_told_with_the_next_prompt_and_once(desk, project):
    at = desk()
    begin(at, WAITER)
    process = process_in(project / "pid")
    (project / "end").touch()
    until(lambda: is_gone(process))
    prompts = ["[]"]

    def is_told() -> bool:
        # The coder hears of the end a moment after the system does.
        ((_, prompts[0]),) = at.does()
        return prompts[0] != "[]"

    until(is_told)
    [prompt] = prompts

    news = "The background job job_1 (`echo $$ > pid; echo ready; while [ ! -e end ]; do"
    assert news in prompt
    assert 'has ended with exit code 5. command_output("job_1") gives what it wrote last.' in prompt
    assert at.does() == [["prompt", "[]"]]


def test_a_job_that_ends_during_a_turn_is_told_with_the_next_result(desk, project):
    at = desk()
    begin(at, WAITER)
    process = process_in(project / "pid")
    waits = f"touch end; while kill -0 {process.pid} 2>/dev/null; do sleep 0.05; done; sleep 0.3; echo done"
    ((_, told),) = at.does(["run_command", {"command": waits}])
    assert told.startswith(
        "done\n(exit code 0)\n\n[Note of Coupler, not of the user: The background job job_1"
    )


def test_the_end_of_the_session_ends_its_jobs_and_those_of_no_other(desk, workers, tmp_path):
    places = [tmp_path / name for name in ("left", "right")]
    processes = []
    desks = []
    for place in places:
        place.mkdir()
        client, _ = workers.client()
        desks.append(Desk(client, place))
        begin(desks[-1], SLEEPER)
        processes.append(process_in(place / "pid"))

    desks[0].client.call("session/close", {"sessionId": desks[0].session})

    until(lambda: is_gone(processes[0]))
    assert not is_gone(processes[1])
    desks[1].does(["stop_command", {"id": "job_1"}])


@pytest.mark.parametrize("end", ["left", "terminated", "killed"])
def test_the_end_of_the_process_ends_all_jobs(workers, project, end):
    client, _ = workers.start()
    with client:
        begin(Desk(client, project), "trap '' TERM; echo $$ > pid; while true; do sleep 0.1; done")
        process = process_in(project / "pid")
        if end == "left":
            leave(client)
        else:
            psutil.Process(client.process.pid).send_signal(15 if end == "terminated" else 9)
        until(lambda: is_gone(process))


def test_who_loads_the_session_later_learns_that_its_jobs_are_gone(desk, project):
    at = desk()
    begin(at, SLEEPER)
    at.client.call("session/close", {"sessionId": at.session})
    at.client.call("session/load", {"sessionId": at.session, "cwd": str(project), "mcpServers": []})

    ((_, prompt),) = at.does()

    assert "The background job job_1 (`echo $$ > pid; echo ready; exec sleep 600`) is gone" in prompt
    assert at.does() == [["prompt", "[]"]]
    assert "as job_2:" in begin(at, SLEEPER)
    at.does(["stop_command", {"id": "job_2"}])


def test_a_job_of_the_coder_has_no_key_of_its_model(coder: Coder, project: Path) -> None:
    command = "env | sort > variables; touch done; exec sleep 600"
    editor = coder(project, [use("run_command", command=command, background=True), "It runs."])
    editor.prompt("Start it", "allow_once")
    until(lambda: (project / "done").exists())
    assert "GIT_TERMINAL_PROMPT=0" in (project / "variables").read_text()
    assert KEY not in (project / "variables").read_text()


def test_of_long_output_a_look_gives_both_ends_and_the_name_of_the_whole(desk, project):
    at = desk()
    begin(at, "while [ ! -e go ]; do sleep 0.05; done; seq -f 'line %g' 1 20000")
    (project / "go").touch()

    ((_, told),) = at.does(["command_output", {"id": "job_1", "wait": 60}])

    assert told.startswith("line 1\n")
    assert "\nline 20000\n" in told
    assert len(told) < 30_000
    whole = re.search(r"the whole is in (\S+),", told)
    assert whole is not None
    assert "line 10000\n" in Path(whole[1]).read_text()
