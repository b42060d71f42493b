"""The agent's end of a connection: says hello, opens sessions, and routes everything else to them."""

from __future__ import annotations

import asyncio
import logging
import os.path
from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

from msgspec import UNSET, Raw

from coupler.agent.blueprint import Blueprint
from coupler.agent.editor import Editor
from coupler.agent.errors import (
    ALREADY_INITIALIZED,
    NOT_INITIALIZED,
    SHUTTING_DOWN,
    agent_failed,
    invalid_params,
    unknown_session,
)
from coupler.agent.session import Session
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import METHODS
from coupler.schema.v1 import (
    CancelNotification,
    InitializeRequest,
    InitializeResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
)
from coupler.wire.errors import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from coupler.wire.frames import DEFAULT_LIMIT
from coupler.wire.peer import Peer
from coupler.wire.request import Request
from coupler.wire.transport import Transport

log = logging.getLogger("coupler.agent")

END_GRACE = 1.0
"""Seconds that turns have for their clean-up once the client is gone."""


class AgentConnection:
    """Serves one client. `introduction` answers `initialize`, `blueprint` is awaited for each session."""

    def __init__(
        self,
        transport: Transport,
        introduction: InitializeResponse | Raw,
        blueprint: Callable[[], Awaitable[Blueprint]],
        *,
        already_introduced: bool = False,
        ended: asyncio.Event | None = None,
        frame_limit: int = DEFAULT_LIMIT,
    ) -> None:
        self.initialized = asyncio.Event()
        self.ended = ended or asyncio.Event()
        self.when_prompted: Callable[[], None] = lambda: None
        self._peer = Peer(transport, self, frame_limit=frame_limit)
        self._introduction = introduction
        self._already_introduced = already_introduced
        self._blueprint = blueprint
        self._editor: Editor | None = None
        self._is_finishing = False
        self._sessions: dict[str, Session] = {}
        self._calls: dict[str, Callable[[Request, Any], None]] = {
            "initialize": self._initialize,
            "session/new": self._new_session,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel_with_answer,
        }

    def open(self) -> None:
        """Begin to serve."""
        self._peer.open()

    def is_busy(self) -> bool:
        """Whether any session has a running turn."""
        return any(session.is_busy for session in self._sessions.values())

    async def finish(self, patience: float) -> None:
        """Cancel the turns, let every request that was read have its answer, and close.

        What takes longer than `patience` seconds is given up.
        """
        self._is_finishing = True
        self._cancel_turns()
        try:
            async with asyncio.timeout(patience):
                await self._peer.all_answered()
                await self._peer.drain()
        except TimeoutError:
            log.warning("the client was not waited for any longer")
        await self._peer.close(grace=0.2)

    def request_received(self, request: Request) -> None:
        if self._editor is None and request.method != "initialize":
            raise RpcError.because(NOT_INITIALIZED, f"call initialize before {request.method}")
        if self._editor is not None and request.method == "initialize":
            raise RpcError.because(ALREADY_INITIALIZED, "initialize was called before on this connection")
        call = self._calls.get(request.method)
        if call is None:
            message = f"this agent has no method {request.method!r}"
            raise RpcError.because(METHOD_NOT_FOUND, message, method=request.method)
        try:
            params = decode(METHODS[request.method].params, request.params, "agent")
        except DecodingError as error:
            raise invalid_params(request.method, error) from None
        call(request, params)

    def notification_received(self, method: str, params: Raw) -> None:
        if method != "session/cancel":
            log.debug("the notification %s was ignored", method)
            return
        try:
            cancelled = decode(CancelNotification, params, "agent")
        except DecodingError as error:
            log.warning("a session/cancel was ignored: %s", error)
            return
        session = self._sessions.get(cancelled.session_id)
        if session is not None:
            session.cancel()

    def disconnected(self, error: RpcError) -> None:
        log.info("%s", error.message)
        # At once: code that waits for the client must be cancelled, not go on with a failed answer.
        self._cancel_turns()
        self.ended.set()

    def _cancel_turns(self) -> None:
        for session in self._sessions.values():
            session.cancel(END_GRACE)

    def _initialize(self, request: Request, client: InitializeRequest) -> None:
        info = None if client.client_info is UNSET else client.client_info
        self._editor = Editor(self._peer, client.client_capabilities, info)
        if self._already_introduced:
            request.waive()
        else:
            request.answer(self._introduction)
        self.initialized.set()

    def _new_session(self, request: Request, params: NewSessionRequest) -> None:
        _check_directories(params)
        assert self._editor is not None
        request.run(self._open_session(params, self._editor))

    async def _open_session(self, params: NewSessionRequest, editor: Editor) -> NewSessionResponse:
        blueprint = await self._blueprint()
        new_id = f"sess_{os.urandom(16).hex()}"
        session = Session(new_id, params.cwd, tuple(params.mcp_servers), editor, self._peer)
        try:
            session.give_to(await blueprint.agent_for(session))
        except asyncio.CancelledError:
            raise
        except BaseException as error:
            log.error("the agent could not be made", exc_info=error)
            raise agent_failed(error) from None
        self._sessions[new_id] = session
        return NewSessionResponse(new_id)

    def _prompt(self, request: Request, params: PromptRequest) -> None:
        session = self._session(params.session_id)
        if self._is_finishing:
            raise RpcError.because(SHUTTING_DOWN, "the agent is ending and takes no more prompts")
        session.admit(request, tuple(params.prompt))
        self.when_prompted()

    def _cancel_with_answer(self, request: Request, params: CancelNotification) -> None:
        """`session/cancel` is a notification; a client that sends it as a request is obeyed as well."""
        self._session(params.session_id).cancel()
        request.answer(None)

    def _session(self, id: str) -> Session:
        session = self._sessions.get(id)
        if session is None:
            raise unknown_session(id)
        return session


def _check_directories(params: NewSessionRequest) -> None:
    if not os.path.isabs(params.cwd):
        _refuse("cwd", f"cwd: expected an absolute path, got {params.cwd!r}")
    # Not by pathlib, which raises for a path that is too long or in a forbidden place.
    if not os.path.isdir(params.cwd):
        problem = "is not a directory" if os.path.exists(params.cwd) else "does not exist"
        _refuse("cwd", f"cwd: {params.cwd!r} {problem}")
    if params.additional_directories is not UNSET and params.additional_directories:
        _refuse("additionalDirectories", "additionalDirectories: this agent works in one directory only")


def _refuse(path: str, message: str) -> NoReturn:
    raise RpcError.because(INVALID_PARAMS, message, path=path)
