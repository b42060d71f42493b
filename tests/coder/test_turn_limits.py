"""Turns that lead nowhere end: the same call over and over, and more model calls than one prompt may make."""

from __future__ import annotations

from pathlib import Path

from coder.script import Answer, Asked, use
from coder.served_coder import Coder, write


def test_a_call_that_has_the_same_result_three_times_is_told_and_the_next_one_ends_the_turn(
    coder: Coder, project: Path
) -> None:
    write(project, {"a.py": "one\n"})
    editor = coder(project, [*[use("read_file", path="a.py")] * 4, "Going on."])

    turn = editor.prompt("Read it")

    assert turn.reason == "max_turn_requests"
    assert [each["status"] for each in turn.uses] == ["completed"] * 3 + ["failed"]
    results = coder.model.last.results
    assert "3 times in a row" in results[2]
    assert "in a row" not in results[0] + results[1]
    assert "I have stopped" in turn.last_message
    assert "`read_file`" in turn.last_message
    assert editor.prompt("Go on").last_message == "Going on."
    assert "The call was not made" in coder.model.last.result


def test_a_model_that_heeds_the_note_goes_on(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n", "b.py": "two\n"})
    reads = [use("read_file", path="a.py")] * 3
    editor = coder(project, [*reads, use("read_file", path="b.py"), *reads, "Done."])

    turn = editor.prompt("Read them")

    assert (turn.reason, turn.last_message) == ("end_turn", "Done.")


def test_the_same_command_with_another_result_is_no_loop(coder: Coder, project: Path) -> None:
    grow = use("run_command", command="echo x >> a; wc -l < a")
    editor = coder(project, [*[grow] * 6, "Done."])
    editor.set_mode("agentic")

    assert editor.prompt("Go").reason == "end_turn"


def test_a_long_result_that_is_kept_in_another_file_each_time_is_the_same(
    coder: Coder, project: Path
) -> None:
    command = use("run_command", command="seq 1 20000")
    editor = coder(project, [command] * 4)
    editor.set_mode("agentic")

    assert editor.prompt("Go").reason == "max_turn_requests"


def test_several_calls_together_are_a_loop_as_well(coder: Coder, project: Path) -> None:
    write(project, {"a.py": "one\n"})
    both = (use("read_file", path="a.py"), use("list_directory"))
    editor = coder(project, [both] * 4)

    assert editor.prompt("Go").reason == "max_turn_requests"


def test_a_background_command_may_be_looked_at_as_often_as_it_takes(coder: Coder, project: Path) -> None:
    start = use("run_command", command="sleep 60", background=True)
    looks = [use("command_output", id="job_1")] * 6
    editor = coder(project, [start, *looks, use("stop_command", id="job_1"), "Done."])
    editor.set_mode("agentic")

    assert editor.prompt("Go").reason == "end_turn"


def test_a_prompt_asks_the_model_no_more_often_than_is_set(coder: Coder, project: Path) -> None:
    def answer(asked: Asked) -> Answer:
        return use("run_command", command=f"echo {len(asked.results)}")

    config = '[coder]\nmax_model_calls = 3\n[agents.longer]\nagent = "coder"\nmax_model_calls = 5\n'
    coder.model.improvises(answer)
    for words, most in (((), 3), (("--agent", "longer"), 5)):
        served = coder.served(*words, config=config)
        editor = served.opened(project)
        editor.set_mode("agentic")
        before = len(coder.model.asked)

        turns = [editor.prompt("Go"), editor.prompt("Go on")]

        assert [turn.reason for turn in turns] == ["max_turn_requests"] * 2
        assert len(coder.model.asked) - before == 2 * most
        assert f"{most} times (`max_model_calls`" in turns[0].last_message
        served.leave()
