"""How much is looked at before a line is given up as too much to be judged, and so is asked about."""

from __future__ import annotations

MOST_WORDS = 6_000
"""Words of commands that are looked at, however they are read."""
MOST_CHARACTERS = 100_000
"""Characters of texts in the line that are read as programs."""


class Effort:
    """Of one judgement, with all texts in it."""

    def __init__(self) -> None:
        self.is_spent = False
        """Whether something was left out."""
        self._words = MOST_WORDS
        self._characters = MOST_CHARACTERS
        self._read: set[tuple[str, str]] = set()

    def for_words(self, number: int) -> bool:
        """Whether so many words can still be looked at."""
        self._words -= number + 1
        self.is_spent = self.is_spent or self._words < 0
        return self._words >= 0

    def for_text(self, language: str, text: str) -> bool:
        """Whether this text is worth reading: it was not read before, and there is room for it."""
        if (language, text) in self._read:
            return False
        self._read.add((language, text))
        self._characters -= len(text) + 100
        self.is_spent = self.is_spent or self._characters < 0
        return self._characters >= 0
