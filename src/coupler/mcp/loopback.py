"""Serves a session's tools to its agent, over loopback HTTP or through a shim.

Imports the `mcp` package: to be imported on use. `serve_to_agent` is the way in. Tools of ours are an MCP
server over HTTP with a token, or, for agents that take only programs, behind a `ShimListener` to which the
`shim` connects. Such an agent reaches a server at an address by a bridge behind the same listener. Pages in a
browser reach loopback, too: what names another host, or an origin at all, is refused before the token is
looked at.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, MutableMapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from hmac import compare_digest
from typing import Any, Protocol

import anyio
import msgspec
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel.server import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.message import ClientMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    METHOD_NOT_FOUND,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCRequest,
    JSONRPCResponse,
    ListToolsResult,
    PaginatedRequestParams,
    RequestId,
    jsonrpc_message_adapter,
)
from mcp_types import Tool as ServersTool
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState

from coupler.__about__ import __version__
from coupler.mcp import shim
from coupler.mcp.http_client import HttpServer, checked_url
from coupler.mcp.servers import server_name
from coupler.mcp.tools import Tool, ToolResult, server_label
from coupler.runtime.exceptions import innermost
from coupler.schema.v1 import EnvVariable, HttpHeader, McpServer, McpServerHttp, McpServerSse, McpServerStdio
from coupler.wire import messages
from coupler.wire.frames import DEFAULT_LIMIT, Frame, FrameBuffer
from coupler.wire.messages import Malformed, replace_lone_surrogates

log = logging.getLogger("coupler.mcp")

HOST = "127.0.0.1"
PATH = "/mcp"

LONGEST_REQUEST = 10 * 1024 * 1024
"""Bytes of a request, as of a line from a child process."""

MOST_SESSIONS = 100
"""Clients of one server at a time; an agent is one, or has a few."""

CLOSE_LIMIT = 1.0
"""Seconds that answers which are on their way have, when the server is closed."""

DISCARD_SECONDS, DISCARD_BYTES = 1.0, 64 * 1024
"""Seconds and bytes to read of a request that is refused."""

KEEP_ALIVE_SECONDS = 15.0
"""Seconds of silence until something is sent; the least patient of clients wait for a minute."""

LONGEST_TOKEN = 200
TOKEN_LIMIT = 5.0
"""Bytes and seconds within which a new connection must have sent the token."""

READ_BYTES = 64 * 1024

NOT_MCP = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32600,"message":"this is no message of MCP"}}\n'

AsgiMessage = MutableMapping[str, Any]
AsgiSend = Callable[[AsgiMessage], Awaitable[None]]

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]

ConnectionHandler = Callable[[Incoming, Outgoing], Awaitable[None]]
"""Speaks MCP with somebody who has sent the token, until they disconnect."""

_START: AsgiMessage = {
    "type": "http.response.start",
    "status": 200,
    "headers": [(b"content-type", b"text/event-stream"), (b"cache-control", b"no-store")],
}


class ToolProvider(Protocol):
    """Has tools to offer, and decides what a call does."""

    def listed(self) -> Sequence[Tool]:
        """The tools as they are now; called each time a client lists them."""

    async def call(self, name: str, arguments: dict[str, Any], meta: Mapping[str, Any]) -> ToolResult:
        """Call one of them. Whatever goes wrong is a result that says so."""

    def answered(self) -> None:
        """Called when an answer was sent, whatever the client had asked."""


@asynccontextmanager
async def serve_to_agent(
    offering: ToolProvider | None,
    name: str,
    *,
    over_http: bool,
    far: Sequence[McpServerHttp | McpServerSse],
) -> AsyncIterator[list[McpServer]]:
    """Serve until the `with` block is left; yields the entries for the agent, ours first, then the far ones.

    `far` are servers at addresses that the agent could not reach itself.
    """
    entries: list[McpServer] = []
    server = None if offering is None else server_of(offering, name)
    async with AsyncExitStack() as stack:
        if server is not None and over_http:
            assert offering is not None
            entries.append(await stack.enter_async_context(serve_over_http(server, name, offering.answered)))
            server = None
        if server is not None or far:
            listener = await stack.enter_async_context(ShimListener().open())
            if server is not None and offering is not None:
                entries.append(listener.admit(name, server_handler(server), offering.answered))
            entries += [listener.admit(server_name(each), bridge_handler(each)) for each in far]
        yield entries


def server_of(offering: ToolProvider, name: str) -> Server[Any]:
    """An MCP server of the `mcp` package that translates between it and the provider."""

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


@asynccontextmanager
async def serve_over_http(
    server: Server[Any], name: str, answered: Callable[[], None]
) -> AsyncIterator[McpServerHttp]:
    """Serve until the `with` block is left; yields the agent's entry for the server, with the token.

    `answered` is called after each answer.
    """
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
        guard = _Guard(manager, f"{HOST}:{port}", token, answered)
        try:
            async with manager.run(), _listening(guard, listening):
                header = HttpHeader("Authorization", f"Bearer {token}")
                yield McpServerHttp(name, f"http://{HOST}:{port}{PATH}", [header])
        except BaseExceptionGroup as group:
            raise innermost(group) from None


class _Guard:
    """Passes only requests that name this server's host and have its token."""

    def __init__(
        self, manager: StreamableHTTPSessionManager, host: str, token: str, answered: Callable[[], None]
    ) -> None:
        self._manager = manager
        self._answered = answered
        self._host = host.encode()
        self._authorization = f"Bearer {token}".encode()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        refusal = self._refusal(scope)
        if refusal is None:
            await respond_with_keep_alive(
                lambda send: self._manager.handle_request(scope, receive, send), send
            )
            self._answered()
            return
        await _discard_request(receive)
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


async def _discard_request(receive: Any) -> None:
    """Read the rest of a request: closing a connection with unread data would discard our own answer."""
    size = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(DISCARD_SECONDS):
            while (told := await receive())["type"] == "http.request" and told.get("more_body"):
                size += len(told.get("body", b""))
                if size > DISCARD_BYTES:
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


class KeepAliveResponse:
    """Sends the answer to one request, as a stream with signs of life if it takes long.

    So nobody hangs up. Clients of MCP take an answer as JSON or as a stream of events. What comes soon is
    sent as it is; else the stream begins, and the answer is its one event. (The package's own streams leave a
    task behind in the program that serves them, which wakes up twice a second for ever.)
    """

    def __init__(self, send: AsgiSend) -> None:
        self._send = send
        self._is_streamed = False
        self._is_answered = False
        self._body = b""

    async def send(self, message: AsgiMessage) -> None:
        """Send a message of the application."""
        if message["type"] == "http.response.start":
            self._is_answered = True
        if not self._is_streamed:
            await self._send(message)
        elif message["type"] == "http.response.body":
            self._body += message.get("body", b"")
            if not message.get("more_body", False):
                await self._send_event()

    async def show_life(self) -> None:
        """Send a sign of life now and then, until there is an answer, or this is cancelled."""
        while True:
            await asyncio.sleep(KEEP_ALIVE_SECONDS)
            if self._is_answered:
                return
            if not self._is_streamed:
                self._is_streamed = True
                await self._send(_START)
            await self._send({"type": "http.response.body", "body": b": working\n\n", "more_body": True})

    async def _send_event(self) -> None:
        """Send the answer as one line of JSON; one without a body just ends the stream."""
        event = b"event: message\ndata: %b\n\n" % self._body.replace(b"\n", b" ") if self._body else b""
        await self._send({"type": "http.response.body", "body": event})


async def respond_with_keep_alive(answer: Callable[[AsgiSend], Awaitable[None]], send: AsgiSend) -> None:
    """Let the application answer a request."""
    response = KeepAliveResponse(send)
    keep_alive = asyncio.create_task(response.show_life())
    try:
        await answer(response.send)
    finally:
        keep_alive.cancel()


class ShimListener:
    """A loopback socket for all shims of a session: a token leads to what it is for."""

    def __init__(self) -> None:
        self._handlers: dict[str, tuple[ConnectionHandler, Callable[[], None]]] = {}
        self._connections: set[asyncio.Task[Any]] = set()
        self._port = 0

    @asynccontextmanager
    async def open(self) -> AsyncIterator[ShimListener]:
        """Listen until the `with` block is left; then all connections are closed."""
        server = await asyncio.start_server(self._connected, HOST, 0)
        self._port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            await self._disconnect_all()
            await server.wait_closed()

    def admit(
        self, name: str, serve: ConnectionHandler, answered: Callable[[], None] = lambda: None
    ) -> McpServerStdio:
        """Register what a new token leads to; returns the agent's entry: the program that connects here.

        `answered` is called after each line to the agent.
        """
        token = secrets.token_urlsafe(32)
        self._handlers[token] = serve, answered
        # Isolated and without site packages: faster, and deaf to what the agent's directory has lying around.
        return McpServerStdio(
            name,
            sys.executable,
            ["-I", "-S", str(shim.__file__)],
            [EnvVariable(shim.PORT, str(self._port)), EnvVariable(shim.TOKEN, token)],
        )

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        try:
            handler = self._handler_of(await _token(reader))
            if handler is None:
                log.warning("a connection to a session's tools was refused: it sent no valid token")
                return
            serve, answered = handler
            writer.write(shim.WELCOME)
            async with message_streams(reader, writer, answered) as (incoming, outgoing):
                await serve(incoming, outgoing)
        except asyncio.CancelledError:
            pass  # disconnected
        except Exception as error:
            log.debug("a connection of a shim was lost", exc_info=error)
        finally:
            self._connections.discard(task)
            writer.close()

    def _handler_of(self, given: bytes) -> tuple[ConnectionHandler, Callable[[], None]] | None:
        """Find what a token is for; compared with all of them, so that the time tells nothing."""
        found = None
        for token, handler in self._handlers.items():
            if compare_digest(token.encode(), given):
                found = handler
        return found

    async def _disconnect_all(self) -> None:
        tasks = [*self._connections]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks, timeout=CLOSE_LIMIT)


def server_handler(server: Server[Any]) -> ConnectionHandler:
    """Handles connections by a server of ours."""

    async def serve(incoming: Incoming, outgoing: Outgoing) -> None:
        await server.run(incoming, outgoing, server.create_initialization_options())

    return serve


async def _token(reader: asyncio.StreamReader) -> bytes:
    try:
        async with asyncio.timeout(TOKEN_LIMIT):
            received = b""
            while not received.endswith(b"\n") and len(received) < LONGEST_TOKEN:
                piece = await reader.read(1)
                if not piece:
                    break
                received += piece
    except (TimeoutError, OSError):
        return b""
    return received.removesuffix(b"\n")


@asynccontextmanager
async def message_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answered: Callable[[], None]
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The messages that come in over a connection, and where to put those that go out, with back-pressure.

    A line that is no message is answered with an error, and affects nothing else. `answered` is called after
    each message that was sent.
    """
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with received, incoming, outgoing, to_send, anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, reader, writer, received)
        tasks.start_soon(_send, writer, to_send, answered)
        yield incoming, outgoing
        tasks.cancel_scope.cancel()


async def _receive(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    received: MemoryObjectSendStream[SessionMessage | Exception],
) -> None:
    frames = FrameBuffer()
    async with received:
        try:
            while chunk := await reader.read(READ_BYTES):
                for frame in frames.feed(chunk):
                    message = _parsed(frame)
                    if isinstance(message, SessionMessage):
                        await received.send(message)
                    elif message is not None:
                        writer.write(message)
                        await writer.drain()
        except (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError):
            return  # either side has left


async def _send(
    writer: asyncio.StreamWriter,
    to_send: MemoryObjectReceiveStream[SessionMessage],
    answered: Callable[[], None],
) -> None:
    async with to_send:
        try:
            async for message in to_send:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(line.encode() + b"\n")
                await writer.drain()
                answered()
        except OSError:
            return  # nobody reads any more; that ends what is read, too


def _parsed(frame: Frame) -> SessionMessage | bytes | None:
    """Parse a message; of another line the line that answers it, or None if nobody waits for an answer."""
    envelope = messages.parse(frame, DEFAULT_LIMIT)
    if isinstance(envelope, Malformed):
        answer: Any = {"jsonrpc": "2.0", "id": envelope.id, "error": _error(envelope)}
        return messages.encode(answer) + b"\n" if envelope.kind in {"request", "unknown"} else None
    assert isinstance(frame, bytes)
    try:
        return SessionMessage(
            jsonrpc_message_adapter.validate_json(replace_lone_surrogates(frame), by_name=False)
        )
    except ValueError:
        return NOT_MCP % (bytes(envelope.id) or b"null")


def _error(malformed: Malformed) -> dict[str, Any]:
    return {"code": malformed.error.code, "message": malformed.error.message}


def bridge_handler(server: McpServerHttp | McpServerSse) -> ConnectionHandler:
    """Handles connections by a bridge to the far server; raises ValueError for an address that is none."""
    checked_url(server.url)

    async def serve(incoming: Incoming, outgoing: Outgoing) -> None:
        await _Bridge(server, incoming, outgoing).carry()

    return serve


class _Bridge:
    """One connection of a shim, and the one to the far server that is made for it.

    Messages are passed on as they are; only what HTTP has in headers, the negotiated version, is added.
    Versions without a handshake are not bridged: a client that proposes one is told so, and goes back to the
    handshake by itself.
    """

    def __init__(self, server: McpServerHttp | McpServerSse, incoming: Incoming, outgoing: Outgoing) -> None:
        self._server = server
        self._incoming = incoming
        self._outgoing = outgoing
        self._waiting: set[RequestId] = set()
        self._handshake: RequestId | None = None
        self._version: str | None = None

    async def carry(self) -> None:
        """Pass messages on both ways, until either side ends. Whoever still waits then is told."""
        try:
            async with (
                HttpServer(self._server).connect() as (far_incoming, far_outgoing),
                anyio.create_task_group() as tasks,
            ):
                tasks.start_soon(self._carry_back, far_incoming, tasks.cancel_scope)
                await self._carry_out(far_outgoing)
                tasks.cancel_scope.cancel()
        except Exception as error:
            log.warning(
                "%s was lost: %s", server_label(server_name(self._server)), type(innermost(error)).__name__
            )
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
                log.debug("%s failed", server_label(server_name(self._server)), exc_info=item)
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
        """Return whether to pass a message on: an answer only if somebody waits for it."""
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
            await self._refuse(
                request, CONNECTION_CLOSED, f"{server_label(server_name(self._server))}: {reason}"
            )

    async def _refuse(self, id: RequestId, code: int, message: str) -> None:
        error = JSONRPCError(jsonrpc="2.0", id=id, error=ErrorData(code=code, message=message))
        await self._outgoing.send(SessionMessage(error))
