"""`acp.tools(…)`: how tool calls look in the editor, and the tools of the session's MCP servers."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain_core.tools import BaseTool

from coupler.bridges.langchain.current import Current, HeldUpError, current
from coupler.bridges.langchain.mcp.names import Prefix, checked
from coupler.bridges.langchain.mcp.tools import mcp_tools
from coupler.bridges.langchain.middleware.name import own_name
from coupler.bridges.langchain.middleware.permissions import Result, requested_tool
from coupler.bridges.langchain.tool_calls.overrides import (
    ContentOverride,
    KindOverride,
    LocationsOverride,
    Overrides,
    TitleOverride,
    Which,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

log = logging.getLogger("coupler.bridges")


class ToolsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Presents tool calls as their author wants, and gives the agent the editor's MCP tools.

    `kind`, `title`, `content` and `locations` are functions, or mappings from patterns of tool names.
    `starts` says which calls are shown while they run, `results` of which it is shown what they returned.
    With `mcp` the tools of the session's MCP servers are offered to the model; `prefix` says when the
    server's name stands before a tool's: on "collision", "always" or "never".
    """

    def __init__(
        self,
        *,
        kind: KindOverride | None = None,
        title: TitleOverride | None = None,
        content: ContentOverride | None = None,
        locations: LocationsOverride | None = None,
        starts: Which = True,
        results: Which = True,
        mcp: bool = True,
        prefix: Prefix = "collision",
    ) -> None:
        super().__init__()
        self._name = own_name("acp.tools")
        self._overrides = Overrides(
            kind=kind, title=title, content=content, locations=locations, starts=starts, results=results
        )
        self._offers_mcp = mcp
        self._prefix = checked(prefix)

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Have the calls of this model shown as wanted, and offer the MCP servers' tools to it."""
        served = current()
        if served is None:
            return handler(request)
        self._prepare(served, request)
        if self._offers_mcp and served.session.servers.names:
            try:
                request = _with(served.wait_for(self._found(served, request)), served, request)
            except HeldUpError as error:
                log.warning("the tools of MCP servers are left out: %s", error)
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same for code that is awaited."""
        served = current()
        if served is None:
            return await handler(request)
        self._prepare(served, request)
        if self._offers_mcp:
            request = _with(await self._found(served, request), served, request)
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run the tool, also one that was added for the session."""
        return handler(_completed(request))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run the tool, also one that was added for the session."""
        return await handler(_completed(request))

    async def _found(self, served: Current, request: ModelRequest[Any]) -> list[BaseTool]:
        return await mcp_tools(served.session, self._prefix, taken=names_of(request.tools))

    def _prepare(self, served: Current, request: ModelRequest[Any]) -> None:
        served.presentation.prefer(self._overrides)
        for tool in request.tools:
            if isinstance(tool, BaseTool):
                served.tools.setdefault(tool.name, tool)


def names_of(tools: Iterable[BaseTool | dict[str, Any]]) -> set[str]:
    """The names that tools have; a provider's own may have none."""
    return {tool.name if isinstance(tool, BaseTool) else str(tool.get("name", "")) for tool in tools}


def _with(found: list[BaseTool], served: Current, request: ModelRequest[Any]) -> ModelRequest[Any]:
    """The request with those of the tools that the mode has."""
    served.tools.update({tool.name: tool for tool in found})
    offered = [tool for tool in found if served.offers is None or served.offers(tool)]
    return request.override(tools=[*request.tools, *offered]) if offered else request


def _completed(request: ToolCallRequest) -> ToolCallRequest:
    if request.tool is not None:
        return request
    served = current()
    tool = requested_tool(served, request) if served is not None else None
    return request if tool is None else request.override(tool=tool)
