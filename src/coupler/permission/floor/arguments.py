"""The words behind a program's name, told apart as most programs do: options anywhere, then operands."""

from __future__ import annotations

import re
from collections.abc import Sequence

from coupler.permission.floor.expansion import Reading


class Arguments:
    """What a program is given, in one reading."""

    def __init__(self, words: Sequence[Reading]) -> None:
        self.words = [*words]
        self.operands: list[Reading] = []
        self.options: list[str] = []
        is_over = False
        for word in words:
            if not is_over and word.text == "--":
                is_over = True
            elif not is_over and re.match(r"-.", word.text):
                self.options.append(word.text)
            else:
                self.operands.append(word)
        self.is_unclear = any(word.is_open for word in words)
        """Whether a word may be any option."""

    def has(self, letters: str, *names: str) -> bool:
        """Whether one of these options is given; long ones may be abbreviated."""
        for option in self.options:
            if option.startswith("--"):
                given = option[2:].partition("=")[0]
                if given and any(name.startswith(given) for name in names):
                    return True
            elif any(letter in option[1:] for letter in letters):
                return True
        return False

    def value(self, *names: str) -> Reading | None:
        """What an option is given: `--name=value`, `--name value`, `-nvalue` or `-n value`."""
        for place, word in enumerate(self.words):
            for name in names:
                if word.text == name and place + 1 < len(self.words):
                    return self.words[place + 1]
                joined = f"{name}=" if name.startswith("--") else name
                if word.text.startswith(joined) and len(word.text) > len(joined):
                    return word._replace(text=word.text[len(joined) :])
        return None
