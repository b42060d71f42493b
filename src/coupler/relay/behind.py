"""What has another agent behind it: as much of it as what that agent asks for needs.

A relayed session has one for all of its turns, a tool call that was delegated has one for itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.relay.guard import Guard
    from coupler.relay.mirror import Mirror


class Behind(Protocol):
    """A session of ours, and the turn in which the agent behind it works."""

    session: Session
    turn: Turn | None
    mirror: Mirror | None
    guard: Guard
    editor_terminals: set[str]
    """The terminals that the editor has made for the agent behind, and that are not released."""

    def can_ask_editor(self, gate: str) -> bool:
        """Whether the editor offers something, and has heard of the session."""
        ...

    def editor_made(self, terminal_id: str) -> None:
        """The editor has made a terminal."""
        ...

    def show_output(self, terminal_id: str, text: str) -> None:
        """Show what was written in a terminal of ours, which the editor does not know."""
        ...
