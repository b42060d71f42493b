"""A remote agent: started, introduced, and asked for sessions."""

from __future__ import annotations

import asyncio
import logging
import os.path
import time
from collections.abc import Sequence
from os import PathLike
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec import UNSET, Raw, json

from coupler.__about__ import __version__
from coupler.client.errors import AgentError, Kind
from coupler.client.link import LastWords, Link
from coupler.client.policy import Decide, Policy
from coupler.client.provisional import Provisional
from coupler.client.session import RemoteSession
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import PROTOCOL_VERSION
from coupler.schema.v1 import (
    AgentCapabilities,
    AudioContent,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    McpServer,
    NewSessionRequest,
    NewSessionResponse,
    RequestPermissionRequest,
    SessionNotification,
)
from coupler.wire.errors import CONNECTION_CLOSED, INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from coupler.wire.peer import Answer, Peer
from coupler.wire.request import Request

log = logging.getLogger("coupler.client")

FRAME_LIMIT = 64 * 1024 * 1024
"""Bytes of the longest line that an agent may send: images and whole files come in one."""

LAST_WORDS_PATIENCE = 1.0
"""Seconds to wait for the exit code of an agent that closed its output."""

STDOUT_PATIENCE = 0.5
"""Seconds in which the output of a dead process must end; somebody else may hold it open."""

T = TypeVar("T")


class RemoteAgent:
    """An agent on the other side of a link; an async context manager that starts and ends it."""

    def __init__(
        self,
        link: Link,
        *,
        cwd: str | PathLike[str],
        startup_timeout: float,
        frame_limit: int = FRAME_LIMIT,
    ) -> None:
        self.capabilities = AgentCapabilities()
        self.info: Implementation | None = None
        self._link = link
        self._cwd = cwd
        self._startup_timeout = startup_timeout
        self._startup_spent = 0.0
        self._frame_limit = frame_limit
        self._peer: Peer | None = None
        self._sessions: dict[str, RemoteSession] = {}
        self._opening = 0
        self._provisional = Provisional()
        self._ended = asyncio.Event()
        self._is_closed = False

    @property
    def peer(self) -> Peer:
        """The connection."""
        if self._peer is None:
            raise AgentError("closed", "the agent was not started: use `async with connect(…) as agent`")
        return self._peer

    async def __aenter__(self) -> Self:
        if self._peer is not None:
            raise AgentError("closed", "this agent was started before: connect again for another one")
        started = time.monotonic()
        self._peer = Peer(self._link.open(), self, frame_limit=self._frame_limit, answers_garbage=False)
        try:
            self._peer.open()
            self._peer.start(self._watch_for_death())
            await self._initialize(started)
        except BaseException:
            await self.close()
            raise
        self._startup_spent = time.monotonic() - started
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the agent and everything that it started."""
        if self._peer is None:
            return
        self._is_closed = True
        try:
            await self._peer.close()
        finally:
            await self._link.close()

    async def new(
        self,
        *,
        cwd: str | PathLike[str] | None = None,
        mcp_servers: Sequence[McpServer] = (),
        permissions: Policy | Decide | None = None,
    ) -> RemoteSession:
        """Open a session in a directory, by default that of the agent's process.

        `permissions` answers what the agent asks; by default it may read and nothing else.
        """
        directory = os.path.abspath(self._cwd if cwd is None else cwd)
        opened: asyncio.Future[RemoteSession] = asyncio.get_running_loop().create_future()
        policy = Policy.of(permissions)

        def open_session(answer: Answer) -> None:
            # At receipt, so that updates right behind the answer find their session.
            try:
                response = self._result("session", "session/new", NewSessionResponse, answer)
                session = self._adopt(RemoteSession(self, response.session_id, directory, policy), response)
            except AgentError as error:
                _settle(opened, error)
            else:
                _settle(opened, session)

        started = time.monotonic() - self._startup_spent
        request = self.peer.ask("session/new", NewSessionRequest(directory, mcp_servers), open_session)
        self._opening += 1
        try:
            return await self._in_time("session", "session/new", opened, started)
        except BaseException:
            self.peer.give_up(request)
            raise
        finally:
            self._startup_spent = 0.0
            self._opening -= 1
            if not self._opening:
                self._provisional.clear()

    def request_received(self, request: Request) -> None:
        if request.method != "session/request_permission":
            message = f"this client has no method {request.method!r}"
            raise RpcError.because(METHOD_NOT_FOUND, message, method=request.method)
        try:
            params = decode(RequestPermissionRequest, request.params, "client")
        except DecodingError as error:
            raise RpcError.because(INVALID_PARAMS, f"{request.method}: {error}", path=error.path) from None
        session = self._sessions.get(params.session_id)
        if session is None:
            message = f"sessionId: this client has no session {params.session_id!r}"
            raise RpcError.because(INVALID_PARAMS, message, path="sessionId")
        session.permission_requested(request, params)

    def notification_received(self, method: str, params: Raw) -> None:
        if method != "session/update":
            log.debug("the notification %s was ignored", method)
            return
        try:
            notification = decode(SessionNotification, params, "client")
        except DecodingError as error:
            log.warning("an update was dropped: %s", error)
            return
        size = len(memoryview(params))
        session = self._sessions.get(notification.session_id)
        if session is not None:
            session.update_received(notification.update, size)
        elif self._opening:
            self._provisional.keep(notification, size)
        else:
            log.debug("an update of the unknown session %r was ignored", notification.session_id[:100])

    def disconnected(self, error: RpcError) -> None:
        self._ended.set()
        for session in self._sessions.values():
            session.withdraw_questions()

    def refuse_unaccepted(self, blocks: Sequence[ContentBlock]) -> None:
        """Raise for a block of a prompt that the agent has not said to take."""
        takes = self.capabilities.prompt_capabilities
        for block in blocks:
            match block:
                case ImageContent() if not takes.image:
                    kind = "images"
                case AudioContent() if not takes.audio:
                    kind = "audio"
                case EmbeddedResource() if not takes.embedded_context:
                    kind = "embedded resources"
                case _:
                    continue
            raise AgentError("prompt", f"the agent does not take {kind} in prompts")

    def failure(self, kind: Kind, what: str, error: RpcError) -> AgentError:
        """An error answer, or the lack of one, in this layer's words."""
        if error is self.peer.closed_because:
            if self._is_closed:
                return AgentError("closed", f"the connection was closed before the agent answered {what}")
            return AgentError("died", f"the agent ended before it answered {what}")
        message = f"the agent refused {what}: {error.message} ({error.code}){_details(error.data)}"
        return AgentError(kind, message, code=error.code, data=error.data)

    async def with_last_words(self, error: AgentError) -> AgentError:
        """A copy of the error, for one who waits, with what the agent's process left."""
        message = error.message
        if error.kind == "died":
            try:
                async with asyncio.timeout(LAST_WORDS_PATIENCE):
                    await self._link.wait()
            except TimeoutError:
                message = f"{message}: its output is closed, its process still runs"
        words = LastWords() if error.kind in ("busy", "closed") else self._link.last_words()
        return AgentError(error.kind, message, **words._asdict(), code=error.code, data=error.data)

    async def _initialize(self, started: float) -> None:
        request = InitializeRequest(
            PROTOCOL_VERSION, client_info=Implementation("coupler", __version__, title="Coupler")
        )
        answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self.peer.ask("initialize", request, lambda answer: _settle(answered, answer))
        answer = await self._in_time("initialize", "initialize", answered, started)
        try:
            response = self._result("initialize", "initialize", InitializeResponse, answer)
        except AgentError as error:
            raise await self.with_last_words(error) from None
        if response.protocol_version != PROTOCOL_VERSION:
            spoken = response.protocol_version
            message = f"the agent speaks version {spoken} of the protocol, Coupler speaks {PROTOCOL_VERSION}"
            raise AgentError("initialize", message)
        self.capabilities = response.agent_capabilities
        self.info = None if response.agent_info is UNSET else response.agent_info

    async def _in_time(self, kind: Kind, what: str, future: asyncio.Future[T], started: float) -> T:
        try:
            async with asyncio.timeout(max(started + self._startup_timeout - time.monotonic(), 0.0)):
                return await future
        except TimeoutError:
            elapsed = time.monotonic() - started
            message = f"the agent did not answer {what} within {elapsed:.1f} s (startup_timeout)"
            raise await self.with_last_words(AgentError(kind, message)) from None
        except AgentError as error:
            raise await self.with_last_words(error) from None

    def _result(self, kind: Kind, what: str, type: type[T], answer: Answer) -> T:
        if isinstance(answer, RpcError):
            raise self.failure(kind, what, answer)
        try:
            return decode(type, answer, "client")
        except DecodingError as error:
            raise AgentError(kind, f"the agent's answer to {what} cannot be read: {error}") from None

    def _adopt(self, session: RemoteSession, opened: NewSessionResponse) -> RemoteSession:
        if session.id in self._sessions:
            message = f"the agent gave a new session the id of an open one: {session.id!r}"
            raise AgentError("session", message)
        self._sessions[session.id] = session
        for notification, size in self._provisional.take(session.id):
            session.update_received(notification.update, size)
        if opened.modes:
            session.mode = opened.modes.current_mode_id
        return session

    async def _watch_for_death(self) -> None:
        await self._link.wait()
        try:
            async with asyncio.timeout(STDOUT_PATIENCE):
                await self._ended.wait()
        except TimeoutError:
            self.peer.input_ended(RpcError.because(CONNECTION_CLOSED, "the agent's process has ended"))


def _settle(future: asyncio.Future[Any], outcome: Any) -> None:
    if future.done():
        return
    if isinstance(outcome, AgentError):
        future.set_exception(outcome)
        future.exception()  # whoever waits may be cancelled in the same moment, and never look
    else:
        future.set_result(outcome)


def _details(data: Any) -> str:
    """What an error says besides its message; agents exist that hide all of it there."""
    if data is None or (isinstance(data, dict) and data.keys() <= {"reason"}):
        return ""
    return f": {data if isinstance(data, str) else json.encode(data).decode()}"[:500]
