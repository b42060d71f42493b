"""Puts foreign words into messages: cut and cleaned, joined, and with the nearest one that is valid."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

LONGEST_NAME = 60
"""Characters of a key that are shown."""


def printable(text: str, longest: int = 200) -> str:
    """Foreign text as it may stand in a message: in one line, visible, and not too long."""
    cut = text if len(text) <= longest else f"{text[: longest - 1]}…"
    return "".join(char if char.isprintable() else f"\\u{ord(char):04x}" for char in cut)


def listed(names: Iterable[str]) -> str:
    """Join keys as they stand in a sentence."""
    return ", ".join(f"`{name}`" for name in names)


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
    return f"use one of {listed(valid)}"
