"""A server over HTTP on this machine's loopback, for one session: whoever has not its token gets nothing.

Imports the `mcp` package: to be imported on use. Pages in a browser reach loopback, too: what names another
host, or an origin at all, is refused before the token is looked at.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from hmac import compare_digest
from typing import Any

from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from coupler.mcp.patience import answered_patiently
from coupler.schema.v1 import HttpHeader, McpServerHttp

log = logging.getLogger("coupler.mcp")

HOST = "127.0.0.1"
PATH = "/mcp"

LONGEST_REQUEST = 10 * 1024 * 1024
"""Bytes of a request, as of a line from a child process."""

MOST_SESSIONS = 100
"""Clients of one server at a time; an agent is one, or has a few."""

CLOSE_LIMIT = 1.0
"""Seconds that answers which are on their way have, when the server is closed."""

HEARING, MOST_HEARD = 1.0, 64 * 1024
"""Seconds and bytes for what a stranger is still sending when it is refused."""


@asynccontextmanager
async def served_over_http(server: Server[Any], name: str) -> AsyncIterator[McpServerHttp]:
    """Serve until this is left; what is given is the entry for an agent, with the token."""
    token = secrets.token_urlsafe(32)
    manager = StreamableHTTPSessionManager(
        server,
        json_response=True,
        session_idle_timeout=None,
        max_request_body_size=LONGEST_REQUEST,
        max_sessions=MOST_SESSIONS,
    )
    with socket.create_server((HOST, 0)) as listening:
        port = listening.getsockname()[1]
        guard = _Guard(manager, f"{HOST}:{port}", token)
        async with manager.run(), _listening(guard, listening):
            header = HttpHeader("Authorization", f"Bearer {token}")
            yield McpServerHttp(name, f"http://{HOST}:{port}{PATH}", [header])


class _Guard:
    """Lets through what names this server and has its token."""

    def __init__(self, manager: StreamableHTTPSessionManager, host: str, token: str) -> None:
        self._manager = manager
        self._host = host.encode()
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is None:
            await answered_patiently(lambda send: self._manager.handle_request(scope, receive, send), send)
            return
        await _hear_out(receive)
        status, message = refusal
        headers = [(b"content-type", b"text/plain"), (b"connection", b"close")]
        if status == 401:
            headers.append((b"www-authenticate", b"Bearer"))
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": message})

    def _refusal(self, scope: Any) -> tuple[int, bytes] | None:
        given: dict[bytes, list[bytes]] = {}
        for name, value in scope["headers"]:
            given.setdefault(name.lower(), []).append(value)
        if given.get(b"host") != [self._host]:
            return 421, b"this server has another name"
        if b"origin" in given:
            return 403, b"this server is not for browsers"
        authorization = given.get(b"authorization", [])
        if len(authorization) != 1 or not compare_digest(authorization[0], self._authorization):
            return 401, b"this server needs its token"
        if scope["path"] != PATH:
            return 404, b"there is nothing here"
        if scope["method"] not in {"POST", "DELETE"}:
            return 405, b"this server says nothing unasked"
        return None


async def _hear_out(receive: Any) -> None:
    """Take what is still on its way: who closes a connection on unread words takes back its own answer."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(HEARING):
            while (told := await receive())["type"] == "http.request" and told.get("more_body"):
                size += len(told.get("body", b""))
                if size > MOST_HEARD:
                    return


@asynccontextmanager
async def _listening(app: Any, listening: socket.socket) -> AsyncIterator[None]:
    """Speak HTTP on the socket. `uvicorn`'s own server would take our signals, and wake up all the time."""
    config = Config(app, lifespan="off", log_config=None, access_log=False, ws="none", server_header=False)
    config.load()
    state = ServerState()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(
        lambda: H11Protocol(config=config, server_state=state, app_state={}), sock=listening
    )
    try:
        yield
    finally:
        server.close()
        await _end(state)
        await server.wait_closed()


async def _end(state: ServerState) -> None:
    for connection in [*state.connections]:
        connection.shutdown()
    if state.tasks:
        await asyncio.wait([*state.tasks], timeout=CLOSE_LIMIT)
    for connection in [*state.connections]:
        connection.transport.abort()
    if left := [*state.tasks]:
        for task in left:
            task.cancel()
        await asyncio.wait(left, timeout=CLOSE_LIMIT)
