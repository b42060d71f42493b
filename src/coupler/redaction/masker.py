"""Masks secrets in whole texts and in texts that arrive in pieces.

A masker never changes. Whoever learns of another secret takes `with_secrets` and puts the new masker in the
place of the old one, which is one assignment and therefore safe at any time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from coupler.redaction.sources import LONGEST_BEGINNING, Secret, SecretFinder, SecretMatches

_UNFIT_IN_MARK = re.compile(r"[^A-Za-z0-9_.-]+")
_LONGEST_NAME = 80

UNDETECTED = LONGEST_BEGINNING - 1
"""Characters at the end of what was shown in which a secret may have started undetected."""

REMEMBERED = 256
"""Characters of what was shown that are remembered, for secrets that become known late."""

_NO_MARK = -1


class Masker:
    """Replaces secrets by marks.

    A text without secrets is returned as the very same object, at hardly any cost.
    """

    __slots__ = ("_marks", "_names", "_secrets", "finder")

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        """Prepare to mask these; of two secrets with the same value, the first gives the name."""
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
        """The mark that is shown in the place of the secret with this name."""
        mark = self._marks.get(name)
        if mark is None:
            mark = self._marks[name] = self._choose_mark(name)
        return mark

    def mask(self, text: str) -> str:
        """Replace each region that secrets cover by a mark; secrets that overlap share the first's."""
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
        """Mask a line as a program wrote it, whatever its encoding.

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
        self.finder = SecretFinder(self._names)
        self._marks: dict[str, str] = {}

    def _choose_mark(self, name: str) -> str:
        """Choose a mark that reveals nothing and is left alone when a text is masked twice."""
        fit = _UNFIT_IN_MARK.sub("_", name)[:_LONGEST_NAME]
        for mark in (f"[secret:{fit}]", "[secret]", "[hidden]", "***", "•••"):
            if not self.finder.find(mark).regions:
                return mark
        return ""


class StreamMasker:
    """Masks a text that arrives in pieces, without knowing how it goes on.

    `masker` may be replaced between two pieces; it counts from the next one on. What cannot be part of a
    secret is shown at once. A text that ends with the first characters of a secret (four, or half of a short
    one) is held back from there until it is clear whether it is the secret; fewer are shown, because nearly
    every text ends with the first character of some secret. So of a secret that comes in several pieces at
    most its first three characters are ever shown, before its mark. There are no timers: whoever ends the
    text calls `end`.

    A text that ends inside of a secret shows what was held back if that is no more than half of it. What
    comes after the end is another text, but a secret that goes on in it is hidden from there on: a thought or
    a dialog that stands between two pieces does not give it away. The same holds for a secret that becomes
    known when its beginning has been shown.

    In everything else the pieces that are shown, joined, are what `Masker.mask` makes of the whole text.
    """

    __slots__ = ("_covered", "_known", "_open", "_passed", "_suspect", "_text", "masker")

    def __init__(self, masker: Masker) -> None:
        self.masker = masker
        # The masker that the last piece has passed.
        self._known = masker
        # What was passed last (shown, or hidden behind a mark), and after it what is held back.
        self._text = ""
        self._passed = 0
        # Where in the text the secret starts for which something is held back.
        self._open = 0
        # Where in the text a secret may have begun that goes on with the next piece, at the earliest.
        self._suspect = 0
        # How much of what is held back belongs to the mark shown last; _NO_MARK if other text was shown last.
        self._covered = _NO_MARK

    def feed(self, piece: str) -> str:
        """Take a piece; returns what may be shown after it, often the piece itself, sometimes nothing yet."""
        if not piece:
            return ""
        masker = self.masker
        if masker is not self._known:
            self._known, self._suspect = masker, 0
        text = self._text + piece
        if self._passed == len(self._text):
            if masker.finder.search(text, self._suspect) is None:
                self._text = text = text[-REMEMBERED:]
                self._passed = size = len(text)
                self._suspect = size - UNDETECTED if size > UNDETECTED else 0
                self._covered = _NO_MARK
                return piece
        elif masker.finder.goes_on(text[self._open :]):
            self._text = text
            return ""
        return self._show(text, masker.finder.find(text))

    def end(self) -> str:
        """End the text; returns what was held back. The next piece begins another text."""
        shown, text = "", self._text
        if self._passed < len(text):
            found = self.masker.finder.find(text, is_over=True)
            shown = self._show(text, found._replace(unfinished=len(text)))
            # It may go on in the next text.
            self._keep(text, len(text), found.unfinished)
        self._covered = _NO_MARK
        return shown

    def _show(self, text: str, found: SecretMatches) -> str:
        """Pass everything before the unfinished secret, and keep what comes from there on."""
        stop = max(found.unfinished, self._passed)
        follows_mark = self._covered != _NO_MARK
        marked = self._passed + self._covered if follows_mark else 0
        position = max(self._passed, marked)
        shown: list[str] = []
        for region in found.regions:
            if region.start >= stop:
                break
            if region.end <= position:
                continue
            if region.start > position:
                shown.append(text[position : region.start])
            # A region that overlaps the mark shown last is one with it.
            if not follows_mark or region.start >= marked:
                shown.append(self.masker.mark(region.name))
            follows_mark, position, marked = True, region.end, region.end
        if position < stop:
            shown.append(text[position:stop])
            follows_mark, position = False, stop
        self._keep(text, stop, found.unfinished)
        self._covered = position - stop if follows_mark else _NO_MARK
        return "".join(shown)

    def _keep(self, text: str, stop: int, unfinished: int) -> None:
        forgotten = max(min(stop - REMEMBERED, unfinished), 0)
        self._text = text[forgotten:]
        self._passed = stop - forgotten
        self._open = unfinished - forgotten
        self._suspect = max(min(self._passed - UNDETECTED, self._open), 0)
