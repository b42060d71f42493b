"""Edits of texts: what is replaced, what a file keeps, and what a model is told if its text is not there."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.langchain.editor_tools.writing import Edit, edited, with_line_ends_of
from tables import table


def edits(*pairs, replace_all=False):
    return [Edit(old_text=old, new_text=new, replace_all=replace_all) for old, new in pairs]


def after(text, *pairs, **more):
    return edited(text, edits(*pairs, **more), "a.py").text


@table(
    ("before", "old", "new", "expected"),
    [
        ("one\r\ntwo\r\n", "one", "1\n1b", "1\r\n1b\r\ntwo\r\n"),
        ("one\r\ntwo\r\n", "one\ntwo", "x", "x\r\n"),
        ("one\r\ntwo\r\n", "one\r\ntwo\r\n", "x\n", "x\r\n"),
        ("one\ntwo\n", "one\r\ntwo", "1\r\n2", "1\n2\n"),
        ("one\r\ntwo\nthree\r\n", "two\nthree", "2\n3", "one\r\n2\n3\r\n"),
        ("one\r\ntwo\nthree\r\n", "one\ntwo", "1\n2", "1\r\n2\nthree\r\n"),
        ("\ufeffone\n", "one", "1", "\ufeff1\n"),
        ("one\ntwo", "two\n", "2\n", "one\n2"),
        ("one\r\ntwo", "two\n", "2\n", "one\r\n2"),
        ("one\ntwo\n", "two\n", "", "one\n"),
        ("a\tb\n", "\tb", "\tc", "a\tc\n"),
    ],
)
def test_line_ends_mark_and_missing_last_line_end_are_kept(before, old, new, expected):
    assert after(before, (old, new)) == expected


@pytest.mark.parametrize("text", ["", "a", "a\n\n"])
def test_a_line_end_alone_is_looked_for_as_such(text):
    if "\n" not in text:
        with pytest.raises(ValueError, match="old_text is not in"):
            after(text, ("\n", "x"))
    else:
        assert after(text, ("\n", "x"), replace_all=True) == "axx"


def test_edits_are_made_one_after_the_other():
    done = edited("a\nb\nc\n", edits(("c", "C1\nC2"), ("a", "A1\nA2"), ("A2", "x")), "a.py")
    assert done == ("A1\nx\nb\nC1\nC2\n", (1, 2, 4), 3)


def test_all_occurrences_are_replaced_without_looking_at_what_was_put_in():
    done = edited("aa aa\naaa", edits(("aa", "aaaa"), replace_all=True), "a.py")
    assert done == ("aaaa aaaa\naaaaa", (1, 2), 3)


@given(st.text("ab\n", max_size=20), st.text("ab\n", min_size=1, max_size=3), st.text("ab\nc", max_size=3))
def test_a_replacement_of_all_is_that_of_python(text, old, new):
    if old != new and old in text:
        assert after(text, (old, new), replace_all=True) == text.replace(old, new)


@table(
    ("text", "old", "told"),
    [
        ("if x:\n\tgo()\n", "if x:\n    go()", "line 2 has a tab where you wrote a space"),
        ("if x:\n\tgo()\n", "if x:\n    go()", r'as JSON, "if x:\n\tgo()"'),
        ("a\nit\u2019s 'so'\n", "it's", "line 2 has \u2019 (right single quotation mark) where you wrote '"),
        ("a\nit\u2019s 'so'\n", "it's", 'the exact old_text is, as JSON, "it\u2019s"'),
        ("x = \u201cy\u201d", 'x = "y"', 'line 1 has \u201c (left double quotation mark) where you wrote "'),
        ("a \u2013 b", "a - b", "line 1 has \u2013 (en dash) where you wrote -"),
        ("x\u00a0= 1", "x = 1", r"a no-break space where you wrote a space"),
        ("x\u00a0= 1", "x = 1", r'as JSON, "x\u00a0= 1"'),
        ("cafe\u0301 a", "caf\u00e9 a", r'as JSON, "cafe\u0301 a"'),
        ("caf\u00e9 a", "cafe\u0301 a", "(NFC, NFD)"),
        ("go()  \nstop()\n", "go()\nstop()", r"only in spaces, tabs"),
        ("go()  \nstop()\n", "go()\nstop()", r'as JSON, "go()  \nstop()"'),
        ("a\u2019b a\u2019b", "a'b", "and so have other places"),
        ("a\n  b = 1\nc\n", "b  =  1", "from line 2 on it differs only in spaces"),
        ("a = 1\nb = 2\nc = 3\n", "a = 1\nb = 5", "it begins like line 1, but then line 2 is 'b = 2'"),
        ("a = 1", "a = 1\nb = 5", "it begins like line 1, but then the file ends"),
        (
            "first\nresult = compute(x)\n",
            "result = compute(y)",
            "the nearest is line 2, 'result = compute(x)'",
        ),
        ("one\ntwo\n", "     1\tone\n     2\ttwo", "the numbers that read_file shows: leave those out"),
        ("one\r\ntwo\nthree", "one\ntwo\nthree", "it differs only in empty lines or line ends"),
        ("one\n", "something else entirely", "read the file, and copy the text exactly"),
        ("a\n\nb\n", "a\nb", "it begins like line 1, but then line 2 is ''"),
    ],
)
def test_a_text_that_is_not_there_is_told_with_what_is(text, old, told):
    with pytest.raises(ValueError, match=r"old_text is not in a\.py") as error:
        after(text, (old, "x"))
    assert told in str(error.value)


def test_long_lines_are_cut_in_what_is_told():
    with pytest.raises(ValueError, match="only in spaces") as error:
        after("x" * 5000 + " y", ("x" * 5000 + "  y", ""))
    assert len(str(error.value)) < 600


@given(st.text("ab \t\n\r0123", max_size=40), st.text("ab \t\n\r0123", min_size=1, max_size=12))
def test_whatever_is_not_there_is_explained(text, old):
    try:
        done = after(text, (old, "X"))
    except ValueError as error:
        assert "old_text is" in str(error)
    else:
        assert "X" in done


@table(
    ("before", "new", "expected"),
    [
        ("a\r\nb\r\n", "1\n2\n", "1\r\n2\r\n"),
        ("a\r\nb\n", "1\n2\n", "1\n2\n"),
        ("a\n", "1\r\n", "1\r\n"),
        ("\ufeffa", "1", "\ufeff1"),
        ("\ufeffa", "\ufeff1", "\ufeff1"),
        ("", "1\n", "1\n"),
    ],
)
def test_a_whole_new_text_takes_over_how_the_old_one_was_written(before, new, expected):
    assert with_line_ends_of(new, before) == expected
