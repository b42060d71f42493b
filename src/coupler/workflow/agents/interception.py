"""MCP servers that an agent reaches through us: each call is told, judged by the step's rules, and passed on.

The agent sees servers of the same names with the same tools. What else a server has, such as prompts, it has
not: only what can be seen and judged passes.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from msgspec.structs import replace

from coupler.client.errors import AgentError
from coupler.client.policy import PermissionRequest
from coupler.events import ToolCall
from coupler.mcp.functions import text_result
from coupler.mcp.package import load_reception
from coupler.mcp.servers import Servers, Surroundings, server_name
from coupler.mcp.tools import McpError, Tool, ToolResult
from coupler.schema.v1 import Content, McpServer
from coupler.workflow.engine.tracing import span

if TYPE_CHECKING:
    from coupler.workflow.agents.connected import Held

log = logging.getLogger("coupler.workflow")

DENIED = "this call was denied"


class Interception:
    """Of one session. One task opens and closes all of it, because context managers want that."""

    def __init__(self, servers: Sequence[McpServer], cwd: str, *, over_http: bool) -> None:
        self.held: Held | None = None
        """The session, once it is there; calls before that are refused."""
        self._servers = Servers(
            {server_name(server): server for server in servers}, Surroundings(cwd, os.environ)
        )
        self._over_http = over_http
        self._told: set[str] = set()
        """The agent's own calls behind which one of ours stands."""
        self._is_open = False
        self._ended = asyncio.Event()
        self._work: asyncio.Task[None] | None = None

    async def open(self) -> list[McpServer]:
        """Start the servers; what is returned is what the agent is given in their places."""
        opened: asyncio.Future[list[McpServer]] = asyncio.get_running_loop().create_future()
        self._work = asyncio.create_task(self._serve(opened))
        entries = await opened
        self._is_open = True
        return entries

    async def close(self) -> None:
        """End the servers, and wait for that."""
        self._ended.set()
        if self._work is not None:
            if not self._is_open:
                self._work.cancel()
            await asyncio.wait([self._work])

    async def _serve(self, opened: asyncio.Future[list[McpServer]]) -> None:
        try:
            async with AsyncExitStack() as stack:
                stack.push_async_callback(self._servers.close)
                reception = await load_reception()
                entries: list[McpServer] = []
                for name in self._servers.names:
                    offering = _Offered(self, name, await self._servers.tools_of(name))
                    entries += await stack.enter_async_context(
                        reception.receive(offering, name, over_http=self._over_http, far=())
                    )
                opened.set_result(entries)
                await self._ended.wait()
        except Exception as error:
            if opened.done():
                log.exception("the MCP servers of a step did not end well")
            else:
                opened.set_exception(AgentError("session", f"`intercept` did not work: {error}"))
                opened.exception()  # who waits for it may be gone
        finally:
            opened.cancel()

    async def call(
        self, server: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]
    ) -> ToolResult:
        """Pass a call on, if it may pass, and tell of it unless the agent does so itself."""
        exchange = None if self.held is None else self.held.exchange
        if self.held is None or exchange is None:
            return text_result("nobody is in a turn with this agent", is_error=True)
        call = self._call(server, tool, arguments, meta)
        is_told = call.id in self._told
        if not is_told:
            exchange.telling.called(call)
        request = PermissionRequest(call, (), self.held.session.cwd, self.held.session.roots)
        if not await exchange.judging.may_call(request):
            result = text_result(DENIED, is_error=True)
        else:
            result = await self._passed_on(server, tool, arguments)
        if not is_told:
            exchange.telling.called(_ended(call, result))
        return result

    def _call(self, server: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolCall:
        """The call as the agent knows it, if it tells of just this one by that id; else as one of ours."""
        known = [each for each in meta.values() if isinstance(each, str) and self._tells_of(each, tool)]
        self._told.update(known[:1])
        return ToolCall(
            id=known[0] if known else f"mcp-{uuid4().hex}",
            title=f"{server}: {tool}",
            kind="other",
            status="in_progress",
            name=f"mcp__{server}__{tool}",
            raw_input=arguments,
        )

    def _tells_of(self, id: str, tool: str) -> bool:
        """Whether the agent shows a call that runs, names the tool, and stands for no other call.

        Else a call could hide behind one that was about something else.
        """
        assert self.held is not None
        call = self.held.session.tool_calls.get(id)
        return (
            call is not None and call.is_open and id not in self._told and tool in f"{call.name} {call.title}"
        )

    async def _passed_on(self, server: str, tool: str, arguments: dict[str, Any]) -> ToolResult:
        with span("mcp call", {"mcp.server": server, "mcp.tool": tool}):
            try:
                return await self._servers.call(server, tool, arguments, None)
            except McpError as error:
                return text_result(str(error), is_error=True)


class _Offered:
    """The tools of one server, as the agent gets them."""

    def __init__(self, interception: Interception, server: str, tools: Sequence[Tool]) -> None:
        self._interception = interception
        self._server = server
        self._tools = tools

    def listed(self) -> Sequence[Tool]:
        return self._tools

    async def call(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        return await self._interception.call(self._server, name, arguments, meta)


def _ended(call: ToolCall, result: ToolResult) -> ToolCall:
    return replace(
        call,
        status="failed" if result.is_error else "completed",
        content=tuple(Content(block) for block in result.content),
        raw_output=result.structured,
    )
