"""The sessions of one connection, and the methods that a client calls about them.

What is kept of a session outlives the connection; without an archive there are only those that are open.
Whatever fails on the way leaves nothing half made behind.
"""

from __future__ import annotations

import asyncio
import logging
import os
import os.path
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

from msgspec import UNSET, UnsetType

from coupler.agent.editor import Editor
from coupler.agent.errors import SHUTTING_DOWN, TARGET_FAILED, agent_failed, session_busy, unknown_session
from coupler.agent.factory import Blueprint
from coupler.agent.session import (
    BOOLEANS,
    OptionChange,
    Place,
    Project,
    Session,
    StateError,
    call_hook,
    change_mode,
    change_option,
)
from coupler.agent.startup.loading import Forecast, Foresight
from coupler.agent.startup.serve_options import NO_STORE
from coupler.schema import v1
from coupler.schema.unstable import ForkSessionRequest, ForkSessionResponse
from coupler.schema.v1 import ListSessionsResponse
from coupler.wire.messages import CANCELLED, INVALID_PARAMS, RpcError
from coupler.wire.peer import Peer, Request, internal_error

if TYPE_CHECKING:
    from coupler.agent.archive import Archive
    from coupler.events import Usage
    from coupler.store.sessions import SessionRecord


log = logging.getLogger("coupler.agent")


class Sessions:
    """Those that are open here, and the way to all others that this agent ever had."""

    def __init__(
        self,
        peer: Peer,
        blueprint: Callable[[], Awaitable[Blueprint]],
        foresight: Foresight | None = None,
    ) -> None:
        self._peer = peer
        self._load_blueprint = blueprint
        self._foresight = foresight
        self._coming: dict[str, Session] = {}
        self._open: dict[str, Session] = {}
        self._archive: Archive | None = None

    def __iter__(self) -> Iterator[Session]:
        return iter([*self._open.values()])

    def find(self, id: str) -> Session | None:
        """The session if it is open here."""
        return self._open.get(id)

    async def new(self, place: Place, editor: Editor) -> Session:
        """Begin a session."""
        blueprint = await self._ready_blueprint()
        session = Session(_new_id(), place, editor, self._peer)
        await self._give_agent(session, blueprint)
        try:
            if self._archive is not None:
                session.outlet.keep_in(await self._archive.add(session))
        except BaseException:
            await self._leave(session)
            await self._forget(session.id)
            raise
        self._open[session.id] = session
        if self._foresight is not None:
            self._foresight.foresee(blueprint, session)
        return session

    def forecast_for(self, editor: Editor) -> Forecast | None:
        """What a new session of this client will be told, if that is known before its agent is there."""
        forecast = None if self._foresight is None else self._foresight.forecast
        return forecast if forecast is not None and forecast.booleans == editor.offers(BOOLEANS) else None

    async def announce(self, place: Place, editor: Editor, forecast: Forecast) -> Session:
        """Begin a session whose agent is still to come: it is kept, and `complete` makes it whole."""
        self._open_archive(forecast.store, forecast.identity)
        session = Session(_new_id(), place, editor, self._peer)
        try:
            if self._archive is not None:
                session.outlet.keep_in(await self._archive.add(session))
        except BaseException:
            await self._forget(session.id)
            raise
        self._coming[session.id] = session
        return session

    async def complete(self, session: Session, forecast: Forecast) -> None:
        """Give a session its agent that was begun without one, once that is there."""
        try:
            blueprint = await self._ready_blueprint()
            if blueprint.identity != forecast.identity:
                raise RpcError.because(TARGET_FAILED, "the agent is another one than before: restart it")
            await self._give_agent(session, blueprint)
            session.tell_settings(mode_changed=False)
        except BaseException:
            del self._coming[session.id]
            session.end()
            await self._forget(session.id)
            raise
        self._open[session.id] = self._coming.pop(session.id)
        if self._foresight is not None:
            self._foresight.foresee(blueprint, session)

    async def reopen(self, id: str, place: Place, editor: Editor, *, replaying: bool) -> Session:
        """Go on with a session, in the directories that are named now; replayed before this returns."""
        blueprint = await self._ready_blueprint()
        session = self._open.get(id)
        if session is not None:
            if session.is_busy:
                raise session_busy(id)
            check_same(place.cwd, session.cwd)
            await session.move_to(place)
        else:
            session = await self._take_up(id, place, editor, blueprint)
        if replaying and self._archive is not None:
            await self._replay(session, self._archive)
        self._open[id] = session
        return session

    async def kept_usage(self, session: Session) -> Usage | None:
        """What a session has used up so far, if that is kept."""
        from coupler.agent.archive import kept_usage

        return None if self._archive is None else await kept_usage(session.id, self._archive)

    async def fork(self, id: str, place: Place, editor: Editor) -> Session:
        """A new session with everything that the other one has answered so far."""
        blueprint = await self._ready_blueprint()
        if self._archive is None:
            raise unknown_session(id)
        new_id = _new_id()
        try:
            await self._archive.copy(id, new_id, place)
            session = await self._take_up(new_id, place, editor, blueprint)
        except BaseException:
            await self._forget(new_id)
            raise
        self._open[new_id] = session
        return session

    async def list(self, cwd: str | None, cursor: str | None) -> ListSessionsResponse:
        """A page of the sessions, the latest first."""
        blueprint = await self._blueprint()
        if self._archive is None:
            return ListSessionsResponse(())
        if cursor is None:
            await self._take_in_foreign(blueprint, self._archive)
        return await self._archive.page(cwd, cursor)

    async def close(self, session: Session) -> None:
        """Cancel what runs and free the session; what is stored of it stays."""
        session.cancel()
        await session.until_idle()
        self._open.pop(session.id, None)
        await self._leave(session)

    async def delete(self, id: str) -> None:
        """Make the session disappear; nothing happens if there is none."""
        blueprint = await self._blueprint()
        session = self._open.get(id)
        if session is not None:
            await self.close(session)
        if self._archive is not None:
            state = await self._archive.state(id)
            await self._archive.delete(id)
            if blueprint.forget is not None and state is not None:
                await blueprint.forget(id, state)

    async def leave_all(self) -> None:
        """The connection ends: leave what is open, in the state that it has reached."""
        sessions, self._open = [*self._open.values()], {}
        await asyncio.gather(*(self._leave(session) for session in sessions))

    def close_archive(self) -> None:
        """Nothing more will be kept."""
        if self._archive is not None:
            self._archive.close()

    async def _blueprint(self) -> Blueprint:
        """The agent's blueprint, as soon as it is loaded; what keeps its sessions is open then."""
        blueprint = await self._load_blueprint()
        self._open_archive(blueprint.store, blueprint.identity)
        return blueprint

    def _open_archive(self, store: str | None, identity: str) -> None:
        if self._archive is None and store != NO_STORE:
            # Imported on use: an agent's first answer does not need it.
            from coupler.agent.archive import Archive

            self._archive = Archive.open(store, identity)

    async def _ready_blueprint(self) -> Blueprint:
        """The blueprint, once the user is logged in; raises what is to be answered if not."""
        blueprint = await self._blueprint()
        await blueprint.logins.require()
        return blueprint

    async def _take_up(self, id: str, place: Place, editor: Editor, blueprint: Blueprint) -> Session:
        if self._archive is None:
            raise unknown_session(id)
        try:
            record = await self._archive.find(id)
        except RpcError:
            if not await self._take_in_foreign(blueprint, self._archive):
                raise
            record = await self._archive.find(id)
        check_same(place.cwd, record.cwd)
        session = Session(id, place, editor, self._peer)
        try:
            session.outlet.keep_in(await self._archive.take(record, place))
            session.outlet.know_calls(await self._archive.call_ids(id))
            await self._give_agent(session, blueprint, record)
        except BaseException:
            await self._let_go(id)
            raise
        return session

    async def _take_in_foreign(self, blueprint: Blueprint, archive: Archive) -> bool:
        """Take in conversations that were held elsewhere; whether there were any."""
        if blueprint.foreign is None:
            return False
        found = await blueprint.foreign(await archive.ids())
        for foreign in found:
            await archive.take_in(foreign)
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
        self, session: Session, blueprint: Blueprint, record: SessionRecord | None = None
    ) -> None:
        choices = self._archive.choices if self._archive is not None else None
        session.belong_to(Project.of(session.cwd, session.env, choices))
        try:
            if record is not None:
                session.go_on_from(record)
            session.give_to(await blueprint.agent_for(session), blueprint.logins)
            await call_hook(session.agent.opened, session)
        except asyncio.CancelledError:
            await session.end_servers()
            raise
        except BaseException as error:
            if isinstance(error, RpcError):  # somebody has put it into words
                log.error("the agent could not be made: %s", error.message)
            else:
                log.error("the agent could not be made", exc_info=error)
            await session.end_servers()
            raise agent_failed(error) from None

    async def _leave(self, session: Session) -> None:
        session.fall_silent()
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
        """Others may have the session, however it went here."""
        if self._archive is not None:
            try:
                await self._archive.let_go(id)
            except RpcError as error:
                log.error("the session could not be let go: %s", error)

    async def _forget(self, id: str) -> None:
        """A session that could not be made must not be found."""
        if self._archive is not None:
            try:
                await self._archive.delete(id)
            except RpcError as error:
                log.error("a session that is half made could not be removed: %s", error)


def _new_id() -> str:
    """Nobody can guess it: who knows an id may load the session."""
    return f"sess_{os.urandom(16).hex()}"


# What a client can ask about sessions, one method each.
#
# While a session is being opened or left, whatever else the client asks about it waits, in order: a prompt
# that was sent right behind a `session/load` finds the session open, and a load behind a `session/close`
# finds it closed. A cancel waits for nothing.


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


# The directories that a client gives a session, refused with a sentence unless each is right.
#
# They are the boundary of what tools may touch, so none is left out, guessed or made: a client whose list
# does not hold is told which entry is wrong, before anything is created.


def check_cwd(cwd: str) -> str:
    """The session's directory, without what the path says twice."""
    return _checked("cwd", cwd)


def check_additional(directories: Sequence[str] | UnsetType) -> tuple[str, ...]:
    """The other roots of the session."""
    if directories is UNSET:
        return ()
    return tuple(
        _checked(f"additionalDirectories[{index}]", directory) for index, directory in enumerate(directories)
    )


def check_same(cwd: str, stored: str) -> None:
    """A session stays where it was made: what it remembers are the paths of that directory."""
    try:
        is_same = cwd == stored or os.path.samefile(cwd, stored)
    except OSError:
        is_same = False
    if not is_same:
        refuse("cwd", f"cwd: the session belongs to {stored!r}, not to {cwd!r}")


def check_filter(cwd: str) -> str:
    """A directory to list the sessions of; it may be gone by now."""
    if not os.path.isabs(cwd):
        refuse("cwd", f"cwd: expected an absolute path, got {cwd!r}")
    return os.path.normpath(cwd)


def refuse(path: str, message: str) -> NoReturn:
    """Refuse a field of the params."""
    raise RpcError.because(INVALID_PARAMS, message, path=path)


def _checked(path: str, directory: str) -> str:
    if not os.path.isabs(directory):
        refuse(path, f"{path}: expected an absolute path, got {directory!r}")
    # Not by pathlib, which raises for a path that is too long or in a forbidden place.
    if "\0" in directory or not os.path.isdir(directory):
        problem = "is not a directory" if _exists(directory) else "does not exist"
        refuse(path, f"{path}: {directory!r} {problem}")
    return os.path.normpath(directory)


def _exists(path: str) -> bool:
    return "\0" not in path and os.path.exists(path)
