"""Formats numbers, sizes, times, long texts and near names for people and for programs."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from difflib import get_close_matches


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
    near = get_close_matches(name, [*known], n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else otherwise
