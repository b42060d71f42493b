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

Choice = Literal["run", "skip", "stop"]

Pause = Callable[[Place, str], Awaitable[Choice]]
"""Says what becomes of the step at a place, which has this title."""


async def pause_before(step: Step, attempt: Attempt, pause: Pause | None) -> Result | None:
    """Ask before the first attempt at a step; a result instead of it if it is skipped.

    Steps that only ask, decide or hold others are not asked about: they do nothing by themselves.
    """
    if pause is None or attempt.number > 1 or not isinstance(step, Run | Agent | Converse):
        return None
    async with attempt.asking:
        choice = await pause(attempt.place, title_of(step, attempt))
    match choice:
        case "run":
            return None
        case "skip":
            return Result(status="skipped")
        case "stop":
            raise Stopped("cancelled", f"it was stopped before {attempt.place}")
