"""Formats numbers, sizes, times, long and foreign texts, and near names for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime

LONGEST_NAME = 60
"""Characters of a key that are shown."""


def to_datetime(at: int) -> datetime | None:
    """Converts a time of the store; None if it is none."""
    try:
        return datetime.fromtimestamp(at / 1000, UTC)
    except (OverflowError, OSError, ValueError):
        return None


def timestamp(at: int) -> str | None:
    """Formats a time for programs, in ISO 8601."""
    when = to_datetime(at)
    return None if when is None else when.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def universal_time(at: int) -> str:
    """Formats a time for people anywhere, in UTC."""
    when = to_datetime(at)
    return "unknown" if when is None else when.strftime("%Y-%m-%d %H:%M UTC")


def count(number: int, noun: str) -> str:
    """Counts in words: 1 session, 2 sessions."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def size(number: int) -> str:
    """Formats a number of bytes."""
    if number < 1000:
        return count(number, "byte")
    for unit, length in (("KB", 1000), ("MB", 1_000_000)):
        if number < 999.95 * length:
            return f"{number / length:.1f} {unit}"
    return f"{number / 1_000_000_000:,.1f} GB"


def shortened(text: str, longest: int) -> str:
    """Cuts a text that is longer, and puts `…` at its end."""
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def did_you_mean(name: str, known: Iterable[str], otherwise: str) -> str:
    """Asks whether the known name that is nearest to this one was meant; what to say if none is near."""
    from difflib import get_close_matches

    near = get_close_matches(name, [*known], n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else otherwise


def printable(text: str, longest: int = 200) -> str:
    """Foreign text as it may stand in a message: in one line, visible, and not too long."""
    cut = shortened(text, longest)
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
