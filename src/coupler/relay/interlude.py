"""What the agent behind says while no turn runs.

It is shown as it comes. While a turn runs, or the editor does not keep up, it waits, joined as far as it can
be; an agent that says even more than that is not passed on. Pieces of one message stay together until the
agent is quiet for a moment, so that a secret in several of them is known for one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeAlias

from coupler.client.lane import Lane
from coupler.events import Text, Thought

if TYPE_CHECKING:
    from coupler.agent.session import Session

log = logging.getLogger("coupler.relay")

QUIET = 0.25
"""Seconds without a word after which what may be the beginning of a secret is shown."""

OVERHEAD = 100
"""Bytes that a piece costs besides its text."""

Piece: TypeAlias = Text | Thought
Start: TypeAlias = Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]


class Interlude:
    """Shows what is said between two turns of a session."""

    def __init__(self, session: Session, start: Start) -> None:
        self.is_kept = False
        """Whether it is also kept. What comes before the first prompt belongs to no turn, and is not."""
        self._session = session
        self._outlet = session.outlet
        self._start = start
        self._message: tuple[type[Piece], str] | None = None
        self._behind: Lane | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._overflowed = False
        self._until_quiet: asyncio.TimerHandle | None = None

    def say(self, piece: Piece) -> None:
        """Show a piece, now or when there is room."""
        if self._behind is None:
            if self._has_room():
                self._show(piece)
                return
            self._behind, self._overflowed = Lane(), False
        if not self._behind.put(piece, len(piece.text) + OVERHEAD):
            if not self._overflowed:
                log.warning("the editor does not read what the agent says between turns: it is left out")
            self._overflowed = True
        elif self._catching_up is None or self._catching_up.done():
            self._catching_up = self._start(self._catch_up(self._behind))

    def end(self) -> None:
        """A turn begins or the session is left: show all that was said before."""
        behind, self._behind = self._behind, None
        while behind is not None and (piece := behind.take()) is not None:
            self._show(piece)  # type: ignore[arg-type]
        self._end_message()

    async def _catch_up(self, behind: Lane) -> None:
        while True:
            await self._outlet.wait_for_room()
            await self._session.until_idle()
            if self._behind is not behind:
                return
            piece = behind.take()
            if piece is None:
                self._behind = None
                return
            self._show(piece)  # type: ignore[arg-type]

    def _has_room(self) -> bool:
        return not self._session.is_busy and self._outlet.has_room()

    def _show(self, piece: Piece) -> None:
        shown = type(piece)(piece.text, piece.message_id or self._message_id(type(piece)))
        if self.is_kept:
            self._outlet.send(shown)
        else:
            self._outlet.show(shown)
        if self._until_quiet is not None:
            self._until_quiet.cancel()
        self._until_quiet = asyncio.get_running_loop().call_later(QUIET, self._end_message)

    def _message_id(self, kind: type[Piece]) -> str:
        if self._message is None or self._message[0] is not kind:
            self._message = (kind, self._outlet.new_message_id())
        return self._message[1]

    def _end_message(self) -> None:
        if self._until_quiet is not None:
            self._until_quiet.cancel()
            self._until_quiet = None
            self._outlet.end_message()
        self._message = None
