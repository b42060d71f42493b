"""A budget: what prompts may use together, in tokens, money, turns and time."""

from __future__ import annotations

import time

from coupler.client.errors import AgentError
from coupler.client.usage import TurnUsage


class Budget:
    """May be shared by prompts, sessions and agents, also at the same time.

    A turn is charged however it ends, and counted in by estimates while it runs.
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
            if value is None:
                continue
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise TypeError(f"a budget's {name} are a number, not {value!r}")
            if not value >= 0:
                raise ValueError(f"a budget's {name} cannot be negative: {value!r}")
        self.tokens = tokens
        self.cost = cost
        self.turns = turns
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self.spent_tokens = 0
        self.spent_cost = 0.0
        self.spent_turns = 0
        self.running_tokens = 0
        self.running_cost = 0.0
        """What the turns have used that run now, as far as that is known."""
        self.is_estimated = False

    def begin_turn(self) -> Bill:
        """A prompt is about to be sent, and what it uses goes on a bill; raises if nothing is left for it."""
        self.refuse_if_spent()
        self.spent_turns += 1
        return Bill(self)

    def charge(self, usage: TurnUsage) -> None:
        """A turn has used this much."""
        self.spent_tokens += usage.total
        self.spent_cost += usage.cost or 0.0
        self.is_estimated = self.is_estimated or usage.is_estimated

    def run_up(self, tokens: int, cost: float) -> None:
        """The turns that run now have used so much more than was known, or less."""
        self.running_tokens += tokens
        self.running_cost += cost

    def refuse_if_spent(self) -> None:
        """Raise if the deadline has passed or nothing is left."""
        if self.deadline is not None and time.monotonic() >= self.deadline:
            raise AgentError("deadline", "the deadline of the budget has passed")
        if self.turns is not None and self.spent_turns >= self.turns:
            raise AgentError("budget", f"the budget of {self.turns} turns is spent")
        if (excess := self.excess()) is not None:
            raise AgentError("budget", excess)

    def excess(self, tokens: int = 0, cost: float = 0.0) -> str | None:
        """What is used up once the other turns that run are counted in, and so much; None if nothing is."""
        if (
            self.tokens is not None
            and (used := self.spent_tokens + self.running_tokens + tokens) >= self.tokens
        ):
            return f"the budget of {self.tokens} tokens is spent ({used} used)"
        if self.cost is not None and (paid := self.spent_cost + self.running_cost + cost) >= self.cost:
            return f"the budget of {self.cost:g} is spent ({paid:g} used)"
        return None

    def seconds_left(self) -> float | None:
        """Until the deadline; None if there is none."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)


class Bill:
    """What one running turn has used so far. It counts for all who share the budget, and is settled once."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._tokens = 0
        self._cost = 0.0
        self._is_settled = False

    def note(self, tokens: int, cost: float) -> str | None:
        """The turn has used so much by now; says what is used up by that, if anything is."""
        if self._is_settled:
            return None
        self._budget.run_up(-self._tokens, -self._cost)
        excess = self._budget.excess(tokens, cost)
        self._budget.run_up(tokens, cost)
        self._tokens, self._cost = tokens, cost
        return excess

    def settle(self, usage: TurnUsage) -> None:
        """The turn is over, however it ended, and this is what it used."""
        if self._is_settled:
            return
        self._is_settled = True
        self._budget.run_up(-self._tokens, -self._cost)
        self._budget.charge(usage)

    def withdraw(self) -> None:
        """The prompt was not sent after all."""
        if not self._is_settled:
            self.settle(TurnUsage())
            self._budget.spent_turns -= 1
