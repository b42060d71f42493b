"""Patterns: the same answers as Python's engine for what both know, in a time that nobody can stretch."""

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from coupler.fields.bounded_regex import LONGEST_MATCHED, Pattern
from tables import table


@table(
    ("pattern", "text", "found"),
    [
        ("b", "abc", True),
        ("^b", "abc", False),
        ("b$", "abc", False),
        ("^abc$", "abc", True),
        ("^abc$", "abc\n", False),
        ("^$", "", True),
        ("", "anything", True),
        ("^a.c$", "abc", True),
        ("^a.c$", "a\nc", False),
        ("^[a-c]+$", "abcabc", True),
        ("^[^a-c]+$", "xyb", False),
        ("^[-a]+$", "-a", True),
        ("^a{2,3}$", "a", False),
        ("^a{2,3}$", "aa", True),
        ("^a{2,3}$", "aaa", True),
        ("^a{2,3}$", "aaaa", False),
        ("^a{2,}$", "aaaaaaaa", True),
        ("^a{0}$", "", True),
        ("^(ab|cd)*$", "abcdab", True),
        ("^(ab|cd)*$", "abc", False),
        ("^(?:a|)+$", "aaa", True),
        ("^(a*)*$", "aaab", False),
        ("^a+?b$", "aaab", True),
        (r"^\d{4}-\d\d$", "2030-12", True),
        (r"^\d$", "٣", False),
        (r"^\w+$", "snake_case9", True),
        (r"^\w+$", "é", False),
        (r"^\W$", "é", True),
        (r"^[\w.]+@[\w.]+$", "a.b@c.de", True),
        (r"^\S+\s\S+$", "two words", True),
        (r"\bcat\b", "a cat sat", True),
        (r"\bcat\b", "concatenate", False),
        (r"\Bcat", "concatenate", True),
        (r"^\/\.\u00e9$", "/.é", True),
        ("^é😀$", "é😀", True),
        ("^[[a]]$", "[]", True),
    ],
)
def test_a_pattern_is_found_or_not(pattern, text, found):
    assert Pattern(pattern).found_in(text) is found


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\d", r"\w", r"\b", "^", "$", "-", ""])
PATTERNS = st.recursive(
    ATOMS,
    lambda parts: st.one_of(
        st.tuples(parts, parts).map("".join),
        st.tuples(parts, parts).map(lambda pair: f"(?:{pair[0]}|{pair[1]})"),
        st.tuples(parts, st.sampled_from(["*", "+", "?", "{2}", "{1,3}", "*?"])).map(
            lambda pair: f"(?:{pair[0]}){pair[1]}"
        ),
    ),
    max_leaves=6,
)


@given(PATTERNS, st.text("ab1- _", max_size=8))
def test_pythons_engine_finds_the_same(pattern, text):
    assert Pattern(pattern).found_in(text) is (re.search(pattern, text, re.ASCII) is not None)


@table(
    "pattern",
    [
        "(a+)+$",
        "^(a|a)*$",
        "^(a|aa)+$",
        "(.*a){20}$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(x+x+)+y",
        "a*a*a*a*a*b",
    ],
)
@table("text", ["a" * LONGEST_MATCHED, "a" * 60 + "!", "x" * LONGEST_MATCHED])
def test_no_text_keeps_a_pattern_busy(pattern, text):
    began = time.process_time()

    Pattern(pattern).found_in(text)

    assert time.process_time() - began < 5


def test_a_text_that_is_too_long_is_not_searched():
    assert not Pattern("a").found_in("a" * (LONGEST_MATCHED + 1))


def test_a_search_that_takes_too_long_is_given_up():
    # About a thousand places at every position.
    pattern = Pattern("(?:a?){600}!")

    assert not pattern.found_in("a" * (LONGEST_MATCHED - 1) + "!")
    assert pattern.found_in("aaa!")


@table(
    ("pattern", "problem"),
    [
        ("(", "cannot be read"),
        ("[", "cannot be read"),
        (r"\p{L}", "cannot be read"),
        ("a**", "cannot be read"),
        ("(" * 499 + ")" * 499, ""),
        ("(" * 300 + "a" + ")*" * 300, "nested too deep"),
        ("(" * 100 + "a" + ")*" * 100, ""),
        (r"(a)\1", "bounded time"),
        ("(?=a)b", "bounded time"),
        ("(?!a)b", "bounded time"),
        ("(?<=a)b", "bounded time"),
        ("(?>a)b", "bounded time"),
        ("a++b", "bounded time"),
        ("(a)?(?(1)b|c)", "bounded time"),
        ("(?i)a", "sets flags"),
        ("(?i:a)", "sets flags"),
        ("(?P<name>a)", "named groups"),
        (r"\Aa\Z", r"use \^ and \$"),
        ("a{100000}", "repeat less"),
        ("(a{100}){100}", "repeat less"),
        ("(){4294967294}", "repeat less"),
        ("(?:(?:){50000}){50000}", "repeat less"),
        ("a" * 1_001, "shorten it"),
    ],
)
def test_what_cannot_be_matched_in_time_or_by_clients_is_refused(pattern, problem):
    try:
        Pattern(pattern)
    except ValueError as error:
        assert re.search(problem, str(error)), error
    else:
        assert problem == ""
