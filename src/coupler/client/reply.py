"""Builds the reply to one prompt from its events, and counts what it used against a budget."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, UnsetType
from msgspec.structs import replace

from coupler.client.errors import AgentError, AgentErrorKind
from coupler.events import Content, Event, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.events.events import plain_text_of
from coupler.schema.v1 import Diff, PlanEntry

if TYPE_CHECKING:
    from coupler.client.policy import Decision
    from coupler.schema.unstable import Usage as TokenUsage


OutputWay: TypeAlias = Literal["tool", "text"]
"""Ways in which typed output comes: by the `structured_output` tool, or as JSON in the text."""

CHANGING_KINDS = frozenset({"edit", "delete", "move"})

CHARACTERS_PER_TOKEN = 4
"""The ratio for estimates, for agents that report no tokens."""

_FAILED_STOPS: dict[str, tuple[AgentErrorKind, str]] = {
    "refusal": ("refused", "the agent refused the prompt"),
    "cancelled": ("cancelled", "the turn was cancelled"),
    "max_tokens": ("limit", "the agent reached its limit of tokens"),
    "max_turn_requests": ("limit", "the agent reached its limit of requests in one turn"),
}

_FAILED_RUNS = frozenset({"failed", "cancelled", "not_started"})
"""Statuses in the `_meta` of a workflow's answer, which ends its turn with `end_turn` all the same."""


class TurnUsage(Struct, frozen=True, kw_only=True):
    """Tokens and cost of one prompt. `is_estimated` says that the tokens were estimated from the text."""

    input: int = 0
    output: int = 0
    cached_read: int = 0
    cached_write: int = 0
    thought: int = 0
    total: int = 0
    is_estimated: bool = False
    context_used: int | None = None
    context_size: int | None = None
    cost: float | None = None
    currency: str | None = None

    def __add__(self, later: TurnUsage) -> TurnUsage:
        """Add a later turn of the same prompt; the context is that of the later one."""
        return TurnUsage(
            input=self.input + later.input,
            output=self.output + later.output,
            cached_read=self.cached_read + later.cached_read,
            cached_write=self.cached_write + later.cached_write,
            thought=self.thought + later.thought,
            total=self.total + later.total,
            is_estimated=self.is_estimated or later.is_estimated,
            context_used=self.context_used if later.context_used is None else later.context_used,
            context_size=self.context_size if later.context_size is None else later.context_size,
            cost=_sum(self.cost, later.cost),
            currency=later.currency or self.currency,
        )


class Reply(Struct, frozen=True):
    """The result of one prompt. Messages of one turn are separated by blank lines.

    `content` holds blocks besides text, such as images. `permissions` are the agent's permission requests
    with their decisions. `output` is set if the prompt asked for one. `rounds` counts the turns that a prompt
    took; text, thoughts, stop reason and `meta`, the `_meta` of the answer, are those of the last.
    """

    text: str
    stop_reason: str
    thoughts: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    plan: tuple[PlanEntry, ...] = ()
    usage: TurnUsage = TurnUsage()
    content: tuple[Content, ...] = ()
    permissions: tuple[Decision, ...] = ()
    output: Any = None
    output_way: OutputWay | None = None
    rounds: int = 1
    meta: dict[str, Any] | None = None

    @property
    def is_complete(self) -> bool:
        """True if the stop reason is `end_turn`; a refusal, limit, cancel or failed run is no success."""
        return self.stop_reason == "end_turn" and self.failure is None

    @property
    def failure(self) -> str | None:
        """The reason, if the agent is a workflow that Coupler serves and its run has failed or not begun."""
        told = (self.meta or {}).get("coupler")
        if not isinstance(told, dict) or told.get("status") not in _FAILED_RUNS:
            return None
        error = told.get("error")
        message = error.get("message") if isinstance(error, dict) else None
        return message if isinstance(message, str) else f"the run is {told['status']}"

    @property
    def is_empty(self) -> bool:
        """True if the agent neither said nor did anything."""
        return not (self.text.strip() or self.tool_calls or self.content or self.output is not None)

    @property
    def denied(self) -> tuple[Decision, ...]:
        """The permission requests that were not allowed."""
        return tuple(decision for decision in self.permissions if not decision.is_allowed)

    @property
    def files(self) -> tuple[str, ...]:
        """The paths that the agent reports as changed, in the order of its tool calls."""
        paths: dict[str, None] = {}
        for call in self.tool_calls:
            if call.status != "completed":
                continue
            for item in call.content:
                if isinstance(item, Diff):
                    paths[item.path] = None
            if call.kind in CHANGING_KINDS:
                paths.update((location.path, None) for location in call.locations)
        return tuple(paths)

    def raise_for_stop(self) -> Reply:
        """Return the reply if it is complete, or raise an `AgentError` of the kind for its stop reason."""
        if self.is_complete:
            return self
        if self.stop_reason == "end_turn":
            raise AgentError("refused", f"the workflow failed: {self.failure}", reply=self)
        kind, message = _FAILED_STOPS.get(
            self.stop_reason, ("prompt", f"the turn ended for a reason of its own: {self.stop_reason!r}")
        )
        raise AgentError(kind, message, reply=self)


class ReplyBuilder:
    """Collects the events of a turn into a reply."""

    def __init__(self, asked: int = 0, before: Usage | None = None) -> None:
        """Begin a reply to a prompt of `asked` characters; `before` is the session's usage until then."""
        self._asked = asked
        self._before = before
        self._usage = before
        self._written = 0
        self._text = _Messages()
        self._thoughts = _Messages()
        self._tool_calls: dict[str, ToolCall] = {}
        self._unreported: dict[str, ToolCall] = {}
        """The calls that the agent has only asked about so far."""
        self._plan: tuple[PlanEntry, ...] = ()
        self._content: list[Content] = []
        self._permissions: list[Decision] = []

    def add(self, event: Event) -> None:
        """Add an event."""
        match event:
            case Text(text):
                if text:  # some agents send empty pieces around tool calls
                    self._written += len(text)
                    self._text.add(event)
                    self._thoughts.interrupt()
            case Thought(text):
                if text:
                    self._written += len(text)
                    self._thoughts.add(event)
            case ToolCall():
                asked = self._unreported.pop(event.id, None)
                if asked is not None and not event.title:
                    event = replace(event, title=asked.title, kind=asked.kind)
                self._tool_calls[event.id] = event
                self._text.interrupt()
                self._thoughts.interrupt()
            case Content(role="agent"):
                self._content.append(event)
            case Plan():
                self._plan = event.entries
            case Usage():
                self._usage = event

    def decided(self, decision: Decision) -> None:
        """Add a decision about a permission request, and its call if the agent has not reported that.

        Some agents report a call only once it is allowed, and one that was denied never.
        """
        self._permissions.append(decision)
        call = decision.tool_call
        if call.id not in self._tool_calls or call.id in self._unreported:
            status = call.status if decision.is_allowed else "failed"
            self._unreported[call.id] = self._tool_calls[call.id] = replace(call, status=status)

    @property
    def rejected(self) -> list[Decision]:
        """The decisions by which calls were not permitted; of several about one call, the last counts."""
        last = {decision.tool_call.id: decision for decision in self._permissions}
        return [decision for decision in last.values() if not decision.is_allowed]

    @property
    def usage(self) -> TurnUsage:
        """The usage so far."""
        return turn_usage(None, self._before, self._usage, (self._asked, self._characters()))

    @property
    def rough_tokens(self) -> int:
        """A cheap estimate of the tokens so far, for every event."""
        return estimated_tokens(self._asked + self._written)

    def finished(self, stop: Stop) -> Reply:
        """Return the reply of a turn that is over."""
        usage = turn_usage(stop.usage, self._before, self._usage, (self._asked, self._characters()))
        return Reply(
            self._text.joined(),
            stop.reason,
            self._thoughts.joined(),
            tuple(self._tool_calls.values()),
            self._plan,
            usage,
            tuple(self._content),
            tuple(self._permissions),
            meta=stop.meta,
        )

    def _characters(self) -> int:
        shown = (plain_text_of(item) or "" for call in self._tool_calls.values() for item in call.content)
        return self._written + sum(map(len, shown))


class _Messages:
    """Chunks of text, split into messages."""

    def __init__(self) -> None:
        self._messages: list[list[str]] = []
        self._current_id: str | None = None
        self._interrupted = True

    def add(self, piece: Text | Thought) -> None:
        begins = self._interrupted if piece.message_id is None else piece.message_id != self._current_id
        if begins or not self._messages:
            self._messages.append([])
            self._current_id = piece.message_id
        self._messages[-1].append(piece.text)
        self._interrupted = False

    def interrupt(self) -> None:
        """Begin a new message with the next chunk, if chunks have no message ids."""
        self._interrupted = True

    def joined(self) -> str:
        return "\n\n".join("".join(pieces) for pieces in self._messages)


def merge_rounds(earlier: Reply, later: Reply) -> Reply:
    """Merge two turns of one prompt: the later one's answer, with the tool calls and usage of both."""
    calls = {call.id: call for call in (*earlier.tool_calls, *later.tool_calls)}
    return replace(
        later,
        tool_calls=tuple(calls.values()),
        plan=later.plan or earlier.plan,
        usage=earlier.usage + later.usage,
        content=(*earlier.content, *later.content),
        permissions=(*earlier.permissions, *later.permissions),
        rounds=earlier.rounds + 1,
    )


def turn_usage(
    tokens: TokenUsage | None, before: Usage | None, after: Usage | None, characters: tuple[int, int]
) -> TurnUsage:
    """Compute the usage of a turn from the two places where agents report it.

    Tokens are those of the answer's `usage`, or an estimate that is marked as such. The context is that of
    the last `usage_update`; the cost is what such updates, which count from the session's beginning, have
    grown by during the turn. `before` and `after` are the session's usage at the turn's ends; `characters`
    are those of the prompt and of everything the agent wrote.
    """
    cost, currency = _cost(before, after)
    counted = _estimated(*characters) if tokens is None else _counted(tokens)
    return TurnUsage(
        **counted,
        is_estimated=tokens is None,
        context_used=None if after is None else after.used,
        context_size=None if after is None else after.size,
        cost=cost,
        currency=currency,
    )


def estimated_tokens(characters: int) -> int:
    """Estimate the tokens of a text by its length."""
    return -(-characters // CHARACTERS_PER_TOKEN)


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other


def _counted(tokens: TokenUsage) -> dict[str, int]:
    return {
        "input": tokens.input_tokens,
        "output": tokens.output_tokens,
        "cached_read": _number(tokens.cached_read_tokens),
        "cached_write": _number(tokens.cached_write_tokens),
        "thought": _number(tokens.thought_tokens),
        "total": tokens.total_tokens,
    }


def _estimated(asked: int, written: int) -> dict[str, int]:
    read, wrote = estimated_tokens(asked), estimated_tokens(written)
    return {"input": read, "output": wrote, "total": read + wrote}


def _cost(before: Usage | None, after: Usage | None) -> tuple[float | None, str | None]:
    if after is None or after.cost is None:
        return None, None
    spent = after.cost.amount
    if before is not None and before.cost is not None and before.cost.currency == after.cost.currency:
        # An agent that begins to count anew, as after a compaction, has spent at least what it says now.
        spent = spent - before.cost.amount if spent >= before.cost.amount else spent
    # Nobody earns by working: an agent that says so does not fill up a budget.
    return max(spent, 0.0), after.cost.currency


def _number(value: int | UnsetType | None) -> int:
    return value if isinstance(value, int) else 0


def refuse_no_budget(given: object) -> None:
    """Raise TypeError if a `budget=` is something else."""
    if given is not None and not isinstance(given, Budget):
        raise TypeError(f"budget= is a Budget, as in `Budget(tokens=50_000)`, not {given!r}")


class Budget:
    """A limit on tokens, cost, turns and time that prompts, sessions and agents may share.

    A turn is charged however it ends, and counted in by estimates while it runs. `cost` counts in the
    currency that the agent reports; agents that report no tokens are charged estimates, which `is_estimated`
    tells. `seconds` is counted from now.
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
        """Cost of the turns that run now, as far as it is known."""
        self.is_estimated = False

    def begin_turn(self) -> TurnCharge:
        """Count a turn and return its charge; raises if nothing is left for it."""
        self.refuse_if_spent()
        self.spent_turns += 1
        return TurnCharge(self)

    def charge(self, usage: TurnUsage) -> None:
        """Add the usage of a turn that is over."""
        self.spent_tokens += usage.total
        self.spent_cost += usage.cost or 0.0
        self.is_estimated = self.is_estimated or usage.is_estimated

    def run_up(self, tokens: int, cost: float) -> None:
        """Add to the usage of the running turns, or subtract from it."""
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
        """Say which limit is reached, counting running turns and this much more; None if none is."""
        if (
            self.tokens is not None
            and (used := self.spent_tokens + self.running_tokens + tokens) >= self.tokens
        ):
            return f"the budget of {self.tokens} tokens is spent ({used} used)"
        if self.cost is not None and (paid := self.spent_cost + self.running_cost + cost) >= self.cost:
            return f"the budget of {self.cost:g} is spent ({paid:g} used)"
        return None

    def seconds_left(self) -> float | None:
        """Return the seconds until the deadline; None if there is none."""
        return None if self.deadline is None else max(self.deadline - time.monotonic(), 0.0)


class TurnCharge:
    """The usage of one running turn, which counts for all who share the budget until it is settled."""

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._tokens = 0
        self._cost = 0.0
        self._is_settled = False

    def note(self, tokens: int, cost: float) -> str | None:
        """Update the turn's usage; says which limit is reached by that, if any is."""
        if self._is_settled:
            return None
        self._budget.run_up(-self._tokens, -self._cost)
        excess = self._budget.excess(tokens, cost)
        self._budget.run_up(tokens, cost)
        self._tokens, self._cost = tokens, cost
        return excess

    def settle(self, usage: TurnUsage) -> None:
        """Charge the final usage of the turn, however it ended."""
        if self._is_settled:
            return
        self._is_settled = True
        self._budget.run_up(-self._tokens, -self._cost)
        self._budget.charge(usage)

    def withdraw(self) -> None:
        """Uncount the turn: the prompt was not sent after all."""
        if not self._is_settled:
            self.settle(TurnUsage())
            self._budget.spent_turns -= 1
