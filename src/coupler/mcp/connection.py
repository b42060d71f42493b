"""The connection to one MCP server: made on first use, shared by all turns, renewed if lost.

Imports the `mcp` package: to be imported on use. The package wants a connection to be opened and closed by
one and the same task; that task lives here, and everybody else only asks.

A server can ask something in the middle of a call, in two ways: newer versions of MCP answer a call with what
is still to be asked, and the call is sent again with the answers; older ones send a request of their own
meanwhile.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol, Self, TypeVar

import anyio
import msgspec
from mcp.client.client import Client
from mcp.shared.exceptions import MCPError
from mcp.shared.message import ServerMessageMetadata, SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    INVALID_REQUEST,
    CallToolRequest,
    CallToolRequestParams,
    CallToolResult,
    ElicitRequest,
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitResult,
    Implementation,
    InputRequiredResult,
    JSONRPCError,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    PaginatedRequestParams,
)
from mcp_types import Tool as ServersTool
from pydantic import TypeAdapter, ValidationError

from coupler.__about__ import __version__
from coupler.mcp.http_client import HttpServer
from coupler.mcp.servers import ServerEnvironment
from coupler.mcp.stdio_client import StdioServer
from coupler.mcp.tools import (
    ActiveCall,
    Annotations,
    CallHandler,
    ElicitationReply,
    McpError,
    McpErrorKind,
    Tool,
    ToolResult,
    printable,
    server_label,
)
from coupler.runtime.environment import SpawnError
from coupler.runtime.exceptions import exception_text, innermost
from coupler.schema.base import Unknown
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.v1 import ContentBlock, McpServer, McpServerHttp, McpServerSse, McpServerStdio

log = logging.getLogger("coupler.mcp")

START_LIMIT = 30.0
"""Seconds that a server has to start and to initialize."""

LIST_LIMIT = 30.0
"""Seconds that it has to list its tools."""

CLOSE_LIMIT = 1.0
"""Seconds that it has to close the connection, before it is ended."""

CALL_ID = "coupler/toolCallId"
"""The key of a call's `_meta` with the tool call's id, by which a server of the client recognizes it."""

MOST_TOOLS = 5000
MOST_PAGES = 100
LARGEST_LIST = 16 * 1024 * 1024
"""Characters of all tools that a server lists."""

LONGEST_ERROR = 2000
"""Characters of a server's own error that are repeated."""

MOST_ROUNDS = 10
"""Times that a server may ask for more before it has to answer a call."""

MOST_REQUESTS = 200
"""Requests of a server that wait for their answers, from which on it is not read."""

CANCEL_WRITE_LIMIT = 0.5
"""Seconds that a server has to take the message by which a call is cancelled."""

RETRY_PAUSE = 0.25
"""Seconds until a server that asks nothing, and only wants to be called again, is called again."""

T = TypeVar("T")

_CallResponse: TypeAdapter[CallToolResult | InputRequiredResult] = TypeAdapter(
    CallToolResult | InputRequiredResult
)


class _ServerTransport(Protocol):
    """Reaches a server: as a child process, or at an address."""

    def connect(self) -> Any: ...

    def exit_reason(self) -> str: ...


class ServerConnection:
    """The connection to one server of one session."""

    def __init__(
        self, name: str, server: McpServer, environment: ServerEnvironment, *, asks: bool = False
    ) -> None:
        self.name = name
        self._server = server
        self._environment = environment
        self._asks = asks
        self._active_calls: list[ActiveCall] = []
        self._owner: asyncio.Task[None] | None = None
        self._client: asyncio.Future[Client] | None = None
        self._ended = asyncio.Event()
        self._transport: _ServerTransport | None = None
        self._is_closed = False

    async def tools(self) -> list[Tool]:
        """All tools that the server has now; raises McpError."""
        return [self._tool(tool) for tool in await self._ask("list its tools", self._list, LIST_LIMIT)]

    async def call(
        self,
        tool: str,
        arguments: dict[str, Any],
        limit: float | None,
        call_id: str | None = None,
        handler: CallHandler | None = None,
    ) -> ToolResult:
        """Use a tool; raises McpError. Cancelling this tells the server to stop."""
        meta: Any = None if call_id is None else {CALL_ID: call_id}
        params = CallToolRequestParams(name=tool, arguments=arguments, _meta=meta)
        active = ActiveCall(handler) if handler is not None else None

        async def send(client: Client) -> CallToolResult:
            try:
                return await call_tool(client, params, active)
            except MCPError as error:
                if error.code != HEADER_MISMATCH:
                    raise
            # Its headers depend on the tool's schema, which has to be known first.
            await self._list(client)
            return await call_tool(client, params, active)

        async with self._tracked(active):
            return _result(await self._ask(f"run `{printable(tool)}`", send, limit, active))

    @asynccontextmanager
    async def _tracked(self, active: ActiveCall | None) -> AsyncIterator[None]:
        if active is None:
            yield
            return
        self._active_calls.append(active)
        try:
            yield
        finally:
            self._active_calls.remove(active)
            await active.end()

    async def _elicit(self, context: object, params: ElicitRequestParams) -> ElicitResult:
        """Answer a server that asks in the way of older versions: it does not say for which call."""
        return await answer_elicitation(params, self._active_calls[-1] if self._active_calls else None)

    def begin_closing(self) -> None:
        """Begin to close for good: from here on the server ends by itself, also if nobody waits for it."""
        self._is_closed = True
        self._signal_end()

    async def close(self) -> None:
        """Close for good, and wait until the server has ended if it is ours."""
        self.begin_closing()
        await self._end_owner()

    def _signal_end(self) -> None:
        self._ended.set()
        is_initialized = self._client is not None and self._client.done()
        if self._owner is not None and not is_initialized:
            self._owner.cancel()

    async def _end_owner(self) -> None:
        self._signal_end()
        owner, self._owner = self._owner, None
        if owner is None:
            return
        try:
            await asyncio.wait([owner], timeout=CLOSE_LIMIT)
        finally:
            owner.cancel()
        _, left = await asyncio.wait([owner], timeout=CLOSE_LIMIT)
        if left:
            log.warning("%s could not be left in good order", server_label(self.name))

    async def _ask(
        self,
        what: str,
        ask: Callable[[Client], Awaitable[T]],
        limit: float | None,
        active: ActiveCall | None = None,
    ) -> T:
        client = await self._connected()
        try:
            async with asyncio.timeout(limit) as timeout:
                if active is not None:
                    active.limit = timeout
                return await ask(client)
        except TimeoutError:
            within = "in time" if limit is None else f"within {limit:g} s"
            raise self._error("timed_out", f"did not {what} {within}") from None
        except MCPError as error:
            if error.code == CONNECTION_CLOSED:
                raise await self._lost(what) from None
            complaint = _error_text(error.message)
            raise self._error("refused", f"did not {what}: {complaint}") from None
        except ValidationError:
            raise self._error("refused", f"did not {what}: its answer is not what MCP prescribes") from None
        except McpError:
            raise
        except Exception as error:
            log.debug("%s failed", server_label(self.name), exc_info=error)
            raise self._error("lost", f"did not {what}: {_cause(error)}") from None

    async def _connected(self) -> Client:
        """The open connection; several who want it at once wait for the same one."""
        if self._client is None or self._owner is None or self._owner.done() or self._ended.is_set():
            await self._end_owner()
            if self._is_closed:
                raise self._error("lost", "is not used any more: the session was left")
            if self._owner is None:
                self._client = asyncio.get_running_loop().create_future()
                self._ended = asyncio.Event()
                self._transport = self._new_transport()
                self._owner = asyncio.create_task(self._hold(self._transport, self._client, self._ended))
                self._owner.add_done_callback(functools.partial(self._fail_waiting, self._client))
        assert self._client is not None
        # Who gives up waiting does not take the connection from the others.
        return await asyncio.shield(self._client)

    def _fail_waiting(self, opened: asyncio.Future[Client], owner: asyncio.Task[None]) -> None:
        """Fail those who wait; here, because a task can be cancelled before it runs at all."""
        if not opened.done():
            opened.set_exception(self._error("lost", "was left before it said hello"))
            opened.exception()

    def _new_transport(self) -> _ServerTransport:
        match self._server:
            case McpServerStdio():
                return StdioServer(self._server, self._environment, self._ended)
            case McpServerHttp() | McpServerSse():
                return HttpServer(self._server)
        raise self._error("not_started", "is of a kind that is not known here")

    async def _hold(
        self, transport: _ServerTransport, opened: asyncio.Future[Client], ended: asyncio.Event
    ) -> None:
        """Open the connection, keep it until it is left or lost, and close it."""
        try:
            client = Client(
                _with_bounded_requests(transport.connect()),
                client_info=Implementation(name="coupler", version=__version__),
                cache=None,
                # Without it, servers are told that there is nobody to ask.
                elicitation_callback=self._elicit if self._asks else None,
            )
            async with asyncio.timeout(START_LIMIT):
                await client.__aenter__()
            try:
                opened.set_result(client)
                await ended.wait()
            finally:
                await client.__aexit__(None, None, None)
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            if opened.done():
                log.debug("%s was not left in good order", server_label(self.name), exc_info=error)
            else:
                opened.set_exception(self._not_started(error, transport))
                opened.exception()

    def _not_started(self, error: BaseException, transport: _ServerTransport) -> McpError:
        reason = transport.exit_reason()
        if isinstance(innermost(error), TimeoutError):
            reason = f"it did not say hello within {START_LIMIT:g} s"
        elif not reason:
            reason = _cause(error)
        verb = "started" if isinstance(self._server, McpServerStdio) else "reached"
        return self._error("not_started", f"could not be {verb}: {reason.removeprefix(': ')}")

    async def _lost(self, what: str) -> McpError:
        """The error for a lost connection; a process has the time to say how it ended."""
        transport, owner = self._transport, self._owner
        self._ended.set()
        if owner is not None:
            await asyncio.wait([owner], timeout=CLOSE_LIMIT)
        reason = (transport.exit_reason() if transport is not None else "") or ": the connection was lost"
        return self._error("lost", f"did not {what}{reason}")

    async def _list(self, client: Client) -> list[ServersTool]:
        tools: list[ServersTool] = []
        cursor: str | None = None
        size = 0
        for _ in range(MOST_PAGES):
            page = await client.session.list_tools(params=PaginatedRequestParams(cursor=cursor))
            tools += page.tools
            size += sum(len(tool.model_dump_json()) for tool in page.tools)
            if len(tools) > MOST_TOOLS or size > LARGEST_LIST:
                break
            cursor = page.next_cursor
            if not cursor:
                return tools
        limits = f"more than {MOST_TOOLS:,} tools, {MOST_PAGES} pages of them or {LARGEST_LIST:,} characters"
        raise self._error("refused", f"lists {limits}: that is too many")

    def _tool(self, tool: ServersTool) -> Tool:
        hints = tool.annotations
        return Tool(
            server=self.name,
            name=tool.name,
            description=tool.description or "",
            input_schema=tool.input_schema,
            title=tool.title or (hints.title if hints is not None else None),
            annotations=Annotations()
            if hints is None
            else Annotations(
                read_only=hints.read_only_hint,
                destructive=hints.destructive_hint,
                idempotent=hints.idempotent_hint,
                open_world=hints.open_world_hint,
            ),
        )

    def _error(self, kind: McpErrorKind, sentence: str) -> McpError:
        return McpError(kind, self.name, f"{server_label(self.name)} {sentence}")


@asynccontextmanager
async def _with_bounded_requests(
    streams: AbstractAsyncContextManager[Any],
) -> AsyncIterator[tuple[_Incoming, _Outgoing]]:
    async with streams as (incoming, outgoing):
        requests = _OpenRequests()
        yield _Incoming(incoming, requests), _Outgoing(outgoing, requests)


class _OpenRequests:
    """Counts the requests of a server that wait for their answers.

    The `mcp` package makes a task of each. A server that asks and reads no answer would fill the memory.
    """

    def __init__(self) -> None:
        self._count = 0
        self._settled = asyncio.Event()

    def note(self, message: SessionMessage) -> None:
        """Count a message of the server, if it is a request."""
        if isinstance(message.message, JSONRPCRequest):
            self._count += 1
            message.metadata = ServerMessageMetadata(on_request_unanswered=self.settle)

    async def settle(self) -> None:
        """Count a request no longer: it was answered, or the server wants no answer."""
        self._count -= 1
        self._settled.set()

    async def wait_for_room(self) -> None:
        """Wait while there are too many."""
        while self._count >= MOST_REQUESTS:
            self._settled.clear()
            await self._settled.wait()


class _Incoming:
    """The messages of a server, which are not read while too many of its requests are open."""

    def __init__(self, stream: Any, requests: _OpenRequests) -> None:
        self._stream = stream
        self._requests = requests

    @property
    def last_context(self) -> contextvars.Context | None:
        return getattr(self._stream, "last_context", None)

    async def receive(self) -> SessionMessage | Exception:
        await self._requests.wait_for_room()
        item: SessionMessage | Exception = await self._stream.receive()
        if isinstance(item, SessionMessage):
            self._requests.note(item)
        return item

    async def aclose(self) -> None:
        await self._stream.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Outgoing:
    """The messages to a server."""

    def __init__(self, stream: Any, requests: _OpenRequests) -> None:
        self._stream = stream
        self._requests = requests

    async def send(self, item: SessionMessage, /) -> None:
        message = item.message
        if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            # A server that does not read does not keep the turn that was cancelled.
            with anyio.move_on_after(CANCEL_WRITE_LIMIT):
                await self._stream.send(item)
            return
        try:
            await self._stream.send(item)
        finally:
            if isinstance(message, JSONRPCResponse | JSONRPCError):
                await self._requests.settle()

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


def _error_text(text: str) -> str:
    """A server's own error message, made printable."""
    return printable(text.strip(), LONGEST_ERROR) or "it gave no reason"


def _result(result: CallToolResult) -> ToolResult:
    blocks = [_block(block) for block in result.content]
    return ToolResult(
        content=tuple(block for block in blocks if block is not None),
        structured=result.structured_content,
        is_error=bool(result.is_error),
    )


def _block(block: Any) -> ContentBlock | None:
    """Convert a block of MCP to ACP's; one that is newer than this is left out."""
    try:
        read: Any = decode(
            ContentBlock,  # type: ignore[arg-type]  # a union is no class
            msgspec.Raw(block.model_dump_json(by_alias=True, exclude_none=True).encode()),
            "client",
        )
    except DecodingError as error:
        log.debug("a block of a tool's result was left out: %s", error)
        return None
    return None if isinstance(read, Unknown) else read


def _cause(error: BaseException) -> str:
    """The innermost reason: task groups wrap what happened in them."""
    error = innermost(error)
    if isinstance(error, SpawnError | ValueError | MCPError):
        return _error_text(str(error))
    return printable(exception_text(error), LONGEST_ERROR)


async def call_tool(
    client: Client, params: CallToolRequestParams, active: ActiveCall | None
) -> CallToolResult:
    """Send a call, and send it again with what its server asks for, until there is a result."""
    told = active.handler.hear_progress if active is not None else None
    for _ in range(MOST_ROUNDS):
        result = await client.session.send_request(
            CallToolRequest(params=params), _CallResponse, progress_callback=told
        )
        if isinstance(result, CallToolResult):
            return result
        answers = await _answers(result, active)
        params = params.model_copy(update={"input_responses": answers, "request_state": result.request_state})
    raise MCPError(INVALID_REQUEST, f"it asked for more than {MOST_ROUNDS} times, and gave no answer")


async def answer_elicitation(params: ElicitRequestParams, active: ActiveCall | None) -> ElicitResult:
    """Answer one question of a server; without anybody to ask it is declined."""
    if active is None:
        return ElicitResult(action="decline")
    reply = await active.asked(_reply(params, active))
    return ElicitResult(action=reply.action, content=reply.content if reply.action == "accept" else None)


async def _answers(result: InputRequiredResult, active: ActiveCall | None) -> dict[str, Any] | None:
    if not result.input_requests:
        await asyncio.sleep(RETRY_PAUSE)
        return None
    answers: dict[str, Any] = {}
    for key, request in result.input_requests.items():
        if not isinstance(request, ElicitRequest):
            raise MCPError(INVALID_REQUEST, f"it asked for {request.method}, which is not offered")
        answers[key] = await answer_elicitation(request.params, active)
    return answers


async def _reply(params: ElicitRequestParams, active: ActiveCall) -> ElicitationReply:
    if isinstance(params, ElicitRequestFormParams):
        return await active.handler.ask(params.message, dict(params.requested_schema))
    return await active.handler.ask_url(params.message, params.url)
