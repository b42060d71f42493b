"""Inputs: how they are written, which values fit, and what is said about those that do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from coupler.workflow.errors import InputError
from coupler.workflow.language.inputs import bind_inputs, inputs_in_words, inputs_usage, parse_input
from coupler.workflow.language.model import Input, Json, SourcePosition, Workflow
from tables import table

HERE = SourcePosition("review.yaml", 1, 1)


def declared(name: str = "x", **keys: Any) -> Input:
    return Input(name=name, position=HERE, **keys)


def workflow(*inputs: Input) -> Workflow:
    return Workflow(
        name="review", file="review.yaml", digest="", inputs={each.name: each for each in inputs}, steps=()
    )


REVIEW = workflow(
    declared("target", required=True, description="Branch or path"),
    declared("rounds", type="integer", default=2, min=1, max=5),
    declared("tags", type="list"),
)
WITH_REST = workflow(declared("task", rest=True), declared("rounds", type="integer"))


@table(
    ("words", "pairs"),
    [
        ([], {}),
        (["target=main"], {"target": "main"}),
        (["-i", "target=main"], {"target": "main"}),
        (["-itarget=main"], {"target": "main"}),
        (["--input", "target=main", "rounds=3"], {"target": "main", "rounds": "3"}),
        (["--input=target=main"], {"target": "main"}),
        (["target=a=b 'c' \"d\"\n=e"], {"target": "a=b 'c' \"d\"\n=e"}),
        (["target="], {"target": ""}),
        (["tags=a,b"], {"tags": "a,b"}),
        (["tags=a,b", "-i", "tags=c"], {"tags": '["a,b", "c"]'}),
    ],
)
def test_inputs_are_read_from_words(words: list[str], pairs: dict[str, str]) -> None:
    assert inputs_in_words(words, REVIEW) == pairs


@table(
    ("words", "pairs"),
    [
        (["fix", "the", "bug"], {"task": "fix the bug"}),
        (["fix", "x=1", "rounds=2", "now"], {"task": "fix x=1 now", "rounds": "2"}),
        (["--", "rounds", "-i", "x"], {"task": "rounds -i x"}),
        (["task=only this"], {"task": "only this"}),
    ],
)
def test_words_without_a_name_are_the_input_that_takes_the_rest(
    words: list[str], pairs: dict[str, str]
) -> None:
    assert inputs_in_words(words, WITH_REST) == pairs


@table(
    ("words", "problem"),
    [
        (["targt=main"], "there is no input `targt`: did you mean `target`?"),
        (["-i", "zzz=1"], "there is no input `zzz`"),
        (["main"], "`main` is no input: write inputs as name=value"),
        (["-i", "main"], "`main` is no input: write it as name=value"),
        (["-i"], "`-i` needs an input after it: name=value"),
        (["target=a", "target=b"], "input `target` is given 2 times: give it once"),
    ],
)
def test_words_that_are_no_inputs_are_told_with_the_usage(words: list[str], problem: str) -> None:
    with pytest.raises(InputError) as failure:
        inputs_in_words(words, REVIEW)

    assert str(failure.value) == f"{problem}\n{inputs_usage(REVIEW)}"


def test_the_usage_has_a_line_for_every_input() -> None:
    assert inputs_usage(REVIEW).splitlines() == [
        "inputs of `review`:",
        "  target=TEXT     Branch or path (required)",
        "  rounds=INTEGER  default 2",
        "  tags=ITEMS",
    ]
    assert inputs_usage(workflow()) == "`review` takes no inputs"


@table(
    ("keys", "text", "value"),
    [
        ({}, "", ""),
        ({}, " a\n", " a\n"),
        ({"type": "integer"}, " -12 ", -12),
        ({"type": "number"}, "1.5e1", 15.0),
        ({"type": "number"}, "3", 3),
        ({"type": "boolean"}, "Yes", True),
        ({"type": "boolean"}, "on", True),
        ({"type": "boolean"}, "1", True),
        ({"type": "boolean"}, "false", False),
        ({"type": "boolean"}, "off", False),
        ({"type": "list"}, "a, b,,c", ["a", "b", "c"]),
        ({"type": "list"}, "a, b\nc\n", ["a, b", "c"]),
        ({"type": "list"}, '["a,b", 1]', ["a,b", 1]),
        ({"type": "list"}, "", []),
        ({"type": "object"}, '{"a": [1]}', {"a": [1]}),
        ({"enum": ("a", "b")}, "b", "b"),
        ({"type": "list", "enum": ("a", "b")}, "b,a", ["b", "a"]),
        ({"type": "integer", "enum": (1, 2)}, "2", 2),
        ({"pattern": "[a-z]+|0"}, "abc", "abc"),
        ({"min": 2, "max": 3}, "ab", "ab"),
        ({"type": "number", "min": 0.5}, "0.5", 0.5),
    ],
)
def test_a_text_becomes_a_value_of_the_type(keys: dict[str, Any], text: str, value: Json) -> None:
    given = parse_input(declared(**keys), text, "/")

    assert given == value
    assert type(given) is type(value)


@table(
    ("keys", "text", "problem"),
    [
        ({"type": "integer"}, "1.5", "input `x` has to be a whole number, not `1.5`"),
        ({"type": "integer"}, "9" * 5000, "a whole number"),
        ({"type": "number"}, "nan", "a number, not `nan`"),
        ({"type": "number"}, "1e999", "a number, not `1e999`"),
        ({"type": "boolean"}, "maybe", "true or false, not `maybe`: write `true` or `false`"),
        ({"type": "list"}, "[1,", "a list, not `[1,`: Expecting value"),
        ({"type": "object"}, "[]", "a JSON object, not `[]`"),
        ({"type": "object"}, "[" * 100_000, "a JSON object"),
        ({"type": "file"}, "no/such", "a path, not `no/such`: there is no such file"),
        ({"type": "file"}, "", "there is no such file"),
        ({"type": "file"}, "a\0b", "there is no such file"),
        ({"enum": ("a", "b")}, "c", "has to be one of a, b, not `c`"),
        ({"enum": ("fast", "good")}, "Fats", "not `Fats`; did you mean `fast`?"),
        ({"type": "list", "enum": ("a", "b")}, "a,c", "has to be one of a, b, not `c`"),
        ({"pattern": "[a-z]+|0"}, "abc1", "has to fit the pattern [a-z]+|0, not `abc1`"),
        ({"pattern": "(a+)+b"}, "a" * 4000, "has to fit the pattern"),
        ({"pattern": "(?=a)"}, "a", "input `x` cannot be checked"),
        ({"type": "integer", "min": 1}, "0", "has to be at least 1"),
        ({"type": "integer", "max": 5}, "6", "has to be at most 5"),
        ({"min": 2}, "a", "has to be at least 2 long"),
        ({"type": "list", "max": 1}, "a,b", "has to be at most 1 long"),
    ],
)
def test_a_text_that_does_not_fit_is_told_with_the_reason(
    keys: dict[str, Any], text: str, problem: str
) -> None:
    with pytest.raises(InputError) as failure:
        parse_input(declared(**keys), text, "/")

    assert problem in str(failure.value)
    assert len(str(failure.value)) < 500


def test_a_file_is_found_from_the_current_directory_on(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").touch()

    assert parse_input(declared(type="file"), "notes.txt", str(tmp_path)) == str(tmp_path / "notes.txt")
    assert parse_input(declared(type="file"), str(tmp_path), "/") == str(tmp_path)


@table(
    "keys",
    [
        {"type": "integer"},
        {"type": "boolean"},
        {"type": "object"},
        {"type": "list", "enum": ("a",)},
        {"enum": ("a",)},
        {"pattern": "a"},
        {"max": 1},
        {"type": "file"},
    ],
)
def test_the_value_of_a_secret_input_is_never_repeated(keys: dict[str, Any]) -> None:
    with pytest.raises(InputError) as failure:
        parse_input(declared(secret=True, **keys), "hunter2", "/")

    assert "hunter2" not in str(failure.value)


def test_defaults_fill_in_what_was_not_given_and_the_rest_is_null() -> None:
    assert bind_inputs(REVIEW, {"target": "main"}, "/") == {"target": "main", "rounds": 2, "tags": None}
    assert bind_inputs(REVIEW, {"target": "main", "rounds": "3", "tags": ["a"]}, "/") == {
        "target": "main",
        "rounds": 3,
        "tags": ["a"],
    }


@table(
    ("type", "value"),
    [
        ("string", 1),
        ("integer", 1.5),
        ("integer", True),
        ("number", [1]),
        ("boolean", 1),
        ("list", {}),
        ("object", []),
        ("string", None),
    ],
)
def test_a_value_of_another_type_is_not_converted(type: Any, value: Json) -> None:
    with pytest.raises(InputError, match="input `x` has to be"):
        bind_inputs(workflow(declared(type=type)), {"x": value}, "/")


def test_all_that_is_wrong_is_told_at_once() -> None:
    with pytest.raises(InputError) as failure:
        bind_inputs(REVIEW, {"rounds": 9, "tag": "a"}, "/")

    assert str(failure.value).splitlines() == [
        "there is no input `tag`: did you mean `tags`?",
        "input `target` is missing: give it as target=TEXT",
        "input `rounds` has to be at most 5",
        *inputs_usage(REVIEW).splitlines(),
    ]
