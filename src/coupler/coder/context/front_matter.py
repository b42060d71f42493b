"""The front matter of SKILL.md files: a few lines of YAML, of which texts are all that is wanted.

Read without a parser of YAML: many that are in use are not quite YAML, such as a description with a colon in
it, and everybody knows what they mean.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

_FENCE = re.compile(r"\A\s*---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)
_ENTRY = re.compile(r"([A-Za-z_][\w-]*)[ \t]*:(?:[ \t]+(.*))?")
_BLOCK = re.compile(r"([>|])[+-]?\d?[+-]?(?:[ \t]+#.*)?")
_QUOTED = re.compile(r"""("(?:[^"\\]|\\.)*"|'(?:[^']|'')*')(?:[ \t]+#.*)?""")
_ESCAPED = re.compile(r"\\(.)")


class Document(NamedTuple):
    """A text with front matter."""

    fields: dict[str, str]
    """Texts by their keys in small letters; lists and tables are left out."""
    body: str


def read_document(text: str) -> Document | None:
    """The parts of a text; None if it has no front matter."""
    found = _FENCE.match(text.removeprefix("\ufeff"))
    if found is None:
        return None
    fields = {key.lower(): value for key, value in _entries(found[1].splitlines()) if value}
    return Document(fields, text.removeprefix("\ufeff")[found.end() :].strip())


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(lines):
        found = _ENTRY.fullmatch(lines[at])
        at += 1
        if found is None:
            continue
        below: list[str] = []
        while at < len(lines) and (not lines[at].strip() or lines[at][:1] in " \t"):
            below.append(lines[at].strip())
            at += 1
        yield found[1], _value((found[2] or "").strip(), below)


def _value(first: str, below: list[str]) -> str:
    """The text of an entry that goes on in these lines."""
    block = _BLOCK.fullmatch(first)
    if block is not None:
        lines = "\n".join(below).strip()
        return lines if block[1] == "|" else re.sub(r"(?<!\n)\n(?!\n)", " ", lines)
    if not first:
        is_text = below and not any(line.startswith("- ") or _ENTRY.fullmatch(line) for line in below)
        return " ".join(below).strip() if is_text else ""
    return _unquoted(" ".join([first, *below]).strip())


def _unquoted(text: str) -> str:
    found = _QUOTED.fullmatch(text)
    if found is None:
        return text.partition(" #")[0].rstrip()
    inner = found[1][1:-1]
    return _ESCAPED.sub(_escape, inner) if found[1][0] == '"' else inner.replace("''", "'")


def _escape(found: re.Match[str]) -> str:
    return {"n": "\n", "t": "\t"}.get(found[1], found[1])
