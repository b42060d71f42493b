"""Opens, lists, closes and deletes the sessions of one connection, and handles the `session/…` requests.

Stored sessions outlive the connection; without an archive there are only those that are open. What fails on
the way leaves no half-made session behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import os.path
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from msgspec import UNSET, UnsetType, json

from coupler.agent.editor import Editor
from coupler.agent.errors import (
    SHUTTING_DOWN,
    TARGET_FAILED,
    TOO_MANY_SESSIONS,
    agent_failed,
    describe_making,
    session_busy,
    unknown_session,
)
from coupler.agent.factory import AgentFactory
from coupler.agent.session import (
    BOOLEAN_OPTIONS,
    OptionChange,
    Project,
    Session,
    SessionParams,
    StateError,
    call_hook,
    change_mode,
    change_option,
)
from coupler.agent.startup.loading import CachedSessionAnswer, SessionAnswerCache
from coupler.agent.startup.serve_options import NO_STORE
from coupler.schema import v1
from coupler.schema.unstable import ForkSessionRequest, ForkSessionResponse
from coupler.schema.v1 import ListSessionsResponse
from coupler.wire.messages import CANCELLED, INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer, Request

if TYPE_CHECKING:
    from coupler.agent.archive import Archive
    from coupler.events import Usage
    from coupler.store.sessions import SessionRecord

log = logging.getLogger("coupler.agent")

MAX_MCP_SERVERS = 256
"""MCP servers that a client may give a session: each may become a process."""

MAX_DIRECTORIES = 1000
"""Additional directories that a client may give a session: each is looked at."""

MAX_OPEN_SESSIONS = 5000
"""Sessions that a client may have open at once."""

SetupRequest = v1.NewSessionRequest | v1.LoadSessionRequest | v1.ResumeSessionRequest | ForkSessionRequest


class Sessions:
    """The open sessions of a connection, and access to all stored ones of its agent."""

    def __init__(
        self,
        peer: Peer,
        factory: Callable[[], Awaitable[AgentFactory]],
        answer_cache: SessionAnswerCache | None = None,
    ) -> None:
        self._peer = peer
        self._load_factory = factory
        self._answer_cache = answer_cache
        self._coming: dict[str, Session] = {}
        self._open: dict[str, Session] = {}
        self._archive: Archive | None = None
        self.logged_failure: str | None = None
        """The reason why what is behind the agent did not start, if it was logged: each session has it."""

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._open.values()])

    def find(self, id: str) -> Session | None:
        """Return the session if it is open here."""
        return self._open.get(id)

    async def new(self, place: SessionParams, editor: Editor) -> Session:
        """Begin a session."""
        self._refuse_too_many()
        factory = await self._ready_factory()
        session = Session(_new_id(), place, editor, self._peer)
        await self._give_agent(session, factory)
        try:
            if self._archive is not None:
                session.outlet.keep_in(await self._archive.add(session))
        except BaseException:
            await self._leave(session)
            raise
        self._open[session.id] = session
        if self._answer_cache is not None:
            self._answer_cache.store_answer(factory, session)
        return session

    def cached_answer_for(self, editor: Editor) -> CachedSessionAnswer | None:
        """Return the last answer to `session/new` if it fits this client and the agent is not loaded yet."""
        cached = None if self._answer_cache is None else self._answer_cache.cached_answer
        return cached if cached is not None and cached.booleans == editor.offers(BOOLEAN_OPTIONS) else None

    async def announce(self, place: SessionParams, editor: Editor, cached: CachedSessionAnswer) -> Session:
        """Begin a session before its agent is loaded: it is stored, and `complete` gives it the agent."""
        self._refuse_too_many()
        self._open_archive(cached.store, cached.identity)
        session = Session(_new_id(), place, editor, self._peer)
        if self._archive is not None:
            session.outlet.keep_in(await self._archive.add(session))
        self._coming[session.id] = session
        return session

    async def complete(self, session: Session, cached: CachedSessionAnswer) -> None:
        """Give a session that `announce` began its agent, once that is loaded."""
        try:
            factory = await self._ready_factory()
            if factory.identity != cached.identity:
                raise RpcError.because(TARGET_FAILED, "the agent is another one than before: restart it")
            await self._give_agent(session, factory)
            session.tell_settings(mode_changed=False)
        except BaseException:
            del self._coming[session.id]
            session.end()
            if self._archive is not None:
                await self._archive.forget(session.id)
            raise
        self._open[session.id] = self._coming.pop(session.id)
        if self._answer_cache is not None:
            self._answer_cache.store_answer(factory, session)

    async def reopen(self, id: str, place: SessionParams, editor: Editor, *, replaying: bool) -> Session:
        """Open a stored session with the directories named now; it is replayed before this returns."""
        factory = await self._ready_factory()
        session = self._open.get(id)
        if session is not None:
            if session.is_busy:
                raise session_busy(id)
            check_same_cwd(place.cwd, session.cwd)
            await session.move_to(place)
        else:
            session = await self._take_up(id, place, editor, factory)
        if replaying and self._archive is not None:
            await self._replay(session, self._archive)
        self._open[id] = session
        return session

    async def kept_usage(self, session: Session) -> Usage | None:
        """Return the usage of a session so far, if it is stored."""
        from coupler.agent.archive import kept_usage

        return None if self._archive is None else await kept_usage(session.id, self._archive)

    async def fork(self, id: str, place: SessionParams, editor: Editor) -> Session:
        """Make a new session from everything that the other one has answered so far."""
        factory = await self._ready_factory()
        if self._archive is None:
            raise unknown_session(id)
        new_id = _new_id()
        try:
            await self._archive.copy(id, new_id, place)
            session = await self._take_up(new_id, place, editor, factory)
        except BaseException:
            await self._archive.forget(new_id)
            raise
        self._open[new_id] = session
        return session

    async def list(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """Return a page of the sessions, the latest first."""
        factory = await self._factory()
        if self._archive is None:
            return ListSessionsResponse(())
        if cursor is None:
            await self._import_external_sessions(factory, self._archive)
        return await self._archive.page(cwd, cursor)

    async def close(self, session: Session) -> None:
        """Cancel what runs and free the session; what is stored of it stays."""
        session.cancel()
        await session.until_idle()
        self._open.pop(session.id, None)
        await self._leave(session)

    async def delete(self, id: str) -> None:
        """Delete the session; nothing happens if there is none."""
        factory = await self._factory()
        session = self._open.get(id)
        if session is not None:
            await self.close(session)
        if self._archive is not None:
            state = await self._archive.state(id)
            await self._archive.delete(id)
            if factory.forget is not None and state is not None:
                await factory.forget(id, state)

    async def leave_all(self) -> None:
        """Close all open sessions in their present state, because the connection ends."""
        sessions, self._open = [*self._open.values()], {}
        await asyncio.gather(*(self._leave(session) for session in sessions))

    def close_archive(self) -> None:
        """Close the store; nothing is journaled after this."""
        if self._archive is not None:
            self._archive.close()

    def _refuse_too_many(self) -> None:
        if len(self._open) + len(self._coming) >= MAX_OPEN_SESSIONS:
            message = f"{MAX_OPEN_SESSIONS} sessions are open on this connection: close some first"
            raise RpcError.because(TOO_MANY_SESSIONS, message)

    async def _factory(self) -> AgentFactory:
        """Return the agent's factory as soon as it is loaded, and open the archive of its sessions."""
        factory = await self._load_factory()
        self._open_archive(factory.store, factory.identity)
        return factory

    def _open_archive(self, store: str | None, identity: str) -> None:
        if self._archive is None and store != NO_STORE:
            # Imported on use: an agent's first answer does not need it.
            from coupler.agent.archive import Archive

            self._archive = Archive.open(store, identity)
            self._archive.tell_if_replaced(self._warn_all)

    def _warn_all(self, sentence: str) -> None:
        from coupler.agent.archive import warn

        for session in self._open.values():
            warn(session, sentence)

    async def _ready_factory(self) -> AgentFactory:
        """Return the factory if the user is logged in; raises the error to answer with if not."""
        factory = await self._factory()
        await factory.logins.require()
        return factory

    async def _take_up(self, id: str, place: SessionParams, editor: Editor, factory: AgentFactory) -> Session:
        self._refuse_too_many()
        if self._archive is None:
            raise unknown_session(id)
        try:
            record = await self._archive.find(id)
        except RpcError:
            if not await self._import_external_sessions(factory, self._archive):
                raise
            record = await self._archive.find(id)
        check_same_cwd(place.cwd, record.cwd)
        session = Session(id, place, editor, self._peer)
        try:
            session.outlet.keep_in(await self._archive.take(record, place))
            session.outlet.know_calls(await self._archive.call_ids(id))
            await self._give_agent(session, factory, record)
        except BaseException:
            await self._let_go(id)
            raise
        return session

    async def _import_external_sessions(self, factory: AgentFactory, archive: Archive) -> bool:
        """Store sessions that the framework kept by itself; returns whether there were any."""
        if factory.external_sessions is None:
            return False
        found = await factory.external_sessions(await archive.ids())
        for external in found:
            await archive.import_external(external)
        return bool(found)

    async def _replay(self, session: Session, archive: Archive) -> None:
        from coupler.agent.archive import replay

        try:
            await replay(session, archive)
        except BaseException:
            if session.id not in self._open:
                await self._leave(session)
            raise

    async def _give_agent(
        self, session: Session, factory: AgentFactory, record: SessionRecord | None = None
    ) -> None:
        choices = self._archive.choices if self._archive is not None else None
        session.belong_to(Project.of(session.cwd, session.env, choices))
        try:
            if record is not None:
                session.go_on_from(record)
            session.give_to(await factory.agent_for(session), factory.logins)
            await call_hook(session.agent.opened, session)
        except asyncio.CancelledError:
            await session.end_servers()
            raise
        except BaseException as error:
            if isinstance(error, RpcError):  # somebody has put it into words
                if error.message != self.logged_failure:
                    log.error("the agent could not be made: %s", error.message)
            else:
                log.error("the agent could not be made", exc_info=error)
            await session.end_servers()
            raise agent_failed(error, describe_making(error)) from None

    async def _leave(self, session: Session) -> None:
        session.stop_updates()
        try:
            await call_hook(session.agent.closed, session)
        except Exception:
            log.exception("the agent's `closed` failed")
        await session.end_servers()
        try:
            session.keep_state()
            await session.until_stored()
        except (RpcError, StateError) as error:
            log.error("the end of the session could not be stored: %s", error)
        session.end()
        await self._let_go(session.id)

    async def _let_go(self, id: str) -> None:
        """Release the session for others; an error is logged."""
        if self._archive is not None:
            try:
                await self._archive.let_go(id)
            except RpcError as error:
                log.error("the session could not be let go: %s", error)


def _new_id() -> str:
    """Make an id that cannot be guessed: who knows it may load the session."""
    return f"sess_{os.urandom(16).hex()}"


class _Waiting(NamedTuple):
    request: Request
    params: Any


class SessionRequestHandler:
    """Answers the `session/…` requests of one client, after `initialize`.

    While a session is being opened or left, whatever else the client asks about it waits, in order: a prompt
    that was sent right behind a `session/load` finds the session open, and a load behind a `session/close`
    finds it closed. A cancel waits for nothing.
    """

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
        """The errors of sessions that were answered before their agents were loaded, by session id."""
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
        session_id = getattr(params, "session_id", "")
        waiting = self._in_transition.get(session_id)
        if waiting is None or request.method == "session/cancel":
            self._calls[request.method](request, params)
            return
        entry = _Waiting(request, params)
        waiting.append(entry)
        request.when_cancelled(lambda: self._give_up(session_id, entry))

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
        place = _place(request, params)
        request.lane = None  # no update of the session may come before it
        cached = self._sessions.cached_answer_for(self._editor)
        if cached is not None:
            request.run(self._announce(request, place, cached))
            return

        async def open_session() -> v1.NewSessionResponse:
            session = await self._sessions.new(place, self._editor)
            request.when_answered(session.become_known)
            return v1.NewSessionResponse(session.id, *_settings(session), meta=_meta(session))

        request.run(open_session())

    async def _announce(
        self, request: Request, place: SessionParams, cached: CachedSessionAnswer
    ) -> v1.NewSessionResponse:
        """Answer `session/new` before the agent is loaded; other requests for the session wait for it."""
        session = await self._sessions.announce(place, self._editor, cached)
        self._in_transition[session.id] = []
        request.when_answered(lambda: self._peer.start(self._complete(session, cached)))
        return cached.answer(session.id)

    async def _complete(self, session: Session, cached: CachedSessionAnswer) -> None:
        try:
            await self._sessions.complete(session, cached)
            session.become_known()
            if v1.NewSessionResponse(session.id, *_settings(session)) != cached.answer(session.id):
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
        place = _place(request, params)
        session_id = params.session_id
        session = self._sessions.find(session_id)
        if session is not None and session.is_busy:
            raise session_busy(session_id)
        self._begin_transition(request, session_id)

        async def reopen() -> v1.LoadSessionResponse | v1.ResumeSessionResponse:
            session = await self._sessions.reopen(session_id, place, self._editor, replaying=replaying)
            if replaying:
                # The client takes the history already, and after the answer it expects nothing more.
                session.become_known(again=False)
                return response(*_settings(session), meta=_meta(session))
            request.when_answered(session.become_known)
            if (usage := await self._sessions.kept_usage(session)) is not None:
                # No part of the history: without it the next turn would seem to cost what all have cost.
                request.when_answered(lambda: session.outlet.show(usage))
            return response(*_settings(session), meta=_meta(session))

        request.run(reopen())

    def _fork(self, request: Request, params: ForkSessionRequest) -> None:
        place = _place(request, params)
        request.lane = None

        async def fork() -> ForkSessionResponse:
            session = await self._sessions.fork(params.session_id, place, self._editor)
            request.when_answered(session.become_known)
            return ForkSessionResponse(session.id, *_settings(session), meta=_meta(session))

        request.run(fork())

    def _list(self, request: Request, params: v1.ListSessionsRequest) -> None:
        cwd = check_list_filter(params.cwd) if params.cwd else None
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
        except Exception as error:
            request.fail_with(error)

    def _cancel_with_answer(self, request: Request, params: v1.CancelNotification) -> None:
        """Obey a `session/cancel` that was sent as a request although it is a notification."""
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
        """Let other requests for a session wait until this one is answered, after all that was sent of it."""
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
            except Exception as error:
                request.fail_with(error)

    def _give_up(self, session_id: str, entry: _Waiting) -> None:
        """Answer a request that still waits; it may have moved from one list to the next since it came."""
        waiting = self._in_transition.get(session_id, [])
        if entry in waiting:
            waiting.remove(entry)
            entry.request.fail(RpcError.because(CANCELLED, "the request was cancelled"))


def _place(request: Request, params: SetupRequest) -> SessionParams:
    """Check where the session is to work; a wrong request is refused before anything is created."""
    servers: Sequence[v1.McpServer] | UnsetType = params.mcp_servers
    return SessionParams(
        check_cwd(params.cwd),
        check_additional_directories(params.additional_directories),
        () if servers is UNSET else _reachable(servers),
        params.meta or None,
        _left_out(request, params),
    )


def _left_out(request: Request, params: SetupRequest) -> tuple[str, ...]:
    """Return a sentence for each MCP server of the request that could not be read, and is left out."""
    given = json.decode(request.params)
    servers = given.get("mcpServers") if isinstance(given, dict) else None
    if (
        not isinstance(servers, list)
        or params.mcp_servers is UNSET
        or len(servers) == len(params.mcp_servers)
    ):
        return ()
    from coupler.schema.lenient import dropped_items

    problems, untold = dropped_items(type(params), given)
    told = [f"An MCP server of this session is left out: {problem}" for problem in problems]
    return (*told, f"{untold} more MCP servers of this session are left out.") if untold else tuple(told)


def _reachable(servers: Sequence[v1.McpServer]) -> tuple[v1.McpServer, ...]:
    """Return the MCP servers; raises if there are too many, or one is of a kind that was not advertised."""
    if len(servers) > MAX_MCP_SERVERS:
        problem = f"mcpServers: expected at most {MAX_MCP_SERVERS} servers, got {len(servers)}"
        refuse_param("mcpServers", problem)
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


def _meta(session: Session) -> Any:
    return session.secrets.covered(session.opening_meta) or UNSET


def check_cwd(cwd: str) -> str:
    """Check and normalize a session's directory.

    The directories that a client gives a session are the boundary of what its tools may touch, so none is
    left out, guessed or made: a client is told which one is wrong, before anything is created.
    """
    return _checked("cwd", cwd)


def check_additional_directories(directories: Sequence[str] | UnsetType) -> tuple[str, ...]:
    """Check and normalize the additional directories of a session."""
    if directories is UNSET:
        return ()
    if len(directories) > MAX_DIRECTORIES:
        problem = f"expected at most {MAX_DIRECTORIES} directories, got {len(directories)}"
        refuse_param("additionalDirectories", f"additionalDirectories: {problem}")
    return tuple(
        _checked(f"additionalDirectories[{index}]", directory) for index, directory in enumerate(directories)
    )


def check_same_cwd(cwd: str, stored: str) -> None:
    """Refuse another directory than the stored one: what a session remembers are paths of that directory."""
    try:
        is_same = cwd == stored or os.path.samefile(cwd, stored)
    except OSError:
        is_same = False
    if not is_same:
        refuse_param("cwd", f"cwd: the session belongs to {stored!r}, not to {cwd!r}")


def check_list_filter(cwd: str) -> str:
    """Check a directory to list the sessions of; it may be gone by now."""
    if not os.path.isabs(cwd):
        refuse_param("cwd", f"cwd: expected an absolute path, got {cwd!r}")
    return os.path.normpath(cwd)


def refuse_param(path: str, message: str) -> NoReturn:
    """Raise the error that refuses a field of the params."""
    raise RpcError.because(INVALID_PARAMS, message, path=path)


def _checked(path: str, directory: str) -> str:
    if not os.path.isabs(directory):
        refuse_param(path, f"{path}: expected an absolute path, got {directory!r}")
    # Not by pathlib, which raises for a path that is too long or in a forbidden place.
    if "\0" in directory or not os.path.isdir(directory):
        problem = "is not a directory" if _exists(directory) else "does not exist"
        refuse_param(path, f"{path}: {directory!r} {problem}")
    return os.path.normpath(directory)


def _exists(path: str) -> bool:
    return "\0" not in path and os.path.exists(path)
