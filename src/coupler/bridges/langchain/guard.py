"""A guard around the tools of a finished graph: the rules of `coupler.toml` before them, a net below them.

A graph's own tools are its author's code and run unasked, unless a rule or a choice of the user's is against
it. One that raises would end the turn of a person who only sees that something went wrong; so the model is
told, and may do better, unless the author has said what is to happen. What runs tools in a graph has a place
for both, but only when it is made; so a copy is.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt import ToolNode, tool_node

from coupler.agent.errors import describe
from coupler.bridges.langchain.asking.gate import judged_call
from coupler.bridges.langchain.asking.permission import permit
from coupler.bridges.langchain.current import current

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.pregel import Pregel

    from coupler.bridges.langchain.current import Current

Execute = Callable[["ToolCallRequest"], Awaitable[Any]]


def guarded(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """The graph with a guard before each of its tools; everything else is shared with the original."""
    guards = {
        name: node.copy({"bound": _guarded_node(node.bound)})
        for name, node in graph.nodes.items()
        if isinstance(node.bound, ToolNode) and _can_be_guarded(node.bound)
    }
    return graph.copy({"nodes": {**graph.nodes, **guards}}) if guards else graph


def _can_be_guarded(node: ToolNode) -> bool:
    # What wraps the tools in plain functions only is run on the loop, where nobody can be asked.
    has_place = hasattr(node, "_awrap_tool_call") and hasattr(node, "_afunc")
    return has_place and (node._awrap_tool_call is not None or node._wrap_tool_call is None)


def _guarded_node(node: ToolNode) -> ToolNode:
    guarded_node = copy.copy(node)
    inner = node._awrap_tool_call
    has_net = _leaves_errors_open(node)

    async def guard(request: ToolCallRequest, execute: Execute) -> Any:
        # Innermost: what middleware refuses, asks about or changes is not asked about before.
        async def execute_if_permitted(request: ToolCallRequest) -> Any:
            prompt = current()
            if prompt is None:
                return await execute(request)
            decision = await permit(prompt, request.tool_call, request.tool, effect=None)
            if not decision.runs:
                return decision.message_for(request.tool_call)
            judged_call.set(request.tool_call["id"])
            return await execute(request)

        try:
            return await (
                inner(request, execute_if_permitted) if inner is not None else execute_if_permitted(request)
            )
        except GraphBubbleUp:
            raise
        except (Exception, asyncio.CancelledError) as error:
            # Outermost: middleware may have tried again, or had another answer.
            prompt = current()
            if not has_net or prompt is None or is_invalid_resume(error) or _is_cancel(error, prompt):
                raise
            return failed(request.tool_call, error)

    guarded_node._awrap_tool_call = guard
    # The copy's functions are still those of the original.
    guarded_node.func, guarded_node.afunc = guarded_node._func, guarded_node._afunc
    return guarded_node


def _is_cancel(error: BaseException, prompt: Current) -> bool:
    """Whether the call itself is cancelled, and not only something that its tool has waited for."""
    task = asyncio.current_task()
    is_cancelled = prompt.turn.is_cancelled or (task is not None and task.cancelling() > 0)
    return isinstance(error, asyncio.CancelledError) and is_cancelled


def _leaves_errors_open(node: ToolNode) -> bool:
    """Whether nobody has said what becomes of a tool's errors: by default they end the run."""
    usual = getattr(tool_node, "_default_handle_tool_errors", None)
    return usual is not None and getattr(node, "_handle_tool_errors", None) is usual


def failed(call: Mapping[str, Any], error: BaseException) -> ToolMessage:
    """What the model is told of a tool that has raised."""
    return ToolMessage(
        f"Error: {describe(error)}", name=call["name"], tool_call_id=call["id"], status="error"
    )
