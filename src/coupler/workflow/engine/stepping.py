"""Runs that go step by step: before each step that does something, somebody says what becomes of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Literal

from coupler.workflow.engine.flow import Stopped
from coupler.workflow.engine.titles import title_of
from coupler.workflow.journal.happenings import Place
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Agent, Converse, Run, Step

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.running import Performer

Choice = Literal["run", "skip", "stop"]

Pause = Callable[[Place, str], Awaitable[Choice]]
"""Says what becomes of the step at a place, which has this title."""


class Stepped:
    """Asks before the first attempt at each step, and leaves the work to another performer.

    Steps that only ask or decide something are not asked about: they do nothing by themselves.
    """

    def __init__(self, pause: Pause, performer: Performer) -> None:
        self._pause = pause
        self._performer = performer

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        if attempt.number == 1 and isinstance(step, Run | Agent | Converse):
            async with attempt.asking:
                choice = await self._pause(attempt.place, title_of(step, attempt))
            if choice == "skip":
                return Result(status="skipped")
            if choice == "stop":
                raise Stopped("cancelled", f"it was stopped before {attempt.place}")
        return await self._performer.perform(step, attempt)
