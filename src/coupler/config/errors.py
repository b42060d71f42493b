"""What can be wrong with a configuration, in words that a person can act on.

What a project's file says is a stranger's text: it is cut and cleaned before it stands in a sentence, and
values are never repeated, because the wrong one may be a password.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Literal

ConfigErrorKind = Literal["unreadable", "syntax", "invalid"]

MOST_PROBLEMS = 10
"""Problems of one file that are told at once."""

LONGEST_NAME = 60
"""Characters of a key that are shown."""

_BARE = re.compile(r"[A-Za-z0-9_-]+")


class ConfigError(Exception):
    """The configuration cannot be used; the message says where and what to do about it."""

    def __init__(self, kind: ConfigErrorKind, problems: Sequence[str]) -> None:
        shown = [*problems[:MOST_PROBLEMS]]
        if len(problems) > MOST_PROBLEMS:
            shown.append(f"and {len(problems) - MOST_PROBLEMS:,} more problems")
        super().__init__("\n".join(shown))
        self.kind: ConfigErrorKind = kind
        self.problems = (*problems,)

    def __reduce__(self) -> tuple[type[ConfigError], tuple[Any, ...]]:
        return ConfigError, (self.kind, self.problems)


def shown(text: str, longest: int = 200) -> str:
    """Foreign text as it may stand in a sentence: in one line, visible, and not too long."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut)


def shown_key(path: Sequence[str | int]) -> str:
    """A key as it is written in TOML; numbers, which count the tables of a list, are left out."""
    names = [part for part in path if isinstance(part, str)]
    return shown(".".join(name if _BARE.fullmatch(name) else f'"{name}"' for name in names), LONGEST_NAME)


def suggestion(wrong: str, candidates: Sequence[str], valid: Sequence[str]) -> str:
    """The end of a sentence about an unknown word: the nearest candidate, else all that is valid there."""
    from difflib import get_close_matches

    # A candidate in another section is also known by its last part; one that is valid here comes first.
    spellings = {candidate.rpartition(".")[2]: candidate for candidate in reversed(candidates)}
    spellings |= {candidate: candidate for candidate in candidates}
    spelling = wrong[:LONGEST_NAME].casefold().replace("-", "_")
    near = get_close_matches(spelling, spellings, n=1, cutoff=0.7)
    if near:
        return f"did you mean `{spellings[near[0]]}`?"
    return f"use one of {', '.join(f'`{name}`' for name in valid)}"
