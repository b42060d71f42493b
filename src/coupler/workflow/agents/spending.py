"""What the agents of a run use up: counted for each step and for the whole, against what both may use.

A step that is done again after a failure begins anew; what the run has spent stays spent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coupler.client.errors import AgentError
from coupler.client.reply import Budget, TurnUsage
from coupler.events import Usage as SessionUsage
from coupler.schema.v1 import Cost
from coupler.workflow.journal.happenings import SPENT, Decided, Place
from coupler.workflow.journal.result import Usage
from coupler.workflow.language.definition import Json, Limits

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.workflow.agents.transcripts import Kept

USED = "usage"
"""The decision that has what a step has used so far."""


class Spent(msgspec.Struct, frozen=True):
    """What is kept of a turn that was paid for."""

    total: Usage
    """Of the whole run, up to it."""
    session: str
    cost: float | None = None
    """What the session has cost since its beginning, as its agent counts."""
    currency: str = ""


class Spending:
    """Of one run. What earlier processes have spent is told by their journal."""

    def __init__(self, limits: Limits | None, journal: Kept) -> None:
        limits = limits or Limits()
        earlier = [msgspec.convert(value, Spent) for value in journal.decisions(SPENT).values()]
        self._by_place = {
            place: msgspec.convert(each, Usage) for place, each in journal.decisions(USED).items()
        }
        self._of_sessions = {each.session: each for each in sorted(earlier, key=_order)}
        self.total: Usage | None = max(earlier, key=_order).total if earlier else None
        """Of all steps together; None if no agent was asked."""
        self.budget = Budget(tokens=limits.tokens, cost=limits.cost)
        if self.total is not None:
            self.budget.spent_tokens = self.total.total_tokens
            self.budget.spent_cost = self.total.cost or 0.0

    def of(self, place: Place) -> Usage | None:
        """Of a step, all its attempts together."""
        return self._by_place.get(place)

    def add(self, place: Place, usage: Usage, session: RemoteSession) -> list[Decided]:
        """A turn was paid for: what is to be kept of that."""
        before = self._by_place.get(place)
        self._by_place[place] = usage if before is None else added(before, usage)
        self.total = usage if self.total is None else added(self.total, usage)
        cost = None if session.usage is None else session.usage.cost
        spent = Spent(
            self.total,
            session.id,
            None if cost is None else cost.amount,
            "" if cost is None else cost.currency,
        )
        self._of_sessions[session.id] = spent
        return [
            Decided(what=USED, value=_plain(self._by_place[place])),
            Decided(what=SPENT, value=_plain(spent)),
        ]

    def tell_cost_of_before(self, session: RemoteSession) -> None:
        """Let a session that was opened again know what it has cost, if its agent does not tell.

        Agents count from a session's beginning: without this, its next turn would be charged for all of it.
        """
        spent = self._of_sessions.get(session.id)
        told = session.usage or SessionUsage(0, 0)
        if spent is not None and spent.cost is not None and told.cost is None:
            session.usage = msgspec.structs.replace(told, cost=Cost(spent.cost, spent.currency))


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


def _order(spent: Spent) -> tuple[int, float]:
    """What a run has spent only grows: the more it is, the later it was."""
    return spent.total.total_tokens, spent.total.cost or 0.0


def _plain(value: msgspec.Struct) -> Json:
    return msgspec.to_builtins(value)
