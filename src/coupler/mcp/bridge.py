"""A server behind an address, for an agent that takes only programs: what a shim says is passed on to it.

Imports the `mcp` package: to be imported on use. Messages are carried as they are; only what HTTP has in
headers, the negotiated version, is added. Versions without a handshake are not carried: a client that
proposes one is told so, and goes back to the handshake by itself.
"""

from __future__ import annotations

import logging

import anyio
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from coupler.mcp.door import Serve
from coupler.mcp.errors import named
from coupler.mcp.http import HttpServer, checked
from coupler.mcp.lines import Incoming, Outgoing
from coupler.mcp.servers import server_name
from coupler.schema.v1 import McpServerHttp, McpServerSse

log = logging.getLogger("coupler.mcp")


def bridged_to(server: McpServerHttp | McpServerSse) -> Serve:
    """The far server, for who was let in; raises ValueError for an address that is none."""
    checked(server.url)

    async def serve(incoming: Incoming, outgoing: Outgoing) -> None:
        await _Bridge(server, incoming, outgoing).carry()

    return serve


class _Bridge:
    """One connection of a shim, and the one to the far server that is made for it."""

    def __init__(self, server: McpServerHttp | McpServerSse, incoming: Incoming, outgoing: Outgoing) -> None:
        self._server = server
        self._incoming = incoming
        self._outgoing = outgoing
        self._waiting: set[RequestId] = set()
        self._handshake: RequestId | None = None
        self._version: str | None = None

    async def carry(self) -> None:
        """Carry messages both ways, until either side ends. Whoever still waits then is told."""
        try:
            async with (
                HttpServer(self._server).connect() as (far_incoming, far_outgoing),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._carry_back, far_incoming, tasks.cancel_scope)
                await self._carry_out(far_outgoing)
                tasks.cancel_scope.cancel()
        except Exception as error:
            log.warning("%s was lost: %s", named(server_name(self._server)), type(error).__name__)
        await self._answer_for_it("the connection to it was lost")
        # It could not be reached at all: who asks is told so, and not left waiting.
        async for item in self._incoming:
            if isinstance(item, SessionMessage) and isinstance(item.message, JSONRPCRequest):
                self._waiting.add(item.message.id)
                await self._answer_for_it("it could not be reached")

    async def _carry_out(self, far: Outgoing) -> None:
        async for item in self._incoming:
            if isinstance(item, Exception):
                continue
            message = item.message
            if isinstance(message, JSONRPCRequest):
                if message.method == "server/discover":
                    await self._refuse(message.id, METHOD_NOT_FOUND, "this version of MCP is not bridged")
                    continue
                self._waiting.add(message.id)
                if message.method == "initialize":
                    self._handshake = message.id
            await far.send(SessionMessage(message, self._headers()))

    async def _carry_back(self, far: Incoming, scope: anyio.CancelScope) -> None:
        async for item in far:
            if isinstance(item, Exception):
                log.debug("%s failed", named(server_name(self._server)), exc_info=item)
                await self._answer_for_it("the connection to it failed")
                continue
            if self._is_wanted(item.message):
                await self._outgoing.send(SessionMessage(item.message))
        scope.cancel()

    def _headers(self) -> ClientMessageMetadata | None:
        if self._version is None:
            return None
        return ClientMessageMetadata(headers={MCP_PROTOCOL_VERSION_HEADER: self._version})

    def _is_wanted(self, message: JSONRPCMessage) -> bool:
        """Whether to pass it on: an answer only if somebody waits for it."""
        if not isinstance(message, JSONRPCResponse | JSONRPCError):
            return True
        if message.id not in self._waiting:
            return False
        self._waiting.remove(message.id)
        if isinstance(message, JSONRPCResponse) and message.id == self._handshake:
            version = message.result.get("protocolVersion")
            self._version = version if isinstance(version, str) else None
        return True

    async def _answer_for_it(self, reason: str) -> None:
        waiting, self._waiting = self._waiting, set()
        for request in waiting:
            await self._refuse(request, CONNECTION_CLOSED, f"{named(server_name(self._server))}: {reason}")

    async def _refuse(self, id: RequestId, code: int, message: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message))
        await self._outgoing.send(SessionMessage(error))
