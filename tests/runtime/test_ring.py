"""The last bytes of an endless output."""

from hypothesis import given
from hypothesis import strategies as st

from coupler.runtime.process import RingBuffer, last_lines


def test_what_fits_is_kept_whole() -> None:
    ring = RingBuffer(10)
    ring.append(b"one\n")
    ring.append(b"two")
    assert ring.text() == "one\ntwo"


def test_what_was_cut_starts_with_a_whole_line() -> None:
    ring = RingBuffer(10)
    ring.append(b"first line\nlast\n")
    assert ring.text() == "last\n"


def test_one_endless_line_keeps_its_end() -> None:
    ring = RingBuffer(4)
    ring.append(b"abcdefgh")
    assert ring.text() == "efgh"


def test_a_character_that_was_cut_is_dropped() -> None:
    ring = RingBuffer(3)
    ring.append("aé!".encode())
    ring.append(b"!")
    assert ring.text() == "!!"


def test_bytes_that_are_no_text_are_replaced() -> None:
    ring = RingBuffer(3)
    ring.append(b"a\x80b\xff")
    assert ring.text() == "b\ufffd"


def test_it_tells_whether_the_beginning_was_dropped() -> None:
    ring = RingBuffer(4)
    ring.append(b"abcd")
    assert not ring.is_cut
    ring.append(b"e")
    assert ring.is_cut
    assert ring.text() == "bcde"


def test_a_limit_of_nothing_keeps_nothing() -> None:
    ring = RingBuffer(0)
    ring.append(b"anything")
    assert ring.text() == ""


@given(st.lists(st.binary(max_size=40)), st.integers(min_value=1, max_value=50))
def test_the_text_is_an_end_of_what_was_appended(chunks: list[bytes], limit: int) -> None:
    ring = RingBuffer(limit)
    for chunk in chunks:
        ring.append(chunk)
        assert len(ring._kept) <= 2 * limit
    kept = b"".join(chunks)[-limit:]
    assert kept.decode("utf-8", "replace").endswith(ring.text())


def test_an_excerpt_begins_with_a_whole_line_or_at_least_with_a_whole_word() -> None:
    cases = {
        "short\n": "short",
        "one line\nanother": "another",
        "one two three four": "… four",
        "first\nlast line": "last line",
        "abcdefghijklmnop": "…hijklmnop",
    }
    assert {output: last_lines(output, 9) for output in cases} == cases
