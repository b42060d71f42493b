"""The spellings of a secret: every way in which output gives it away."""

import base64
import json
import pickle
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coupler.redaction.masker import Masker
from coupler.redaction.sources import Secret
from tables import table

PRIVATE_KEY = """-----BEGIN PRIVATE KEY-----
MIIEvQIBADANBgkqhkiG9w0BAQEFAASC
BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj
short==
-----END PRIVATE KEY-----
"""


def spellings(value: str) -> frozenset[str]:
    return Secret("NAME", value).spellings()


@table(
    "value",
    ['say "hi" to/me', "back\\slash", "two\nlines", "tab\there", "pässwörd-1", "smile 😀 more", "a+b=c&d?"],
)
def test_a_secret_is_spelled_as_json_and_urls_write_it(value: str) -> None:
    found = spellings(value)
    assert value in found
    assert json.dumps(value)[1:-1] in found
    assert json.dumps(value, ensure_ascii=False)[1:-1] in found
    assert json.dumps(value)[1:-1].replace("/", "\\/") in found
    assert quote(value, safe="") in found
    assert quote(value) in found
    assert quote_plus(value) in found


def test_a_secret_is_spelled_as_a_browser_quotes_it() -> None:
    assert "it's(!)%2F*" in spellings("it's(!)/*")
    assert "a%2fb%3dcdefg" in spellings("a/b=cdefg")


@pytest.mark.parametrize("value", ["ghp_0123456789abcdef", "??>>~~ü-secret", "12345678"])
def test_a_secret_is_spelled_in_base64_with_and_without_padding(value: str) -> None:
    found = spellings(value)
    for encoded in (base64.b64encode(value.encode()), base64.urlsafe_b64encode(value.encode())):
        assert encoded.decode() in found
        assert encoded.decode().rstrip("=") in found


def test_a_token_with_a_line_end_is_found_without_it_and_in_base64_with_it() -> None:
    found = spellings("ghp_0123456789abcdef\n")
    assert "ghp_0123456789abcdef" in found
    assert base64.b64encode(b"ghp_0123456789abcdef\n").decode() in found
    assert all(spelling == spelling.strip() for spelling in found)


def test_a_short_declared_value_is_not_looked_for_in_base64() -> None:
    assert spellings("abc") == {"abc"}


def test_a_plain_token_has_few_spellings() -> None:
    assert len(spellings("ghp_0123456789abcdef")) == 6


@pytest.mark.parametrize("value", ["", " ", "\n\t "])
def test_a_blank_value_has_no_spelling(value: str) -> None:
    assert spellings(value) == frozenset()


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\\n"])
def test_every_long_line_of_a_private_key_counts_but_not_its_armour(line_end: str) -> None:
    found = spellings(PRIVATE_KEY.replace("\n", line_end))
    assert "MIIEvQIBADANBgkqhkiG9w0BAQEFAASC" in found
    assert "BKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj" in found
    assert not {"short==", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----"} & found


def test_a_secret_that_is_no_utf8_is_found_in_the_environment_and_in_decoded_output() -> None:
    value = b"caf\xe9-p\xe4ssword".decode("utf-8", "surrogateescape")
    found = spellings(value)
    assert value in found
    assert "caf\ufffd-p\ufffdssword" in found
    assert "caf%E9-p%E4ssword" in found


def test_a_character_beyond_the_first_plane_is_also_found_as_two_surrogates() -> None:
    assert "key-\ud83d\ude00-1234" in spellings("key-😀-1234")


@given(st.text(st.characters(), max_size=40))
def test_whatever_the_value_no_spelling_is_empty_or_raises(value: str) -> None:
    assert all(spellings(value))
    assert bool(spellings(value)) == bool(value.strip())


def test_the_value_is_in_no_representation() -> None:
    secret = Secret("NAME", "ghp_0123456789abcdef")
    masker = Masker([secret])
    assert "0123" not in f"{secret} {secret!r} {[secret]} {masker} {masker!r}"
    assert pickle.loads(pickle.dumps(secret)) == secret


@table("before", ["", "u", "us", "user:", "x-token-auth:"])
@table("after", ["", "@", "\n", ":x-oauth-basic"])
def test_within_a_longer_text_in_base64_it_is_masked_but_for_a_character_at_each_end(
    before: str, after: str
) -> None:
    value = "Zq7Xk9Vw3Jy5Qz8Wx2Kv"
    encoded = base64.b64encode(f"{before}{value}{after}".encode()).decode()
    shown = Masker([Secret("T", value)]).mask(encoded)
    start, rest = shown.split("[secret:T]")
    hidden = len(encoded) - len(start) - len(rest)
    assert hidden >= len(value) * 8 // 6 - 2
    assert value[1:5] not in base64.b64decode(start[: len(start) // 4 * 4]).decode("latin-1")
