"""What is typed behind a slash command, as inputs."""

from __future__ import annotations

import pytest

from coupler.workflow.editor.arguments import hint_of, words_in
from coupler.workflow.language.definition import Workflow
from coupler.workflow.language.inputs import pairs_in
from coupler.workflow.language.reading import read_text


def workflow(inputs: str) -> Workflow:
    return read_text(f"inputs: {inputs}\nsteps: [{{run: 'true'}}]\n", "/flows/review.yaml")


REST = "{target: {required: true}, depth: integer, notes: {rest: true}}"
TWO = "{target: {required: true}, depth: integer}"


@pytest.mark.parametrize(
    ("inputs", "typed", "pairs"),
    [
        (REST, "", {}),
        (REST, "target=main", {"target": "main"}),
        (REST, "-i target=main --input depth=2", {"target": "main", "depth": "2"}),
        (REST, "--input=target=a=b", {"target": "a=b"}),
        (REST, 'target="a b" depth=2', {"target": "a b", "depth": "2"}),
        (REST, "--input 'target=a b'", {"target": "a b"}),
        (REST, "--input=target='a b'", {"target": "a b"}),
        (REST, r'target="say \"hi\" \\ now"', {"target": r'say "hi" \ now'}),
        (REST, "target=don't panic, it's fine", {"target": "don't", "notes": "panic, it's fine"}),
        (REST, "look  at\n  this", {"notes": "look  at\n  this"}),
        (REST, "look at depth=3 this", {"notes": "look at this", "depth": "3"}),
        (REST, "'all of it'", {"notes": "all of it"}),
        (REST, "x=1 is no input", {"notes": "x=1 is no input"}),
        (REST, "-- target", {"notes": "-- target"}),
        (REST, '<resource uri="a b">x = 1</resource>', {"notes": '<resource uri="a b">x = 1</resource>'}),
        (TWO, "main", {"target": "main"}),
        (TWO, "the main branch", {"target": "the main branch"}),
        (TWO, "target=main 4", {"target": "main", "depth": "4"}),
        ("{all: list}", "a, b", {"all": "a, b"}),
    ],
)
def test_inputs_stand_anywhere_and_free_text_stays_as_it_was_typed(
    inputs: str, typed: str, pairs: dict[str, str]
) -> None:
    declared = workflow(inputs)
    assert pairs_in(words_in(typed, declared), declared) == pairs


def test_text_that_could_mean_several_inputs_means_none() -> None:
    declared = workflow("{one: string, two: string}")
    assert words_in("some text", declared) == ["--", "some text"]


def test_a_hint_tells_what_is_needed_and_ends_with_the_free_text() -> None:
    inputs = (
        "{what: {rest: true, required: true}, kind: {enum: [fast, good]}, "
        "count: {type: integer, required: true}, file: file}"
    )
    assert hint_of(workflow(inputs)) == "[kind=fast|good] count=INTEGER [file=PATH] what"
