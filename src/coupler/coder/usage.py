"""Counts what a session uses of its models, for the command /usage: calls, tokens, context and cost.

All figures are those that the models' servers report. They are kept in the session's state, so they are
stored with every turn and go on when the session is loaded. A copy of a session counts from zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from coupler.coder.setup import set_state_value, state_value
from coupler.events.events import TurnUsage

if TYPE_CHECKING:
    from coupler.agent.session import Session

USAGE_KEY = "usage"
"""Key in the session's state."""

COST_KEY = "coupler_cost"
"""Key in an answer's metadata for what its server says that it has cost, in US dollars: a list of numbers."""

MOST_MODELS = 50
"""Models of a session that are counted one by one; more are counted together."""

OTHERS = "other models"

NOTHING = "No model was asked in this session yet."


class ModelUsage(TurnUsage, frozen=True, kw_only=True, omit_defaults=True):
    """The calls of one model, and what its server has reported of them: tokens, and a cost in US dollars.

    Tokens from a cache count as read, too, and those that it has thought as written.
    """

    calls: int = 0
    unreported: int = 0
    """Calls of which the server has reported no tokens."""

    def plus(self, other: ModelUsage) -> ModelUsage:
        """Return the sum of both."""
        calls, unreported = self.calls + other.calls, self.unreported + other.unreported
        return ModelUsage(calls=calls, unreported=unreported, **structs.asdict(self + other))


_EARLIER_NAMES = {
    "input": "input_tokens",
    "output": "output_tokens",
    "cached": "cached_tokens",
    "cache_written": "cached_write_tokens",
    "thought": "thought_tokens",
}
"""The names under which earlier versions stored the tokens of a model."""


class ContextUsage(Struct, kw_only=True):
    """The tokens in the context window after the last model call, or after the conversation was shortened."""

    tokens: int
    window: int
    is_estimate: bool


class SessionUsage(Struct, kw_only=True):
    """The usage of a session."""

    session: str
    models: dict[str, ModelUsage] = {}
    context: ContextUsage | None = None

    @classmethod
    def of(cls, session: Session) -> SessionUsage:
        """Return what is stored of a session; nothing used if what is stored is of another, or unreadable."""
        try:
            stored = msgspec.convert(_with_names_of_today(state_value(session, USAGE_KEY)), cls)
        except msgspec.ValidationError:
            return cls(session=session.id)
        return stored if stored.session == session.id else cls(session=session.id, context=stored.context)

    def store(self, session: Session) -> None:
        """Put it into the session's state."""
        set_state_value(session, USAGE_KEY, msgspec.to_builtins(self))


def _with_names_of_today(stored: Any) -> Any:
    models = stored.get("models") if isinstance(stored, dict) else None
    if not isinstance(models, dict):
        return stored
    return {**stored, "models": {name: _renamed(each) for name, each in models.items()}}


def _renamed(model: Any) -> Any:
    if not isinstance(model, dict):
        return model
    return {_EARLIER_NAMES.get(name, name): value for name, value in model.items()}


def count_answer(
    session: Session, model: str | None, tokens: Mapping[str, Any] | None, about: Mapping[str, Any]
) -> None:
    """Add a model's answer, with LangChain's usage metadata and the answer's other metadata."""
    used = SessionUsage.of(session)
    name = model or OTHERS
    if name not in used.models and len(used.models) >= MOST_MODELS:
        name = OTHERS
    before = used.models.get(name, ModelUsage())
    models = {**used.models, name: before.plus(_usage_of(tokens, about))}
    structs.replace(used, models=models).store(session)


def note_context(
    session: Session, tokens: int, window: int | None = None, *, is_estimate: bool = True
) -> None:
    """Note how full the context is; without a window it is the one of before."""
    used = SessionUsage.of(session)
    if window is None:
        if used.context is None:
            return
        window = used.context.window
    context = ContextUsage(tokens=tokens, window=window, is_estimate=is_estimate)
    structs.replace(used, context=context).store(session)


def reported_cost(usage: object) -> float | None:
    """Return the cost in the usage that a server reports, as OpenRouter does; None if it says none."""
    cost = usage.get("cost") if isinstance(usage, Mapping) else None
    if isinstance(cost, bool) or not isinstance(cost, int | float):
        return None
    return float(cost) if math.isfinite(cost) and cost >= 0 else None


def _usage_of(tokens: Mapping[str, Any] | None, about: Mapping[str, Any]) -> ModelUsage:
    tokens = tokens or {}
    details = {name: tokens.get(f"{name}_token_details") or {} for name in ("input", "output")}
    costs = about.get(COST_KEY)
    usage = ModelUsage(
        calls=1,
        input=_count(tokens.get("input_tokens")),
        output=_count(tokens.get("output_tokens")),
        cached_read=_count(details["input"].get("cache_read")),
        cached_write=_count(details["input"].get("cache_creation")),
        thought=_count(details["output"].get("reasoning")),
        # Servers that report in every piece report the sum so far.
        cost=float(costs[-1]) if isinstance(costs, list) and costs else None,
    )
    return usage if usage.input or usage.output else structs.replace(usage, unreported=1)


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def usage_text(session: Session) -> str:
    """Return the answer to /usage, in Markdown."""
    used = SessionUsage.of(session)
    if not used.models:
        return "\n\n".join([NOTHING, *_context_lines(used.context)])
    total = ModelUsage()
    for each in used.models.values():
        total = total.plus(each)
    lines = [f"- {line}" for line in (*_lines(total), *_context_lines(used.context), _cost_line(used, total))]
    parts = ["Used in this session, as the models' servers report it:", "\n".join(lines)]
    if len(used.models) > 1:
        parts += ["By model:", "\n".join(_model_lines(used.models))]
    return "\n\n".join(parts)


def _lines(usage: ModelUsage) -> Iterator[str]:
    silent = f" ({usage.unreported:,} of them reported no tokens)" if usage.unreported else ""
    yield f"Model calls: {usage.calls:,}{silent}"
    cached = [f"{usage.cached_read:,} of them read from a cache"] if usage.cached_read else []
    cached += [f"{usage.cached_write:,} written to one"] if usage.cached_write else []
    yield ", ".join([f"Input: {usage.input:,} tokens", *cached])
    thought = [f"{usage.thought:,} of them thought"] if usage.thought else []
    yield ", ".join([f"Output: {usage.output:,} tokens", *thought])


def _context_lines(context: ContextUsage | None) -> Iterable[str]:
    if context is None:
        return ()
    share = context.tokens / max(context.window, 1)
    about = ", an estimate" if context.is_estimate else ""
    return (f"Context: {context.tokens:,} of {context.window:,} tokens ({share:.0%}{about})",)


def _cost_line(used: SessionUsage, total: ModelUsage) -> str:
    if total.cost is None:
        return "Cost: not reported"
    silent = any(each.cost is None for each in used.models.values())
    return f"Cost: {_dollars(total.cost)}{', without models whose servers report none' if silent else ''}"


def _model_lines(models: Mapping[str, ModelUsage]) -> Iterator[str]:
    from coupler.agent.session_export import code_span

    for name, usage in models.items():
        cost = [] if usage.cost is None else [f"cost: {_dollars(usage.cost)}"]
        figures = "; ".join([*_lines(usage), *cost])
        yield f"- {code_span(name)}: {figures[0].lower()}{figures[1:]}"


def _dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 1 else f"${amount:.4f}"
