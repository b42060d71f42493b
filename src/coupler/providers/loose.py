"""JSON of somebody who promised nothing: what is missing, or of another kind, is simply not there."""

from __future__ import annotations

import json
from typing import Any

import msgspec

MOST_TOKENS = 2**53


class Loose:
    """A JSON object to be read by name. Several names are tried in turn; nothing here ever raises."""

    def __init__(self, value: object = None) -> None:
        self.members: dict[str, Any] = value if isinstance(value, dict) else {}

    def __bool__(self) -> bool:
        return bool(self.members)

    def __contains__(self, name: str) -> bool:
        return self.members.get(name) is not None

    def text(self, *names: str) -> str:
        """The first text that is not empty, or an empty one."""
        return next(
            (value for name in names if isinstance(value := self.members.get(name), str) and value), ""
        )

    def count(self, *names: str) -> int | None:
        """The first number of something, from 0 on."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS:
                return int(value)
        return None

    def amount(self, *names: str) -> float | None:
        """The first amount of money, from 0 on."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value < MOST_TOKENS:
                return float(value)
        return None

    def object(self, *names: str) -> Loose:
        """The first object that is not empty, or an empty one."""
        return next((found for name in names if (found := Loose(self.members.get(name)))), Loose())

    def objects(self, *names: str) -> list[Loose]:
        """The objects in the first list."""
        for name in names:
            value = self.members.get(name)
            if isinstance(value, list):
                return [Loose(item) for item in value if isinstance(item, dict)]
        return []

    def texts(self, name: str) -> list[str]:
        """The texts in a list."""
        value = self.members.get(name)
        return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []

    def raw(self, *names: str) -> Any:
        """The first value that is there, whatever it is."""
        return next((value for name in names if (value := self.members.get(name)) is not None), None)

    def is_true(self, name: str) -> bool:
        """Whether it says so."""
        return self.members.get(name) is True


def loosely(line: bytes) -> Loose | None:
    """The object in a line, however it is encoded; None if there is none."""
    value = _parsed(line)
    return Loose(value) if isinstance(value, dict) else None


def parsed_text(text: str) -> Any:
    """What a text says as JSON, or the text itself."""
    value = _parsed(text.encode("utf-8", "surrogatepass"))
    return text if value is None else value


def _parsed(line: bytes) -> Any:
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        # Half a character, or bytes that are not UTF-8, cost a replacement sign and not the line.
        return json.loads(line.decode("utf-8", "replace"))
    except (ValueError, RecursionError):
        return None
