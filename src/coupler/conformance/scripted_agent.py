"""An agent that does exactly what a scenario says: right or wrong, in any order, byte by byte.

It answers the handshake by itself, holds each prompt until the scenario takes it, refuses everything else,
and traces every line of both sides. A scenario changes the answers before the client comes. `AgentHost` runs
a script in this process for clients in others.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Self, TypeAlias

from coupler.conformance.peers import INFO, LinePipe, RequestRefused, ScriptError, Service
from coupler.conformance.reading import shown
from coupler.recording.traces import INVALID_PARAMS, METHOD_NOT_FOUND, Trace, TraceEntry
from coupler.wire.pipe_transport import PipeTransport
from coupler.wire.transport import Transport

CLIENT_PID = "client.pid"
"""The file in which the kit leaves the client's process id, for `interrupt`."""

STAYING = 600.0
"""Seconds to wait for another prompt when the script is over."""

ENDING_PATIENCE = 5.0
"""Seconds that the scripts have to end when the host is closed."""


class RecordedTrace(Trace):
    """A trace that writes each line to a file at once, because clients kill their agents without warning."""

    def __init__(self, label: str, path: Path) -> None:
        super().__init__(label)
        self._file = path.open("wb", buffering=0)
        self._file.write(self.header() + b"\n")

    def append(self, at: float, sender: Any, line: bytes) -> TraceEntry:
        entry = super().append(at, sender, line)
        self._file.write(entry.encode() + b"\n")
        return entry


class ScriptedAgent:
    """A scripted agent on one connection.

    `folder` is for files of the scenario; `is_watched` says that a person is there.
    """

    def __init__(
        self,
        transport: Transport,
        trace: Trace,
        *,
        timeout: float = 5.0,
        folder: Path | None = None,
        is_watched: bool = False,
    ) -> None:
        self.pipe = LinePipe(transport, "agent", trace, timeout)
        self.pipe.when_received = self._receive
        self.folder = folder or Path.cwd()
        self.is_watched = is_watched
        self.introduction: dict[str, Any] = {
            "protocolVersion": 1,
            "agentCapabilities": {},
            "agentInfo": INFO,
            "authMethods": [],
        }
        self.opening: dict[str, Any] = {}
        self.session_id = ""
        self.held = {"session/prompt"}
        self.services: dict[str, Service] = {
            "initialize": lambda params: self.introduction,
            "session/new": self.open_session,
        }
        self._directories: dict[str, str] = {}
        self._kept: list[TraceEntry] = []
        self._last_id = 0

    @property
    def trace(self) -> Trace:
        return self.pipe.trace

    @property
    def directory(self) -> Path:
        """The session's working directory."""
        return Path(self._directories.get(self.session_id, "."))

    def open_session(self, params: dict[str, Any]) -> dict[str, Any]:
        """Answer `session/new`: an id, and `opening`, which a scenario may fill."""
        self.session_id = f"session_{len(self._directories) + 1}"
        self._directories[self.session_id] = str(params.get("cwd"))
        return {"sessionId": self.session_id, **self.opening}

    async def begin_turn(self, within: float | None = None) -> HeldPrompt:
        """Wait for a prompt; its session is then the one that the scenario works in."""
        turn = HeldPrompt(self, await self.take("session/prompt", within))
        self.session_id = turn.session
        return turn

    async def stay(self) -> None:
        """Answer further prompts until the client leaves."""
        while not self.pipe.has_ended:
            try:
                turn = await self.begin_turn(within=STAYING)
            except ScriptError:
                return
            turn.say("The script is over.")
            turn.end()

    async def take(self, method: str, within: float | None = None) -> TraceEntry:
        """Wait for a request that is held, for the scenario to answer."""
        return await self.pipe.until(lambda: self._pop(method), f"a request {method}", within)

    def put_back(self, request: TraceEntry) -> None:
        """Let the next `take` return this request again."""
        self._kept.insert(0, request)

    def answer(self, request: TraceEntry, result: Any) -> None:
        """Answer a request that was held."""
        self.pipe.send({"id": request.message.get("id"), "result": result})

    def notify(self, method: str, params: Any) -> None:
        self.pipe.send({"method": method, "params": params})

    def ask(self, method: str, params: Any, id: Any = None) -> Any:
        """Send a request and go on; returns its id."""
        self._last_id += 1
        chosen = self._last_id if id is None else id
        self.pipe.send({"id": chosen, "method": method, "params": params})
        return chosen

    async def answer_to(self, id: Any, within: float | None = None) -> dict[str, Any]:
        """Wait for the client's answer: its message, or an empty one if it stays silent."""
        try:
            return (await self.pipe.answer(id, "the client's answer", within)).message
        except ScriptError as error:
            if error.kind == "silent":
                return {}
            raise

    async def call(self, method: str, params: Any, within: float | None = None) -> dict[str, Any]:
        """Send a request about the session and wait for its answer."""
        return await self.answer_to(self.ask(method, {"sessionId": self.session_id, **params}), within)

    async def quiet(self, seconds: float) -> None:
        """Wait that long, for what should not come to be traced; ends early when the client is gone."""
        await self.pipe.quiet(seconds)

    def interrupt(self) -> None:
        """Send Ctrl-C to the client, which is all that makes a program without a screen cancel."""
        if self.is_watched or os.name != "posix":
            return
        # The group is one that the kit made for this client; this agent itself ignores the signal.
        os.killpg(int((self.folder / CLIENT_PID).read_text()), signal.SIGINT)

    def _pop(self, method: str) -> TraceEntry | None:
        for entry in self._kept:
            if entry.method == method:
                self._kept.remove(entry)
                return entry
        return None

    def _receive(self, entry: TraceEntry) -> None:
        if not entry.is_request:
            return
        if entry.method in self.held:
            self._kept.append(entry)
            return
        try:
            self.answer(entry, self._serve(entry))
        except RequestRefused as refusal:
            error = {"code": refusal.code, "message": refusal.message}
            self.pipe.send({"id": entry.message["id"], "error": error})
        except (ValueError, TypeError) as fault:
            error = {"code": INVALID_PARAMS, "message": str(fault)}
            self.pipe.send({"id": entry.message["id"], "error": error})

    def _serve(self, entry: TraceEntry) -> dict[str, Any]:
        service = self.services.get(entry.method or "")
        if service is None:
            raise RequestRefused(METHOD_NOT_FOUND, f"this agent has no method {shown(entry.method)}")
        return service(entry.params if isinstance(entry.params, dict) else {})


class HeldPrompt:
    """A prompt that waits for its answer."""

    def __init__(self, agent: ScriptedAgent, request: TraceEntry) -> None:
        self.request = request
        self._agent = agent
        self._params: dict[str, Any] = request.params if isinstance(request.params, dict) else {}

    @property
    def session(self) -> str:
        return str(self._params.get("sessionId"))

    @property
    def text(self) -> str:
        """The prompt's text."""
        blocks = self._params.get("prompt")
        found = blocks if isinstance(blocks, list) else []
        texts = [block.get("text") for block in found if isinstance(block, dict)]
        return "".join(text for text in texts if isinstance(text, str))

    def say(self, text: str) -> None:
        self.update("agent_message_chunk", content={"type": "text", "text": text})

    def update(self, kind: str, /, **fields: Any) -> None:
        self._agent.notify("session/update", self.update_params(kind, **fields))

    def update_params(self, kind: str, /, **fields: Any) -> dict[str, Any]:
        return {"sessionId": self.session, "update": {"sessionUpdate": kind, **fields}}

    def end(self, stop_reason: str = "end_turn") -> None:
        self._agent.answer(self.request, {"stopReason": stop_reason})

    def fail(self, code: int, message: str) -> None:
        error = {"code": code, "message": message}
        self._agent.pipe.send({"id": self.request.message.get("id"), "error": error})


AgentScript: TypeAlias = Callable[[ScriptedAgent], Awaitable[None]]


class AgentHost:
    """Runs scripts as agents for clients in other processes; `command` works inside its context.

    A test can so hold a script as a function of its own, look at what it noted, and give its client a command
    line like any other. The script runs in a thread with an event loop, once each time the command is
    started.
    """

    def __init__(self, script: AgentScript, timeout: float = 10.0) -> None:
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
        """The command that a client starts as its agent.

        -P keeps the client's directory off the module path.
        """
        port = str(self._listener.getsockname()[1])
        return [sys.executable, "-P", "-m", "coupler.conformance.socket_relay", port, self._token]

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
        """True if the connection sends our token: it is our relay, and no other program on this machine."""
        said = b""
        while not said.endswith(b"\n") and len(said) <= len(self._token):
            piece = await self._loop.sock_recv(connection, 1)
            if not piece:
                return False
            said += piece
        return secrets.compare_digest(said, self._token.encode() + b"\n")


def is_about_leaving(error: Exception) -> bool:
    """True if a script ended because its client left, which need not be a fault."""
    return isinstance(error, ScriptError) and error.kind == "gone"
