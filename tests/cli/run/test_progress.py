"""The picture of a run: what of it fits into a window, and that no text in it can do anything."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from cli.screen import screen_of
from coupler.cli.run.progress import DrawingArea, StepTree, tree_in_room
from coupler.events import ToolCall, ToolUpdate
from coupler.workflow.journal.run_events import (
    AgentEvent,
    Failure,
    Happening,
    Logged,
    Noted,
    Place,
    RetryPlanned,
    RunResumed,
    SessionEvent,
)
from workflow.kept_runs import finished, said, started, wrote

EVIL = "one\x1b[2J\x1b]0;owned\x07\u202e [red]two[/red]\rthree :smile:\tfour\n"
BROKEN = Failure(kind="exit", message=EVIL)
LOOP, WORK = Place("each"), "each[{}].work"


def tree_of(*told: Happening) -> StepTree:
    tree = StepTree()
    for number, happening in enumerate(told, 1):
        tree.learn(Logged(number, 1000.0, happening))
    return tree


def did(path: str, event: SessionEvent) -> AgentEvent:
    return AgentEvent(place=Place(path), event=event)


def drawn(tree: StepTree, width: int = 60, room: int = 20, **options: bool) -> list[str]:
    """What a terminal of this width shows of it."""
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=True, width=width, highlight=False, emoji=False)
    for line in tree_in_room(tree.roots, DrawingArea(width, 1002.0, **options), room):
        console.print(line, soft_wrap=True)
    lines = screen_of(stream.getvalue(), width)
    assert lines.pop() == ""
    assert len(lines) <= room
    return lines


def test_no_text_of_strangers_reaches_the_terminal_as_more_than_text():
    tree = tree_of(
        started(Place("a"), attempts=3),
        wrote(EVIL, Place("a")),
        did("a", ToolCall(id="1", title=EVIL)),
        started(Place("b")),
        finished(Place("b"), "failed", error=BROKEN),
        RetryPlanned(place=Place("a"), attempt=2, attempts=3, delay=1.5, error=BROKEN),
    )
    for width in (10, 20, 60, 200):
        drawn(tree, width)
    assert "[red]two[/red]" in "\n".join(drawn(tree, 200))


def test_a_running_step_shows_its_last_tool_calls_and_lines():
    tree = tree_of(
        started(Place("a")),
        *(did("a", ToolCall(id=str(n), title=f"Read {n}")) for n in range(9)),
        did("a", ToolUpdate(id="8", status="failed")),
        said("one\ntwo\n\nthree\nfo", Place("a")),
        said("ur", Place("a")),
    )
    assert drawn(tree, is_plain=True) == [
        "* a  a title                                          2.0 s",
        "  * Read 5",
        "  * Read 6",
        "  * Read 7",
        "  x Read 8",
        "  | two",
        "  | three",
        "  | four",
    ]


def loop_of(count: int) -> StepTree:
    done = (
        each
        for number in range(count)
        for each in (started(Place(WORK.format(number))), finished(Place(WORK.format(number)), duration=1))
    )
    failed = finished(Place(WORK.format(2)), "failed", error=Failure(kind="exit", message="broke"))
    return tree_of(started(LOOP), *done, failed, started(Place(WORK.format(count))))


def test_of_a_long_loop_the_last_steps_are_shown_and_those_that_failed():
    lines = drawn(loop_of(1_000), room=30)
    assert lines[1] == "  … 980 steps more, see `coupler runs show`"
    assert lines[2].startswith("  ✗ [2].work  broke")
    assert lines[-1].startswith("  ") and "[1000].work" in lines[-1]


@pytest.mark.parametrize("room", [4, 8, 16])
def test_in_a_low_window_steps_that_are_over_are_folded_and_then_cut_off(room):
    tree = loop_of(30)
    for number in range(10):
        tree.learn(Logged(0, 1000.0, started(Place(f"next_{number}"))))
    lines = drawn(tree, room=room)
    assert "above" in lines[0] if room < 16 else lines[0].endswith("2.0 s")
    assert "next_9" in lines[-1]


def test_a_resumed_run_has_what_was_done_and_not_what_is_done_over():
    tree = tree_of(
        started(Place("a")),
        finished(Place("a")),
        started(LOOP),
        started(Place(WORK.format(0))),
        finished(Place(WORK.format(0))),
        started(Place(WORK.format(1))),
        RunResumed(reason="interrupted"),
        Noted(text="worth knowing"),
    )
    assert [line.split()[:2] for line in drawn(tree)] == [
        ["✓", "a"],
        ["○", "each"],
        ["✓", "[0].work"],
        ["○", "[1].work"],
    ]
    tree.learn(Logged(9, 1000.0, RunResumed(place=Place(WORK.format(0)))))
    assert [line.split()[:2] for line in drawn(tree)] == [["✓", "a"], ["○", "each"]]
    assert tree.notes == ["worth knowing"]


def test_what_is_left_of_a_step_is_its_last_words_if_it_failed():
    def of(status: str) -> str:
        ended = finished(Place("a"), status)
        return tree_of(started(Place("a")), wrote("out", Place("a")), ended).last_output_of("a")

    assert (of("failed"), of("success")) == ("out", "")
    endless = tree_of(started(Place("a")), *(wrote("x" * 1000, Place("a"), "stderr") for _ in range(100)))
    assert len(endless.last_output_of("a")) == 4_000


def test_a_failure_that_is_tried_again_interrupts_nothing_that_runs_beside_it():
    tree = tree_of(
        started(Place("a")),
        finished(Place("a"), "failed"),
        started(Place("b")),
        RunResumed(forgets=(Place("a"),)),
    )
    assert [step.status for step in tree.roots] == ["interrupted", "running"]
