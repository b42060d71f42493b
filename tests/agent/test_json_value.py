"""Any Python object as JSON: bounded, and without ever raising."""

import dataclasses
import datetime as dt
import decimal
import enum
import json
import math
import re
import types
from collections import OrderedDict, UserDict, deque
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coupler.agent import content as module
from coupler.agent.content import json_value
from tables import table


class Plain:
    def __repr__(self):
        return "<plain>"


class Rude:
    def __repr__(self):
        raise RuntimeError("no")


class RudeMapping(UserDict):
    def items(self):
        raise ValueError


class RudeKey:
    def __str__(self):
        raise ValueError

    def __hash__(self):
        return 1


@dataclasses.dataclass
class Point:
    x: int
    y: object


class Struct(msgspec.Struct):
    a: int
    b: object = None


class Model:
    """What pydantic's models look like from outside."""

    def model_dump(self):
        return {"field": 1}


class BrokenModel:
    def model_dump(self):
        raise RuntimeError


class LyingLength(list):
    def __len__(self):
        return -5


class Level(enum.IntEnum):
    HIGH = 3


class Colour(enum.Enum):
    RED = "red"


class Word(str):
    pass


@table(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (0, 0),
        (2**63 - 1, 2**63 - 1),
        (-(2**63), -(2**63)),
        (2**63, str(2**63)),
        (-(2**200), str(-(2**200))),
        (1.5, 1.5),
        (math.nan, "nan"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        ("text", "text"),
        (Word("word"), "word"),
        (b"abc", "base64:YWJj"),
        (bytearray(b"abc"), "base64:YWJj"),
        (memoryview(b"abc"), "base64:YWJj"),
        (b"x" * 70_000, "<70000 bytes>"),
        ([1, "a", None], [1, "a", None]),
        ((1, (2,)), [1, [2]]),
        (frozenset({1}), [1]),
        ({"a": {"b": [1.0]}}, {"a": {"b": [1.0]}}),
        ({1: "int", None: "none", (1, 2): "tuple"}, {"1": "int", "None": "none", "(1, 2)": "tuple"}),
        (OrderedDict(a=1), {"a": 1}),
        (UserDict(a=1), {"a": 1}),
        (types.MappingProxyType({"a": 1}), {"a": 1}),
        (Point(1, [Point(2, None)]), {"x": 1, "y": [{"x": 2, "y": None}]}),
        (Struct(1, Struct(2)), {"a": 1, "b": {"a": 2, "b": None}}),
        (Model(), {"field": 1}),
        (Path("/a/b"), "/a/b"),
        (Plain(), "<plain>"),
        (deque([1]), [1]),
        (decimal.Decimal("1.10"), "Decimal('1.10')"),
        (dt.date(2026, 1, 2), "datetime.date(2026, 1, 2)"),
        (Level.HIGH, 3),
        (Colour.RED, "<Colour.RED: 'red'>"),
        (1 + 2j, "(1+2j)"),
        (Rude(), "<Rude that cannot be shown: RuntimeError>"),
        (RudeMapping(a=1), "<RudeMapping that cannot be shown: ValueError>"),
        ({RudeKey(): 1}, "<dict that cannot be shown: ValueError>"),
        (BrokenModel(), "<BrokenModel that cannot be shown: RuntimeError>"),
        ([Rude(), 1], ["<Rude that cannot be shown: RuntimeError>", 1]),
    ],
)
def test_a_value_becomes_the_nearest_thing_that_is_json(value, expected):
    shown = json_value(value)

    assert shown == expected
    assert type(shown) is type(expected)
    json.dumps(shown, allow_nan=False)


def test_an_integer_of_too_many_digits_is_described():
    assert json_value(1 << 29_999) == "<integer of 30000 bits>"


def test_types_themselves_are_shown_by_their_name():
    assert json_value(Point) == repr(Point)
    assert json_value(Model) == repr(Model)
    assert json_value(Struct) == repr(Struct)


def test_a_generator_is_shown_and_not_consumed():
    numbers = (n for n in range(3))

    assert re.match("<generator object", json_value(numbers))
    assert list(numbers) == [0, 1, 2]


def test_a_cycle_is_cut_where_it_closes():
    cycle = {"name": "loop"}
    cycle["self"] = [cycle]

    assert json_value(cycle) == {"name": "loop", "self": ["<cycle>"]}


def test_the_same_object_twice_is_no_cycle():
    shared = [1]

    assert json_value([shared, shared]) == [[1], [1]]


def test_a_deep_value_is_cut():
    deep = []
    for _ in range(100_000):
        deep = [deep]

    shown = json_value(deep)

    assert "<too deep>" in json.dumps(shown)


def test_a_long_list_says_how_much_is_missing():
    shown = json_value(list(range(5000)))

    assert shown[:1000] == list(range(1000))
    assert shown[1000:] == ["… 4000 more"]


def test_a_long_mapping_says_how_much_is_missing():
    shown = json_value({f"k{i}": i for i in range(5000)})

    assert len(shown) == 1001
    assert shown["…"] == "4000 more"


def test_a_long_text_says_how_long_it_was():
    shown = json_value("x" * 100_000)

    assert shown == "x" * 65_536 + "… (100000 characters)"


def test_many_small_values_are_bounded_in_number():
    shown = json_value([[0] * 900 for _ in range(900)])

    assert len(json.dumps(shown)) < 200_000


def test_many_large_texts_are_bounded_in_size():
    shown = json_value(["x" * 60_000 for _ in range(900)])

    assert len(json.dumps(shown)) < 2 * module.MAX_SIZE


def test_large_keys_are_bounded_too():
    shown = json_value({f"{i}" + "k" * 60_000: 1 for i in range(900)})

    assert len(json.dumps(shown)) < 2 * module.MAX_SIZE


def test_a_length_that_lies_does_no_harm():
    json.dumps(json_value(LyingLength([1, 2])))


def test_a_class_that_answers_everything_does_no_harm():
    class Anything:
        def __getattr__(self, name):
            return self

        def __call__(self, *arguments):
            return self

    json.dumps(json_value(Anything()))


def test_a_proxy_that_hides_its_class_does_no_harm():
    """As proxies for a request do outside of any."""

    class Proxy:
        @property
        def __class__(self):
            raise LookupError("outside of a request")

        def __repr__(self):
            raise LookupError

    assert json_value([Proxy()]) == ["<Proxy that cannot be shown: LookupError>"]


def test_a_class_that_dumps_new_classes_for_ever_is_cut():
    class Endless:
        def model_dump(self):
            return {"next": Endless()}

    assert "<too deep>" in json.dumps(json_value(Endless()))


things = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary() | st.builds(Rude),
    lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.integers() | st.none(), inner),
    max_leaves=30,
)


@settings(max_examples=60, deadline=None)
@given(things)
def test_whatever_is_given_can_be_encoded(value):
    json.dumps(json_value(value), allow_nan=False)
    msgspec.json.decode(msgspec.json.encode(json_value([value])).decode("utf-8", "strict"))


@settings(max_examples=60, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.text(st.characters(codec="utf-8")), st.lists))
def test_what_is_json_already_stays_as_it_is(value):
    assert json_value(value) == value


@pytest.mark.parametrize("container", [deque, set, range])
def test_a_huge_container_costs_no_more_than_what_is_shown(container):
    shown = json_value(container(range(5_000_000)) if container is not range else range(5_000_000))

    assert shown[:3] == [0, 1, 2] and shown[-1] == "… 4999000 more"
