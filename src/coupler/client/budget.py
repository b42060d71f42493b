"""A budget: what prompts may use together, in tokens, money, turns and time."""

from __future__ import annotations

import time

from coupler.client.errors import AgentError
from coupler.client.usage import TurnUsage


class Budget:
    """May be shared by prompts, sessions and agents. It is charged as usage becomes known.

    `cost` counts in the currency that the agent reports; agents that report no tokens are charged estimates,
    which `is_estimated` tells. `seconds` is counted from now.
    """

    def __init__(
        self,
        *,
        tokens: int | None = None,
        cost: float | None = None,
        turns: int | None = None,
        seconds: float | None = None,
    ) -> None:
        for name, value in {"tokens": tokens, "cost": cost, "turns": turns, "seconds": seconds}.items():
            if value is not None and not value >= 0:
                raise ValueError(f"a budget's {name} cannot be negative: {value!r}")
        self.tokens = tokens
        self.cost = cost
        self.turns = turns
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.spent_tokens = 0
        self.spent_cost = 0.0
        self.spent_turns = 0
        self.is_estimated = False

    def begin_turn(self) -> None:
        """A prompt is about to be sent; raises if there is nothing left for it."""
        self.refuse_if_spent()
        if self.turns is not None and self.spent_turns >= self.turns:
            raise AgentError("budget", f"the budget of {self.turns} turns is spent")
        self.spent_turns += 1

    def charge(self, usage: TurnUsage) -> None:
        """A turn has used this much."""
        self.spent_tokens += usage.total
        self.spent_cost += usage.cost or 0.0
        self.is_estimated = self.is_estimated or usage.is_estimated

    def refuse_if_spent(self) -> None:
        """Raise if the deadline has passed or nothing is left."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise AgentError("deadline", "the deadline of the budget has passed")
        if (excess := self.excess()) is not None:
            raise AgentError("budget", excess)

    def excess(self, tokens: int = 0, cost: float = 0.0) -> str | None:
        """What is used up once a running turn, with this much so far, is counted in; None if nothing is."""
        if self.tokens is not None and self.spent_tokens + tokens >= self.tokens:
            return f"the budget of {self.tokens} tokens is spent ({self.spent_tokens + tokens} used)"
        if self.cost is not None and self.spent_cost + cost >= self.cost:
            return f"the budget of {self.cost:g} is spent ({self.spent_cost + cost:g} used)"
        return None

    def seconds_left(self) -> float | None:
        """Until the deadline; None if there is none."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)
