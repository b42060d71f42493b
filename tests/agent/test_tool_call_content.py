"""What a client is shown of a call: texts in a row are one, long text is its head and its tail."""

import time
import tracemalloc

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coupler.agent.tool_call import ALLOWANCE, HEAD, TAIL, Shown
from coupler.events.fold import text_content
from coupler.schema.v1 import Annotations, Content, Diff, ImageContent, Terminal, TextContent
from tables import table

IMAGE = Content(ImageContent("AAAA", "image/png"))
DIFF = Diff("/app.py", "new", "old")


def shown(*items):
    shown = Shown()
    for item in items:
        shown.add(text_content(item) if isinstance(item, str) else item)
    return shown


def only_text(shown):
    (item,) = shown.content()
    return item.content.text


def size(text):
    return len(text.encode("utf-8", "surrogatepass"))


class TestItems:
    def test_nothing_shows_nothing(self):
        assert shown().content() == ()
        assert not shown().has_news

    def test_texts_in_a_row_are_one(self):
        assert shown("a", "b", "c\n").content() == (text_content("abc\n"),)

    @pytest.mark.parametrize("other", [IMAGE, DIFF, Terminal("term_1")])
    def test_other_items_keep_their_place(self, other):
        content = shown("a", "b", other, other, "c", "d").content()
        assert content == (text_content("ab"), other, other, text_content("cd"))

    @pytest.mark.parametrize(
        "special",
        [
            Content(TextContent("x", annotations=Annotations(priority=1.0))),
            Content(TextContent("x", meta={"a": 1})),
            Content(TextContent("x"), meta={"a": 1}),
        ],
    )
    def test_text_with_something_more_is_joined_with_nothing(self, special):
        assert shown("a", special, "b").content() == (text_content("a"), special, text_content("b"))

    def test_text_that_stands_apart_is_joined_with_nothing(self):
        call = shown("a")
        call.add(text_content("because"), apart=True)
        call.add(text_content("b"))
        assert call.content() == (text_content("a"), text_content("because"), text_content("b"))


class TestLongText:
    def test_what_fits_is_shown_whole(self):
        text = "x" * HEAD + "y" * TAIL
        assert only_text(shown(text)) == text
        assert only_text(shown(text[:-1], text[-1])) == text

    @table("piece", [1, 7, 1000, 4096, 10**7])
    def test_of_more_the_head_and_the_tail_are_shown_and_how_much_lies_between(self, piece):
        whole = "".join(f"line {number}\n" for number in range(20_000))

        text = only_text(shown(*(whole[start : start + piece] for start in range(0, len(whole), piece))))

        left_out = len(whole) - HEAD - TAIL
        assert text == f"{whole[:HEAD]}\n… {left_out / 1000:.1f} KB left out …\n{whole[-TAIL:]}"

    @table(("more", "said"), [(1, "1 B"), (999, "999 B"), (1200, "1.2 KB"), (1_234_567, "1.2 MB")])
    def test_the_amount_is_readable(self, more, said):
        assert f"\n… {said} left out …\n" in only_text(shown("x" * (HEAD + TAIL + more)))

    def test_each_text_is_cut_by_itself(self):
        first, image, last = shown("a" * 100_000, IMAGE, "b" * 100_000).content()
        assert image == IMAGE
        assert first.content.text.startswith("a" * HEAD)
        assert last.content.text.endswith("b" * TAIL)

    @given(st.lists(st.text(st.characters() | st.sampled_from("é€😀\ud83d\ude00"), max_size=30), max_size=12))
    @example(["a" * 60, "b", "c" + "😀" * 20])
    def test_it_is_cut_between_characters_and_nothing_is_counted_wrongly(self, texts):
        pieces = [text * 300 for text in texts]
        whole = "".join(pieces)
        call = shown(*pieces)

        text = only_text(call) if pieces else ""

        if size(whole) <= HEAD + TAIL - 6:
            assert text == whole
        elif text != whole:
            head, said, tail = text.partition("\n… ")[0], text.split("\n… ")[-1], text.rpartition(" …\n")[2]
            assert whole.startswith(head)
            assert whole.endswith(tail)
            assert "left out" in said
            assert HEAD - 3 <= size(head) <= HEAD
            assert TAIL - 3 <= size(tail) <= TAIL

    def test_it_holds_no_more_than_it_shows(self):
        tracemalloc.start()
        try:
            call = shown()
            for _ in range(20_000):
                call.add(text_content("x" * 1023 + "\n"))
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert held < 200_000

    def test_many_small_pieces_are_cheap(self):
        call, piece = Shown(), text_content("x")
        start = time.process_time()
        for _ in range(100_000):
            call.add(piece)
            call.is_due()
        call.content()
        # Seconds; what is done for all pieces again with each one takes minutes.
        assert time.process_time() - start < 10


class TestBudget:
    def test_it_is_due_as_long_as_the_allowance_lasts(self):
        call = shown("x" * 1000)
        times = 0
        while call.is_due():
            call.sent()
            times += 1
        assert ALLOWANCE / 2000 < times < ALLOWANCE / 1000 + 3

    def test_more_output_makes_it_due_again(self):
        call = shown("x" * 1000)
        while call.is_due():
            call.sent()
        call.add(text_content("x" * 10_000))
        assert call.is_due()

    def test_news_are_told_once(self):
        call = shown("x")
        assert call.has_news
        call.sent()
        assert not call.has_news

    @given(
        st.lists(st.integers(1, 50_000) | st.just(IMAGE) | st.just(DIFF), max_size=30),
        st.integers(1, 5),
    )
    def test_whatever_is_added_what_is_sent_stays_in_proportion(self, items, eagerness):
        call, sent, output = Shown(), 0, 0
        for item in items:
            item = text_content("é" * item) if isinstance(item, int) else item
            output += len(msgspec.json.encode(item))
            call.add(item)
            for _ in range(eagerness):
                if call.is_due():
                    sent += len(msgspec.json.encode(call.content()))
                    call.sent()
        assert sent <= 2 * output + 1.1 * ALLOWANCE

    def test_half_a_surrogate_pair_in_a_diff_is_no_problem(self):
        call = shown(Diff("/app.py", "\ud83d", None))
        assert call.is_due()
