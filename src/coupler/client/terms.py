"""The terms of a prompt: what counts as done, how often the agent is sent back, and what it may use."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import Protocol, TypeAlias

from msgspec import Struct

from coupler.client.budget import Budget
from coupler.client.errors import AgentError
from coupler.client.reply import Reply
from coupler.schema.v1 import ContentBlock

GRACE = 5.0
"""Seconds that an agent has to end its turn after a deadline, before its process is ended."""

MOST_ROUNDS = 5

GO_ON = "That is not done yet. Go on until it is."

Check: TypeAlias = Callable[[Reply], bool | str | Awaitable[bool | str | None] | None]


class Goal(Protocol):
    """What a prompt is for, beyond an answer."""

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        """The prompt, with what the agent must be told of the goal."""

    async def judge(self, reply: Reply) -> Reply | str:
        """The reply, finished; or what to tell the agent so that it goes on. Raises if it is hopeless."""


class Until:
    """Done when a check says so: True or None. A text is feedback for the agent, False sends it on."""

    def __init__(self, check: Check) -> None:
        self._check = check

    def opening(self, blocks: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
        return blocks

    async def judge(self, reply: Reply) -> Reply | str:
        verdict = self._check(reply)
        if inspect.isawaitable(verdict):
            verdict = await verdict
        if verdict is None or verdict is True:
            return reply
        if verdict is False:
            return GO_ON
        if not isinstance(verdict, str):
            raise TypeError(f"a check returns True, False, None or feedback as a text; this is {verdict!r}")
        return verdict


class Terms(Struct, frozen=True):
    """What a prompt was given besides its content."""

    goals: tuple[Goal, ...] = ()
    rounds: int = MOST_ROUNDS
    budget: Budget | None = None
    timeout: float | None = None
    grace: float = GRACE

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
