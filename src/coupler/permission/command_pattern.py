"""Patterns of commands, such as `git commit *`: compared word by word, never as text."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from msgspec import Struct

from coupler.permission.inline_code import inline_code_at
from coupler.permission.match import Match, glob, has_wildcard
from coupler.permission.word import Word
from coupler.permission.wrapper import program_name
from coupler.runtime.paths import folded

_META = re.compile(r"[;&|<>`$()\n\\]")
_BETWEEN_TOKENS = re.compile(r"""[\s;&|<>`$(){}\[\]'"=:,!+]+""")


class CommandPattern(Struct, frozen=True):
    """Words that a command must begin with; with a last `*` any further words may follow, also none."""

    words: tuple[str, ...]
    is_open: bool

    @classmethod
    def parse(cls, text: str) -> CommandPattern:
        """Raises ValueError with what is wrong, and how to write it."""
        if _META.search(text):
            raise ValueError("it has a character of the shell's: write a rule for each single command")
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise ValueError(f"its quotes do not match ({error})") from None
        if not words:
            raise ValueError("it has no command: write for example `git commit *`")
        is_open = words[-1] == "*"
        words = words[:-1] if is_open else words
        if words and not words[0]:
            raise ValueError("its program is empty: write for example `git commit *`")
        if words and has_wildcard(words[0]):
            raise ValueError("its program has a wildcard: name the program, as in `git commit *`")
        return cls(tuple(words), is_open)

    def covers(self, words: Sequence[Word]) -> bool:
        """Whether a command is for certain one of these; code in its words must be called for by name."""
        code_at = inline_code_at(words)
        if code_at is not None and code_at >= len(self.words):
            return False
        if code_at is not None and any(has_wildcard(word) for word in self.words[: code_at + 1]):
            return False
        if len(words) < len(self.words) or (len(words) > len(self.words) and not self.is_open):
            return False
        return all(
            _fits(pattern, word) and word.is_one for pattern, word in zip(self.words, words, strict=False)
        )

    def touches(self, words: Sequence[Word]) -> Match:
        """Whether a command is one of these, however it is written, or may be or start one."""
        if not self.words:
            return Match.YES
        names = [program_name(folded(word.text)) for word in words]
        wanted = program_name(folded(self.words[0]))
        if names[0] == wanted and self._follow(words[1:]):
            return Match.YES
        is_possible = any(
            (name == wanted or (place == 0 and not word.is_certain))
            and self._may_follow(self.words[1:], words[place + 1 :])
            for place, (name, word) in enumerate(zip(names, words, strict=True))
        )
        return Match.MAYBE if is_possible or self._is_spelled_in(words[1:]) else Match.NO

    def _is_spelled_in(self, words: Sequence[Word]) -> bool:
        """Whether a word is a text in which the command stands: some program may take it for a shell's."""
        for word in words:
            tokens = [Word(token) for token in _BETWEEN_TOKENS.split(word.text) if token]
            if len(tokens) > 1 and any(
                program_name(folded(token.text)) == program_name(folded(self.words[0]))
                and self._may_follow(self.words[1:], tokens[place + 1 :])
                for place, token in enumerate(tokens)
            ):
                return True
        return False

    def _follow(self, words: Sequence[Word]) -> bool:
        wanted = self.words[1:]
        if len(words) < len(wanted) or (len(words) > len(wanted) and not self.is_open):
            return False
        return all(_fits(pattern, word) and word.is_one for pattern, word in zip(wanted, words, strict=False))

    def _may_follow(self, wanted: Sequence[str], words: Sequence[Word]) -> bool:
        """Whether the words may turn out as wanted, with options of the program in between.

        `states` are the places in the pattern that can be reached after each word.
        """
        states = {0}
        is_after_option = False
        for word in words:
            following = {
                place + 1 for place in states if place < len(wanted) and _may_fit(wanted[place], word)
            }
            is_option = word.text.startswith("-")
            if is_option or is_after_option or not word.is_one:
                following |= states
            # An option may stand anywhere.
            following |= {place for place in states if place < len(wanted) and wanted[place].startswith("-")}
            if not word.is_one:
                following |= set(range(min(states, default=len(wanted) + 1), len(wanted) + 1))
            if self.is_open and len(wanted) in states:
                return True
            states = following
            is_after_option = is_option
        return len(wanted) in states


def _fits(pattern: str, word: Word) -> bool:
    if pattern == "*":
        return True
    return word.is_certain and (glob(pattern).match(word.text) is not None)


def _may_fit(pattern: str, word: Word) -> bool:
    return not word.is_certain or glob(folded(pattern)).match(folded(word.text)) is not None
