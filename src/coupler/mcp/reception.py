"""How an agent reaches what a session has for it: tools of ours, and servers that it could not reach itself.

Imports the `mcp` package: to be imported on use.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

from coupler.mcp.bridge import bridged_to
from coupler.mcp.door import Door, served_to
from coupler.mcp.loopback import served_over_http
from coupler.mcp.offered import Offering, server_of
from coupler.mcp.servers import server_name
from coupler.schema.v1 import McpServer, McpServerHttp, McpServerSse


@asynccontextmanager
async def receive(
    offering: Offering | None,
    name: str,
    *,
    over_http: bool,
    far: Sequence[McpServerHttp | McpServerSse],
) -> AsyncIterator[list[McpServer]]:
    """Serve until this is left. What is given are entries for the agent: ours, if any, then the far ones."""
    entries: list[McpServer] = []
    server = None if offering is None else server_of(offering, name)
    async with AsyncExitStack() as stack:
        if server is not None and over_http:
            entries.append(await stack.enter_async_context(served_over_http(server, name)))
            server = None
        if server is not None or far:
            door = await stack.enter_async_context(Door().open())
            if server is not None:
                entries.append(door.admit(name, served_to(server)))
            entries += [door.admit(server_name(each), bridged_to(each)) for each in far]
        yield entries
