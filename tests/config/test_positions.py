"""Where keys are written: the scanner agrees with `tomllib`, and is quick where that is slow."""

from __future__ import annotations

import json
import time
import tomllib
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.config.files import DEEPEST, MOST_PARTS, TextPositions, TooComplexError
from tables import table


def paths_of(value: Any, path: tuple = ()) -> Iterator[tuple]:
    """Every key and item of what `tomllib` has read."""
    if isinstance(value, dict):
        children = value.items()
    elif isinstance(value, list):
        children = enumerate(value)
    else:
        return
    for name, child in children:
        yield (*path, name)
        yield from paths_of(child, (*path, name))


EXAMPLE = (
    '''
# comment with [brackets] and "quotes"
top = 1
[permissions] # here
deny = [ "a", # one
  'b', """c
[not.a.table]
""", ]
"quoted key" = 'it'''
    + """'
a.b . "c.d" = { x = 1, y = [ {z = 2} ] }
[[servers]]
name = "one"
[servers.env]
A = ''' ' [x] '''
[[servers]]
name = "two"
when = 1979-05-27 07:32:00
[[servers.ports]]
n = 1
["\\u0041b"]
k=true
"""
)


def test_every_key_of_an_example_is_found_where_it_is():
    positions = TextPositions.of(EXAMPLE)
    lines = EXAMPLE.split("\n")

    for path in paths_of(tomllib.loads(EXAMPLE)):
        assert positions.find(path) is not None, path
    for path, beginning in (
        (("top",), "top"),
        (("permissions",), "[permissions]"),
        (("permissions", "deny", 1), "'b'"),
        (("permissions", "deny", 2), '"""c'),
        (("permissions", "a", "b", "c.d", "y", 0, "z"), "z = 2"),
        (("servers", 1, "name"), 'name = "two"'),
        (("servers", 1, "ports", 0, "n"), "n = 1"),
        (("Ab", "k"), "k=true"),
    ):
        position = positions.find(path)
        assert position is not None
        assert lines[position.line - 1][position.column - 1 :].startswith(beginning)


def test_what_is_not_there_has_no_position():
    assert TextPositions.of("a = 1").find(("b",)) is None


names = st.one_of(
    st.from_regex(r"[A-Za-z0-9_-]{1,5}", fullmatch=True),
    st.text(max_size=4).filter(lambda t: "\x7f" not in t),
)
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x7f"), max_size=8)


def in_basic_quotes(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def in_long_quotes(text: str) -> str:
    safe = "".join(c if c.isprintable() or c == "\n" else "." for c in text).replace("\\", "/")
    return f'"""{safe.replace(chr(34) * 3, "")} ""{chr(34) * 3}'


def in_literal_quotes(text: str) -> str:
    return "'" + "".join(c for c in text if c.isprintable() and c != "'") + "'"


scalars = st.one_of(
    st.sampled_from(["1", "-2.5", "true", "1979-05-27 07:32:00Z", "0xff", "inf", "07:32:00"]),
    st.one_of(*(texts.map(quote) for quote in (in_basic_quotes, in_long_quotes, in_literal_quotes))),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3).map(lambda items: "[" + ", # ]\n ".join(items) + "]"),
        st.dictionaries(names, inner, max_size=3).map(
            lambda table: "{" + ", ".join(f"{in_basic_quotes(k)} = {v}" for k, v in table.items()) + "}"
        ),
    ),
    max_leaves=6,
)
headers = st.lists(names, min_size=1, max_size=3).flatmap(
    lambda parts: st.sampled_from(["[%s]", "[[%s]]"]).map(
        lambda form: form % " . ".join(in_basic_quotes(part) for part in parts)
    )
)
pairs = st.tuples(names, values).map(lambda pair: f"  {in_basic_quotes(pair[0])}\t= {pair[1]} # = [x]")


@given(st.lists(st.one_of(pairs, pairs, headers, st.just("# [c]")), max_size=8))
def test_whatever_tomllib_can_read_has_all_its_places(lines):
    text = "\n".join(lines)
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        data = {}

    positions = TextPositions.of(text)

    for path in paths_of(data):
        assert positions.find(path) is not None, (text, path)


@given(st.text(alphabet="ab.\"'[]{}=,#\n \\", max_size=60))
def test_what_is_no_toml_does_no_harm(text):
    TextPositions.of(text)


@table(
    ("text", "problem", "line"),
    [
        ("a = 1\n" + "a." * MOST_PARTS + "a = 1", "more than 16 parts", 2),
        ("[" + "a." * 400_000 + "a]", "more than 16 parts", 1),
        ("x = {" + "'a'." * 200_000 + "a = 1}", "more than 16 parts", 1),
        ("\n\na = " + "[" * 100_000, "nested more than 32 deep", 3),
        ("a = " + "{b = " * (DEEPEST + 1), "nested more than 32 deep", 1),
    ],
)
def test_what_would_cost_too_much_is_refused_at_once(text, problem, line):
    begun = time.monotonic()
    with pytest.raises(TooComplexError, match=problem) as caught:
        TextPositions.of(text)
    assert caught.value.position.line == line
    assert time.monotonic() - begun < 5  # tomllib needs minutes


def test_what_is_just_within_the_limits_is_read():
    text = "a." * (MOST_PARTS - 1) + "a = " + "[" * (DEEPEST - 1) + "1" + "]" * (DEEPEST - 1)
    assert TextPositions.of(text).find(("a",) * MOST_PARTS) == (1, 1)
    tomllib.loads(text)
