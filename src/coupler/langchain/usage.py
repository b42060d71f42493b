"""Counts the tokens of a prompt: of all models together, and how full the last one's context is."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding

from coupler.agent.turn import MOST_TOKENS, token_usage, usage_event

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage
    from langgraph.pregel import Pregel

    from coupler.agent.session import Session
    from coupler.agent.turn import Turn

    AnswerCounter: TypeAlias = Callable[[Session, str | None, AIMessage], None]
    """Counts an answer of the model of this name."""


class TokenUsage:
    """Counts the tokens of one prompt."""

    def __init__(
        self,
        turn: Turn,
        sizes: Mapping[str | None, int] = MappingProxyType({}),
        count: AnswerCounter | None = None,
    ) -> None:
        """`sizes` are the tokens that models can read, by their names, as far as that is known.

        `count` is called with every answer of a model, also with those that report no tokens.
        """
        self._turn = turn
        self._sizes = sizes
        self._count = count
        self._size: int | None = None
        self._spent: Counter[str] = Counter()

    def begin(self, model: str | None) -> None:
        """Note the context size of the model that is asked at the top."""
        self._size = self._sizes.get(model)

    def add(self, message: AIMessage, *, is_nested: bool, model: str | None = None) -> None:
        """Add the usage of a model's answer, at the top or inside of a tool call, and report it."""
        if self._count is not None:
            self._count(self._turn.session, model, message)
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
        self._turn.tokens = token_usage(
            spent["input"],
            spent["output"],
            spent.get("cached_read"),
            spent.get("cached_write"),
            spent.get("thought"),
            spent["input"] + spent["output"],
        )
        if total and self._size:
            self._turn.session.outlet.send(usage_event(total, max(self._size, total), None, "USD"))


def _count(value: object) -> int:
    return min(value, MOST_TOKENS // 4) if isinstance(value, int) and value > 0 else 0


def context_sizes(graph: Pregel[Any, Any, Any, Any]) -> dict[str | None, int]:
    """Return the tokens that each model of a graph takes, by the names that LangChain reports.

    A compiled graph does not say which models it asks; they are in the variables of its nodes' functions, and
    those that the user chooses are with the middleware that offers them. A model that is not found is no
    trouble: then it is not told how full its context is.
    """
    sizes: dict[str | None, int] = {}
    for model in _models(graph):
        sizes |= context_size(model)
    return sizes


def context_size(model: object) -> dict[str | None, int]:
    """Return a model's name with the tokens that it takes; nothing if it does not say."""
    if not isinstance(model, BaseChatModel):
        return {}
    size = (model.profile or {}).get("max_input_tokens")
    return {_name_of(model): size} if isinstance(size, int) and size > 0 else {}


def _models(graph: Pregel[Any, Any, Any, Any]) -> Iterator[BaseChatModel]:
    for node in graph.nodes.values():
        for function in (getattr(node.bound, "func", None), getattr(node.bound, "afunc", None)):
            for value in _variables(function):
                bound = value.bound if isinstance(value, RunnableBinding) else value
                if isinstance(bound, BaseChatModel):
                    yield bound


def _variables(function: Any) -> Iterator[Any]:
    function = inspect.unwrap(getattr(function, "__func__", function))
    if not inspect.isfunction(function):
        return
    variables = inspect.getclosurevars(function)
    yield from variables.nonlocals.values()
    yield from variables.globals.values()


def _name_of(model: BaseChatModel) -> str | None:
    # A version of LangChain without it tells the name with the usage only.
    report: Callable[[], Mapping[str, Any]] | None = getattr(model, "_get_ls_params", None)
    name = report().get("ls_model_name") if report is not None else None
    return name if isinstance(name, str) else None
