"""Adapts LangGraph graphs to agents, for `serve` and everything else that takes an agent."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from langgraph.pregel import Pregel

from coupler.agent.agent import FrameworkAgent
from coupler.agent.factory import origin_of
from coupler.agent.startup.serve_options import NO_OPTIONS, ServeOptions

UNNAMED = "LangGraph"
"""The name that LangGraph gives to a graph without one."""


def adapt(target: Any, options: ServeOptions = NO_OPTIONS) -> FrameworkAgent | None:
    """Return a compiled graph as an agent; one that was not compiled yet is compiled."""
    from langchain_core.language_models import BaseChatModel
    from langchain_core.runnables import Runnable
    from langgraph.graph import StateGraph

    graph = target.compile() if isinstance(target, StateGraph) else target
    if isinstance(graph, Pregel):
        return _adopted(graph, target, options)
    if isinstance(target, BaseChatModel):
        raise TypeError(
            f"serve takes graphs of LangGraph, and this is a {type(target).__name__}, a model: "
            "call serve(create_agent(model, tools)), with `from langchain.agents import create_agent`"
        )
    if isinstance(target, Runnable):
        raise TypeError(
            f"serve takes graphs of LangGraph, and this is a {type(target).__name__}: give a model and its "
            "tools to langchain.agents.create_agent, or put the chain into a node of a StateGraph"
        )
    return None


def is_adaptable(value: Any) -> bool:
    """True if this is a graph that can be run."""
    return isinstance(value, Pregel)


def _adopted(graph: Pregel[Any, Any, Any, Any], target: object, options: ServeOptions) -> FrameworkAgent:
    from coupler.langchain.graph_agent import GraphAgent
    from coupler.langchain.messages import DisplayOptions

    look = DisplayOptions(
        text=options.text is not False, thoughts=options.thoughts is not False, blocks=options.blocks
    )
    module, name = origin_of(target) or _program(graph)
    own = graph.get_name()
    called = own if own and own != UNNAMED else name
    return GraphAgent(
        graph,
        (module, name),
        called,
        look=look,
        store=options.store,
        commands=options.commands or (),
        keep_cut_off=options.keep_cut_off is not False,
    )


def _program(graph: Pregel[Any, Any, Any, Any]) -> tuple[str, str]:
    """Return the running program as the origin of a graph that is in no variable of a module."""
    file = getattr(sys.modules.get("__main__"), "__file__", None)
    stem = Path(file).stem if isinstance(file, str) else "agent"
    return "__main__", stem
