"""The masker: puts a mark with its name in the place of every secret.

A masker never changes. Whoever learns of another secret takes `with_secrets` and puts the new masker in the
place of the old one, which is one assignment and therefore safe at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from coupler.secrets.finder import Finder
from coupler.secrets.secret import Secret

DEEPEST = 200
"""Levels of lists and dicts that are walked."""

TOO_DEEP = "[left out: nested too deeply to look for secrets]"

_UNFIT_IN_MARK = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 80


class Masker:
    """Hides secrets. What is no secret is returned as the very same object, at hardly any cost."""

    __slots__ = ("_marks", "_secrets", "finder")

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        """Of two secrets with the same value, the first gives the name."""
        self._secrets = tuple(dict.fromkeys(secrets))
        names: dict[str, str] = {}
        for secret in self._secrets:
            for spelling in secret.spellings():
                names.setdefault(spelling, secret.name)
        self.finder = Finder(names)
        self._marks = {name: self._choose_mark(name) for name in dict.fromkeys(names.values())}

    def __repr__(self) -> str:
        return f"Masker({list(self._marks)})"

    def with_secrets(self, more: Iterable[Secret]) -> Masker:
        """A masker that knows these too; this one if it knows them already."""
        secrets = dict.fromkeys((*self._secrets, *more))
        return self if len(secrets) == len(self._secrets) else Masker(secrets)

    def mark(self, name: str) -> str:
        """What is shown in the place of the secret with this name."""
        return self._marks[name]

    def mask(self, text: str) -> str:
        """The text with a mark for each region that secrets cover; secrets that overlap share the first's."""
        finder = self.finder
        if len(text) < finder.shortest or finder.search(text) is None:
            return text
        regions = finder.find(text).regions
        if not regions:
            return text
        shown: list[str] = []
        position = 0
        for region in regions:
            shown += (text[position : region.start], self._marks[region.name])
            position = region.end
        return "".join((*shown, text[position:]))

    def mask_bytes(self, line: bytes) -> bytes:
        """The same for a line as a program wrote it, whatever its encoding.

        Not for encoded JSON, which a mark in a number or after a backslash would break: mask its values.
        """
        text = line.decode("utf-8", "surrogateescape")
        masked = self.mask(text)
        return line if masked is text else masked.encode("utf-8", "surrogateescape")

    def mask_value(self, value: Any) -> Any:
        """The same for every text in a JSON-like value. Keys and numbers stay as they are.

        Anything else is refused, because texts inside it would get past unseen: make it builtins first.
        """
        return self._mask_level(value, DEEPEST)

    def _mask_level(self, value: Any, levels: int) -> Any:
        match value:
            case str():
                return self.mask(value)
            case None | bool() | int() | float():
                return value
            case dict() | list() | tuple() if levels == 0:
                return TOO_DEEP
            case dict():
                masked = {key: self._mask_level(item, levels - 1) for key, item in value.items()}
                return masked if any(masked[key] is not value[key] for key in masked) else value
            case list() | tuple():
                items = [self._mask_level(item, levels - 1) for item in value]
                changed = any(new is not old for new, old in zip(items, value, strict=True))
                return (items if isinstance(value, list) else tuple(items)) if changed else value
            case bytes():
                return self.mask_bytes(value)
        raise TypeError(
            f"a {type(value).__name__} cannot be masked: turn it into dicts, lists and texts first"
        )

    def _choose_mark(self, name: str) -> str:
        """A mark that gives nothing away and is left alone when a text is masked twice."""
        fit = _UNFIT_IN_MARK.sub("_", name)[:_LONGEST_NAME]
        for mark in (f"[secret:{fit}]", "[secret]", "[hidden]", "***", "•••"):
            if not self.finder.find(mark).regions:
                return mark
        return ""
