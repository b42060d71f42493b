"""What a provider remembers of a session: kept with every turn, and there again after a restart."""

from __future__ import annotations

from typing import Any

from coupler.providers.loose import Loose
from coupler.providers.said import Tokens


class Memory:
    """The program's own session, what it has cost, and what it has counted."""

    def __init__(self) -> None:
        self.session: str | None = None
        self.is_briefed = False
        """Whether the system prompt is part of the conversation."""
        self.cost = 0.0
        self.tokens: Tokens | None = None
        """Those of the whole session, for programs that count so."""

    @classmethod
    def of(cls, state: object) -> Memory:
        """The memory that was kept; what cannot be read is forgotten."""
        kept, memory = Loose(state), cls()
        memory.session = kept.text("session") or None
        memory.is_briefed = kept.is_true("briefed")
        memory.cost = kept.amount("cost") or 0.0
        if counted := kept.object("tokens"):
            memory.tokens = Tokens(
                counted.count("input") or 0,
                counted.count("output") or 0,
                counted.count("cached_read"),
                counted.count("cached_write"),
                counted.count("thought"),
                counted.count("total"),
            )
        return memory

    def as_state(self) -> dict[str, Any]:
        """The memory as a session's state."""
        state: dict[str, Any] = {"session": self.session, "briefed": self.is_briefed, "cost": self.cost}
        if self.tokens is not None:
            state["tokens"] = {name: getattr(self.tokens, name) for name in self.tokens.__struct_fields__}
        return state
