"""JSON in an answer's text: the whole of it, in fenced blocks, or bare between words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

MOST_TRIES = 200
"""Places of a text that are tried as the beginning of JSON."""

_FENCED = re.compile(r"```[^\n`]*\n(.*?)```", re.DOTALL)
_OPENING = re.compile(r"[{\[]")


def json_values(text: str) -> Iterator[Any]:
    """What the text may mean as its answer, the likeliest first: later ones before earlier ones."""
    whole = _decoded(text.strip())
    if whole is not _NOTHING:
        yield whole
        return
    for block in reversed(_FENCED.findall(text)):
        value = _decoded(block.strip())
        if value is not _NOTHING:
            yield value
    yield from reversed(_bare(text))


def _bare(text: str) -> list[Any]:
    """Objects and arrays in running text; those that are parts of others are not looked for."""
    found: list[Any] = []
    at = 0
    for _ in range(MOST_TRIES):
        opening = _OPENING.search(text, at)
        if opening is None:
            break
        try:
            value, at = _DECODER.raw_decode(text, opening.start())
        except (ValueError, RecursionError):
            at = opening.end()
        else:
            found.append(value)
    return found


def _decoded(text: str) -> Any:
    try:
        return _DECODER.decode(text)
    except (ValueError, RecursionError):
        return _NOTHING


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


_NOTHING = object()
_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)
