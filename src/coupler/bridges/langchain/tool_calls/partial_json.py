"""What is known of a JSON object that is still being written, in time that grows with its length.

LangChain tries one beginning of a text after the other until it finds one that can be read, and does so with
every piece of a call's arguments by itself: a piece of 50 kB from the middle of a file that a model writes
stops everything for half a minute. So it is given this in place of its own.
"""

from __future__ import annotations

import json
import re
from typing import Any

from langchain_core.messages import ai
from langchain_core.utils.json import parse_partial_json

SHORT = 200
"""Characters that LangChain itself may read: it takes no time."""

_TOKEN = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?P<end>")?|[][{},]', re.DOTALL)
_HALF_ESCAPE = re.compile(r"\\(?:u[0-9a-fA-F]{0,3})?$")
_CLOSING = {"{": "}", "[": "]"}


def partial_object(text: str) -> dict[str, Any]:
    """The object as far as it was written; empty if there is none yet, or something else."""
    try:
        value = partial_json(text)
    except (ValueError, RecursionError, IndexError):
        return {}
    return value if isinstance(value, dict) else {}


def hasten_langchain() -> None:
    """Have LangChain read arguments that are being written as quickly."""
    if getattr(ai, "parse_partial_json", None) is parse_partial_json:
        vars(ai)["parse_partial_json"] = partial_json


def partial_json(text: str, *, strict: bool = False) -> Any:
    """As much of a JSON object as can be read; None, or ValueError, if that is nothing."""
    if len(text) <= SHORT:
        return parse_partial_json(text, strict=strict)
    try:
        return json.loads(text, strict=strict)
    except json.JSONDecodeError:
        pass
    if text.lstrip()[:1] != "{":
        return None
    closed, last = _closed(text)
    try:
        return json.loads(closed, strict=strict)
    except json.JSONDecodeError:
        # The end is half a name, or half a value: what stands before it may be whole.
        before = text[:last] if text[last] == "," else text[: last + 1]
        return json.loads(_closed(before)[0], strict=strict)


def _closed(text: str) -> tuple[str, int]:
    """The text with all that is open in it closed, and where its last part begins."""
    closing: list[str] = []
    last = 0
    is_in_text = False
    for token in _TOKEN.finditer(text):
        match token[0]:
            case "{" | "[" as bracket:
                closing.append(_CLOSING[bracket])
                last = token.start()
            case "}" | "]" as bracket:
                if not closing or closing.pop() != bracket:
                    raise ValueError("the brackets do not match")
            case ",":
                last = token.start()
            case _:
                is_in_text = token["end"] is None
    open_text = '"' if is_in_text else ""
    whole = _HALF_ESCAPE.sub("", text) if is_in_text and not _ends_escaped(text) else text
    return f"{whole}{open_text}{''.join(reversed(closing))}", last


def _ends_escaped(text: str) -> bool:
    """Whether the text ends with backslashes that are characters themselves."""
    return (len(text) - len(text.rstrip("\\"))) % 2 == 0 and text.endswith("\\")
