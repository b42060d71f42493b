"""A word of a command, and how sure it is."""

from __future__ import annotations

from typing import NamedTuple


class Word(NamedTuple):
    """What the program will be given, as far as it can be known before the shell runs."""

    text: str
    """The word itself if it is certain, otherwise the best guess."""
    is_certain: bool = True
    is_one: bool = True
    """Whether it stays exactly one word; an unquoted expansion may become none, or many."""
    source: str = ""
    """As it is written in the shell's text, if it is not plain and stands there."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one word that is known exactly."""
        return self.is_certain and self.is_one


ANYTHING = Word("", is_certain=False, is_one=False)
"""Words that only the running command knows."""


def certain(*texts: str) -> tuple[Word, ...]:
    """Words that are known."""
    return tuple(Word(text) for text in texts)
