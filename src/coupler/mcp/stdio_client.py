"""The transport to a server that is a child process.

Its messages are lines on stdin and stdout, its stderr goes to our log. Imports the `mcp` package: to be
imported on use. The process leads a group of its own, which ends with the connection. A server that writes
faster than it is read has to wait.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from coupler.mcp.servers import ServerEnvironment
from coupler.mcp.tools import printable, server_label
from coupler.runtime.environment import Environment
from coupler.runtime.process import Child
from coupler.schema.v1 import McpServerStdio
from coupler.wire.frames import FrameBuffer, Oversized
from coupler.wire.messages import replace_lone_surrogates, structure_problem

log = logging.getLogger("coupler.mcp")

READ_BYTES = 64 * 1024

MOST_GARBAGE = 1000
"""Lines that are no messages, after which the server is given up: some print a few words of greeting."""

LONGEST_LINE = 2000
"""Bytes of a line on stderr that are logged, or repeated in an error."""

LINGER, GRACE = 0.3, 0.3
"""Seconds that a server has to end once its stdin is closed, and once more after SIGTERM."""

Incoming = MemoryObjectReceiveStream[SessionMessage | Exception]
Outgoing = MemoryObjectSendStream[SessionMessage]


class StdioServer:
    """The transport to one server, as the `mcp` package takes it; entered once."""

    def __init__(self, server: McpServerStdio, environment: ServerEnvironment, ended: asyncio.Event) -> None:
        self._server = server
        self._environment = environment
        self._ended = ended
        self._child: Child | None = None
        self._complaint: str | None = None
        self._stderr = _StderrLog(server.name)

    def exit_reason(self) -> str:
        """The way in which the server ended, as far as it is known, as the end of a sentence."""
        if self._complaint is not None:
            return f": {self._complaint}"
        if self._child is None or self._child.returncode is None:
            return ""
        code = self._child.returncode
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
        words = " / ".join(self._child.stderr.strip().splitlines()[-3:])
        return f": it ended with {how}" + (
            f"; its last words: {printable(words, LONGEST_LINE)}" if words else ""
        )

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[Incoming, Outgoing]]:
        """Start the server; raises SpawnError. It has ended when this is left, however that happens."""
        child = self._child = self._spawn()
        try:
            async with _Pipes(child) as pipes:
                received, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](0)
                outgoing, to_send = anyio.create_memory_object_stream[SessionMessage](0)
                async with received, incoming, outgoing, to_send, anyio.create_task_group() as tasks:
                    tasks.start_soon(self._receive, pipes, received)
                    tasks.start_soon(self._send, pipes, to_send)
                    yield incoming, outgoing
                    tasks.cancel_scope.cancel()
        finally:
            await child.end(GRACE, linger=LINGER)

    def _spawn(self) -> Child:
        server, environment = self._server, self._environment
        variables = environment.environment({variable.name: variable.value for variable in server.env})
        return Child.spawn(
            [server.command, *server.args],
            cwd=environment.cwd,
            env=Environment.exact(variables),
            stderr_limit=8 * 1024,
            on_stderr=self._stderr.write,
        )

    async def _receive(
        self, pipes: _Pipes, received: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        frames, garbage = FrameBuffer(), 0
        try:
            while self._complaint is None and (chunk := await pipes.read()):
                for frame in frames.feed(chunk):
                    message = None if self._is_refused(frame) else _parsed(frame)
                    if message is not None:
                        await received.send(message)
                        continue
                    garbage += 1
                    self._complain(frame, garbage)
        finally:
            await received.aclose()
            self._ended.set()

    def _is_refused(self, frame: bytes | Oversized) -> bool:
        """Return whether a message is too large to be read; the server that sent it is given up."""
        if isinstance(frame, Oversized):
            self._complaint = "it sent a message of more than 10 MiB"
        elif frame.startswith(b"{") and (problem := structure_problem(frame)) is not None:
            self._complaint = f"it sent a message that is refused: {problem.message}"
        return self._complaint is not None

    def _complain(self, frame: bytes | Oversized, count: int) -> None:
        if isinstance(frame, Oversized) or self._complaint is not None:
            return
        if count > MOST_GARBAGE:
            self._complaint = "it writes to stdout what is no message"
        elif count == 1:
            text = printable(frame.decode("utf-8", "replace"))
            log.warning("%s writes to stdout what is no message, which is ignored: %s", self._name, text)

    async def _send(self, pipes: _Pipes, to_send: MemoryObjectReceiveStream[SessionMessage]) -> None:
        is_read = True
        async for message in to_send:
            if not is_read:
                continue
            line = message.message.model_dump_json(by_alias=True, exclude_unset=True)
            try:
                await pipes.write(line.encode() + b"\n")
            except OSError:
                # What it has said is still read; then its stdout ends, or the request's time.
                log.debug("%s reads no more", self._name)
                is_read = False

    @property
    def _name(self) -> str:
        return server_label(self._server.name)


class _Pipes:
    """The two pipes of a child, with back-pressure both ways."""

    def __init__(self, child: Child) -> None:
        self._child = child
        self._reader = asyncio.StreamReader(limit=READ_BYTES)

    async def __aenter__(self) -> _Pipes:
        if sys.platform == "win32":  # its pipes cannot be watched
            self._input, self._output = self._child.stdout_fd, self._child.stdin_fd
            return self
        loop = asyncio.get_running_loop()
        protocol = asyncio.StreamReaderProtocol(self._reader)
        self._incoming, _ = await loop.connect_read_pipe(
            lambda: protocol, os.fdopen(self._child.stdout_fd, "rb", 0)
        )
        try:
            outgoing, writing = await loop.connect_write_pipe(
                lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()),
                os.fdopen(self._child.stdin_fd, "wb", 0),
            )
        except BaseException:
            self._incoming.close()
            raise
        self._writer = asyncio.StreamWriter(outgoing, writing, None, loop)
        return self

    async def __aexit__(self, *_: object) -> None:
        if sys.platform == "win32":
            os.close(self._output)
            return
        # What a server that does not read was still to get is of no use to anybody.
        self._writer.transport.abort()
        self._incoming.close()

    async def read(self) -> bytes:
        """Read what the child wrote; nothing at the end."""
        if sys.platform == "win32":
            return await asyncio.to_thread(os.read, self._input, READ_BYTES)
        return await self._reader.read(READ_BYTES)

    async def write(self, data: bytes) -> None:
        """Give the child all of this; waits while it reads nothing."""
        if sys.platform == "win32":
            await asyncio.to_thread(os.write, self._output, data)
            return
        self._writer.write(data)
        await self._writer.drain()


class _StderrLog:
    """Logs the stderr of a server line by line: a secret that is cut in two could not be recognized."""

    def __init__(self, server: str) -> None:
        self._server = printable(server)
        self._lines = FrameBuffer(limit=LONGEST_LINE)

    def write(self, chunk: bytes) -> None:
        if not log.isEnabledFor(logging.INFO):
            return
        for line in self._lines.feed(chunk):
            if isinstance(line, Oversized):
                log.info("%s: (a line that is too long)", self._server)
            else:
                log.info("%s: %s", self._server, printable(line.decode("utf-8", "replace"), LONGEST_LINE))


def _parsed(frame: bytes | Oversized) -> SessionMessage | None:
    if isinstance(frame, Oversized) or not frame.startswith(b"{"):
        return None
    for line in (frame, replace_lone_surrogates(frame)):
        try:
            return SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            continue
    return None
