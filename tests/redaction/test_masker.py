"""Masking whole texts and lines."""

import json
import time

from hypothesis import given
from hypothesis import strategies as st

from coupler.redaction.masker import Masker
from coupler.redaction.sources import Secret
from tables import table

TOKEN = "ghp_0123456789abcdef"
MASKER = Masker([Secret("GITHUB_TOKEN", TOKEN)])
ALPHABET = 'ab"\\/é😀\ud83d\n'


def masker(*values: str) -> Masker:
    """A masker with secrets A, B, C… of these values."""
    return Masker(Secret(chr(ord("A") + index), value) for index, value in enumerate(values))


def test_a_secret_is_replaced_by_its_name_wherever_it_is() -> None:
    assert MASKER.mask(f"{TOKEN}, then {TOKEN}{TOKEN}.") == (
        "[secret:GITHUB_TOKEN], then [secret:GITHUB_TOKEN][secret:GITHUB_TOKEN]."
    )


@table("text", ["", "x", "nothing here", "ghp_", "ghp_0123456789abcde", "ghp_ghp_ghp_"])
def test_a_text_without_a_secret_is_the_same_object(text: str) -> None:
    assert MASKER.mask(text) is text


def test_without_secrets_nothing_is_masked() -> None:
    assert Masker().mask(TOKEN) is TOKEN


@table(
    ("secrets", "text", "expected"),
    [
        (("abcdefgh", "abcdefghijkl"), "abcdefgh abcdefghijkl", "[secret:A] [secret:B]"),
        (("abcdefgh", "efghijkl"), "-abcdefghijkl-", "-[secret:A]-"),
        (("abcdefgh", "cdef1234", "cdefghij"), "-abcdefghij-", "-[secret:A]-"),
        (("efgh1234", "xxefgh1234yy"), "xxefgh1234yy xxefgh1234", "[secret:B] xx[secret:A]"),
        (("aaaaaaaa",), "aaaaaaa aaaaaaaa aaaaaaaaaaaaa", "aaaaaaa [secret:A] [secret:A]"),
        (("abcabcab",), "abcabcabcabcab", "[secret:A]"),
        (("a", "ab", "abcdefgh"), "abcdefgh ab a", "[secret:C] [secret:B] [secret:A]"),
        (("abcdefgh", "abcdefgh"), "abcdefgh", "[secret:A]"),
        (("pä😀ßwörd",), "Xpä😀ßwördX", "X[secret:A]X"),
        (("\ud83dabcdefg",), "x\ud83dabcdefg", "x[secret:A]"),
    ],
)
def test_secrets_that_share_characters_leave_none_of_them(
    secrets: tuple[str, ...], text: str, expected: str
) -> None:
    assert masker(*secrets).mask(text) == expected


def test_a_secret_is_found_inside_encoded_json_and_the_json_stays_valid() -> None:
    value = 'quote " slash / back \\ line\nend ü'
    encoded = json.dumps({"text": f"<{value}>"})
    assert json.loads(masker(value).mask(encoded)) == {"text": "<[secret:A]>"}


@given(
    st.lists(st.text(ALPHABET, min_size=1, max_size=9), min_size=1, max_size=4),
    st.text(ALPHABET, max_size=40),
)
def test_a_character_is_hidden_exactly_when_a_spelling_covers_it(values: list[str], text: str) -> None:
    # Given a masker, and the characters that are covered, found in the most simple-minded way
    secrets = [Secret("NAME", value) for value in values]
    spellings = [spelling for secret in secrets for spelling in secret.spellings()]
    covered = {
        position
        for spelling in spellings
        for start in range(len(text))
        if text.startswith(spelling, start)
        for position in range(start, start + len(spelling))
    }
    # When the text is masked
    masked = Masker(secrets).mask(text)
    # Then what remains between the marks is what is not covered
    shown = "".join(character for position, character in enumerate(text) if position not in covered)
    assert masked.replace("[secret:NAME]", "") == shown
    assert ("[secret:NAME]" in masked) == bool(covered)
    # And masking twice changes nothing more
    assert Masker(secrets).mask(masked) == masked


@table("value", ["secret", "[secret:", "A]", "ecre", "hidden", "[", "]", "*", "e"])
def test_a_mark_gives_away_no_secret_and_is_not_masked_again(value: str) -> None:
    knowing = masker(value)
    masked = knowing.mask(f"x{value}y")
    assert value not in masked[1:-1]
    assert knowing.mask(masked) == masked


def test_where_every_mark_would_give_something_away_there_is_none() -> None:
    assert masker("e", "*", "•").mask("the *•* end") == "th  nd"


def test_a_name_that_would_break_a_line_or_a_message_is_tamed() -> None:
    assert Masker([Secret('a "b"\n]\x1b[31m', TOKEN)]).mask(TOKEN) == "[secret:a_b_31m]"
    assert Masker([Secret(TOKEN, TOKEN)]).mask(TOKEN) == "[secret]"


def test_more_secrets_make_another_masker_and_leave_the_first_as_it_is() -> None:
    more = MASKER.with_secrets([Secret("OTHER", "other-secret")])
    assert more.mask(f"{TOKEN} other-secret") == "[secret:GITHUB_TOKEN] [secret:OTHER]"
    assert MASKER.mask("other-secret") == "other-secret"
    assert more.with_secrets([Secret("OTHER", "other-secret")]) is more


def test_bytes_are_masked_whatever_their_encoding() -> None:
    line = b"\xff " + TOKEN.encode() + b" \xe9\n"
    assert MASKER.mask_bytes(line) == b"\xff [secret:GITHUB_TOKEN] \xe9\n"
    clean = b"\xff nothing \xe9\n"
    assert MASKER.mask_bytes(clean) is clean
    assert masker("pässwörd-1").mask_bytes("ein pässwörd-1".encode()) == b"ein [secret:A]"


def test_a_thousand_secrets_that_become_known_one_by_one_cost_little_until_one_is_looked_for() -> None:
    knowing, started = MASKER, time.process_time()
    for number in range(1_000):
        knowing = knowing.with_secrets([Secret(f"S{number}", f"{number:04}-of-many-secrets")])
    assert time.process_time() - started < 5
    assert knowing.mask("0999-of-many-secrets") == "[secret:S999]"
    assert knowing.mask(TOKEN) == "[secret:GITHUB_TOKEN]"
