"""A secret, and the ways in which its value is spelled where text is written.

A token in a URL is quoted, in a JSON document escaped, in a header in base64. Each spelling gives the secret
away as surely as the value itself, so each is masked under the same name.
"""

from __future__ import annotations

import binascii
import json
import re
from collections.abc import Iterator
from typing import NamedTuple

SHORTEST_ENCODED = 8
"""Characters from which on a value is also looked for in base64: shorter ones would be found by chance."""

SHORTEST_LINE = 16
"""Characters from which on a line of a secret with several lines is a secret of its own."""

# A line ends where the text says so, or where an escaped one does: keys are often kept on one line.
_LINE_END = re.compile(r"\r\n|[\r\n]|\\r\\n|\\n")
_ARMOUR = "-----"
_NEVER_QUOTED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~")
_NOT_QUOTED_BY_BROWSERS = _NEVER_QUOTED | frozenset("!'()*")


class Secret(NamedTuple):
    """A value that nobody is shown, and the name that is shown instead."""

    name: str
    value: str

    def __repr__(self) -> str:
        """Without the value, which must not get into a traceback or a failed assertion."""
        return f"Secret({self.name!r})"

    def spellings(self) -> frozenset[str]:
        """All texts that give the secret away. None of them is empty or blank at its ends."""
        value = self.value.strip()
        if not value:
            return frozenset()
        written = {value, *_lines(value)}
        written.update(spelling for text in tuple(written) for spelling in _escaped(text))
        written.update(_in_base64(self.value))
        return frozenset(written)


def _lines(value: str) -> Iterator[str]:
    """The lines that count on their own: output is indented, cut and wrapped line by line."""
    lines = [line.strip() for line in _LINE_END.split(value)]
    if len(lines) > 1:
        # The armour of a key is the same for everyone.
        yield from (line for line in lines if len(line) >= SHORTEST_LINE and not line.startswith(_ARMOUR))


def _escaped(text: str) -> Iterator[str]:
    if _NEVER_QUOTED.issuperset(text):
        return
    yield _in_json(text, ascii_only=True)
    yield _in_json(text, ascii_only=False)
    # Some encoders escape the slash too, which JSON allows.
    yield _in_json(text, ascii_only=True).replace("/", "\\/")
    yield from _quoted(text)
    yield from _without_astral(text)
    # Bytes that are no UTF-8 are surrogates in the environment, and this character in decoded output.
    yield _as_bytes(text).decode("utf-8", "replace")


def _in_json(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def _quoted(text: str) -> Iterator[str]:
    strict = _percent(text, _NEVER_QUOTED)
    yield strict
    yield _percent(text, _NEVER_QUOTED, digits="02x")
    yield _percent(text, _NEVER_QUOTED | {"/"})
    yield _percent(text, _NOT_QUOTED_BY_BROWSERS)
    yield strict.replace("%20", "+")


def _percent(text: str, kept: frozenset[str], digits: str = "02X") -> str:
    return "".join(
        character if character in kept else "".join(f"%{byte:{digits}}" for byte in _as_bytes(character))
        for character in text
    )


def _without_astral(text: str) -> Iterator[str]:
    """As two surrogates for each character beyond U+FFFF, which is what half-decoded JSON holds."""
    if max(text) > "\uffff":
        halves = text.encode("utf-16-le", "surrogatepass")
        yield "".join(chr(halves[at] | halves[at + 1] << 8) for at in range(0, len(halves), 2))


def _in_base64(value: str) -> Iterator[str]:
    # A file's last line end is encoded with it, so both forms are looked for.
    for text in {value, value.strip()}:
        if len(text) < SHORTEST_ENCODED:
            continue
        standard = binascii.b2a_base64(_as_bytes(text), newline=False).decode("ascii")
        for encoded in (standard, standard.rstrip("="), *_inside_base64(_as_bytes(text))):
            yield encoded
            yield encoded.replace("+", "-").replace("/", "_")


def _inside_base64(value: bytes) -> Iterator[str]:
    """What the value becomes within something longer, as in `user:password`, wherever it starts there."""
    for before, first in enumerate((0, 2, 3)):
        encoded = binascii.b2a_base64(bytes(before) + value, newline=False).decode("ascii")
        # The characters at both ends depend on what stands beside the value.
        yield encoded[first : (before + len(value)) * 8 // 6]


def _as_bytes(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
