"""Masking texts in pieces: what is shown, when, and that no split shows a secret.

The promise, exactly. Let the beginning of a spelling be its first four characters, or half of it rounded up
if that is fewer. Of a text T in pieces a `Stream` shows

1. every character that no spelling in T covers,
2. of those that are covered, only some that stand less than a beginning into every spelling that covers
   them: at most the first three characters of a secret,
3. in their order, with a mark for each gap.

`promised` below computes this from the whole text in the most simple-minded way. Without a shown character of
the second kind, the result is what `mask` makes of the whole text.
"""

import base64
import json
import random
import string
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from coupler.redaction.masker import REMEMBERED, Masker, StreamMasker
from coupler.redaction.sources import Secret, detected_beginning
from tables import table

TOKEN = "ghp_0123456789abcdef"
MASKER = Masker([Secret("T", TOKEN)])
ALPHABET = 'aab"\\é😀\ud83d'


def shown_by(masker: Masker, pieces: Iterable[str]) -> str:
    stream = StreamMasker(masker)
    return "".join([stream.feed(piece) for piece in pieces] + [stream.end()])


def cut(text: str, places: Iterable[int]) -> list[str]:
    ends = [*sorted(place % (len(text) + 1) for place in places), len(text)]
    return [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]


def covered(text: str, spellings: Iterable[str]) -> Iterator[tuple[int, int, str]]:
    """Every place of every spelling."""
    for spelling in spellings:
        for start in range(len(text)):
            if text.startswith(spelling, start):
                yield start, start + len(spelling), spelling


def held_from(text: str, spellings: frozenset[str]) -> int:
    """Where the first spelling starts that goes on after the text, and of which enough is there."""
    beginnings = {detected_beginning(spelling) for spelling in spellings}
    for start in range(len(text)):
        rest = text[start:]
        if rest.startswith(tuple(beginnings)) and any(
            spelling.startswith(rest) and spelling != rest for spelling in spellings
        ):
            return start
    return len(text)


def promised(pieces: list[str], spellings: frozenset[str]) -> tuple[str, set[int]]:
    """What a stream shows with `*` for a mark, and the places of the characters that it shows."""
    text, end, decided, places = "".join(pieces), 0, 0, set()
    for index, piece in enumerate(pieces):
        end += len(piece)
        known = text[:end]
        stop = end if index == len(pieces) - 1 else max(decided, held_from(known, spellings))
        hidden = {place for start, close, _ in covered(known, spellings) for place in range(start, close)}
        places |= set(range(decided, stop)) - hidden
        decided = stop
    # A place where a spelling starts and that no other one covers begins a mark of its own.
    everything = list(covered(text, spellings))
    shown, previous = [], True
    for place, character in enumerate(text):
        if place in places:
            shown.append(character)
        elif previous or not any(start < place < close for start, close, _ in everything):
            shown.append("*")
        previous = place in places
    return "".join(shown), places


texts = st.text(ALPHABET, min_size=1, max_size=10)


@st.composite
def secrets_and_pieces(draw: st.DrawFn) -> tuple[list[str], list[str]]:
    """Secrets, some made of parts of others, and a text that is full of them and of parts of them."""
    values = draw(st.lists(texts, min_size=1, max_size=3))
    values += [values[0][draw(st.integers(0, 5)) :] + draw(texts) for _ in range(draw(st.integers(0, 2)))]
    parts = draw(
        st.lists(
            st.one_of(
                st.sampled_from(values),
                st.builds(lambda value, size: value[:size], st.sampled_from(values), st.integers(1, 9)),
                st.builds(lambda value, size: value[size:], st.sampled_from(values), st.integers(1, 9)),
                texts,
            ),
            max_size=8,
        )
    )
    text = "".join(parts)
    return values, cut(text, draw(st.lists(st.integers(0, 100), max_size=30)))


@given(secrets_and_pieces())
@example((["aaaaaaaa"], list("a" * 20)))
@example((["abcdefgh", "fghijklm"], ["abcdefgh", "ijklm"]))
@example((["abcdefgh", "fghijklm"], ["abcdefgh", "", "ijklm"]))
@example((["abcdefgh", "efghijkl"], ["abcdefgh", "x"]))
@example((["a", "xabcdefg"], list("xabcdefg")))
def test_a_stream_shows_what_it_promises_and_no_more(given: tuple[list[str], list[str]]) -> None:
    # Given a text that does not break off in a secret
    values, pieces = given[0], [*given[1], "."]
    spellings = frozenset(spelling for value in values for spelling in Secret("X", value).spellings())
    masker = Masker(Secret("X", value) for value in values)
    text = "".join(pieces)
    shown, places = promised(pieces, spellings)
    # A stream shows what was promised
    mark = masker.mark("X") if spellings else ""
    assert shown_by(masker, pieces) == shown.replace("*", mark)
    # And what was promised gives no secret away
    assert places >= set(range(len(text))) - {
        place for start, end, _ in covered(text, spellings) for place in range(start, end)
    }
    for start, end, spelling in covered(text, spellings):
        assert places.isdisjoint(range(start + len(detected_beginning(spelling)) - 1, end))
    # And in one piece it is the mask of the whole
    assert shown_by(masker, [text]) == masker.mask(text)


@given(
    st.lists(st.text("abcd", min_size=7, max_size=12), min_size=1, max_size=4),
    st.lists(st.integers(0, 200), max_size=12),
    st.data(),
)
def test_without_a_shown_beginning_the_pieces_are_the_mask_of_the_whole(
    values: list[str], places: list[int], data: st.DataObject
) -> None:
    # Given secrets with names of their own, and cuts that are at none of their beginnings
    secrets = [Secret(f"N{index}", value) for index, value in enumerate(values)]
    spellings = frozenset(spelling for secret in secrets for spelling in secret.spellings())
    parts = data.draw(st.lists(st.one_of(st.sampled_from(values), st.text("abcd.", max_size=5)), max_size=8))
    text = "".join((*parts, "."))
    unfit = {start + size for start, _, _ in covered(text, spellings) for size in (1, 2, 3)}
    pieces = cut(text, [place for place in places if place % (len(text) + 1) not in unfit])
    # When it is streamed, then names and all are as in the whole
    masker = Masker(secrets)
    assert shown_by(masker, pieces) == masker.mask(text)


@pytest.mark.long
def test_of_30_000_random_splits_none_shows_a_secret() -> None:
    letters = string.ascii_letters + string.digits
    for _ in range(300):
        # Given a few secrets in a text that has no character in common with them
        values = ["".join(random.choices(letters, k=random.randint(8, 40))) for _ in range(3)]
        masker = Masker(Secret("X", value) for value in values)
        spelled = [spelling for value in values for spelling in Secret("X", value).spellings()]
        text = "".join(random.choice(spelled) + random.choice(["", " ", " - ", "\n"]) for _ in range(5))
        fourths = {value[at : at + 4] for value in spelled for at in range(len(value) - 3)}
        for _ in range(100):
            # When it comes in pieces that are cut anywhere
            pieces = cut(text, random.choices(range(len(text)), k=random.randint(0, 60)))
            shown = shown_by(masker, pieces).split("[secret:X]")
            # Then between the marks there are nowhere four characters of a secret
            assert not any(part[at : at + 4] in fourths for part in shown for at in range(len(part)))


@table("size", range(1, 10))
def test_in_pieces_of_any_size_at_most_three_characters_precede_the_mark(size: int) -> None:
    text = f"before {TOKEN} after"
    for offset in range(size):
        pieces = [text[:offset], *(text[at : at + size] for at in range(offset, len(text), size))]
        shown = shown_by(MASKER, pieces)
        assert shown in {f"before {TOKEN[:kept]}[secret:T] after" for kept in range(4)}


def test_a_secret_split_at_any_two_places_is_not_shown() -> None:
    for value in (
        TOKEN,
        'say "hi"\n/ü😀',
        base64.b64encode(TOKEN.encode()).decode(),
        json.dumps('"' * 9)[1:-1],
    ):
        masker = Masker([Secret("T", TOKEN), Secret("T", 'say "hi"\n/ü😀'), Secret("T", '"' * 9)])
        for first in range(len(value) + 1):
            for second in range(first, len(value) + 1):
                pieces = ["<", value[:first], value[first:second], value[second:], ">"]
                shown = shown_by(masker, pieces)
                assert shown in {f"<{value[:kept]}[secret:T]>" for kept in range(4)}


@table(
    ("value", "most"),
    [("a", 0), ("ab", 0), ("abc", 1), ("abcd", 1), ("abcde", 2), ("abcdef", 2), ("abcdefg", 3)],
)
def test_of_a_short_secret_less_than_half_precedes_the_mark(value: str, most: int) -> None:
    assert (
        shown_by(Masker([Secret("S", value)]), value)
        == f"{value[:most]}{Masker([Secret('S', value)]).mark('S')}"
    )


def test_what_is_no_secret_is_shown_at_once_and_as_the_same_object() -> None:
    stream = StreamMasker(MASKER)
    for piece in ("hello", " wor", "ld g", "gh", "ghp", " x", "ghp-1"):
        assert stream.feed(piece) is piece
    assert stream.end() == ""


def test_four_characters_are_held_back_until_they_are_decided() -> None:
    stream = StreamMasker(MASKER)
    assert stream.feed("see ghp_") == "see "
    assert stream.feed("0123") == ""
    assert stream.feed("!") == "ghp_0123!"
    assert stream.feed("ghp_") == ""
    assert stream.feed(TOKEN[4:]) == "[secret:T]"


@table("size", range(4, len(TOKEN)))
def test_the_end_releases_what_was_held_back_unless_it_is_most_of_a_secret(size: int) -> None:
    stream = StreamMasker(MASKER)
    assert stream.feed(f"see {TOKEN[:size]}") == "see "
    assert stream.end() == (TOKEN[:size] if size <= len(TOKEN) // 2 else "[secret:T]")
    assert stream.end() == ""


def test_the_end_does_not_take_a_word_for_most_of_a_very_short_secret() -> None:
    assert shown_by(Masker([Secret("S", "abc")]), ["ab"]) == "ab"


@table("size", range(1, len(TOKEN)))
@table("more", range(3))
def test_a_secret_that_goes_on_after_the_end_is_hidden_from_there_on(size: int, more: int) -> None:
    stream = StreamMasker(MASKER)
    before = stream.feed(f"see {TOKEN[:size]}") + stream.end()
    after = "".join(map(stream.feed, cut(f"{TOKEN[size:]} there", range(0, 40, more + 1)))) + stream.end()
    assert before == f"see {TOKEN[:size] if size <= len(TOKEN) // 2 else '[secret:T]'}"
    assert after in {f"{TOKEN[size:kept]}[secret:T] there" for kept in range(4)}


def test_what_only_looked_like_a_secret_before_the_end_changes_nothing_after_it() -> None:
    stream = StreamMasker(MASKER)
    assert stream.feed(TOKEN[:8]) + stream.end() == TOKEN[:8]
    assert stream.feed(TOKEN[8:12]) == ""
    assert stream.feed(" or not") == f"{TOKEN[8:12]} or not"
    assert stream.feed("plain") == "plain"


def test_a_shorter_secret_waits_for_the_longer_one_and_is_masked_in_any_case() -> None:
    masker = Masker([Secret("SHORT", "abcdefgh"), Secret("LONG", "abcdefghijkl")])
    assert shown_by(masker, ["abcdefgh", "ijkl"]) == "[secret:LONG]"
    assert shown_by(masker, ["abcdefgh", "ijk."]) == "[secret:SHORT]ijk."
    assert shown_by(masker, ["abcdefgh"]) == "[secret:SHORT]"


def test_a_stream_of_one_repeated_character_is_not_kept() -> None:
    # Given a secret that overlaps itself without end
    stream = StreamMasker(Masker([Secret("X", "aaaaaaaa")]))
    # When it goes on and on, then there is one mark, shown early, and little is held back
    shown = [stream.feed("aaa") for _ in range(1000)]
    assert "".join(shown[:4]) == "".join(shown) == "aaa[secret:X]"
    assert len(stream._text) < REMEMBERED + 16
    assert stream.feed("b") == "b"


def test_a_secret_learned_in_the_middle_of_a_text_counts_from_the_next_piece_on() -> None:
    stream = StreamMasker(MASKER)
    assert stream.feed("so oth") == "so oth"
    stream.masker = MASKER.with_secrets([Secret("OTHER", "other-secret")])
    assert stream.feed("er-secret ghp_") == "[secret:OTHER] "
    stream.masker = stream.masker.with_secrets([Secret("THIRD", "ghp_third")])
    assert stream.feed("third.") == "[secret:THIRD]."


@table("size", range(1, len(TOKEN)))
@table("is_in_one_piece", [True, False])
def test_of_a_secret_that_is_learned_when_it_has_begun_the_rest_is_hidden(
    size: int, is_in_one_piece: bool
) -> None:
    stream = StreamMasker(Masker([Secret("OTHER", "other-secret")]))
    beginning = f"token: {TOKEN[:size]}"
    assert "".join(map(stream.feed, [beginning] if is_in_one_piece else beginning)) == beginning
    stream.masker = stream.masker.with_secrets([Secret("T", TOKEN)])
    rest = "".join(map(stream.feed, f"{TOKEN[size:]} there")) + stream.end()
    assert rest in {f"{TOKEN[size:kept]}[secret:T] there" for kept in range(4)}


def test_a_long_key_costs_no_more_for_each_piece_the_more_is_held_back() -> None:
    key = "-----BEGIN KEY-----\n" + "\n".join("".join(random.choices("abcdefgh", k=64)) for _ in range(500))
    stream = StreamMasker(Masker([Secret("KEY", key)]))
    assert "".join(stream.feed(character) for character in key) == key[:3] + "[secret:KEY]"
