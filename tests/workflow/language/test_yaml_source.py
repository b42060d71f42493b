"""The text of a workflow as a tree with positions, also when the text is meant to do harm."""

from __future__ import annotations

import sys

import pytest

from coupler.fields.nodes import MappingNode, ScalarNode, plain_value
from coupler.runtime.extras import MissingExtraError
from coupler.workflow.errors import InvalidWorkflowError
from coupler.workflow.language.yaml_source import MOST_BYTES, parse_yaml
from tables import table

LAUGHS = "a: &a [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"{name}: &{name} [{', '.join([f'*{before}'] * 10)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
LONG_TEXT = f"a: &a {'x' * 100_000}\nb: [{', '.join(['*a'] * 100)}]\n"

PARSERS = ["compiled", "plain"]


@pytest.fixture(params=PARSERS)
def any_parser(request, monkeypatch):
    """PyYAML comes with a compiled parser, or without one."""
    if request.param == "plain":
        monkeypatch.delattr("yaml.CBaseLoader", raising=False)


@table(
    ("written", "value"),
    [
        ("true", True),
        ("False", False),
        ("yes", "yes"),
        ("no", "no"),
        ("on", "on"),
        ("off", "off"),
        ("y", "y"),
        ("'true'", "true"),
        ("~", None),
        ("null", None),
        ("", None),
        ("7", 7),
        ("-7", -7),
        ("+7", 7),
        ("007", 7),
        ("0o17", 15),
        ("0x1F", 31),
        ("1_000", "1_000"),
        ("0b11", "0b11"),
        ("1:30", "1:30"),
        ("1.5", 1.5),
        (".5", 0.5),
        ("1e3", 1000.0),
        ("1.", 1.0),
        ("9223372036854775807", 9223372036854775807),
        ("2024-01-31", "2024-01-31"),
        ("2024-01-31T10:00:00Z", "2024-01-31T10:00:00Z"),
        ("'1e999'", "1e999"),
        ('"\\u00e9\\0"', "é\0"),
        ("|\n  one\n  two\n", "one\ntwo\n"),
        (">\n  one\n  two\n", "one two\n"),
        ("=", "="),
        ("'<<'", "<<"),
    ],
)
def test_a_value_is_what_yaml_1_2_says_it_is(written, value, any_parser):
    read = plain_value(parse_yaml(f"a: {written}", "f.yaml"))
    assert read == {"a": value}
    assert type(read["a"]) is type(value)


def test_everything_knows_its_line_and_column(any_parser):
    tree = parse_yaml("a: 1\nb:\n  - é: x\n    c: [2]\n", "f.yaml")
    assert isinstance(tree, MappingNode)
    (item,) = tree.values["b"].nodes
    assert str(tree.position) == "f.yaml:1:1"
    assert str(item.position) == "f.yaml:3:5"
    assert str(item.values["é"].position) == "f.yaml:3:8"
    assert str(item.key("c").position) == "f.yaml:4:5"
    assert str(item.values["c"].nodes[0].position) == "f.yaml:4:9"


def test_a_place_within_a_block_is_a_place_in_the_file(any_parser):
    tree = parse_yaml("a:\n  b: |\n\n    first\n      second\n  c: 'x\n\n    y'\n", "f.yaml")
    block, quoted = tree.values["a"].values["b"], tree.values["a"].values["c"]
    assert isinstance(block, ScalarNode)
    assert isinstance(quoted, ScalarNode)
    assert block.text.splitlines()[2] == "  second"
    assert str(block.position_at(3, 3)) == "f.yaml:5:7"
    assert quoted.position_at(2) == quoted.position


def test_a_file_has_a_bounded_number_of_values():
    with pytest.raises(InvalidWorkflowError, match="at most 20,000 values"):
        parse_yaml("[" + "x," * 20_001 + "]", "f.yaml")


def test_an_alias_repeats_what_its_anchor_names(any_parser):
    assert plain_value(parse_yaml("a: &x {b: [1]}\nc: *x\nd: [*x, *x]\n", "f")) == {
        "a": {"b": [1]},
        "c": {"b": [1]},
        "d": [{"b": [1]}, {"b": [1]}],
    }


def test_a_byte_order_mark_is_no_part_of_the_text(any_parser):
    assert plain_value(parse_yaml(b"\xef\xbb\xbfa: 1", "f")) == {"a": 1}


@table(
    ("text", "place", "words"),
    [
        pytest.param(LAUGHS, "5:", "too large here", id="a billion laughs"),
        pytest.param(LONG_TEXT, "2:", "too large here", id="one long text often"),
        pytest.param("[" * 1000, "1:66", "64 deep", id="deep lists"),
        pytest.param("a: " + "{a: " * 1000, "1:", "64 deep", id="deep mappings"),
        pytest.param("- " * 5000 + "x", "1:", "64 deep", id="deep blocks"),
        pytest.param("#" * (MOST_BYTES + 1), "1:1", "too large", id="a huge file"),
        pytest.param("a: &a [*a]", "1:8", "inside of what it repeats", id="an alias in its own anchor"),
        pytest.param("a: &a {b: *a}", "1:11", "inside of what it repeats", id="an alias in its own mapping"),
        pytest.param("a: *b", "1:4", "no anchor `&b`", id="an alias without an anchor"),
        pytest.param("a: 1\nb: 2\na: 3", "3:1", "`a` stands twice; first in line 1", id="a key twice"),
        pytest.param("a: 1\n'a': 3", "2:1", "stands twice", id="a key twice, once in quotes"),
        pytest.param("a:\n\t- b", "2:1", "use spaces", id="a tab"),
        pytest.param("a: x\0", "1:5", "\\u0000 is not allowed", id="a NUL"),
        pytest.param("a: 1\nb: \x1b[31m", "2:4", "\\u001b is not allowed", id="an escape"),
        pytest.param("a: \ud800", "1:4", "\\ud800 is not allowed", id="half a character"),
        pytest.param(b"a: 1\nb: \xff", "2:4", "no UTF-8", id="latin-1"),
        pytest.param("a: 1".encode("utf-16"), "1:1", "no UTF-8", id="UTF-16"),
        pytest.param("a: 1\n---\nb: 2", "2:1", "second document", id="two documents"),
        pytest.param("a: 1\n...\n---\nb: 2", "3:1", "second document", id="two documents with an end"),
        pytest.param("a: &x {b: 1}\nc:\n  <<: *x", "3:3", "merge keys", id="a merge key"),
        pytest.param("a: !!python/object:os.system x", "1:4", "tags", id="a tag of Python"),
        pytest.param("a: !!str 1", "1:4", "tags", id="a tag of YAML"),
        pytest.param("a: ! 1", "1:4", "tags", id="the empty tag"),
        pytest.param("!x a: 1", "1:1", "tags", id="a tag on a key"),
        pytest.param("1: x", "1:1", "key must be a text", id="a number as a key"),
        pytest.param("true: x", "1:1", "key must be a text", id="a boolean as a key"),
        pytest.param("? [a]\n: b", "1:3", "key must be a text", id="a list as a key"),
        pytest.param("a: {{ x }}", "1:5", "`{{` needs quotes", id="a template without quotes"),
        pytest.param("a: Fix: it", "1:7", "needs quotes", id="a colon without quotes"),
        pytest.param(
            "steps:\n  - run: a\n   id: b",
            "3:4",
            "`id: …` is indented differently from the lines around it",
            id="a key between two indentations",
        ),
        pytest.param(
            "steps:\n  - run: a\n - run: b", "3:2", "`- run: …` is indented diff", id="an item too far left"
        ),
        pytest.param("a: 1\n  b: 2", "2:4", "`b: …` is indented differently", id="a key too far right"),
        pytest.param("a:\n  b: Fix: it", "2:9", "needs quotes", id="a colon without quotes, further in"),
        pytest.param("a: 'b' c", "1:8", "a value ends in the midst of `a: …`", id="text after a quote"),
        pytest.param("a: 1\nb\nc: 2", "3:1", "line 2 has no `:` after its key", id="a key without a colon"),
        pytest.param("a: [1\nb: 2", "2:2", "the bracket of line 1 is not closed", id="an open bracket"),
        pytest.param("a: @x", "1:4", "needs quotes", id="an at sign without quotes"),
        pytest.param('a: "\\ud800"', "1:", "", id="an escaped half of a character"),
        pytest.param("a: 'b", "1:6", "the quote of line 1 is not closed", id="an open quote"),
        pytest.param("a: .inf", "1:4", "infinite", id="infinity"),
        pytest.param("a: -.INF", "1:4", "infinite", id="minus infinity"),
        pytest.param("a: .nan", "1:4", "infinite", id="no number"),
        pytest.param("a: 1e999", "1:4", "too large", id="a huge float"),
        pytest.param("a: 9223372036854775808", "1:4", "too large", id="an integer of 65 bits"),
        pytest.param(f"a: {'9' * 10_000}", "1:4", "too large", id="a huge integer"),
        pytest.param(f"a: 0x{'f' * 10_000}", "1:4", "too large", id="a huge hexadecimal"),
        pytest.param("", "1:1", "empty", id="nothing"),
        pytest.param("# nothing\n", "1:1", "empty", id="a comment"),
        pytest.param("%YAML 9.0\n---\na: 1", "1:", "no YAML", id="a later YAML"),
    ],
)
def test_what_is_no_workflow_costs_a_sentence_with_its_place(text, place, words, any_parser):
    with pytest.raises(InvalidWorkflowError) as caught:
        parse_yaml(text, "f.yaml")
    (problem,) = caught.value.problems
    assert f"{problem.position}:".startswith(f"f.yaml:{place}")
    assert words in problem.message
    assert len(problem.message) < 300


def test_without_a_reader_of_yaml_it_is_said_how_to_get_one(monkeypatch):
    monkeypatch.setitem(sys.modules, "yaml", None)
    with pytest.raises(MissingExtraError, match=r'^A workflow needs more packages: pip install "coupler'):
        parse_yaml("a: 1", "f.yaml")
