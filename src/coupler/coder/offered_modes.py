"""The coder's modes as users see them. What each allows is in `modes`, which brings LangChain along."""

from __future__ import annotations

from coupler.agent.mode import Mode

INTERACTIVE, ACCEPT_EDITS, READ_ONLY = "interactive", "accept-edits", "read-only"
PLANNING, AGENTIC = "planning", "agentic"

MODES = (
    Mode(INTERACTIVE, "Asks before it changes anything or runs a command", name="Ask"),
    Mode(
        ACCEPT_EDITS, "Edits files of the project without asking, and asks for the rest", name="Accept edits"
    ),
    Mode(READ_ONLY, "Reads and searches, and changes nothing", name="Read only"),
    Mode(PLANNING, "Makes a plan, and carries it out when you approve it", name="Plan"),
    Mode(AGENTIC, "Works on its own, and asks only where it has to", name="Auto"),
)
"""All of them, in the order of lists."""


def beginning_with(id: str) -> tuple[Mode, ...]:
    """All of them, that one first: it is where a session begins."""
    return tuple(sorted(MODES, key=lambda mode: mode.id != id))
