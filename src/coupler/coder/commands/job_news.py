"""`JobNews`: the model hears of background jobs that have ended, with the next prompt or a tool's result.

The news is put into a message that is there anyway: two messages of the user in a row, or one in the middle
of a turn, are more than the templates of some models take.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import HumanMessage, ToolMessage

from coupler.langchain.middleware import M, with_text

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from coupler.coder.commands.background import BackgroundJobs


class JobNews(AgentMiddleware[Any, Any, Any]):
    """Tells what has become of a session's background jobs."""

    def __init__(self, jobs: BackgroundJobs) -> None:
        super().__init__()
        self._jobs = jobs

    async def abefore_agent(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Add what happened since the last turn to the prompt."""
        messages = state["messages"]
        if not messages or not isinstance(messages[-1], HumanMessage):
            return None
        news = self._jobs.take_news()
        # A message with the same id takes the place of the one that is there.
        return {"messages": [_with(messages[-1], news)]} if news else None

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Add what happened meanwhile to the result."""
        result = await handler(request)
        if not isinstance(result, ToolMessage):
            return result
        news = self._jobs.take_news()
        return _with(result, news) if news else result


def _with(message: M, news: str) -> M:
    return with_text(message, f"[Note of Coupler, not of the user: {news}]")
