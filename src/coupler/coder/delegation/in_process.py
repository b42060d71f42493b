"""A sub-agent at work: a graph of its own inside of the tool call, which knows nothing of the conversation.

What its models say and its tools do is nested below the call that is running, because it runs in there.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.errors import GraphBubbleUp

from coupler.agent.errors import describe
from coupler.coder.delegation.outcome import Outcome
from coupler.langchain.errors import failure_of
from coupler.langchain.tool_guard import guarded

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.pregel import Pregel

    from coupler.coder.delegation.sub_agent import SubAgent, SubAgentMiddleware

log = logging.getLogger("coupler.coder")

Graph: TypeAlias = "Pregel[Any, Any, Any, Any]"
MakeGraph: TypeAlias = "Callable[[SubAgent], Graph]"
"""Puts a coder together for a sub-agent."""

STEPS_A_TURN = 40
"""Steps of the graph that one turn may take: one for each node, and middleware has some."""


class SubAgentWork:
    """One task of one sub-agent, which the middleware `limits` keeps within its bounds."""

    def __init__(self, sub_agent: SubAgent, make_graph: MakeGraph, limits: SubAgentMiddleware) -> None:
        self._sub_agent = sub_agent
        self._make_graph = make_graph
        self._limits = limits
        self._said = ""

    @property
    def turns(self) -> int:
        return self._limits.turns

    async def done(self, task: str) -> Outcome:
        """Have the task carried out; what stops the graph around this one is raised as well."""
        try:
            await self._run(task)
        except GraphBubbleUp:
            raise
        except Exception as error:
            return self._failed(error)
        if self._limits.is_stopped:
            return Outcome("stopped", self._said, self.turns, "max_turn_requests")
        return Outcome("completed", self._said, self.turns, "end_turn")

    async def _run(self, task: str) -> None:
        # Without a checkpointer: what a sub-agent knows ends with its task.
        graph = guarded(self._make_graph(self._sub_agent)).copy({"checkpointer": False})
        steps: RunnableConfig = {"recursion_limit": STEPS_A_TURN * (self._limits.most_turns + 1)}
        given = {"messages": [HumanMessage(task)]}
        async for values in graph.astream(given, steps, stream_mode="values"):
            self._said = _last_said(values) or self._said

    def _failed(self, error: Exception) -> Outcome:
        failure = failure_of(error)
        reason = failure.message if failure is not None else describe(error)
        log.warning("the sub-agent %s failed: %s", self._sub_agent.name, reason)
        report = f"{reason}\n\nBefore that it said:\n{self._said}" if self._said else reason
        return Outcome("failed", report, self.turns)


def _last_said(values: Any) -> str:
    """The last text of the model."""
    messages = values.get("messages") if isinstance(values, dict) else None
    for message in reversed(messages or []):
        if isinstance(message, AIMessage) and message.text.strip():
            return str(message.text)
    return ""
