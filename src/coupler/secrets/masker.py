"""The masker: puts a mark with its name in the place of every secret.

A masker never changes. Whoever learns of another secret takes `with_secrets` and puts the new masker in the
place of the old one, which is one assignment and therefore safe at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coupler.secrets.finder import Finder
from coupler.secrets.secret import Secret

_UNFIT_IN_MARK = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 80


class Masker:
    """Hides secrets. What is no secret is returned as the very same object, at hardly any cost."""

    __slots__ = ("_marks", "_names", "_secrets", "finder")

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        """Of two secrets with the same value, the first gives the name."""
        self._know(dict.fromkeys(secrets), {}, {})

    def __repr__(self) -> str:
        return f"Masker({list(dict.fromkeys(self._names.values()))})"

    def with_secrets(self, more: Iterable[Secret]) -> Masker:
        """A masker that knows these too; this one if it knows them already."""
        new = {secret: None for secret in more if secret not in self._secrets}
        if not new:
            return self
        masker = Masker.__new__(Masker)
        masker._know(new, self._secrets, self._names)
        return masker

    def mark(self, name: str) -> str:
        """What is shown in the place of the secret with this name."""
        mark = self._marks.get(name)
        if mark is None:
            mark = self._marks[name] = self._choose_mark(name)
        return mark

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
            shown += (text[position : region.start], self.mark(region.name))
            position = region.end
        return "".join((*shown, text[position:]))

    def mask_bytes(self, line: bytes) -> bytes:
        """The same for a line as a program wrote it, whatever its encoding.

        Not for encoded JSON, which a mark in a number or after a backslash would break: mask its values.
        """
        text = line.decode("utf-8", "surrogateescape")
        masked = self.mask(text)
        return line if masked is text else masked.encode("utf-8", "surrogateescape")

    def _know(self, new: Iterable[Secret], before: Mapping[Secret, None], names: Mapping[str, str]) -> None:
        self._names = dict(names)
        self._secrets = {**before, **dict.fromkeys(new)}
        for secret in new:
            for spelling in secret.spellings():
                self._names.setdefault(spelling, secret.name)
        self.finder = Finder(self._names)
        self._marks: dict[str, str] = {}

    def _choose_mark(self, name: str) -> str:
        """A mark that gives nothing away and is left alone when a text is masked twice."""
        fit = _UNFIT_IN_MARK.sub("_", name)[:_LONGEST_NAME]
        for mark in (f"[secret:{fit}]", "[secret]", "[hidden]", "***", "•••"):
            if not self.finder.find(mark).regions:
                return mark
        return ""
