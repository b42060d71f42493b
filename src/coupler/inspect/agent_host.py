"""A scripted agent in this process for clients in others: they start a command, the script is played here.

So a test can hold a script as a function of its own, look at what it noted, and give its client a command
line like any other. The script runs in a thread with an event loop, once each time the command is started.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Self, TypeAlias

from coupler.inspect.line_pipe import ScriptError
from coupler.inspect.scripted_agent import ScriptedAgent
from coupler.inspect.trace import Trace
from coupler.wire.pipe_transport import PipeTransport

Script: TypeAlias = Callable[[ScriptedAgent], Awaitable[None]]

ENDING_PATIENCE = 5.0
"""Seconds that the scripts have to end when the host is closed."""


class AgentHost:
    """A context manager; `command` works inside it."""

    def __init__(self, script: Script, timeout: float = 10.0) -> None:
        self.traces: list[Trace] = []
        self.failures: list[Exception] = []
        self._script = script
        self._timeout = timeout
        self._token = secrets.token_hex(16)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="coupler-agent-host", daemon=True)

    @property
    def command(self) -> list[str]:
        """What a client starts as its agent. -P keeps the client's directory off the module path."""
        port = str(self._listener.getsockname()[1])
        return [sys.executable, "-P", "-m", "coupler.inspect.relay", port, self._token]

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(lambda: self._serving.cancel())
        self._thread.join(ENDING_PATIENCE)
        self._listener.close()

    def _run(self) -> None:
        self._listener.setblocking(False)
        self._serving = self._loop.create_task(self._serve())
        with contextlib.suppress(asyncio.CancelledError):
            self._loop.run_until_complete(self._serving)
        self._loop.close()

    async def _serve(self) -> None:
        async with asyncio.TaskGroup() as scripts:
            while True:
                connection, _ = await self._loop.sock_accept(self._listener)
                scripts.create_task(self._play(connection))

    async def _play(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        if not await self._knows_token(connection):
            connection.close()
            return
        descriptor = connection.detach()
        agent = ScriptedAgent(
            PipeTransport(descriptor, descriptor), Trace("scripted agent"), timeout=self._timeout
        )
        self.traces.append(agent.trace)
        agent.pipe.open()
        try:
            await self._script(agent)
            await agent.stay()
        except Exception as error:
            self.failures.append(error)
        finally:
            agent.pipe.close()

    async def _knows_token(self, connection: socket.socket) -> bool:
        """Whether this is our relay, and not somebody else on this machine."""
        said = b""
        while not said.endswith(b"\n") and len(said) <= len(self._token):
            piece = await self._loop.sock_recv(connection, 1)
            if not piece:
                return False
            said += piece
        return secrets.compare_digest(said, self._token.encode() + b"\n")


def is_about_leaving(error: Exception) -> bool:
    """Whether a script ended because its client left, which need not be a fault."""
    return isinstance(error, ScriptError) and error.kind == "gone"
