"""The coder's modes as users see them. What each allows is in `modes`, which brings LangChain along."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from coupler.agent.agent import Mode
from coupler.coder.profile import ProfileError

if TYPE_CHECKING:
    from coupler.coder.profile import Profile
    from coupler.coder.setup import Setup

INTERACTIVE, ACCEPT_EDITS, READ_ONLY = "interactive", "accept-edits", "read-only"
PLANNING, AGENTIC = "planning", "agentic"

LOOKING = frozenset({READ_ONLY, PLANNING})
"""Modes in which nothing is changed."""

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


def modes_of(setup: Setup) -> tuple[Mode, ...]:
    """Those that a session can be in, with profiles that are modes; it begins in the first."""
    return (
        *sorted(MODES, key=lambda mode: mode.id != setup.mode),
        *(mode_of_profile(profile) for profile in setup.profiles),
    )


def first_mode(profile: Profile) -> str | None:
    """The mode that a profile begins in, if it says so; raises `ProfileError` if there is no such mode."""
    known = [mode.id for mode in MODES]
    if profile.mode is None or profile.mode in known:
        return profile.mode
    nearest = difflib.get_close_matches(profile.mode, known, n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(known)}"
    raise ProfileError(
        f"the profile {profile.name} begins in a mode {profile.mode!r} that there is not: {hint}"
    )


def mode_of_profile(profile: Profile) -> Mode:
    """A profile that is offered as a mode."""
    return Mode(profile.name, f"The profile {profile.name}", name=profile.title)
