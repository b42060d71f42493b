"""Tools that we offer, as an MCP server of the `mcp` package.

Imports the `mcp` package: to be imported on use. Who offers them decides what they are and what a call does;
here it is only translated.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import msgspec
from mcp.server.lowlevel.server import Server
from mcp_types import CallToolRequestParams, CallToolResult, ListToolsResult, PaginatedRequestParams
from mcp_types import Tool as ServersTool

from coupler.__about__ import __version__
from coupler.mcp.tool import Tool, ToolResult


class Offering(Protocol):
    """Who has tools to offer."""

    def listed(self) -> Sequence[Tool]:
        """The tools as they are now; somebody has asked for them."""

    async def call(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Use one of them. Whatever goes wrong is a result that says so."""


def server_of(offering: Offering, name: str) -> Server[Any]:
    """The server of what is offered."""

    async def list_tools(context: Any, params: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_tool(tool) for tool in offering.listed()])

    async def call_tool(context: Any, params: CallToolRequestParams) -> CallToolResult:
        # The raw parameters have keys of `_meta` as they were sent.
        meta = (context.params or {}).get("_meta")
        result = await offering.call(
            params.name, params.arguments or {}, meta if isinstance(meta, Mapping) else {}
        )
        return _result(result)

    return Server(
        name,
        version=__version__,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
        get_tool_input_schema=lambda _: None,
    )


def _tool(tool: Tool) -> ServersTool:
    return ServersTool(name=tool.name, description=tool.description, input_schema=tool.input_schema)


def _result(result: ToolResult) -> CallToolResult:
    return CallToolResult.model_validate(
        {
            "content": msgspec.to_builtins(result.content),
            "structuredContent": result.structured,
            "isError": result.is_error,
        }
    )
