"""Bytes in, frames out."""

from __future__ import annotations

import time
import tracemalloc
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.wire.frames import DEFAULT_LIMIT, KEPT_BYTES, Frame, FrameBuffer, Oversized
from tables import table


def frames_of(data: bytes, limit: int = DEFAULT_LIMIT) -> list[Frame]:
    buffer = FrameBuffer(limit)
    return [*buffer.feed(data), *buffer.end()]


@table(
    ("data", "frames"),
    [
        pytest.param(b"", [], id="nothing"),
        pytest.param(b"one\ntwo\n", [b"one", b"two"], id="two lines"),
        pytest.param(b"one\r\ntwo\r\n", [b"one", b"two"], id="CRLF"),
        pytest.param(b"\n\n \t\n\r\none\n\n", [b"one"], id="blank lines"),
        pytest.param(b"  \t one \t \n", [b"one"], id="blanks around"),
        pytest.param(b"\xef\xbb\xbfone\n", [b"one"], id="a byte-order mark"),
        pytest.param(b"one\n\xef\xbb\xbftwo\n", [b"one", b"two"], id="a byte-order mark later on"),
        pytest.param(b"\xef\xbb\xbf\n\xef\xbb\xbf\r\n", [], id="nothing but a byte-order mark"),
        pytest.param(b"a\0b\n\0\n", [b"a\0b", b"\0"], id="NUL is not blank"),
        pytest.param(b"a\xffb\n", [b"a\xffb"], id="invalid UTF-8 is not this layer's business"),
        pytest.param(
            b"a\x0bb\x0cc\xc2\x85d\re\n", [b"a\x0bb\x0cc\xc2\x85d\re"], id="only newline ends a line"
        ),
        pytest.param(b"one\ntwo", [b"one", b"two"], id="a last line without its end"),
    ],
)
def test_a_line_is_a_frame_without_what_surrounds_it(data: bytes, frames: list[Frame]) -> None:
    assert frames_of(data) == frames


def test_a_frame_is_given_out_as_soon_as_its_line_ends() -> None:
    buffer = FrameBuffer()
    assert buffer.feed(b'{"a"') == []
    assert buffer.feed(b":1}") == []
    assert buffer.feed(b'\n{"b"') == [b'{"a":1}']
    assert buffer.feed(b":2}\n") == [b'{"b":2}']
    assert buffer.end() == []


def test_the_end_is_reported_once() -> None:
    buffer = FrameBuffer()
    buffer.feed(b"last")
    assert buffer.end() == [b"last"]
    assert buffer.end() == []


@table("split", [True, False])
@table(
    ("length", "fits"), [(99, True), (100, True), (101, False), (5000, False)], ids=lambda value: str(value)
)
def test_the_limit_is_the_longest_line_that_is_accepted(length: int, fits: bool, split: bool) -> None:
    line = b"x" * length
    buffer = FrameBuffer(limit=100)
    pieces = [line[:50], line[50:], b"\n"] if split else [line + b"\n"]
    frames = [frame for piece in pieces for frame in buffer.feed(piece)]
    assert frames == [line if fits else Oversized(line[:100], line[-100:])]


def test_a_line_over_the_limit_costs_one_frame_and_the_next_line_works() -> None:
    buffer = FrameBuffer(limit=2000)
    line = b'{"id":7,' + b"x" * 5000 + b',"z":1}'
    assert buffer.feed(line[:3000]) == []
    assert buffer.feed(line[3000:] + b"\nnext\n") == [
        Oversized(line[:KEPT_BYTES], line[-KEPT_BYTES:]),
        b"next",
    ]


def test_a_line_over_the_limit_that_never_ends_is_reported_at_the_end() -> None:
    buffer = FrameBuffer(limit=10)
    buffer.feed(b"x" * 11)
    buffer.feed(b"y" * 11)
    assert buffer.end() == [Oversized(b"x" * 10, b"y" * 10)]
    assert buffer.feed(b"next\n") == [b"next"]


def test_a_line_of_200_megabytes_costs_no_more_memory_than_the_limit() -> None:
    buffer = FrameBuffer(limit=1024 * 1024)
    piece = b"x" * 65536
    tracemalloc.start()
    try:
        for _ in range(200 * 1024 * 1024 // len(piece)):
            assert buffer.feed(piece) == []
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 3 * 1024 * 1024
    assert buffer.feed(b"\nnext\n") == [Oversized(b"x" * KEPT_BYTES, b"x" * KEPT_BYTES), b"next"]


def test_a_line_that_comes_byte_by_byte_takes_linear_time() -> None:
    def seconds(size: int) -> float:
        buffer = FrameBuffer()
        start = time.process_time()
        for _ in range(size):
            buffer.feed(b"x")
        return time.process_time() - start

    assert seconds(200_000) < 20 * max(seconds(50_000), 0.01)


@given(
    st.lists(
        st.one_of(st.binary(max_size=30), st.sampled_from([b"\n", b"\r\n", b"\xef\xbb\xbf", b" ", b"{}"]))
    ),
    st.lists(st.integers(min_value=0, max_value=400)),
    st.integers(min_value=1, max_value=60),
)
def test_frames_are_the_same_however_the_bytes_are_split(
    parts: list[bytes], cuts: list[int], limit: int
) -> None:
    # given
    data = b"".join(parts)
    places = sorted({0, len(data), *(cut for cut in cuts if cut < len(data))})
    # when
    buffer = FrameBuffer(limit)
    frames: list[Frame] = []
    for start, stop in pairwise(places):
        frames += buffer.feed(data[start:stop])
    frames += buffer.end()
    # then
    assert frames == frames_of(data, limit)


@given(st.lists(st.binary(min_size=1, max_size=50).filter(lambda line: b"\n" not in line)))
def test_every_line_that_is_not_blank_is_one_frame(lines: list[bytes]) -> None:
    frames = frames_of(b"".join(line + b"\n" for line in lines), limit=40)
    expected = [
        line for line in lines if len(line) > 40 or line.removeprefix(b"\xef\xbb\xbf").strip(b" \t\r")
    ]
    assert len(frames) == len(expected)
    for frame, line in zip(frames, expected, strict=True):
        assert isinstance(frame, Oversized) == (len(line) > 40)
