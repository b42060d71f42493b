"""Where shims knock: a loopback socket that lets in who has a token, and leads to what that token is for.

Imports the `mcp` package: to be imported on use.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from hmac import compare_digest
from typing import Any

from mcp.server.lowlevel.server import Server

from coupler.mcp import shim
from coupler.mcp.lines import Incoming, Outgoing, message_streams
from coupler.schema.v1 import EnvVariable, McpServerStdio

log = logging.getLogger("coupler.mcp")

HOST = "127.0.0.1"

LONGEST_TOKEN = 200
TOKEN_LIMIT = 5.0
"""Bytes and seconds in which somebody who knocks must have said the token."""

CLOSE_LIMIT = 1.0
"""Seconds that open connections have to end, when the door is closed."""

Serve = Callable[[Incoming, Outgoing], Awaitable[None]]
"""What speaks with who was let in, until it has left."""


class Door:
    """One socket, for all shims of a session."""

    def __init__(self) -> None:
        self._behind: dict[str, Serve] = {}
        self._visits: set[asyncio.Task[Any]] = set()
        self._port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[Door]:
        """Listen until this is left; then everybody is shown out."""
        server = await asyncio.start_server(self._visited, HOST, 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await self._show_out()
            await server.wait_closed()

    def admit(self, name: str, serve: Serve) -> McpServerStdio:
        """The entry for an agent: the program that leads here."""
        token = secrets.token_urlsafe(32)
        self._behind[token] = serve
        # Isolated and without site packages: faster, and deaf to what the agent's directory has lying around.
        return McpServerStdio(
            name,
            sys.executable,
            ["-I", "-S", str(shim.__file__)],
            [EnvVariable(shim.PORT, str(self._port)), EnvVariable(shim.TOKEN, token)],
        )

    async def _visited(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        visit = asyncio.current_task()
        assert visit is not None
        self._visits.add(visit)
        try:
            serve = self._meant(await _token(reader))
            if serve is None:
                log.warning("somebody without a token knocked at a session's tools, and was sent away")
                return
            writer.write(shim.WELCOME)
            async with message_streams(reader, writer) as (incoming, outgoing):
                await serve(incoming, outgoing)
        except asyncio.CancelledError:
            pass  # shown out
        except Exception as error:
            log.debug("a connection of a shim was lost", exc_info=error)
        finally:
            self._visits.discard(visit)
            writer.close()

    def _meant(self, given: bytes) -> Serve | None:
        """Compared with all of them, so that the time tells nothing."""
        found = None
        for token, serve in self._behind.items():
            if compare_digest(token.encode(), given):
                found = serve
        return found

    async def _show_out(self) -> None:
        visits = [*self._visits]
        for visit in visits:
            visit.cancel()
        if visits:
            await asyncio.wait(visits, timeout=CLOSE_LIMIT)


def served_to(server: Server[Any]) -> Serve:
    """A server of ours, for who was let in."""

    async def serve(incoming: Incoming, outgoing: Outgoing) -> None:
        await server.run(incoming, outgoing, server.create_initialization_options())

    return serve


async def _token(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(TOKEN_LIMIT):
            said = b""
            while not said.endswith(b"\n") and len(said) < LONGEST_TOKEN:
                piece = await reader.read(1)
                if not piece:
                    break
                said += piece
    except (TimeoutError, OSError):
        return b""
    return said.removesuffix(b"\n")
