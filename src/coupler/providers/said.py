"""What a stream says: events as they come, and how the turn turned out."""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.events import Notice, Plan, Text, Thought, ToolOutput, ToolUpdate, Usage

Said: TypeAlias = Text | Thought | Notice | Plan | Usage | ToolUpdate | ToolOutput
"""The events that a parser gives; those of tool calls have the stream's own ids."""


class Tokens(Struct, frozen=True):
    """Tokens of a turn, in kinds that do not overlap; None is not known."""

    input: int = 0
    """Read by the model, without what came from or went into a cache."""
    output: int = 0
    """Written by the model, without its thoughts where those are counted apart."""
    cached_read: int | None = None
    cached_write: int | None = None
    thought: int | None = None
    total: int | None = None
    """What the program itself says; the sum of the kinds if it says nothing."""

    @property
    def sum(self) -> int:
        """All of them together."""
        if self.total is not None:
            return self.total
        kinds = (self.cached_read, self.cached_write, self.thought)
        return self.input + self.output + sum(kind or 0 for kind in kinds)

    def plus(self, more: Tokens | None) -> Tokens:
        """Both together."""
        return self if more is None else self._combined(more, 1)

    def since(self, before: Tokens) -> Tokens:
        """What was added to `before`; all of it if this does not go on from there."""
        if self.sum < before.sum:
            return self
        return self._combined(before, -1)

    def _combined(self, other: Tokens, sign: int) -> Tokens:
        changes: dict[str, int | None] = {}
        for name in self.__struct_fields__:
            ours, theirs = getattr(self, name), getattr(other, name)
            changes[name] = (
                None if ours is None and theirs is None else max((ours or 0) + sign * (theirs or 0), 0)
            )
        if self.total is None or other.total is None:
            changes["total"] = None
        return msgspec.structs.replace(self, **changes)


class Outcome:
    """What is known of a turn besides its events; a parser fills it in as it reads."""

    def __init__(self) -> None:
        self.session_id: str | None = None
        """The program's own session, to be continued by the next turn."""
        self.tokens: Tokens | None = None
        self.cost: float | None = None
        """What the turn cost, in US dollars."""
        self.stop_reason: str | None = None
        self.error: str | None = None
        """Why the turn failed, if the stream says that it did."""
        self.warning: str | None = None
        """The last thing that went wrong without ending the turn: an explanation if it ends badly."""
        self.structured: Any = UNSET
        """The answer in the form that was asked for, where that is not the text itself."""
        self.is_final = False
        """Whether the stream has said its last word."""
