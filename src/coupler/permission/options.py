"""The options of programs that start others: where they end, and the other command begins."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from coupler.permission.word import Word


class UnknownOptionError(ValueError):
    """An option, or a word in an option's place, of which it is not known what it does."""


class Options(NamedTuple):
    """What a program understands before its operands; any other option puts it in doubt."""

    flags: frozenset[str] = frozenset()
    valued: frozenset[str] = frozenset()

    def skip(self, words: Sequence[Word]) -> int:
        """The place of the first operand among these words, which follow the program's name."""
        position = 0
        while position < len(words):
            word = words[position]
            if not word.is_plain:
                raise UnknownOptionError("has an option that is only known when it runs")
            if word.text == "--":
                return position + 1
            if not word.text.startswith("-") or word.text == "-":
                return position
            length = self._length(word.text)
            if not all(value.is_plain for value in words[position : position + length]):
                raise UnknownOptionError("has an option that is only known when it runs")
            position += length
        return min(position, len(words))

    def _length(self, text: str) -> int:
        """How many words this option takes, with its value."""
        name, has_value, _ = text.partition("=")
        if text in self.flags or (has_value and name in self.valued and name.startswith("--")):
            return 1
        if text in self.valued:
            return 2
        if not text.startswith("--"):
            if text[:2] in self.valued:
                return 1
            if all(f"-{letter}" in self.flags for letter in text[1:]):
                return 1
        raise UnknownOptionError(f"has the option {text}, which cannot be judged")


def options(flags: str = "", valued: str = "") -> Options:
    """Options from two lists with blanks between."""
    return Options(frozenset(flags.split()), frozenset(valued.split()))
