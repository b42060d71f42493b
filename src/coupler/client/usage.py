"""What a turn has used, from the two places where agents report it.

One rule: tokens are those of the answer's `usage`; the context's fill is that of the last `usage_update`, and
the cost is what such updates, which count from the session's beginning, have grown by during the turn. An
agent that reports no tokens gets an estimate, marked as such.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct, UnsetType

from coupler.events import Usage

if TYPE_CHECKING:
    from coupler.schema.unstable import Usage as TokenUsage

CHARACTERS_PER_TOKEN = 4
"""What is assumed of agents that report nothing."""


class TurnUsage(Struct, frozen=True, kw_only=True):
    """Tokens and money of one prompt. `is_estimated` says that the tokens were guessed from the text."""

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
        """Both together, for prompts that took several turns; the context is that of the later one."""
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


def turn_usage(
    tokens: TokenUsage | None, before: Usage | None, after: Usage | None, characters: tuple[int, int]
) -> TurnUsage:
    """What a turn used. `before` and `after` are the session's usage at its ends; `characters` are those of
    the prompt and of everything the agent wrote."""
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
    """About as many tokens as so much text has."""
    return -(-characters // CHARACTERS_PER_TOKEN)


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


def _sum(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
