"""Any Python object as a bounded value that JSON can hold.

Tools report what they were given and what they returned. That may be bytes, NaN, a cycle, somebody's
class or a gigabyte; the editor gets something it can show, and the agent's turn never an exception.
"""

from __future__ import annotations

import base64
import math
import os
from collections.abc import Iterable, Mapping, Sequence, Set
from typing import Any

import msgspec

from coupler.redaction.known_secrets import beginning_of

MAX_DEPTH = 20
MAX_ITEMS = 1_000
"""Entries of one list or mapping."""
MAX_TEXT = 64 * 1024
"""Characters of one string."""
MAX_VALUES = 10_000
"""Values in all."""
MAX_SIZE = 1024 * 1024
"""Characters in all."""


def json_value(value: object) -> Any:
    """The value, or the nearest thing that is JSON and not too large."""
    return _Conversion().convert(value, 0)


class _Conversion:
    """One walk over one value, with what is left of its allowance."""

    def __init__(self) -> None:
        self._values_left = MAX_VALUES
        self._size_left = MAX_SIZE
        self._above: set[int] = set()

    def convert(self, value: object, depth: int) -> Any:
        self._values_left -= 1
        if self._values_left < 0 or self._size_left <= 0:
            return "…"
        try:
            return self._plain(value, depth)
        except Exception as error:
            return self._text(f"<{type(value).__name__} that cannot be shown: {type(error).__name__}>")

    def _plain(self, value: object, depth: int) -> Any:
        match value:
            case None | bool():
                return value
            case int():
                # Beyond 64 bits most JSON readers lose digits; a string keeps them.
                return int(value) if -(2**63) <= value < 2**63 else self._text(_int_text(value))
            case float():
                return float(value) if math.isfinite(value) else str(value)
            case str():
                return self._text(str(value))
            case bytes() | bytearray() | memoryview():
                return self._bytes(value)
        return self._container(value, depth)

    def _container(self, value: object, depth: int) -> Any:
        if id(value) in self._above:
            return "<cycle>"
        if depth >= MAX_DEPTH:
            return "<too deep>"
        self._above.add(id(value))
        try:
            return self._open(value, depth + 1)
        finally:
            self._above.discard(id(value))

    def _open(self, value: object, depth: int) -> Any:
        if isinstance(value, Mapping):
            return self._mapping(value.items(), len(value), depth)
        if isinstance(value, Sequence | Set):
            return self._sequence(value, len(value), depth)
        if isinstance(value, msgspec.Struct):
            return self.convert(msgspec.structs.asdict(value), depth)
        if (fields := _dataclass_fields(value)) is not None:
            return self._mapping(((name, getattr(value, name)) for name in fields), len(fields), depth)
        if isinstance(value, os.PathLike):
            return self._text(str(value))
        if callable(dump := getattr(value, "model_dump", None)) and not isinstance(value, type):
            return self.convert(dump(), depth)
        return self._text(repr(value))

    def _mapping(self, items: Iterable[tuple[Any, Any]], size: int, depth: int) -> dict[str, Any]:
        shown: dict[str, Any] = {}
        for key, item in items:
            if len(shown) >= MAX_ITEMS or self._values_left <= 0:
                shown["…"] = f"{size - len(shown)} more"
                break
            shown[self._text(key if isinstance(key, str) else str(key))] = self.convert(item, depth)
        return shown

    def _sequence(self, items: Iterable[Any], size: int, depth: int) -> list[Any]:
        shown: list[Any] = []
        for item in items:
            if len(shown) >= MAX_ITEMS or self._values_left <= 0:
                shown.append(f"… {size - len(shown)} more")
                break
            shown.append(self.convert(item, depth))
        return shown

    def _text(self, text: str) -> str:
        allowed = min(MAX_TEXT, max(self._size_left, 0))
        if len(text) > allowed:
            text = f"{beginning_of(text, allowed)}… ({len(text)} characters)"
        self._size_left -= len(text)
        return text

    def _bytes(self, value: bytes | bytearray | memoryview) -> str:
        size = memoryview(value).nbytes
        if size > MAX_TEXT:
            return f"<{size} bytes>"
        return self._text("base64:" + base64.b64encode(value).decode())


def _int_text(value: int) -> str:
    # Python refuses to print integers of many thousand digits.
    return str(value) if value.bit_length() < 10_000 else f"<integer of {value.bit_length()} bits>"


def _dataclass_fields(value: object) -> list[str] | None:
    # Imported here: an agent's first answer should not wait for it.
    import dataclasses

    if not dataclasses.is_dataclass(value) or isinstance(value, type):
        return None
    return [field.name for field in dataclasses.fields(value)]
