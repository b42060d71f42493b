"""A mode: a way of working that the user can put a session into, such as asking before every change."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from msgspec import UNSET

from coupler.agent.declaration import declared_list, declared_or_none, declared_text
from coupler.fields import readable
from coupler.schema import v1


class Mode:
    """One of an agent's modes. Its name is the id made readable, unless it is given."""

    def __init__(self, id: str, description: str | None = None, *, name: str | None = None) -> None:
        self.id: Final = declared_text(id, "a mode's id")
        self.description: Final = declared_or_none(description, f"the description of the mode {self.id!r}")
        self.name: Final = (
            readable(self.id) if name is None else declared_text(name, f"the name of the mode {self.id!r}")
        )

    def __repr__(self) -> str:
        return f"Mode({self.id!r})"

    def as_mode(self) -> v1.SessionMode:
        """The mode as clients are told of it."""
        return v1.SessionMode(self.id, self.name, self.description or UNSET)


def declared_modes(modes: Iterable[Mode]) -> tuple[Mode, ...]:
    """An agent's modes if they can be told apart; the first one is where a session begins."""
    return declared_list(modes, (Mode,), lambda mode: mode.id, "modes")
