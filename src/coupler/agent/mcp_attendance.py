"""A tool call's user, for the MCP server that works on it: progress is shown, questions are asked.

What a server says is a stranger's word: its questions name it, what no form can hold is declined, and how far
it is fills no session.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from coupler.mcp.tools import Reply, named, shown

if TYPE_CHECKING:
    from coupler.agent.question import Answer
    from coupler.agent.turn import Turn

log = logging.getLogger("coupler.agent")

MOST_PROGRESS = 200
"""Lines of progress that one call shows."""
LONGEST_LINE = 200
LONGEST_QUESTION = 2000
"""Characters of what a server asks."""


class CallAttendant:
    """With one call of one turn. Made in the call's block, so that questions belong to the call."""

    def __init__(self, turn: Turn, server: str, show: Callable[[str], Awaitable[None]]) -> None:
        self._turn = turn
        self._server = server
        self._show = show
        self._context = contextvars.copy_context()
        self._last = ""
        self._lines = 0

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """Show it, unless it is nothing new or too much."""
        line = _line(progress, total, message)
        if line == self._last or self._lines >= MOST_PROGRESS or not self._turn.is_alive:
            return
        self._last = line
        self._lines += 1
        await self._show(f"{line}\n")

    async def ask(self, message: str, schema: dict[str, Any]) -> Reply:
        """Have the user fill in a form."""
        answer = await self._asked(lambda asked: self._turn.ask(asked, schema), message)
        return Reply(answer.action, answer.value) if answer is not None else Reply("decline")

    async def ask_url(self, message: str, url: str) -> Reply:
        """Have the user open a page."""
        answer = await self._asked(lambda asked: self._turn.ask_url(asked, url), message)
        return Reply(answer.action) if answer is not None else Reply("decline")

    async def _asked(
        self, ask: Callable[[str], Coroutine[Any, Any, Answer[Any]]], message: str
    ) -> Answer[Any] | None:
        """The answer, or None for what cannot be asked."""
        asked = f"{named(self._server)} asks: {shown(message.strip(), LONGEST_QUESTION)}"
        # The server's question arrives in a task of its connection, which is in no call's block.
        task = asyncio.get_running_loop().create_task(ask(asked), context=self._context)
        try:
            return await task
        except (ValueError, TypeError) as error:
            log.warning("a question of %s was declined: %s", named(self._server), error)
            return None
        finally:
            task.cancel()


def _line(progress: float, total: float | None, message: str | None) -> str:
    share = f"{progress:g}/{total:g}" if total else f"{progress:g}"
    return f"{share} {shown(message.strip(), LONGEST_LINE)}" if message else share
