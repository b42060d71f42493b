"""Opens what one session needs on our side: Python tools, their context managers, and bridges to MCP servers.

Nothing is opened, and the `mcp` package not imported, for a session that has no tools and no server that its
agent could not reach itself. One task opens and closes everything, because context managers require that.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, AsyncExitStack
from typing import TYPE_CHECKING, Any

from coupler.client.errors import AgentError
from coupler.mcp.package import is_installed, load_loopback
from coupler.mcp.servers import server_name
from coupler.mcp.tool_names import own_server_name
from coupler.schema.v1 import McpCapabilities, McpServer, McpServerHttp, McpServerSse

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.client.tools import ClientTools

log = logging.getLogger("coupler.client")

CONTEXTS_CLOSE_LIMIT = 10.0
"""Seconds that context managers have to exit when the session ends."""


class ServerNames:
    """Chooses the names of our MCP servers in one process of an agent, each for one session.

    Agents know a server by its name alone: fast-agent refuses a second one, Hermes takes it for the first,
    and Vibe keeps the tools of a name on the disk. So a name depends on the tools, and on how many sessions
    of the process had the same before: the same name always means the same tools, also in another process,
    where a session that is loaded again may have it in its history.
    """

    def __init__(self) -> None:
        self._sessions: Counter[str] = Counter()
        self._given: set[str] = set()

    def choose(self, described: bytes, taken: Collection[str]) -> str:
        """Return a name for a server with these tools that is not among those of the user's servers."""
        first = own_server_name(described)
        while True:
            self._sessions[first] += 1
            name = own_server_name(b"%d %b" % (self._sessions[first], described))
            if name not in self._given and name not in taken:
                self._given.add(name)
                return name


class ToolResources:
    """The tools and MCP servers of one session."""

    def __init__(self, tools: Sequence[Any], mcp_servers: Sequence[McpServer], output: Any) -> None:
        """Prepare; `output` is a type, or True if it is not known yet: typed answers may come by a tool."""
        self._given = tuple(tools)
        self._servers = tuple(mcp_servers)
        self._output = output
        self._tools: ClientTools | None = None
        self._owner: asyncio.Task[None] | None = None
        self._ended = asyncio.Event()

    async def open(self, takes: McpCapabilities, names: ServerNames) -> tuple[McpServer, ...]:
        """Open everything and return the servers for the agent: ours first, with a name that is not used."""
        far = _out_of_reach(self._servers, takes)
        if far and not is_installed():
            raise _refused(far[0])
        has_output = self._output is not None and self._output is not False and is_installed()
        if not (self._given or far or has_output):
            return self._servers
        opened: asyncio.Future[list[McpServer]] = asyncio.get_running_loop().create_future()
        self._owner = asyncio.create_task(self._hold(takes, names, far, opened))
        try:
            return self._merged(await asyncio.shield(opened), far)
        except BaseException:
            await self.close()
            raise

    def belong_to(self, session: RemoteSession) -> None:
        """Give the tools the session that they belong to."""
        if self._tools is not None:
            session.tools = self._tools
            self._tools.belong_to(session)

    async def close(self) -> None:
        """Close everything; a second call does nothing."""
        self._ended.set()
        owner, self._owner = self._owner, None
        if owner is None:
            return
        try:
            await asyncio.wait([owner], timeout=CONTEXTS_CLOSE_LIMIT)
        finally:
            if not owner.done():
                log.warning("the tools of a session did not end within %g s", CONTEXTS_CLOSE_LIMIT)
                owner.cancel()

    def _merged(
        self, entries: list[McpServer], far: list[McpServerHttp | McpServerSse]
    ) -> tuple[McpServer, ...]:
        own, bridged = entries[: len(entries) - len(far)], iter(entries[len(entries) - len(far) :])
        given = (next(bridged) if server in far else server for server in self._servers)
        return (*own, *given)

    async def _hold(
        self,
        takes: McpCapabilities,
        names: ServerNames,
        far: list[McpServerHttp | McpServerSse],
        opened: asyncio.Future[list[McpServer]],
    ) -> None:
        """Open everything, keep it until the session ends, and close it."""
        try:
            async with AsyncExitStack() as stack:
                functions = [each for item in self._given for each in await _entered(item, stack)]
                name = ""
                if functions or self._output:
                    self._tools = self._offering(functions)
                    taken = {server_name(server) for server in self._servers}
                    self._tools.server = name = names.choose(self._tools.described(), taken)
                loopback = await load_loopback()
                entries = await stack.enter_async_context(
                    loopback.serve_to_agent(self._tools, name, over_http=bool(takes.http), far=far)
                )
                if self._tools is not None:
                    stack.push_async_callback(self._tools.close)  # the first to end: calls get their answers
                opened.set_result(entries)
                await self._ended.wait()
        except BaseException as error:
            if not opened.done():
                opened.set_exception(_told(error))
                opened.exception()
            elif isinstance(error, Exception):
                log.exception("the tools of a session did not end well")
            else:
                raise

    def _offering(self, functions: list[Any]) -> ClientTools:
        from coupler.client.output import open_schema, output_schema_of
        from coupler.client.tools import ClientTools

        if self._output is None or self._output is False:
            return ClientTools(functions)
        schema = open_schema() if self._output is True else output_schema_of(self._output).input_schema
        return ClientTools(functions, schema)


async def _entered(item: Any, stack: AsyncExitStack) -> Sequence[Any]:
    """Return the functions of an item: itself, or what its context manager yields."""
    if isinstance(item, AbstractAsyncContextManager):
        item = await stack.enter_async_context(item)
    elif isinstance(item, AbstractContextManager):
        item = stack.enter_context(item)
    return item if isinstance(item, list | tuple) else [item]


def _out_of_reach(servers: Sequence[McpServer], takes: McpCapabilities) -> list[McpServerHttp | McpServerSse]:
    return [
        server
        for server in servers
        if (isinstance(server, McpServerHttp) and not takes.http)
        or (isinstance(server, McpServerSse) and not takes.sse)
    ]


def _refused(server: McpServerHttp | McpServerSse) -> AgentError:
    kind = "http" if isinstance(server, McpServerHttp) else "sse"
    message = f"the agent takes no MCP servers over {kind}: {server.name!r}"
    return AgentError("session", f'{message}; to bridge it: pip install "coupler[mcp]"')


def _told(error: BaseException) -> BaseException:
    """Convert the error for which nothing was opened to the one to raise.

    A cancel is not passed on as one of the waiting task's.
    """
    if isinstance(error, asyncio.CancelledError):
        return AgentError("closed", "the session's tools were not opened: it was closed before")
    return error
