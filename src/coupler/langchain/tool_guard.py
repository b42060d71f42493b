"""Guards the tools of a finished graph: permission before they run, and errors told to the model.

A graph's own tools are its author's code and run unasked, unless a rule or a choice of the user's is against
it. One that raises would end the turn of a person who only sees that something went wrong; so the model is
told, and may do better, unless the author has said what is to happen. What runs tools in a graph has a place
for both, but only when it is made; so a copy is.
"""

from __future__ import annotations

import asyncio
import copy
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from functools import cache
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langgraph.errors import GraphBubbleUp, is_invalid_resume
from langgraph.prebuilt import ToolNode, tool_node
from langgraph.prebuilt.tool_node import ToolInvocationError

from coupler.agent.errors import describe
from coupler.langchain.current import current
from coupler.langchain.file_backends import starting_tool
from coupler.langchain.permission import ToolDecision, judge_now, permit, permit_and_wait, refusal_message
from coupler.runtime.extras import version_of

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall
    from langgraph.prebuilt.tool_node import ToolCallRequest
    from langgraph.pregel import Pregel

    from coupler.langchain.current import Current

log = logging.getLogger("coupler.langchain")

Execute = Callable[["ToolCallRequest"], Awaitable[Any]]

judged_call: ContextVar[str | None] = ContextVar("coupler_judged_call", default=None)
"""The id of the call that was decided about, and is about to run."""


def guarded(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """The graph with a guard before each of its tools; everything else is shared with the original."""
    guards = {
        name: node.copy({"bound": _guarded_node(node.bound)})
        for name, node in graph.nodes.items()
        if isinstance(node.bound, ToolNode) and _can_be_guarded(node.bound)
    }
    return graph.copy({"nodes": {**graph.nodes, **guards}}) if guards else graph


def _can_be_guarded(node: ToolNode) -> bool:
    if not all(hasattr(node, name) for name in ("_awrap_tool_call", "_wrap_tool_call", "_func", "_afunc")):
        _tell_of_unknown_version()
        return False
    # What wraps the tools in plain functions only is run on the loop, where nobody can be asked.
    return node._awrap_tool_call is not None or node._wrap_tool_call is None


@cache
def _tell_of_unknown_version() -> None:
    """Log, once, that tools have no guard; what is denied is still kept from running, by callbacks."""
    log.warning(
        "langgraph-prebuilt %s is not supported: a tool that raises ends the turn; "
        'pip install "coupler[langchain]" installs a version that is',
        version_of("langgraph-prebuilt"),
    )


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
            return error_message(request.tool_call, error)

    guarded_node._awrap_tool_call = guard
    # The copy's functions are still those of the original.
    guarded_node.func, guarded_node.afunc = guarded_node._func, guarded_node._afunc
    return guarded_node


def _is_cancel(error: BaseException, prompt: Current) -> bool:
    """True if the call itself is cancelled, and not only something that its tool waited for."""
    task = asyncio.current_task()
    is_cancelled = prompt.turn.is_cancelled or (task is not None and task.cancelling() > 0)
    return isinstance(error, asyncio.CancelledError) and is_cancelled


def _leaves_errors_open(node: ToolNode) -> bool:
    """True if the node has LangGraph's default handling of tools' errors, which ends the run."""
    usual = getattr(tool_node, "_default_handle_tool_errors", None)
    return usual is not None and getattr(node, "_handle_tool_errors", None) is usual


def error_message(call: Mapping[str, Any], error: BaseException) -> ToolMessage:
    """Return the message that the model reads of a tool that has raised."""
    return ToolMessage(
        f"Error: {describe(error)}", name=call["name"], tool_call_id=call["id"], status="error"
    )


async def permission_callbacks(current: Current) -> list[BaseCallbackHandler]:
    """Return the callbacks that keep tools from running, if a rule, a choice or a review is against any.

    The guard stands before the tools of the served graph itself. Agents inside of its tools have nodes of
    their own, and nodes may run tools by themselves; nothing can be put around those. But LangChain reports
    every tool before it runs, wherever that is, and a callback that raises keeps it from running. There are
    two, because only one that is awaited can ask the user, and only one that is not is heard by code that
    awaits nothing.
    """
    if current.calls.refused or await current.session.project.permissions().may_refuse():
        return [AsyncPermissionCallback(current), SyncPermissionCallback(current)]
    return []


class _PermissionCallback(BaseCallbackHandler):
    """Receives LangChain's callbacks about tools before they run."""

    run_inline = True
    raise_error = True
    ignore_llm = ignore_chat_model = ignore_chain = ignore_retriever = True
    ignore_retry = ignore_custom_event = True

    def __init__(self, current: Current) -> None:
        self._current = current

    def _call(
        self, serialized: Mapping[str, Any] | None, given: str, told: Mapping[str, Any]
    ) -> ToolCall | None:
        """Return the call that a tool is run for; None if it was decided about, or the tool asks itself."""
        about = (told.get("metadata") or {}).get("coupler")
        if isinstance(about, Mapping) and ("server" in about or about.get("asks") is True):
            return None
        call_id = str(told.get("tool_call_id") or told["run_id"])
        if judged_call.get() == call_id:
            return None
        inputs = told.get("inputs")
        return {
            "name": str((serialized or {}).get("name") or told.get("name") or "tool"),
            "args": dict(inputs) if isinstance(inputs, Mapping) else {"input": given},
            "id": call_id,
            "type": "tool_call",
        }

    def _refuse(self, call: ToolCall, reason: str) -> None:
        parent = self._current.call_id
        self._current.call_on_loop(self._show_refusal, call, parent, reason)
        raise ToolNotPermittedError(call, reason)

    def _show_refusal(self, call: ToolCall, parent: str | None, reason: str) -> None:
        calls = self._current.calls
        key = calls.key(call["id"] or "", parent)
        calls.announce(key, call["name"], call["args"], parent=parent)
        calls.settle(key, "failed", reason=reason)


class AsyncPermissionCallback(_PermissionCallback):
    """Asks the user about tools, where callbacks are awaited."""

    async def on_tool_start(
        self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **more: Any
    ) -> None:
        if not self._current.is_on_loop:
            return  # this was not awaited: the other one decides
        call = self._call(serialized, input_str, {"run_id": run_id, **more})
        if call is not None:
            decision: ToolDecision = await permit(self._current, call, starting_tool(), effect=None)
            if not decision.runs:
                self._refuse(call, decision.text)


class SyncPermissionCallback(_PermissionCallback):
    """Refuses tools, also where callbacks are not awaited; it decides last."""

    def on_tool_start(self, serialized: dict[str, Any], input_str: str, *, run_id: UUID, **more: Any) -> None:
        call = self._call(serialized, input_str, {"run_id": run_id, **more})
        judged_call.set(None)  # what the tool runs itself is another matter
        if call is None:
            return
        if self._current.is_on_loop:
            reason = judge_now(self._current, call, starting_tool())
        else:
            decision = permit_and_wait(self._current, call, starting_tool(), effect=None)
            reason = None if decision.runs else decision.text
        if reason is not None:
            self._refuse(call, reason)


class ToolNotPermittedError(ToolInvocationError):
    """Keeps a tool from running; the model is told, as it is of invalid arguments."""

    def __init__(self, call: ToolCall, reason: str) -> None:
        self.message = refusal_message(call, reason).text
        Exception.__init__(self, self.message)
