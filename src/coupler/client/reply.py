"""Builds the reply to one prompt from its events, and counts what it used against a budget."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from msgspec import Struct, UnsetType, json
from msgspec.structs import replace

from coupler.client.errors import AgentError, AgentErrorKind
from coupler.client.limits import ITEM_BYTES, Cut
from coupler.events import Content, Event, Plan, Stop, Text, Thought, ToolCall, Usage
from coupler.events.events import TurnUsage, plain_text_of
from coupler.events.fold import Messages
from coupler.schema.v1 import Diff, PlanEntry

if TYPE_CHECKING:
    from coupler.client.policy import Decision
    from coupler.schema.unstable import Usage as TokenUsage


OutputWay: TypeAlias = Literal["tool", "text"]
"""Ways in which typed output comes: by the `structured_output` tool, or as JSON in the text."""

TokenCounts: TypeAlias = dict[str, int]
"""Tokens by the names that `TurnUsage` has for them."""

CHANGING_KINDS = frozenset({"edit", "delete", "move"})

BY_ESTIMATE = ", by estimate"
"""Follows a number of tokens that is an estimate, wherever people read one."""

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


class Reply(Struct, frozen=True):
    """The result of one prompt. Messages of one turn are separated by blank lines.

    `content` holds blocks besides text, such as images. `permissions` are the agent's permission requests
    with their decisions. `output` is set if the prompt asked for one. `rounds` counts the turns that a prompt
    took; text, thoughts, stop reason and `meta`, the `_meta` of the answer, are those of the last. `cut` is
    set if a turn was over one of the `limits` of `connect`: it counts what is missing.
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
    cut: Cut | None = None

    @property
    def is_complete(self) -> bool:
        """True if the stop reason is `end_turn` and no text is cut off.

        A refusal, limit, cancel or failed run is no success.
        """
        return self.stop_reason == "end_turn" and self.failure is None and not self.is_text_cut

    @property
    def is_text_cut(self) -> bool:
        """True if text of the agent is missing, because it was over a limit."""
        return self.cut is not None and self.cut.characters > 0

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
        if self.stop_reason == "end_turn" and self.failure is not None:
            raise AgentError("refused", f"the workflow failed: {self.failure}", reply=self)
        if self.stop_reason == "end_turn":
            raise AgentError("limit", f"the answer is not whole: {self.cut}", reply=self)
        kind, message = _FAILED_STOPS.get(
            self.stop_reason, ("prompt", f"the turn ended for a reason of its own: {self.stop_reason!r}")
        )
        raise AgentError(kind, message, reply=self)


class ReplyBuilder:
    """Collects the events of a turn into a reply."""

    def __init__(
        self, asked: int = 0, before: Usage | None = None, reports: TokenReports | None = None
    ) -> None:
        """Begin a reply to a prompt of `asked` characters.

        `before` is the session's usage until then, `reports` knows the tokens of its earlier answers.
        """
        self._asked = asked
        self._reports = reports or TokenReports()
        self._streamed_tokens: TokenCounts | None = None
        self._before = before
        self._usage = before
        self._written = 0
        self._text = Messages()
        self._thoughts = Messages()
        self._tool_calls: dict[str, ToolCall] = {}
        self._unreported: dict[str, ToolCall] = {}
        """The calls that the agent has only asked about so far."""
        self._plan: tuple[PlanEntry, ...] = ()
        self._content: list[Content] = []
        self._permissions: deque[tuple[Decision, int]] = deque()
        self._permission_bytes = 0

    def add(self, event: Event) -> None:
        """Add an event."""
        match event:
            case Text(text):
                if text:  # some agents send empty pieces around tool calls
                    self._written += len(text)
                    self._text.add(event)
                    self._thoughts.interrupt()
                elif event.meta is not None:
                    self._count_streamed(event.meta)
            case Thought(text):
                if text:
                    self._written += len(text)
                    self._thoughts.add(event)
            case ToolCall():
                self._add_call(event)
                self._text.interrupt()
                self._thoughts.interrupt()
            case Content(role="agent"):
                self._content.append(event)
            case Plan():
                self._plan = event.entries
            case Usage():
                self._usage = event

    def decided(self, decision: Decision, most: int) -> int:
        """Add a decision about a permission request, and its call if the agent has not reported that.

        Some agents report a call only once it is allowed, and one that was denied never. Holds the latest
        decisions, of `most` bytes at most; returns how many were dropped.
        """
        call = decision.tool_call
        if call.id not in self._tool_calls or call.id in self._unreported:
            status = call.status if decision.is_allowed else "failed"
            self._unreported[call.id] = self._tool_calls[call.id] = replace(call, status=status)
        size = len(json.encode(call)) + ITEM_BYTES
        self._permissions.append((decision, size))
        self._permission_bytes += size
        dropped = 0
        while self._permission_bytes > most and len(self._permissions) > 1:
            oldest, size = self._permissions.popleft()
            self._permission_bytes -= size
            if oldest.tool_call.id in self._unreported:
                self.forget_call(oldest.tool_call.id)
            dropped += 1
        return dropped

    def forget_call(self, id: str) -> bool:
        """Drop a call that is held no longer; returns whether it was one of this turn."""
        self._unreported.pop(id, None)
        return self._tool_calls.pop(id, None) is not None

    @property
    def rejected(self) -> list[Decision]:
        """The decisions by which calls were not permitted; of several about one call, the last counts."""
        last = {decision.tool_call.id: decision for decision, _ in self._permissions}
        return [decision for decision in last.values() if not decision.is_allowed]

    @property
    def usage(self) -> TurnUsage:
        """The usage so far."""
        return self._turn_usage(self._streamed_tokens)

    @property
    def rough_tokens(self) -> int:
        """A cheap estimate of the tokens so far, for every event."""
        return estimated_tokens(self._asked + self._written)

    def finished(self, stop: Stop, cut: Cut | None = None) -> Reply:
        """Return the reply of a turn that is over; `cut` counts what was left out of it."""
        told = tokens_in_meta(stop.meta) if stop.usage is None else _counted(stop.usage)
        usage = self._turn_usage(self._streamed_tokens)
        if (relayed := relayed_tokens(stop.meta)) is not None:
            usage = replace(self._turn_usage(relayed[0]), is_estimated=relayed[1])
        elif told is not None:
            tokens, is_sure = self._reports.of_turn(told, estimated_tokens(self._written))
            usage = replace(self._turn_usage(tokens), is_estimated=not is_sure)
        return Reply(
            self._text.joined(),
            stop.reason,
            self._thoughts.joined(),
            tuple(self._calls()),
            self._plan,
            usage,
            tuple(self._content),
            tuple(decision for decision, _ in self._permissions),
            meta=stop.meta,
            cut=cut,
        )

    def _calls(self) -> Iterator[ToolCall]:
        """Return the calls but those that were allowed and never reported: some agents ask by other ids."""
        for call in self._tool_calls.values():
            if call.id not in self._unreported or call.status == "failed":
                yield call

    def _add_call(self, call: ToolCall) -> None:
        asked = self._unreported.pop(call.id, None)
        if asked is not None and not call.title:
            call = replace(call, title=asked.title, kind=asked.kind)
        self._tool_calls[call.id] = call

    def _turn_usage(self, tokens: TokenCounts | None) -> TurnUsage:
        return turn_usage(tokens, self._before, self._usage, (self._asked, self._characters()))

    def _count_streamed(self, meta: Mapping[str, Any]) -> None:
        """Take note of the tokens that some agents report beside the text: of a request, or so far."""
        if (so_far := _status_line(meta)) is not None:
            self._streamed_tokens = so_far
        elif (counts := tokens_in_meta(meta)) is not None:
            before = self._streamed_tokens or {}
            self._streamed_tokens = {name: before.get(name, 0) + counts[name] for name in counts}

    def _characters(self) -> int:
        shown = (plain_text_of(item) or "" for call in self._tool_calls.values() for item in call.content)
        return self._written + sum(map(len, shown))


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
        cut=later.cut
        if earlier.cut is None
        else earlier.cut
        if later.cut is None
        else earlier.cut + later.cut,
    )


def turn_usage(
    tokens: TokenCounts | None, before: Usage | None, after: Usage | None, characters: tuple[int, int]
) -> TurnUsage:
    """Compute the usage of a turn from the two places where agents report it.

    Tokens are those that the agent has counted, or an estimate that is marked as such. The context is that of
    the last `usage_update`; the cost is what such updates, which count from the session's beginning, have
    grown by during the turn. `before` and `after` are the session's usage at the turn's ends; `characters`
    are those of the prompt and of everything the agent wrote.
    """
    cost, currency = _cost(before, after)
    counted = _estimated(*characters) if tokens is None else tokens
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


class TokenReports:
    """Converts the tokens that a session's answers report into those of each turn.

    Some agents report the sum since the session's beginning. `sums` is what is known of this one. If nothing
    is, a report is taken for a sum if all its numbers have grown since the one before, and its input contains
    that of another first turn: what an agent sends to its model only gets longer. One report that is no sum
    settles it; until then the difference is an estimate. So is the first turn of a session that was opened
    before, if the agent is known to sum: nobody knows what its sum was.
    """

    def __init__(self, sums: bool | None = None, *, has_history: bool = False) -> None:
        self._sums = sums
        self._has_history = has_history
        self._first: TokenCounts | None = None
        self._last: TokenCounts | None = None

    @property
    def is_empty(self) -> bool:
        """True if no answer has reported tokens: all that is known is estimated from the text."""
        return self._last is None

    @property
    def sum(self) -> TokenCounts | None:
        """The sum that was reported last; None if there is none, or the agent is not known to sum."""
        return self._last if self._sums is True else None

    def go_on_from(self, sum: TokenCounts | None) -> None:
        """Take the sum that the session had when it was left, unless a later one is known."""
        if self._sums is True and self._last is None and sum is not None and sum.keys() == _META_NAMES.keys():
            self._first = self._last = sum

    def of_turn(self, told: TokenCounts, written: int) -> tuple[TokenCounts | None, bool]:
        """Return the tokens of the turn whose answer told this, and whether they are sure.

        It wrote about `written` tokens. None if what it told says nothing of the turn.
        """
        first, last = self._first, self._last
        self._first, self._last = first or told, told
        if first is None or last is None or self._sums is False:
            is_unknown_sum = self._has_history and self._sums is True
            return (None, False) if is_unknown_sum else (told, True)
        grown = {name: told[name] - last[name] for name in told}
        if self._sums is None:
            self._sums = None if _is_a_turns(grown, first, written) else False
        if self._sums is False or any(grown[name] < 0 for name in ("input", "output", "total")):
            return told, True  # an agent that sums has begun to count anew
        return {name: max(value, 0) for name, value in grown.items()}, self._sums is True


def _is_a_turns(grown: TokenCounts, first: TokenCounts, written: int) -> bool:
    """Return whether the difference of two reports can be the usage of a whole turn."""
    return grown["input"] >= first["input"] > 0 and grown["output"] >= max(written // 2, 1)


MOST_TOKENS = 2**63
"""A count that is not below this is no count."""

_STATUS_LINE = re.compile(r"(?P<input>[\d,]+) in, (?P<output>[\d,]+) out\b")

_META_NAMES = {
    "input": ("inputTokens", "input_tokens"),
    "output": ("outputTokens", "output_tokens"),
    "cached_read": ("cachedReadTokens", "cached_read_tokens"),
    "cached_write": ("cachedWriteTokens", "cached_write_tokens"),
    "thought": ("thoughtTokens", "thought_tokens"),
    "total": ("totalTokens", "total_tokens"),
}


def tokens_in_meta(meta: Mapping[str, Any] | None) -> TokenCounts | None:
    """Return the tokens that an agent reports in `_meta`; None if it reports none there.

    `quota.token_count` is Gemini CLI's, `usage` Qwen Code's, and a status line fast-agent's.
    """
    if not meta:
        return None
    quota = meta.get("quota")
    counts = quota.get("token_count") if isinstance(quota, Mapping) else meta.get("usage")
    return _counts_in(counts) if isinstance(counts, Mapping) else _status_line(meta)


def tokens_meta(usage: TurnUsage) -> dict[str, Any]:
    """Return what a relay adds to `_meta.coupler` of an answer: the turn's tokens, as it has counted them.

    The relay answers in the name of its agent, and has already made up for what is particular about it.
    """
    counts = {spellings[0]: getattr(usage, name) for name, spellings in _META_NAMES.items()}
    return {"tokens": {**counts, "isEstimated": usage.is_estimated}}


def relayed_tokens(meta: Mapping[str, Any] | None) -> tuple[TokenCounts, bool] | None:
    """Return the turn's tokens as a relay has counted them, and whether they are an estimate."""
    ours = (meta or {}).get("coupler")
    told = ours.get("tokens") if isinstance(ours, Mapping) else None
    counts = _counts_in(told) if isinstance(told, Mapping) else None
    return None if counts is None or told is None else (counts, told.get("isEstimated") is not False)


def _counts_in(told: Mapping[str, Any]) -> TokenCounts | None:
    counts: TokenCounts = {}
    for name, spellings in _META_NAMES.items():
        value = next((told[each] for each in spellings if each in told), 0)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < MOST_TOKENS:
            return None
        counts[name] = value
    counts["total"] = counts["total"] or counts["input"] + counts["output"]
    return counts if counts["total"] else None


def _status_line(meta: Mapping[str, Any]) -> TokenCounts | None:
    inner = meta.get("field_meta")
    metrics = (inner if isinstance(inner, Mapping) else meta).get("openhands.dev/metrics")
    line = metrics.get("status_line") if isinstance(metrics, Mapping) else None
    found = _STATUS_LINE.search(line[:LONGEST_STATUS_LINE]) if isinstance(line, str) else None
    if found is None:
        return None
    words = found.groupdict()
    return _counts_in({f"{name}_tokens": int(words[name].replace(",", "") or 0) for name in words})


LONGEST_STATUS_LINE = 200
"""Characters of a status line that are looked at."""


def _counted(tokens: TokenUsage) -> TokenCounts:
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
            estimate = BY_ESTIMATE if self.is_estimated or self.running_tokens or tokens else ""
            return f"the budget of {self.tokens} tokens is spent ({used} used{estimate})"
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
