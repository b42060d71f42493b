"""Here-documents: where one really ends, and what the shell replaces in it.

The grammar ends `<<-` at an indented delimiter where a shell goes on, and sees no backquotes in a body. So
its view counts only for documents whose end is beyond doubt.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node

_DELIMITER = re.compile(rb"(['\"]?)([A-Za-z_][A-Za-z0-9_]*)\1")
_HARMLESS_DOLLAR = re.compile(rb"\$(?![({\['\"])")

_ESCAPES_IN_BODY = "has a here-document with backquotes or backslashes"
_EXPANSIONS_IN_BODY = "has a here-document with an expansion that cannot be read"
DOUBTS_ABOUT_BODY = frozenset({_ESCAPES_IN_BODY, _EXPANSIONS_IN_BODY})
"""Doubts about what is in one; any other is about where it ends."""


def doubt_about(source: bytes, redirect: Node) -> str | None:
    """Why this here-document cannot be judged, if it cannot."""
    pieces = {child.type: child for child in redirect.children}
    start, body, end = (pieces.get(f"heredoc_{name}") for name in ("start", "body", "end"))
    if start is None or body is None or end is None:
        return "has a here-document without an end"
    delimiter = _DELIMITER.fullmatch(source[start.start_byte : start.end_byte])
    if delimiter is None:
        return "has a here-document with an unusual delimiter"
    first = source.find(b"\n", start.end_byte) + 1
    if first == 0 or not _ends_at(source, first, delimiter[2], end.start_byte, "<<-" in pieces):
        return "has a here-document whose end is not certain"
    if delimiter[1]:
        return None
    return _doubt_about_body(source[first : end.start_byte], first, body)


def _ends_at(source: bytes, first: int, delimiter: bytes, end: int, is_indented: bool) -> bool:
    """Whether only one line looks like the delimiter, is it exactly, and is where the parser saw the end."""
    found: list[tuple[int, bytes]] = []
    position = first
    for text in source[first:].split(b"\n"):
        if text.strip() == delimiter:
            found.append((position, text))
        position += len(text) + 1
    if len(found) != 1:
        return False
    [(position, text)] = found
    bare = text.lstrip(b"\t") if is_indented else text
    return bare == delimiter and position <= end < position + len(text)


def _doubt_about_body(text: bytes, offset: int, body: Node) -> str | None:
    if b"`" in text or b"\\" in text:
        return _ESCAPES_IN_BODY
    spans = [
        (node.start_byte - offset, node.end_byte - offset)
        for node in body.children
        if node.type == "command_substitution"
    ]
    for match in re.finditer(rb"\$", text):
        position = match.start()
        is_seen = any(start <= position < end for start, end in spans)
        if not is_seen and not _HARMLESS_DOLLAR.match(text, position):
            return _EXPANSIONS_IN_BODY
    return None
