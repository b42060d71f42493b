"""Serves one client: answers `initialize` and routes every other request to its handler."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw

from coupler.agent.capabilities import response_for_client
from coupler.agent.editor import Editor
from coupler.agent.errors import ALREADY_INITIALIZED, NOT_INITIALIZED, invalid_params
from coupler.agent.factory import AgentFactory, Backend
from coupler.agent.output import redact, redact_error
from coupler.agent.sessions import SessionRequestHandler, Sessions
from coupler.agent.startup.loading import SessionAnswerCache
from coupler.redaction.known_secrets import process_masker
from coupler.schema import unstable, v1
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import METHODS, offers
from coupler.schema.v1 import CancelNotification, InitializeRequest, InitializeResponse
from coupler.wire.frames import DEFAULT_LIMIT
from coupler.wire.messages import METHOD_NOT_FOUND, RpcError
from coupler.wire.outbox import LaneKey
from coupler.wire.peer import Peer, Request
from coupler.wire.transport import Transport

log = logging.getLogger("coupler.agent")

END_GRACE = 1.0
"""Seconds that turns have for their clean-up once the client is gone."""


class AgentConnection:
    """Serves one client: `introduction` is the answer to `initialize`, sessions await `factory`."""

    def __init__(
        self,
        transport: Transport,
        introduction: InitializeResponse | Raw,
        factory: Callable[[], Awaitable[AgentFactory]],
        *,
        already_answered: bool = False,
        ended: asyncio.Event | None = None,
        frame_limit: int = DEFAULT_LIMIT,
        backend: Backend | None = None,
        backend_initialized: Callable[[InitializeResponse], None] = lambda introduction: None,
        answer_cache: SessionAnswerCache | None = None,
    ) -> None:
        """Prepare to serve; a `backend` is started by the client's `initialize`, which it then answers."""
        self.initialized = asyncio.Event()
        self.ended = ended or asyncio.Event()
        self.when_prompted: Callable[[], None] = lambda: None
        self._peer = Peer(transport, self, frame_limit=frame_limit)
        self._peer.screen = self._without_secrets
        self._introduction = introduction
        self._already_answered = already_answered
        self._sessions = Sessions(self._peer, factory, answer_cache)
        self._backend = backend
        self._backend_initialized = backend_initialized
        # Requests that were read while the agent is still finding out what it can do.
        self._waiting: list[Request] | None = None
        self._calls: SessionRequestHandler | None = None
        self._logins = AuthRequestHandler(factory)

    def open(self) -> None:
        """Start to read the client's messages."""
        self._peer.open()

    def is_busy(self) -> bool:
        """Return whether any session has a running turn."""
        return any(session.is_busy for session in self._sessions)

    async def finish(self, patience: float) -> None:
        """Cancel the turns, let every request that was read have its answer, and close.

        What takes longer than `patience` seconds is given up.
        """
        if self._calls is not None:
            self._calls.is_finishing = True
        self._cancel_turns()
        try:
            async with asyncio.timeout(patience):
                await self._peer.all_answered()
                await self._sessions.leave_all()
                await self._peer.drain()
                if self._backend is not None:
                    await self._backend.close()
        except TimeoutError:
            log.warning("the client was not waited for any longer")
        await self._peer.close(grace=0.2)
        self._sessions.close_archive()

    def request_received(self, request: Request) -> None:
        if request.method == "initialize":
            self._initialize(request, self._params_of(request))
            return
        if self._calls is None:
            raise RpcError.because(NOT_INITIALIZED, f"call initialize before {request.method}")
        if self._waiting is not None:
            self._waiting.append(request)
            return
        is_login = request.method in ("authenticate", "logout")
        if not (is_login or request.method in self._calls) or not self._is_offered(request.method):
            message = f"this agent has no method {request.method!r}"
            raise RpcError.because(METHOD_NOT_FOUND, message, method=request.method)
        calls = self._logins if is_login else self._calls
        calls.receive(request, self._params_of(request))

    def notification_received(self, method: str, params: Raw) -> None:
        if method != "session/cancel":
            log.debug("the notification %s was ignored", method)
            return
        try:
            cancelled = decode(CancelNotification, params, "agent")
        except DecodingError as error:
            log.warning("a session/cancel was ignored: %s", error)
            return
        if self._calls is not None:
            self._calls.cancel(cancelled.session_id)

    def disconnected(self, error: RpcError) -> None:
        log.info("%s", error.message)
        # At once: code that waits for the client must be cancelled, not go on with a failed answer.
        self._cancel_turns()
        self.ended.set()

    def _cancel_turns(self) -> None:
        for session in self._sessions:
            session.cancel(END_GRACE)

    def _params_of(self, request: Request) -> Any:
        try:
            return decode(METHODS[request.method].params, request.params, "agent")
        except DecodingError as error:
            raise invalid_params(request.method, error) from None

    def _initialize(self, request: Request, client: InitializeRequest) -> None:
        if self._calls is not None:
            raise RpcError.because(ALREADY_INITIALIZED, "initialize was called before on this connection")
        info = None if client.client_info is UNSET else client.client_info
        editor = Editor(self._peer, client.client_capabilities, info, client.meta or None)
        self._calls = SessionRequestHandler(self._sessions, editor, self._peer, lambda: self.when_prompted())
        is_known = isinstance(self._introduction, Raw) or self._backend is None
        if self._already_answered:
            request.waive()
        elif is_known:
            request.answer(response_for_client(self._introduction, client.client_capabilities))
        if self._backend is not None:
            self._waiting = None if is_known else []
            self._peer.start(self._start_backend(self._backend, editor, None if is_known else request))
        self.initialized.set()

    async def _start_backend(self, backend: Backend, editor: Editor, request: Request | None) -> None:
        """Start the backend, and answer a client that still waits for `initialize`."""
        try:
            introduction = await backend.initialize(editor)
        except RpcError as error:
            # Like a target that cannot be imported: the sessions say why, where editors show it.
            log.error("%s", error.message)
            self._sessions.logged_failure = error.message
        except Exception:
            log.exception("what is behind the agent could not be started")
        else:
            self._backend_initialized(introduction)
            if request is not None:
                self._introduction = introduction
        if request is not None:
            request.answer(response_for_client(self._introduction, editor.capabilities))
            waiting, self._waiting = self._waiting or [], None
            for each in waiting:
                self._serve_waiting(each)

    def _serve_waiting(self, request: Request) -> None:
        try:
            self.request_received(request)
        except Exception as error:
            request.fail_with(error)

    def _without_secrets(self, answer: Any, lane: LaneKey) -> Any:
        """Redact an answer or an error; the answer to `initialize` holds only what the author wrote."""
        if isinstance(answer, InitializeResponse | Raw) or answer is None:
            return answer
        session = self._sessions.find(lane) if isinstance(lane, str) else None
        masker = session.secrets.masker if session is not None else process_masker()
        if masker is None:
            return answer
        return redact_error(answer, masker) if isinstance(answer, RpcError) else redact(answer, masker)

    def _is_offered(self, method: str) -> bool:
        """Return whether the method was advertised by `initialize`: what was not is refused."""
        gate = METHODS[method].gate
        if gate is None and method != "authenticate":
            return True
        if isinstance(self._introduction, Raw):
            self._introduction = decode(unstable.InitializeResponse, self._introduction, "agent")
        if method == "authenticate":
            return bool(self._introduction.auth_methods)
        return offers(self._introduction.agent_capabilities, gate)


class AuthRequestHandler:
    """Answers `authenticate` and `logout`, for an agent that has logins."""

    def __init__(self, factory: Callable[[], Awaitable[AgentFactory]]) -> None:
        self._factory = factory

    def receive(self, request: Request, params: v1.AuthenticateRequest | v1.LogoutRequest) -> None:
        """Answer a request."""
        if isinstance(params, v1.AuthenticateRequest):
            request.run(self._authenticate(params.method_id, params.meta or None))
        else:
            request.run(self._log_out(params.meta or None))

    async def _authenticate(self, method_id: str, meta: Mapping[str, Any] | None) -> v1.AuthenticateResponse:
        answered = await (await self._factory()).logins.authenticate(method_id, meta)
        return v1.AuthenticateResponse(meta=answered or UNSET)

    async def _log_out(self, meta: Mapping[str, Any] | None) -> v1.LogoutResponse:
        answered = await (await self._factory()).logins.log_out(meta)
        return v1.LogoutResponse(meta=answered or UNSET)
