"""Formats numbers, sizes and times for people and for programs."""

from __future__ import annotations

from datetime import UTC, datetime


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
