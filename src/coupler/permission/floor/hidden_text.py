"""Splits text that the parser is in doubt about into commands, and decodes text that a line hides.

It takes any text for commands, one after the other, so that nothing in it is overlooked. What it finds is a
reason to deny, and never one to allow.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterator
from typing import NamedTuple

from coupler.permission.shell import RESERVED

LONGEST = 30_000
"""Most characters that are read; of a longer text the beginning and the end are."""

_ENDS = frozenset(";&|\n(){}")
_ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(?:\[[^\]]*\])?\+?=(.*)", re.ASCII | re.DOTALL)
_DECLARING = frozenset({"export", "declare", "readonly", "local", "typeset"})
_REDIRECTION = re.compile(r"(?:[0-9]*|&)(>>?\|?|<>|>&)(.*)", re.DOTALL)


class RoughCommand(NamedTuple):
    """A possible command, each word as it is written."""

    words: tuple[str, ...]
    assignments: tuple[tuple[str, str], ...] = ()
    written: tuple[str, ...] = ()
    """The files that it is redirected to."""


def cleaned(text: str) -> str:
    """Return the text without disguises: joined lines, look-alikes, invisible and control characters."""
    short = text if len(text) <= LONGEST else f"{text[: LONGEST // 2]}\n{text[-LONGEST // 2 :]}"
    plain = unicodedata.normalize("NFKC", short.replace("\\\r\n", "").replace("\\\n", ""))
    kept = (letter for letter in plain if unicodedata.category(letter) not in {"Cf", "Cs"})
    return "".join("\n" if letter in "\r\u2028\u2029" else letter for letter in kept).translate(_BLANKS)


_BLANKS = dict.fromkeys((*range(9), 11, 12, *range(14, 32), *range(127, 160)), " ")


def rough_commands(text: str) -> list[RoughCommand]:
    """Return everything in a text that may be a command."""
    commands = [_command(words) for words in _split(text)]
    return [each for each in commands if each.words or each.assignments or each.written]


def _split(text: str) -> list[list[str]]:
    """Split a text into commands, each a list of words as they are written."""
    commands: list[list[str]] = [[]]
    word = ""
    at = 0
    while at < len(text):
        character = text[at]
        if character == "#" and not word:
            at = _end_of(text, "\n", at)
            continue
        if character in _ENDS and not (word.endswith((">", "<")) and character == "&"):
            if character == "{" and (word or text[at + 1 : at + 2].strip()):
                end = _closing(text, at)
                word, at = word + text[at : end + 1], end + 1
                continue
            if character == "(" and word.endswith(("!", "@", "+", "*", "?")):
                end = _end_of(text, ")", at)
                word, at = word + text[at : end + 1], end + 1
                continue
            commands[-1] += [word] if word else []
            commands.append([])
            word = ""
        elif character in " \t":
            commands[-1] += [word] if word else []
            word = ""
        else:
            end = _end_of_piece(text, at)
            word += text[at:end]
            at = end
            continue
        at += 1
    commands[-1] += [word] if word else []
    return commands


def _end_of_piece(text: str, at: int) -> int:
    """Return where the quoted, escaped or substituted piece ends that begins at `at`."""
    match text[at]:
        case "\\":
            return at + 2
        case "'" | "`":
            return _end_of(text, text[at], at + 1) + 1
        case '"':
            at += 1
            while at < len(text) and text[at] != '"':
                at += 2 if text[at] == "\\" else 1
            return at + 1
        case "$" if text.startswith(("$(", "${"), at):
            return _closing(text, at + 1) + 1
        case "$" if text.startswith(("$'", '$"'), at):
            return _end_of_piece(text, at + 1)
    return at + 1


def _closing(text: str, start: int) -> int:
    opening, depth, at = text[start], 0, start
    closing = {"(": ")", "{": "}"}[opening]
    while at < len(text):
        if text[at] == "\\":
            at += 1
        elif text[at] in "'\"":
            at = _end_of_piece(text, at) - 1
        elif text[at] == opening:
            depth += 1
        elif text[at] == closing:
            depth -= 1
            if depth == 0:
                return at
        at += 1
    return len(text)


def _end_of(text: str, character: str, start: int) -> int:
    at = text.find(character, start)
    return at if at >= 0 else len(text)


def _command(words: list[str]) -> RoughCommand:
    kept: list[str] = []
    assignments: list[tuple[str, str]] = []
    written: list[str] = []
    waits_for_file = False
    if words[:1] == ["for"] and words[2:3] == ["in"]:
        return RoughCommand((), tuple((words[1], word) for word in words[3:]))
    if words and words[0] in _DECLARING:
        found = (_ASSIGNMENT.fullmatch(word) for word in words[1:])
        assignments = [(match[1], match[2]) for match in found if match is not None]
    for word in words:
        redirection = _REDIRECTION.fullmatch(word)
        if waits_for_file:
            written.append(word)
            waits_for_file = False
        elif redirection is not None:
            written += [redirection[2]] if redirection[2] else []
            waits_for_file = not redirection[2]
        elif not kept and (assignment := _ASSIGNMENT.fullmatch(word)) is not None:
            assignments.append((assignment[1], assignment[2]))
        elif kept or word not in RESERVED:
            before, arrow, behind = _with_redirection(word)
            kept.append(before)
            written += [behind] if behind else []
            waits_for_file = bool(arrow) and not behind
    return RoughCommand(tuple(kept), tuple(assignments), tuple(written))


def _with_redirection(word: str) -> tuple[str, str, str]:
    """Split a word that contains a redirection without blanks, as in `echo x>/dev/sda`."""
    match = re.fullmatch(r"([^'\"$`>]*[^'\"$`>0-9&])(>>?\|?)(.*)", word, re.DOTALL)
    return (match[1], match[2], match[3]) if match is not None else (word, "", "")


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
    """Yield the text, and every text that decoding, unescaping or reversing may make of it."""
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
    """Return the text with its backslash escapes replaced, as by `printf` and `echo -e`."""

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
