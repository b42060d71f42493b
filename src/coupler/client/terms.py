"""The terms of a prompt: what counts as done, how often the agent is sent back, and what it may use."""

from __future__ import annotations

import contextvars
import inspect
import math
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias, TypeVar

from msgspec import Struct

from coupler.client.budget import Budget
from coupler.client.errors import AgentError
from coupler.client.reply import Reply
from coupler.runtime.threads import in_thread
from coupler.schema.v1 import ContentBlock

GRACE = 5.0
"""Seconds that an agent has to end its turn after a deadline, before its process is ended."""

MOST_ROUNDS = 5

GO_ON = "That is not done yet. Go on until it is."

T = TypeVar("T")
Check: TypeAlias = Callable[[Reply], bool | str | Awaitable[bool | str | None] | None]


class Goal(Protocol):
    """What a prompt is for, beyond an answer."""

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """The prompt, with what the agent must be told of the goal."""

    async def judge(self, reply: Reply) -> Reply | str:
        """The reply, finished; or what to tell the agent so that it goes on. Raises if it is hopeless."""


class Until:
    """Done when a check says so: True or None. A text is feedback for the agent, False sends it on.

    A text without a word finds no fault, and so is content. A plain function runs in a thread, so that one
    which tests for minutes holds up nobody, and a deadline does not wait for it.
    """

    def __init__(self, check: Check) -> None:
        self._check = check

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        verdict = await self._verdict(reply)
        if verdict is None or verdict is True:
            return reply
        if verdict is False:
            return GO_ON
        if not isinstance(verdict, str):
            raise TypeError(f"a check returns True, False, None or feedback as a text; this is {verdict!r}")
        return verdict if verdict.strip() else reply

    async def _verdict(self, reply: Reply) -> bool | str | None:
        if inspect.iscoroutinefunction(self._check):
            verdict: bool | str | None = await self._check(reply)
            return verdict
        surroundings = contextvars.copy_context()
        said = await in_thread(lambda: _settled(lambda: surroundings.run(self._check, reply)))
        if isinstance(said, _Raised):
            raise said.error
        return await said if inspect.isawaitable(said) else said


class _Raised(Struct, frozen=True):
    """Carried as a value: there are exceptions that no future takes, such as the failure of a test."""

    error: BaseException


def _settled(work: Callable[[], T]) -> T | _Raised:
    try:
        return work()
    except BaseException as error:
        return _Raised(error)


class Terms(Struct, frozen=True):
    """What a prompt was given besides its content."""

    goals: tuple[Goal, ...] = ()
    rounds: int = MOST_ROUNDS
    budget: Budget | None = None
    timeout: float | None = None
    grace: float = GRACE

    def __post_init__(self) -> None:
        if self.rounds < 1:
            raise ValueError(f"rounds= is 1 at least, not {self.rounds!r}")
        if self.timeout is not None:
            _refuse_no_seconds("timeout", self.timeout)
        _refuse_no_seconds("grace", self.grace)

    def refuse_if_over(self) -> None:
        """Raise if nothing may be sent any more, or started for it: the time is up, or the budget spent."""
        if self.timeout is not None and self.timeout <= 0:
            raise AgentError(
                "deadline", f"the time was up before it began: the timeout is {self.timeout:g} s"
            )
        if self.budget is not None:
            self.budget.refuse_if_spent()

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """The prompt as it is sent."""
        for goal in self.goals:
            blocks = goal.opening(blocks)
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        """The finished reply, or feedback for the next round. A turn that did not end well is not judged."""
        reply.raise_for_stop()
        for goal in self.goals:
            verdict = await goal.judge(reply)
            if isinstance(verdict, str):
                if reply.rounds >= self.rounds:
                    message = f"the agent was not done after {self.rounds} rounds: {verdict}"
                    raise AgentError("limit", message, reply=reply)
                return verdict
            reply = verdict
        return reply

    def seconds_left(self) -> float | None:
        """Until the prompt must have ended, counted from now."""
        limits = [self.timeout, None if self.budget is None else self.budget.seconds_left()]
        return min((limit for limit in limits if limit is not None), default=None)


def _refuse_no_seconds(name: str, value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{name}= is a number of seconds, not {value!r}")
    if math.isnan(value):
        raise ValueError(f"{name}= is a number of seconds, not {value!r}")
