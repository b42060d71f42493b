"""What is told of branches and iterations: when each begins, and how it ended."""

from __future__ import annotations

from typing import Any

from coupler.workflow.journal.run_events import Happening, PartFinished, PartStarted, StepStarted
from tables import table
from workflow.stage import Memo, Stage

NESTED = """
    steps:
      - id: each
        for_each: [a, b]
        steps:
          - {id: one, run: "say {{ item }}"}
          - id: both
            parallel: [{id: left, run: say left}, {id: right, run: say right}]
"""


def parts_in(noted: list[Happening]) -> list[tuple[str, int | None]]:
    """The parts that begin and end, in order; an end has a minus."""
    signs = {PartStarted: "", PartFinished: "-"}
    return [
        (f"{signs[type(each)]}{each.place}", each.iteration if each.branch is None else each.branch)
        for each in noted
        if isinstance(each, PartStarted | PartFinished)
    ]


def test_a_part_begins_before_its_steps_and_ends_after_them() -> None:
    stage = Stage(NESTED)
    stage.run()

    first = stage.memory.noted.index(next(each for each in stage.memory.noted if parts_in([each])))
    step = next(n for n, each in enumerate(stage.memory.noted) if _starts(each, "each[0].one"))
    assert first < step
    inner = [("each[{}].both", 0), ("each[{}].both", 1), ("-each[{}].both", 0), ("-each[{}].both", 1)]
    assert parts_in(stage.memory.noted) == [
        told
        for number in (0, 1)
        for told in (
            ("each", number),
            *((name.format(number), branch) for name, branch in inner),
            ("-each", number),
        )
    ]


def _starts(happening: Happening, path: str) -> bool:
    return isinstance(happening, StepStarted) and str(happening.place) == path


def test_a_part_says_which_one_it_is_of_how_many_and_what_it_is_about() -> None:
    stage = Stage("""
        steps:
          - {id: each, for_each: [a, {b: "long\\nword"}], steps: [{run: say x}]}
          - {id: all, parallel: [[{id: one, run: say 1}, {run: say 2}], {run: say 3}]}
          - {id: begin, set: {n: 0}}
          - {id: round, while: vars.n < 1, steps: [{set: {n: 1}}]}
    """)
    stage.run()

    started = [each for each in stage.memory.noted if isinstance(each, PartStarted)]
    assert [(each.title, each.iteration, each.branch, each.total) for each in started] == [
        ("a", 0, None, 2),
        ('{"b": "long\\nword"}', 1, None, 2),
        ("one", None, 0, 2),
        ("", None, 1, 2),
        ("", 0, None, None),
    ]


@table(
    ("branches", "statuses"),
    [
        ("[{id: a, run: say a}, {id: b, if: false, run: say b}]", ["skipped", "success"]),
        ("[{id: a, run: fail 1, on_error: continue}]", ["success"]),
        ("[{id: a, run: fail 3}, {id: b, run: hang}]", ["cancelled", "failed"]),
        ("[{id: a, stop: success}, {id: b, run: hang}]", ["cancelled", "cancelled"]),
        ("[{id: a, ask: Who}, {id: b, run: say b}]", ["success"]),
    ],
)
def test_a_part_ends_as_its_steps_do_and_not_at_all_while_it_waits(
    branches: str, statuses: list[str]
) -> None:
    stage = Stage(f"steps: [{{id: all, parallel: {branches}}}]")
    stage.run()

    ended = [each for each in stage.memory.noted if isinstance(each, PartFinished)]
    assert sorted(each.status for each in ended) == statuses


def test_a_part_that_failed_names_the_step_and_the_reason() -> None:
    stage = Stage("steps: [{id: each, for_each: [x], steps: [{id: bad, run: fail 3}]}]")
    stage.run()

    (ended,) = [each for each in stage.memory.noted if isinstance(each, PartFinished)]
    assert ended.error is not None
    assert (ended.error.step, ended.error.kind, ended.error.exit_code) == ("each[0].bad", "exit", 3)


def test_a_run_that_was_cut_off_anywhere_tells_only_the_parts_in_which_something_was_left() -> None:
    stage = Stage(NESTED)
    stage.run()
    whole = stage.memory.noted

    for length in range(len(whole)):
        stage.memory = Memo(whole[:length])
        stage.run()
        told = stage.memory.noted
        begun = {_key(each) for each in told if isinstance(each, PartStarted)}
        assert begun == {_key(each) for each in told if isinstance(each, PartFinished)}
        over = {_key(each) for each in whole[:length] if isinstance(each, PartFinished)}
        assert not begun & over, f"told again after {length} entries"


def _key(part: Any) -> tuple[str, int | None, int | None]:
    return str(part.place), part.branch, part.iteration
