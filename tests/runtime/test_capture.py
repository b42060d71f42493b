"""What is kept of an output that may be endless."""

from hypothesis import given
from hypothesis import strategies as st

from coupler.runtime.commands import Capture
from tables import table


def kept(chunks: list[bytes], head: int, tail: int) -> Capture:
    capture = Capture(head, tail)
    for chunk in chunks:
        capture.append(chunk)
    return capture


@given(st.lists(st.binary(max_size=20)), st.integers(0, 30), st.integers(0, 30))
def test_what_fits_is_kept_byte_for_byte_and_all_else_is_counted(
    chunks: list[bytes], head: int, tail: int
) -> None:
    written = b"".join(chunks)

    capture = kept(chunks, head, tail)

    content = capture.content()
    assert capture.is_cut == (len(written) > head + tail)
    if not capture.is_cut:
        assert content == written
        return
    before, marker, after = content.partition("\n[… ".encode())
    count, _, end = after.partition(" bytes left out …]\n".encode())
    assert marker
    assert written.startswith(before) and written.endswith(end)
    assert len(before) <= head and len(end) <= tail
    assert len(before) + int(count.replace(b",", b"")) + len(end) == len(written)


@table(("head", "tail"), [(size, 10 - size) for size in range(11)])
def test_no_character_is_cut(head: int, tail: int) -> None:
    capture = kept(["aé€😀😀€éa".encode()], head, tail)

    content = capture.content().decode()

    before, _, after = content.partition("\n[… ")
    assert "aé€😀😀€éa".startswith(before)
    assert "aé€😀😀€éa".endswith(after.rpartition("]\n")[2])


def test_what_belongs_to_the_beginning_is_told_at_once_and_the_rest_in_the_end() -> None:
    capture = Capture(4, 4)

    assert [capture.append(chunk) for chunk in (b"abc", b"def", b"ghi")] == [b"abc", b"d", b""]
    assert capture.rest() == "\n[… 1 bytes left out …]\n".encode() + b"fghi"
    assert capture.content() == b"abcd" + capture.rest()
