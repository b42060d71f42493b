"""What a key is, and all keys together. The keys themselves are in `keys.py`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec

from coupler.config.kind import Kind
from coupler.config.origin import Origin

T = TypeVar("T")

Setter = Literal["user", "trusted project", "project"]
"""Who may set a key: only the user's own file; a project's too, once the user trusted it; any project's."""


class Key(msgspec.Struct, Generic[T], frozen=True):
    """One key, declared once: all that is known about it follows from here."""

    name: str
    """With its section: "permissions.deny"."""
    kind: Kind[Any]
    default: T
    setter: Setter
    sentence: str
    """What it does, for the manual."""
    default_words: str | None = None
    """The default for the manual, where the value itself says too little."""
    variable: str | None = None
    """An environment variable that sets it too."""


class Setting(NamedTuple):
    """A key with a value that somebody gave it."""

    key: Key[Any]
    value: Any
    origin: Origin


class Schema:
    """All keys, in the order of the manual."""

    def __init__(self, keys: Sequence[Key[Any]]) -> None:
        self.keys = (*keys,)
        self._keys = {key.name: key for key in keys}
        self._sections = {key.name[:end] for key in keys for end in _dots(key.name)}

    def find(self, name: str) -> Key[Any] | None:
        """The key with this full name."""
        return self._keys.get(name)

    def is_section(self, name: str) -> bool:
        """Whether there are keys below this name."""
        return name in self._sections

    def words_below(self, section: str) -> list[str]:
        """What may be written directly in a section; "" is the whole file."""
        start = f"{section}." if section else ""
        names = [key.name[len(start) :] for key in self.keys if key.name.startswith(start)]
        return [*dict.fromkeys(name.partition(".")[0] for name in names)]


def _dots(name: str) -> list[int]:
    return [place for place, char in enumerate(name) if char == "."]
