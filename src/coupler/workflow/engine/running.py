"""What the steps of one run share: its journal, its agents, whom it asks, and how much it may still do."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from coupler.workflow.engine.flow import StepsExhausted
from coupler.workflow.engine.front import Front
from coupler.workflow.journal.happenings import Happening, Place
from coupler.workflow.journal.result import Result
from coupler.workflow.language.bundle import Bundle
from coupler.workflow.language.definition import Json, Step

if TYPE_CHECKING:
    from coupler.workflow.agents.agents import Agents
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.stepping import Pause
    from coupler.workflow.expressions.flow_expressions import FlowExpressions


TIME_AFTERWARDS = 60.0
"""Seconds that each step of the hooks at the end has at least: they clean up, also when all time is spent."""


class Memory(Protocol):
    """The journal of a run, as its interpreter needs it."""

    def result(self, place: Place, kind: str) -> Result | None:
        """What became of a step of this kind, if it is over; not if it was cancelled."""
        ...

    def has_begun(self, place: Place) -> bool:
        """Whether a step was begun, over or not."""
        ...

    def cancelled(self, place: Place) -> Result | None:
        """What there is of a step that was cancelled."""
        ...

    def decision(self, place: Place, what: str) -> Json:
        """The last decision of this name at a step, or `UNSET`."""
        ...

    def note(self, happening: Happening) -> None:
        """Tell what happens; it is kept in this order."""
        ...

    async def durable(self) -> None:
        """Return when what was noted survives the death of this process."""
        ...


class Performer(Protocol):
    """Does what a step says, for steps that are made of no others; raises `StepError`."""

    async def perform(self, step: Step, attempt: Attempt) -> Result: ...


@dataclass
class Running:
    """Belongs to the engine; lists of steps that run beside each other share it."""

    id: str
    bundle: Bundle
    memory: Memory
    expressions: FlowExpressions
    performer: Performer
    agents: Agents
    front: Front
    cwd: str
    secrets: Mapping[str, str]
    most_steps: int
    pause: Pause | None = None
    """Asked before each step that works, when the run goes step by step."""
    deadline: float | None = None
    """By the monotonic clock: when the time of the whole run is spent."""
    tries_failures: bool = False
    """Whether failures that ended a list of steps before this process have another chance."""
    mask: Callable[[str], str] = str
    """Hides the run's secrets in what people see."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)
    _steps: int = 0
    _steps_afterwards: int = 0

    def count_step(self, *, is_afterwards: bool = False) -> None:
        """One more; what is done when all is over has a count of its own."""
        if is_afterwards:
            self._steps_afterwards += 1
        else:
            self._steps += 1
        if (self._steps_afterwards if is_afterwards else self._steps) > self.most_steps:
            raise StepsExhausted(f"the run took {self.most_steps} steps: see `max_steps`")

    def time_left(self, *, is_afterwards: bool = False) -> float | None:
        """Seconds; what is done when all is over has some in any case."""
        if self.deadline is None:
            return None
        return max(TIME_AFTERWARDS if is_afterwards else 0.0, self.deadline - time.monotonic())
