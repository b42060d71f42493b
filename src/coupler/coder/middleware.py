"""`KeptOutputs`: what any tool returns, cut to what a model can take, with the whole in a file.

The tools of MCP servers and delegates return as much as they like. A model that gets all of it has no room
for anything else; one that gets the beginning, the end and the name of a file looks up what it needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import HumanMessage, ToolMessage

from coupler.langchain.middleware import M, with_text
from coupler.runtime.threads import in_thread

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from coupler.coder.background_jobs import BackgroundJobs
    from coupler.coder.outputs import Outputs


LONGEST = 30_000
"""Characters of a result that a model gets whole."""

HEAD, TAIL = 10_000, 15_000
"""Characters of the beginning and of the end of a longer one."""

IN_PARTS = frozenset({"read_file"})
"""Tools that bound what they return, and say how to go on: a file of a part of a file helps nobody."""


class KeptOutputs(AgentMiddleware[Any, Any, Any]):
    """Keeps what is too long in the session's outputs."""

    def __init__(self, outputs: Outputs) -> None:
        super().__init__()
        self._outputs = outputs

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Run the tool, and shorten what it returns."""
        result = await handler(request)
        if not isinstance(result, ToolMessage) or request.tool_call["name"] in IN_PARTS:
            return result
        content = await self._shortened(result.content, request.tool_call["name"])
        return result if content is result.content else result.model_copy(update={"content": content})

    async def _shortened(self, content: Any, tool: str) -> Any:
        """The same, if nothing in it is too long."""
        if isinstance(content, str):
            return await self._shortened_text(content, tool)
        if not isinstance(content, list):
            return content
        blocks = [await self._shortened_block(block, tool) for block in content]
        is_same = all(new is old for new, old in zip(blocks, content, strict=True))
        return content if is_same else blocks

    async def _shortened_block(self, block: Any, tool: str) -> Any:
        if isinstance(block, str):
            return await self._shortened_text(block, tool)
        if isinstance(block, dict) and isinstance(text := block.get("text"), str):
            short = await self._shortened_text(text, tool)
            return block if short is text else {**block, "text": short}
        return block

    async def _shortened_text(self, text: str, tool: str) -> str:
        if len(text) <= LONGEST:
            return text
        path = await in_thread(lambda: self._outputs.keep(text, tool))
        left_out = len(text) - HEAD - TAIL
        return f"{text[:HEAD]}\n[… {left_out:,} characters left out …]\n{text[-TAIL:]}\n({_whole(path)})"


def _whole(path: str | None) -> str:
    if path is None:
        return "this is the beginning and the end; the rest could not be kept"
    return f"this is the beginning and the end: all of it is in {path}, which read_file and search can read"


# `JobNews`: the model hears of background jobs that have ended, with the next prompt or a tool's result.
#
# The news is put into a message that is there anyway: two messages of the user in a row, or one in the middle
# of a turn, are more than the templates of some models take.


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
