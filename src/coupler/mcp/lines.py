"""Messages of MCP as lines on a connection, both ways, with back-pressure.

Imports the `mcp` package: to be imported on use. A line that is no message costs its sender an error, and
nobody anything else.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from coupler.wire import messages
from coupler.wire.frames import DEFAULT_LIMIT, Frame, FrameBuffer
from coupler.wire.messages import Malformed, replace_lone_surrogates

READ_BYTES = 64 * 1024

NOT_MCP = b'{"jsonrpc":"2.0","id":%b,"error":{"code":-32600,"message":"this is no message of MCP"}}\n'

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


@asynccontextmanager
async def message_streams(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> AsyncIterator[tuple[Incoming, Outgoing]]:
    """The messages that come, and where to put those that go, until this is left."""
    received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
    outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
    async with received, incoming, outgoing, to_send, anyio.create_task_group() as tasks:
        tasks.start_soon(_receive, reader, writer, received)
        tasks.start_soon(_send, writer, to_send)
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


async def _send(writer: asyncio.StreamWriter, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
    async with to_send:
        try:
            async for message in to_send:
                line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(line.encode() + b"\n")
                await writer.drain()
        except OSError:
            return  # nobody reads any more; that ends what is read, too


def _parsed(frame: Frame) -> SessionMessage | bytes | None:
    """The message, or the line that answers something else; None if nobody waits for an answer."""
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
