"""Parts of files as models read them, from streams that are never held whole."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.langchain.editor_tools import reading as module
from coupler.langchain.editor_tools.reading import Excerpt, excerpt, lines_from


def from_stream(content, first):
    return [*lines_from(io.BytesIO(content), first, lambda: True)]


@given(
    st.lists(st.text("abä", max_size=4), min_size=1, max_size=30),
    st.integers(1, 30),
    st.integers(1, 9),
    st.booleans(),
)
def test_lines_are_those_of_the_text_from_one_on(texts, first, block, ends):
    content = "\n".join(texts).encode() + (b"\n" if ends else b"")
    expected = content.decode().split("\n")
    if not expected[-1]:
        expected.pop()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", block)
        if first > len(expected) + 1:
            with pytest.raises(ValueError, match=f"only {len(expected)} lines"):
                from_stream(content, first)
        else:
            assert from_stream(content, first) == expected[first - 1 :]


def test_a_reader_whom_nobody_waits_for_stops():
    with pytest.raises(InterruptedError):
        [*lines_from(io.BytesIO(b"a\n" * 100), 50, lambda: False)]


def test_there_is_at_least_one_line_however_long_it_is(monkeypatch):
    monkeypatch.setattr(module, "LONGEST_TEXT", 10)
    assert excerpt(["x" * 50, "y"], 7, 5) == Excerpt(f"     7\t{'x' * 50}", 7, 7, True)


def test_what_is_no_utf_8_is_replaced():
    assert from_stream(b"\xef\xbb\xbfa\xe9\nb\r\n", 1) == ["a�", "b"]
