"""Markdown that is still being written: what is whole is given out, once and in order."""

from hypothesis import given
from hypothesis import strategies as some

from coupler.cli.chat.transcript import LONGEST_MARKDOWN, SMALL, AgentMarkdown, AgentText, StreamedMarkdown
from coupler.runtime.terminal_text import clean
from tables import table

DOCUMENT = (
    "# Title\n\nA paragraph\nof two lines.\n\n- one\n\n  more of one\n- two\n\n```\ncode\n\nmore\n```\nEnd"
)
BLOCKS = [
    "# Title\n\n",
    "A paragraph\nof two lines.\n\n",
    "- one\n\n  more of one\n- two\n\n",
    "```\ncode\n\nmore\n```\n",
    "End",
]


def in_pieces(text, size):
    """What comes out, piece by piece."""
    opened, given_out = StreamedMarkdown(), []
    for begin in range(0, len(text), size):
        opened.add(text[begin : begin + size])
        given_out += opened.take_whole()
    return [*map(text_of, given_out + opened.take_all())]


def text_of(part):
    return part.text


@table("size", [1, 2, 7, 1000])
def test_however_a_text_is_cut_its_blocks_are_the_same(size):
    assert in_pieces(DOCUMENT, size) == BLOCKS


@given(some.text(alphabet="ab \n-*`#>|1.&[]\t\x1b\r"), some.integers(1, 9))
def test_no_text_is_lost_or_said_twice(text, size):
    # An escape sequence that the pieces cut is removed whole, so the clean text is what counts.
    assert "".join(in_pieces(text, size)) == clean(text)


def test_a_block_is_held_until_another_one_begins():
    opened = StreamedMarkdown()
    opened.add("```\nfirst line\n\nnot yet the end\n")
    assert opened.take_whole() == []
    assert opened.end(100) == "```\nfirst line\n\nnot yet the end\n"

    opened.add("```\nafter\n")
    assert [*map(text_of, opened.take_whole())] == ["```\nfirst line\n\nnot yet the end\n```\n"]
    assert opened.end(100) == "after\n"


def test_a_line_that_is_not_whole_decides_nothing():
    opened = StreamedMarkdown()
    opened.add("- one\n*")  # another list, or the beginning of an emphasis inside of this one
    assert opened.take_whole() == []

    opened.add("still one*\n")
    assert [*map(text_of, opened.take_all())] == ["- one\n*still one*\n"]


def test_an_escape_sequence_that_comes_in_pieces_is_removed():
    assert in_pieces("a \x1b[31mred\x1b[0m \x1b]0;title\x07word\n", 1) == ["a red word\n"]


def test_long_open_text_is_not_parsed_for_every_line(monkeypatch):
    from coupler.cli.chat import transcript

    parsed = []
    real = transcript._blocks
    monkeypatch.setattr(transcript, "_blocks", lambda text: parsed.append(len(text)) or real(text))
    opened = StreamedMarkdown()
    opened.add("```\n")
    lines = 10 * SMALL // 64
    for _ in range(lines):
        opened.add("x" * 63 + "\n")
        opened.take_whole()

    beyond = [length for length in parsed if length > SMALL]
    assert 0 < len(beyond) < 20


def test_of_long_text_the_end_is_shown():
    opened = StreamedMarkdown()
    opened.add("a" * 100 + "b" * 10)
    assert opened.end(10) == "b" * 10


@table("size", [1000, 100_000, 1_000_000])
def test_of_a_very_long_message_the_beginning_is_markdown_and_the_rest_plain_lines(size):
    text = "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 50_000
    opened, parts = StreamedMarkdown(), []
    for begin in range(0, len(text), size):
        opened.add(text[begin : begin + size])
        parts += opened.take_whole()
    parts += opened.take_all()

    assert "".join(map(text_of, parts)) == text
    rendered = [part.text for part in parts if isinstance(part, AgentMarkdown)]
    assert 0 < len("".join(rendered)) <= LONGEST_MARKDOWN
    assert all(isinstance(part, AgentText) for part in parts[len(rendered) :])


def test_the_next_message_is_markdown_again():
    opened = StreamedMarkdown()
    opened.add("x\n" * LONGEST_MARKDOWN)
    opened.take_all()
    opened.add("*short*")
    assert opened.take_all() == [AgentMarkdown("*short*")]
