"""The published JSON Schema and the reader accept the same files."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from coupler.fields.nodes import plain_value
from coupler.workflow.errors import InvalidWorkflowError
from coupler.workflow.language.json_schema import workflow_schema
from coupler.workflow.language.reader import read_text
from coupler.workflow.language.yaml_source import parse_yaml
from tables import table

SCHEMA = Draft202012Validator(workflow_schema())
WHOLE = plain_value(parse_yaml(Path(__file__).with_name("everything.yaml").read_bytes(), "everything.yaml"))

ONLY_THE_READER_KNOWS = (
    "is taken by",
    "has a prompt and no `agent`",
    "`default` does not fit",
    ", as the `type` is",
    "`default` is never used",
    "`enum` must have values",
    "`pattern` is for texts",
    "`pattern` cannot be used",
    "does not go with `type: boolean`",
    "`max` must not be less",
    "only one input can",
    "the rule `",
)
VALUES: list[Any] = [
    None, True, False, 0, 1, -1, 0.5, 2.0, 10**12, "", " ", "x", "a b", "/x", "~", "5m", "0s", "1e3",
    "json", "fail", "all", "string", "a=b", [], {}, ["x"], [1], [{"run": "x"}], [[{"run": "x"}]],
    {"x": 1}, {"goto": "a"}, {"step": "a"}, {"question": "x"}, {"run": "x"}, {"type": "object"},
    {"command": "x"}, {"default": "fail"},
]  # fmt: skip
NAMES = ["x", "run", "approve", "prompt", "timeout", "on_deny", "goto", "url", "default", "steps", "a-b", "1"]


def documents() -> list[Any]:
    """Small workflows that together have every key: one for each step, and for each key at the top."""
    defaults = {"defaults": {"agent": "x"}}
    tops = {name: value for name, value in WHOLE.items() if name not in ("steps", "defaults")}
    return [
        *({**defaults, "steps": [step]} for step in WHOLE["steps"]),
        *({"steps": [{"run": "x"}], name: value} for name, value in tops.items()),
        {"steps": [{"run": "x"}], "defaults": WHOLE["defaults"]},
    ]


DOCUMENTS = documents()


def places_in(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, each in inner:
        yield from places_in(each, (*path, name))


def is_read(document: Any) -> bool | None:
    """None: only the reader can know that it is wrong."""
    try:
        read_text(json.dumps(document), "/w/f.yaml")
    except InvalidWorkflowError as error:
        beyond = [
            any(words in problem.message for words in ONLY_THE_READER_KNOWS) for problem in error.problems
        ]
        return None if all(beyond) else False
    return True


def with_value(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    inner[path[-1]] = value
    return document


@table("document", [WHOLE, *DOCUMENTS])
def test_what_is_right_is_right_for_both(document):
    assert is_read(document)
    assert SCHEMA.is_valid(document)


@st.composite
def changed(draw: st.DrawFn) -> Any:
    """A document with one value replaced, one key added, or one taken away."""
    document = draw(st.sampled_from(DOCUMENTS))
    path = draw(st.sampled_from([*places_in(document)]))
    change = draw(st.sampled_from(["replace", "add", "remove"]))
    value = draw(st.sampled_from(VALUES))
    if change == "replace" or not path:
        return with_value(document, path, value)
    inner = document
    for name in path[:-1]:
        inner = inner[name]
    if change == "add" and isinstance(inner, dict):
        return with_value(document, (*path[:-1], draw(st.sampled_from(NAMES))), value)
    rest = copy.copy(inner)
    del rest[path[-1]]
    return with_value(document, path[:-1], rest)


@settings(max_examples=150, deadline=None)
@given(changed())
def test_the_schema_accepts_what_the_reader_accepts_and_nothing_else(document):
    read = is_read(document)
    if read is not None:
        assert SCHEMA.is_valid(document) is read


def test_the_schema_is_a_schema_and_describes_every_key():
    schema = workflow_schema()
    Draft202012Validator.check_schema(schema)
    for name, definition in schema["$defs"].items():
        assert definition["description"], name
        assert all(key["description"] for key in definition.get("properties", {}).values()), name
