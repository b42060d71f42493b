"""What a prompt has used, in tokens: all models' together, and how full the last one's context is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from coupler.agent.turn import MOST_TOKENS, tokens, usage

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage

    from coupler.agent.turn import Turn


class Usage:
    """Counts for one prompt."""

    def __init__(self, turn: Turn, sizes: Mapping[str | None, int] = MappingProxyType({})) -> None:
        """`sizes` are the tokens that models can read, by their names, as far as that is known."""
        self._turn = turn
        self._sizes = sizes
        self._size: int | None = None
        self._spent: Counter[str] = Counter()

    def begin(self, model: str | None) -> None:
        """The model of this name is asked at the top."""
        self._size = self._sizes.get(model)

    def add(self, message: AIMessage, *, is_nested: bool) -> None:
        """A model has answered, at the top or inside of a tool call."""
        used = message.usage_metadata
        if not used:
            return
        self._spent["input"] += _count(used.get("input_tokens"))
        self._spent["output"] += _count(used.get("output_tokens"))
        read = used.get("input_token_details")
        written = used.get("output_token_details")
        self._add_detail("cached_read", read, "cache_read")
        self._add_detail("cached_write", read, "cache_creation")
        self._add_detail("thought", written, "reasoning")
        self._report(None if is_nested else _count(used.get("total_tokens")))

    def _add_detail(self, name: str, details: object, key: str) -> None:
        if isinstance(details, Mapping) and details.get(key) is not None:
            self._spent[name] += _count(details[key])

    def _report(self, total: int | None) -> None:
        spent = self._spent
        # LangChain counts what was read from a cache as input, too, and what was thought as output.
        self._turn.tokens = tokens(
            spent["input"],
            spent["output"],
            spent.get("cached_read"),
            spent.get("cached_write"),
            spent.get("thought"),
            spent["input"] + spent["output"],
        )
        if total and self._size:
            self._turn.session.outlet.send(usage(total, max(self._size, total), None, "USD"))


def _count(value: object) -> int:
    return min(value, MOST_TOKENS // 4) if isinstance(value, int) and value > 0 else 0
