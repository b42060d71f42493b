"""Types as JSON: their schemas, and the check of values."""

import sys
from dataclasses import dataclass
from datetime import date
from typing import Annotated, Any, Literal, Optional, TypedDict

import msgspec
import pydantic
import pytest
from jsonschema import Draft202012Validator

from coupler.fields.json_types import (
    JsonTypeError,
    Parameter,
    json_type_of,
    json_type_of_object,
    without_nulls,
)
from tables import table


@dataclass
class Address:
    street: str
    number: int | None = None


class Person(msgspec.Struct):
    name: str
    home: Address
    friends: "list[Person]" = []


class Movie(TypedDict, total=False):
    title: str
    year: int


class Order(pydantic.BaseModel):
    item: str
    count: int = 1


@dataclass
class Basket:
    orders: list[Order]


OBJECT = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

FITTING = [
    (int, 1, 1),
    (Optional[int], None, None),  # noqa: UP045 - as people write it
    (Literal["a", "b"], "b", "b"),
    (Annotated[int, msgspec.Meta(ge=1)], 3, 3),
    (dict[int, str], {"1": "x"}, {1: "x"}),
    (date, "2026-01-02", date(2026, 1, 2)),
    (list[Address], [{"street": "A"}], [Address("A")]),
    (Person, {"name": "n", "home": {"street": "s"}}, Person("n", Address("s"))),
    (Movie, {"title": "t"}, {"title": "t"}),
    (Order, {"item": "tea"}, Order(item="tea")),
    (list[Order], [{"item": "tea"}], [Order(item="tea")]),
    (Basket, {"orders": [{"item": "tea"}]}, Basket([Order(item="tea")])),
    (OBJECT, {"a": 1}, {"a": 1}),
    (Any, {"x": [1]}, {"x": [1]}),
]

FAILING = [
    (int, "1", "$", "Expected `int`, got `str`"),
    (Literal["a", "b"], "c", "$", "Invalid enum value 'c'"),
    (Annotated[int, msgspec.Meta(ge=1)], 0, "$", "Expected `int` >= 1"),
    (list[Address], [{"street": "A"}, {"street": 1}], "$[1].street", "Expected `str`, got `int`"),
    (Person, {"name": "n", "home": {}}, "$.home", "Object missing required field `street`"),
    (Movie, {"year": "1"}, "$.year", "Expected `int`, got `str`"),
    (Order, {"item": "tea", "count": "2"}, "$.count", "Input should be a valid integer"),
    (list[Order], [{}], "$[0].item", "Field required"),
    (OBJECT, {"a": "1"}, "$.a", "'1' is not of type 'integer'"),
    (OBJECT, [], "$", "[] is not of type 'object'"),
    ({"$ref": "https://example.com/x"}, 1, "$", "the schema refers to what is not in it"),
]


def names(case):
    return str(getattr(case, "__name__", case))[:30]


@table(("wanted", "value", "expected"), FITTING, ids=names)
def test_a_value_that_fits_is_read_and_its_schema_agrees(wanted, value, expected):
    shape = json_type_of(wanted)

    assert shape.read(value) == expected
    assert type(shape.read(value)) is type(expected)
    Draft202012Validator.check_schema(shape.schema)
    Draft202012Validator(shape.schema).validate(value)


@table(("wanted", "value", "path", "problem"), FAILING, ids=names)
def test_a_value_that_does_not_fit_is_an_error_with_its_place(wanted, value, path, problem):
    with pytest.raises(JsonTypeError) as caught:
        json_type_of(wanted).read(value)

    assert caught.value.path == path
    assert problem in caught.value.problem


@table("wanted", [Address, Person, Movie, Order, Basket])
def test_an_object_says_so_at_the_root_of_its_schema(wanted):
    schema = json_type_of(wanted).schema
    assert schema["type"] == "object"
    assert schema["properties"]


def test_a_type_that_contains_itself_keeps_its_definition():
    schema = json_type_of(Person).schema
    Draft202012Validator(schema).validate({"name": "a", "home": {"street": "s"}, "friends": []})
    with pytest.raises(Exception, match="is a required property"):
        Draft202012Validator(schema).validate({"name": "a", "home": {"street": "s"}, "friends": [{}]})


def test_what_is_no_json_is_refused_with_the_reason():
    class Opaque:
        pass

    with pytest.raises(TypeError, match="this cannot be written as JSON"):
        json_type_of(Opaque)


def test_pydantic_is_not_imported_to_find_out(monkeypatch):
    class Opaque:
        pass

    monkeypatch.delitem(sys.modules, "pydantic")
    with pytest.raises(TypeError, match="is not supported"):
        json_type_of(Opaque)
    assert "pydantic" not in sys.modules


def test_an_object_of_fields_takes_those_and_no_others():
    shape = json_type_of_object("f", [Parameter("a", int, True), Parameter("b", list[str], False, ["x"])])

    assert shape.read({"a": 1}).a == 1
    assert shape.schema["required"] == ["a"]
    with pytest.raises(JsonTypeError, match="unknown field `c`"):
        shape.read({"a": 1, "c": 1})


def test_a_long_value_is_not_repeated_whole():
    with pytest.raises(JsonTypeError) as caught:
        json_type_of(OBJECT).read({"a": "x" * 100_000})
    assert len(str(caught.value)) < 1100


def test_what_is_nested_without_end_is_an_error_like_any_other():
    value: Any = []
    for _ in range(100_000):
        value = [value]
    recursive = {"$defs": {"l": {"type": "array", "items": {"$ref": "#/$defs/l"}}}, "$ref": "#/$defs/l"}
    with pytest.raises(JsonTypeError, match="nested too deeply"):
        json_type_of(recursive).read(value)


SCHEMA = {
    "type": "object",
    "required": ["needed"],
    "properties": {
        "needed": {"type": "string"},
        "plain": {"type": "integer"},
        "any": {},
        "nullable": {"type": ["integer", "null"]},
        "either": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "word": {"enum": ["a", "b"]},
        "referred": {"$ref": "#/$defs/inner"},
        "list": {"type": "array", "items": {"$ref": "#/$defs/inner"}},
        "loop": {"$ref": "#/$defs/loop"},
        "both": {"allOf": [{"type": "string"}, {}]},
    },
    "$defs": {
        "inner": {"type": "object", "properties": {"x": {"type": "boolean"}, "y": {"type": "null"}}},
        "loop": {"$ref": "#/$defs/loop"},
    },
}


@table(
    ("given", "expected"),
    [
        ({"needed": None, "plain": None}, {"needed": None}),
        ({"any": None, "nullable": None, "either": None}, {"any": None, "nullable": None, "either": None}),
        ({"word": None, "both": None, "referred": None, "list": None}, {}),
        ({"unknown": None, "plain": 0}, {"unknown": None, "plain": 0}),
        ({"referred": {"x": None, "y": None}}, {"referred": {"y": None}}),
        ({"list": [{"x": None}, {"x": True}, None]}, {"list": [{}, {"x": True}, None]}),
        ({"loop": None}, {"loop": None}),
        ("text", "text"),
        (None, None),
    ],
)
def test_null_is_left_out_where_it_means_nothing(given, expected):
    assert without_nulls(given, SCHEMA) == expected
    assert without_nulls(given, {}) == given
