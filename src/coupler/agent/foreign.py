"""Sessions that were held elsewhere, in what a framework keeps, and are taken in to go on here."""

from __future__ import annotations

from typing import Any, NamedTuple

from coupler.events.records import Recorded, UserMessage


class ForeignSession(NamedTuple):
    """A conversation as it would be here, had it been held here."""

    id: str
    cwd: str
    title: str | None
    updated_at: int
    """Milliseconds since 1970."""
    state: Any
    """What the agent goes on from."""
    turns: tuple[tuple[UserMessage | Recorded, ...], ...]
    """What happened, turn by turn, each beginning with what the user said."""
