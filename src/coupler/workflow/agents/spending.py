"""What the agents of a run use up: counted for each step and for the whole, against what both may use."""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from coupler.client.budget import Budget
from coupler.client.errors import AgentError
from coupler.client.usage import TurnUsage
from coupler.workflow.journal.happenings import Place
from coupler.workflow.journal.result import Usage
from coupler.workflow.language.definition import Json, Limits


class Spending:
    """Of one run. What earlier processes have spent is told by their journal."""

    def __init__(self, limits: Limits | None, earlier: Mapping[Place, Json]) -> None:
        limits = limits or Limits()
        self._by_place = {place: msgspec.convert(value, Usage) for place, value in earlier.items()}
        self.budget = Budget(tokens=limits.tokens, cost=limits.cost)
        if self.total is not None:
            self.budget.spent_tokens = self.total.total_tokens
            self.budget.spent_cost = self.total.cost or 0.0

    @property
    def total(self) -> Usage | None:
        """Of all steps together; None if no agent was asked."""
        total: Usage | None = None
        for usage in self._by_place.values():
            total = usage if total is None else added(total, usage)
        return total

    def of(self, place: Place) -> Usage | None:
        """Of a step, all its attempts together."""
        return self._by_place.get(place)

    def add(self, place: Place, usage: Usage) -> Usage:
        """A turn was paid for: what its step has used so far."""
        before = self._by_place.get(place)
        self._by_place[place] = usage if before is None else added(before, usage)
        return self._by_place[place]


class StepBudget(Budget):
    """What a step may use, which is never more than what is left of the run's."""

    def __init__(self, limits: Limits | None, run: Budget) -> None:
        limits = limits or Limits()
        super().__init__(tokens=limits.tokens, cost=limits.cost, seconds=limits.time)
        self._run = run

    def charge(self, usage: TurnUsage) -> None:
        super().charge(usage)
        self._run.charge(usage)

    def run_up(self, tokens: int, cost: float) -> None:
        super().run_up(tokens, cost)
        self._run.run_up(tokens, cost)

    def excess(self, tokens: int = 0, cost: float = 0.0) -> str | None:
        own = super().excess(tokens, cost)
        if own is not None:
            return f"{own}: see `budget` of the step"
        of_run = self._run.excess(tokens, cost)
        return None if of_run is None else f"{of_run}: see `budget` of the workflow"

    def refuse_if_exceeded(self) -> None:
        """Raise if more was used than there was; using up just all of it is no fault."""
        for budget, whose in ((self, "step"), (self._run, "workflow")):
            if budget.tokens is not None and budget.spent_tokens > budget.tokens:
                used = f"{budget.spent_tokens} tokens were used of {budget.tokens}"
            elif budget.cost is not None and budget.spent_cost > budget.cost:
                used = f"it cost {budget.spent_cost:g} of {budget.cost:g}"
            else:
                continue
            raise AgentError("budget", f"{used}: see `budget` of the {whose}")


def usage_of(turn: TurnUsage) -> Usage:
    """A turn's usage, as results have it."""
    return Usage(
        input_tokens=turn.input,
        output_tokens=turn.output,
        total_tokens=turn.total,
        cached_tokens=turn.cached_read,
        cost=turn.cost,
        currency=turn.currency,
        is_estimated=turn.is_estimated,
    )


def added(one: Usage, other: Usage) -> Usage:
    """Both together."""
    costs = [usage.cost for usage in (one, other) if usage.cost is not None]
    return Usage(
        input_tokens=one.input_tokens + other.input_tokens,
        output_tokens=one.output_tokens + other.output_tokens,
        total_tokens=one.total_tokens + other.total_tokens,
        cached_tokens=one.cached_tokens + other.cached_tokens,
        cost=sum(costs) if costs else None,
        currency=other.currency or one.currency,
        is_estimated=one.is_estimated or other.is_estimated,
    )
