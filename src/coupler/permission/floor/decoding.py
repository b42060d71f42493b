"""Texts that a line hides: encoded, escaped or turned around, to be decoded when it runs."""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Iterator

_ENCODED = re.compile(r"[A-Za-z0-9+/_-]{4,}={0,2}|[A-Za-z0-9+/]{2,3}={1,2}")
_HEXADECIMAL = re.compile(r"(?:\\x|0x)?[0-9a-fA-F]{2}(?:(?:\\x|0x|[\s,])*[0-9a-fA-F]{2})+")
_ESCAPED = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|0?([0-7]{1,3})|u([0-9a-fA-F]{4})|([abefnrtv\\]))")
_NAMED = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
}


def decodings(text: str) -> Iterator[str]:
    """The text, and all that it may be in disguise."""
    yield text
    if (plain := unescaped(text)) != text:
        yield plain
    yield text[::-1]
    yield codecs.encode(text, "rot13")
    for match in _ENCODED.finditer(text):
        yield from _from_base64(match[0])
    for match in _HEXADECIMAL.finditer(text):
        digits = re.sub(r"\\x|0x|[\s,]", "", match[0])
        yield from _readable(binascii.unhexlify(digits[: len(digits) // 2 * 2]))


def unescaped(text: str) -> str:
    """What `printf` and `echo -e` make of it."""

    def letter(match: re.Match[str]) -> str:
        if match[4]:
            return _NAMED[match[4]]
        number = int(match[1] or match[3], 16) if match[1] or match[3] else int(match[2], 8)
        return chr(number)

    return _ESCAPED.sub(letter, text)


def _from_base64(text: str) -> Iterator[str]:
    padded = text.rstrip("=") + "=" * (-len(text.rstrip("=")) % 4)
    try:
        yield from _readable(base64.b64decode(padded.replace("-", "+").replace("_", "/")))
    except (binascii.Error, ValueError):
        return


def _readable(data: bytes) -> Iterator[str]:
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return
    if all(letter.isprintable() or letter in "\n\t" for letter in text):
        yield text
