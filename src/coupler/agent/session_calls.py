"""What a client can ask about sessions, one method each.

While a session is being opened or left, whatever else the client asks about it waits, in order: a prompt that
was sent right behind a `session/load` finds the session open, and a load behind a `session/close` finds it
closed. A cancel waits for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from msgspec import UNSET, UnsetType

from coupler.agent.directories import check_additional, check_cwd, check_filter
from coupler.agent.editor import Editor
from coupler.agent.errors import SHUTTING_DOWN, session_busy, unknown_session
from coupler.agent.forecast import Forecast
from coupler.agent.session import Place, Session
from coupler.agent.sessions import Sessions
from coupler.agent.setting_changes import OptionChange, change_mode, change_option
from coupler.schema import v1
from coupler.schema.unstable import ForkSessionRequest, ForkSessionResponse
from coupler.wire.messages import CANCELLED, INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer, Request, internal_error

log = logging.getLogger("coupler.agent")

Setup = v1.NewSessionRequest | v1.LoadSessionRequest | v1.ResumeSessionRequest | ForkSessionRequest


class _Waiting(NamedTuple):
    request: Request
    params: Any


class SessionCalls:
    """Answers the requests of one client that has said hello."""

    def __init__(
        self, sessions: Sessions, editor: Editor, peer: Peer, when_prompted: Callable[[], None]
    ) -> None:
        self.is_finishing = False
        self._sessions = sessions
        self._editor = editor
        self._peer = peer
        self._when_prompted = when_prompted
        self._in_transition: dict[str, list[_Waiting]] = {}
        self._failures: dict[str, RpcError] = {}
        """Why sessions came to nothing whose agents were not there when they were begun."""
        self._calls: dict[str, Callable[[Request, Any], None]] = {
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_option,
            "session/prompt": self._prompt,
            "session/cancel": self._cancel_with_answer,
        }

    def __contains__(self, method: str) -> bool:
        return method in self._calls

    def receive(self, request: Request, params: Any) -> None:
        """Answer a request, or let it wait until its session is open or gone."""
        waiting = self._in_transition.get(getattr(params, "session_id", ""))
        if waiting is None or request.method == "session/cancel":
            self._calls[request.method](request, params)
            return
        entry = _Waiting(request, params)
        waiting.append(entry)
        request.when_cancelled(lambda: _give_up(waiting, entry))

    def cancel(self, session_id: str) -> None:
        """Cancel what runs in a session, and the prompts that wait for it."""
        waiting = self._in_transition.get(session_id, [])
        for entry in [*waiting]:
            if entry.request.method == "session/prompt":
                waiting.remove(entry)
                entry.request.answer(v1.PromptResponse("cancelled"))
        session = self._sessions.find(session_id)
        if session is not None:
            session.cancel()

    def _new(self, request: Request, params: v1.NewSessionRequest) -> None:
        place = _place(params)
        forecast = self._sessions.forecast_for(self._editor)
        if forecast is not None:
            request.run(self._announce(request, place, forecast))
            return

        async def open_session() -> v1.NewSessionResponse:
            session = await self._sessions.new(place, self._editor)
            request.when_answered(session.become_known)
            return v1.NewSessionResponse(session.id, *_settings(session))

        request.run(open_session())

    async def _announce(self, request: Request, place: Place, forecast: Forecast) -> v1.NewSessionResponse:
        """Answer before the agent is there; what else is asked about the session waits for it."""
        session = await self._sessions.announce(place, self._editor, forecast)
        self._in_transition[session.id] = []
        request.when_answered(lambda: self._peer.start(self._complete(session, forecast)))
        return forecast.answer(session.id)

    async def _complete(self, session: Session, forecast: Forecast) -> None:
        try:
            await self._sessions.complete(session, forecast)
            session.become_known()
            if v1.NewSessionResponse(session.id, *_settings(session)) != forecast.answer(session.id):
                session.tell_settings(mode_changed=True)
        except RpcError as error:
            self._failures[session.id] = error
        finally:
            self._serve_waiting(session.id)

    def _load(self, request: Request, params: v1.LoadSessionRequest) -> None:
        self._reopen(request, params, v1.LoadSessionResponse, replaying=True)

    def _resume(self, request: Request, params: v1.ResumeSessionRequest) -> None:
        self._reopen(request, params, v1.ResumeSessionResponse, replaying=False)

    def _reopen(
        self,
        request: Request,
        params: v1.LoadSessionRequest | v1.ResumeSessionRequest,
        response: type[v1.LoadSessionResponse | v1.ResumeSessionResponse],
        *,
        replaying: bool,
    ) -> None:
        place = _place(params)
        session_id = params.session_id
        session = self._sessions.find(session_id)
        if session is not None and session.is_busy:
            raise session_busy(session_id)
        self._begin_transition(request, session_id)

        async def reopen() -> v1.LoadSessionResponse | v1.ResumeSessionResponse:
            session = await self._sessions.reopen(session_id, place, self._editor, replaying=replaying)
            request.when_answered(session.become_known)
            if not replaying and (usage := await self._sessions.kept_usage(session)) is not None:
                # No part of the history: without it the next turn would seem to cost what all have cost.
                request.when_answered(lambda: session.outlet.show(usage))
            return response(*_settings(session))

        request.run(reopen())

    def _fork(self, request: Request, params: ForkSessionRequest) -> None:
        place = _place(params)

        async def fork() -> ForkSessionResponse:
            session = await self._sessions.fork(params.session_id, place, self._editor)
            request.when_answered(session.become_known)
            return ForkSessionResponse(session.id, *_settings(session))

        request.run(fork())

    def _list(self, request: Request, params: v1.ListSessionsRequest) -> None:
        cwd = check_filter(params.cwd) if params.cwd else None
        request.run(self._sessions.list(cwd, params.cursor or None))

    def _close(self, request: Request, params: v1.CloseSessionRequest) -> None:
        session = self._session(params.session_id)
        self._begin_transition(request, session.id)
        request.run(self._sessions.close(session))

    def _delete(self, request: Request, params: v1.DeleteSessionRequest) -> None:
        self._begin_transition(request, params.session_id)
        request.run(self._sessions.delete(params.session_id))

    def _set_mode(self, request: Request, params: v1.SetSessionModeRequest) -> None:
        session = self._session(params.session_id)
        request.lane = session.id
        request.run(change_mode(session, params))

    def _set_option(self, request: Request, params: OptionChange) -> None:
        session = self._session(params.session_id)
        request.lane = session.id
        request.run(change_option(session, params))

    def _prompt(self, request: Request, params: v1.PromptRequest) -> None:
        session = self._session(params.session_id)
        if self.is_finishing:
            raise RpcError.because(SHUTTING_DOWN, "the agent is ending and takes no more prompts")
        if session.is_logged_in:
            self._admit(session, request, params)
        else:
            request.lane = session.id
            self._peer.start(self._admit_after_login(session, request, params))

    def _admit(self, session: Session, request: Request, params: v1.PromptRequest) -> None:
        session.admit(request, tuple(params.prompt), params.meta or {})
        self._when_prompted()

    async def _admit_after_login(self, session: Session, request: Request, params: v1.PromptRequest) -> None:
        try:
            await session.until_logged_in()
            self._admit(session, request, params)
        except RpcError as error:
            request.fail(error)

    def _cancel_with_answer(self, request: Request, params: v1.CancelNotification) -> None:
        """`session/cancel` is a notification; a client that sends it as a request is obeyed as well."""
        if params.session_id not in self._in_transition:
            self._session(params.session_id)
        self.cancel(params.session_id)
        request.answer(None)

    def _session(self, id: str) -> Session:
        session = self._sessions.find(id)
        if session is None:
            raise self._failures.get(id) or unknown_session(id)
        return session

    def _begin_transition(self, request: Request, id: str) -> None:
        """Let others wait until this one is answered, which it is after all that was sent of the session."""
        request.lane = id
        self._in_transition[id] = []
        request.when_answered(lambda: self._serve_waiting(id))

    def _serve_waiting(self, id: str) -> None:
        waiting = self._in_transition.pop(id)
        for index, (request, params) in enumerate(waiting):
            if id in self._in_transition:  # one of them began another
                self._in_transition[id].extend(waiting[index:])
                return
            try:
                self._calls[request.method](request, params)
            except RpcError as error:
                request.fail(error)
            except Exception as error:
                log.exception("%s failed", request.method)
                request.fail(internal_error(error))


def _give_up(waiting: list[_Waiting], entry: _Waiting) -> None:
    if entry in waiting:
        waiting.remove(entry)
        entry.request.fail(RpcError.because(CANCELLED, "the request was cancelled"))


def _place(params: Setup) -> Place:
    """Where the session is to work; refused before anything is created."""
    servers: Sequence[v1.McpServer] | UnsetType = params.mcp_servers
    return Place(
        check_cwd(params.cwd),
        check_additional(params.additional_directories),
        () if servers is UNSET else _reachable(servers),
    )


def _reachable(servers: Sequence[v1.McpServer]) -> tuple[v1.McpServer, ...]:
    """The servers, unless one is of a kind that was not advertised."""
    for index, server in enumerate(servers):
        if isinstance(server, v1.McpServerHttp | v1.McpServerSse):
            from coupler.mcp.package import is_installed

            if not is_installed():
                path = f"mcpServers[{index}]"
                message = f'{path}: this agent reaches no MCP servers by address: pip install "coupler[mcp]"'
                raise RpcError.because(INVALID_PARAMS, message, path=path)
    return tuple(servers)


def _settings(session: Session) -> tuple[Any, Any]:
    return session.settings.as_modes(), session.settings.as_options()
