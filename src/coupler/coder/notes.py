"""Tells the user what is not part of an answer: as a notice, else as a thought.

Not as a message: what the agent answers may be read by a program.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from coupler.agent.turn import NOTICES

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.coder")


async def tell_note(turn: Turn, title: str, description: str) -> None:
    """Tell and log it."""
    log.warning("%s: %s", title, description)
    if turn.editor.offers(NOTICES):
        await turn.notice(title, description, severity="warning")
    else:
        turn.begin_new_message()
        await turn.think(f"{title}: {description}")
        turn.begin_new_message()
