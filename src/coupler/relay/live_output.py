"""What a command writes in a terminal of ours, shown while it runs, whether its agent looks at it or not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coupler.client.terminals import Terminal

PERIOD = 0.1
"""Seconds between two looks at a command that writes."""


class LiveOutput:
    """Watches one terminal. Once it has lost its beginning, the end is shown when the command has ended."""

    def __init__(self, terminal: Terminal, show: Callable[[str], None], has_room: Callable[[], bool]) -> None:
        self._terminal = terminal
        self._show = show
        self._has_room = has_room
        self._next_look: asyncio.TimerHandle | None = None
        terminal.on_output = self._look_soon

    def _look_soon(self) -> None:
        if self._next_look is None:
            self._next_look = asyncio.get_running_loop().call_later(PERIOD, self._look)

    def _look(self) -> None:
        self._next_look = None
        if self._terminal.is_released:
            return
        if not self._has_room():
            self._look_soon()
            return
        written = self._terminal.output()
        if not written.truncated:
            self._show(written.output)
