"""How much the models of a graph can read, as far as LangChain knows it.

A compiled graph does not say which models it asks; they are in the variables of its nodes' functions, and
those that the user chooses are with the middleware that offers them. A model that is not found is no
trouble: then it is not told how full its context is.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.language_models import BaseChatModel
from langchain_core.runnables import RunnableBinding

if TYPE_CHECKING:
    from langgraph.pregel import Pregel


def context_sizes(graph: Pregel[Any, Any, Any, Any]) -> dict[str | None, int]:
    """The tokens that each model takes, by the name under which LangChain reports its calls."""
    sizes: dict[str | None, int] = {}
    for model in _models(graph):
        sizes |= context_size(model)
    return sizes


def context_size(model: object) -> dict[str | None, int]:
    """The same of one model; nothing if it does not say."""
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
    reported: Mapping[str, Any] = model._get_ls_params()
    name = reported.get("ls_model_name")
    return name if isinstance(name, str) else None
