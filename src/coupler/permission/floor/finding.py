"""What the floor has against a command."""

from __future__ import annotations

from typing import NamedTuple


class Finding(NamedTuple):
    """A reason to deny a command, or to ask about it whatever is allowed."""

    reason: str
    """What it would do, to be put behind "the command"."""
    is_fatal: bool = True
    """Whether it is denied; else it may be meant well, and is asked about."""


def worst(findings: list[Finding]) -> Finding | None:
    """The one that counts: a denial before a question, else the first."""
    return next((each for each in findings if each.is_fatal), findings[0] if findings else None)
