"""What comes too late: content of a turn that is over, and how long to wait for it."""

from __future__ import annotations

import asyncio

from coupler.events import Content, Event, Plan, Text, Thought, ToolCall

_OF_A_TURN = (Content, ToolCall, Plan)
"""Events besides text that belong to a turn; the others tell the session's state at any time."""


class Lateness:
    """Knows which messages belong to turns that are over, by their ids."""

    def __init__(self) -> None:
        self._has_turns = False
        self._is_in_turn = False
        self._current: str | None = None
        self._is_current_late = False
        self._told: set[str] = set()
        self._past: set[str] = set()
        self._heard: asyncio.Event | None = None

    def turn_began(self) -> None:
        """A prompt goes out; what was told before it is of an earlier turn."""
        self._has_turns = self._is_in_turn = True
        self._past |= self._told
        self._told.clear()
        self._current, self._is_current_late = None, False

    def turn_ended(self) -> None:
        """What comes from now on is late."""
        self._is_in_turn = False

    def is_late_text(self, event: Text | Thought) -> bool:
        """Whether a piece of text belongs to a turn that is over. Nearly all of a stream is text."""
        if self._heard is not None:
            self._heard.set()
        if not self._is_in_turn:
            return self._has_turns
        named = event.message_id
        if named is None:
            return False
        if named != self._current:
            self._current, self._is_current_late = named, named in self._past
            self._told.add(named)
        return self._is_current_late

    def is_late(self, event: Event) -> bool:
        """The same for anything else. A call that goes on in a later turn is told there."""
        if self._heard is not None:
            self._heard.set()
        return self._has_turns and not self._is_in_turn and isinstance(event, _OF_A_TURN)

    async def silence(self, seconds: float) -> None:
        """Wait until nothing has come for so long."""
        self._heard = asyncio.Event()
        try:
            while True:
                self._heard.clear()
                async with asyncio.timeout(seconds):
                    await self._heard.wait()
        except TimeoutError:
            return
        finally:
            self._heard = None
