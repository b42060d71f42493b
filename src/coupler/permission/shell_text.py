"""The smallest pieces of a shell text: what a bare, quoted or escaped piece stands for.

Each piece is read strictly, as a second opinion on the parser's: a piece in which a character stands that
would have ended it is refused, so that a text that the parser has cut wrongly is never allowed.
"""

from __future__ import annotations

import re

from coupler.permission.word import Word

_META = frozenset(" \t\n;&|<>()'\"`$")
_GLOBS = frozenset("*?[")
_KEPT_AFTER_BACKSLASH = frozenset('$`"\\\n')
_EXPANSION_IN_QUOTES = re.compile(r"\$[\w({@*#?!$'\"-]")
_ESCAPES = {
    "a": "\a",
    "b": "\b",
    "e": "\x1b",
    "E": "\x1b",
    "f": "\f",
    "n": "\n",
    "r": "\r",
    "t": "\t",
    "v": "\v",
    "\\": "\\",
    '"': '"',
    "?": "?",
}
_CODED = re.compile(r"\\(?:x([0-9a-fA-F]{1,2})|u([0-9a-fA-F]{1,4})|U([0-9a-fA-F]{1,8})|([0-7]{1,3}))")
_LARGEST_CHARACTER = 0x10FFFF


class UnreadableError(ValueError):
    """A piece is not what the parser took it for; the message says what it has."""


def read_bare(text: str, *, is_first: bool) -> Word:
    """A piece without quotes; it may have escaped characters, globs and braces."""
    if is_first and text.startswith("#"):
        raise UnreadableError("has a # that may begin a comment")
    characters: list[str] = []
    is_open = False
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
            if position == len(text):
                raise UnreadableError("ends with a backslash")
            if text[position] != "\n":
                characters.append(text[position])
        elif character in _META:
            raise UnreadableError(f"has a {character!r} in an unexpected place")
        else:
            is_open = is_open or character in _GLOBS or (character in "{}" and text != "{}")
            characters.append(character)
        position += 1
    has_home = is_first and text.startswith("~")
    return Word("".join(characters), is_certain=not is_open and not has_home, is_one=not is_open)


def read_single_quoted(text: str) -> Word:
    """A piece in single quotes."""
    if len(text) < 2 or text[0] != "'" or text[-1] != "'" or "'" in text[1:-1]:
        raise UnreadableError("has quotes that do not match")
    return Word(text[1:-1])


def read_in_double_quotes(text: str) -> str:
    """Some text between double quotes, or between them and an expansion."""
    characters: list[str] = []
    position = 0
    while position < len(text):
        character = text[position]
        if character == "\\":
            position += 1
            if position == len(text):
                raise UnreadableError("ends with a backslash")
            if text[position] not in _KEPT_AFTER_BACKSLASH:
                characters.append("\\")
            if text[position] != "\n":
                characters.append(text[position])
        elif character in '"`' or _EXPANSION_IN_QUOTES.match(text, position):
            raise UnreadableError(f"has a {character!r} in an unexpected place")
        else:
            characters.append(character)
        position += 1
    return "".join(characters)


def read_ansi_quoted(text: str) -> Word:
    """A piece like $'git'. Shells disagree on its escapes, so that with any it is only a guess."""
    if not text.startswith("$'") or not text.endswith("'") or len(text) < 3 or "'" in text[2:-1]:
        raise UnreadableError("has quotes that do not match in every shell")
    inner = text[2:-1]
    if "\\" not in inner:
        return Word(inner)
    decoded = _CODED.sub(_decode, inner)
    return Word(re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[0]), decoded), is_certain=False)


def _decode(match: re.Match[str]) -> str:
    *hexadecimal, octal = match.groups()
    number = int(octal, 8) if octal else int(next(filter(None, hexadecimal)), 16)
    return chr(number) if number <= _LARGEST_CHARACTER else ""
