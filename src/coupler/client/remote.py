"""A remote agent: started, introduced, and asked for sessions; started again if it has died."""

from __future__ import annotations

import asyncio
import builtins
import os.path
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from msgspec import UNSET, Raw, UnsetType

from coupler.client.confinement import Confinement
from coupler.client.connection import FRAME_LIMIT, Connection
from coupler.client.errors import AgentError
from coupler.client.files import FileAccess
from coupler.client.link import Link
from coupler.client.observation import AgentEnded, How, Observers, OnEvent, SessionOpened
from coupler.client.offer import Offer
from coupler.client.opening import Directory, Opening, OpeningOptions
from coupler.client.quirks import Quirks, Usual
from coupler.client.session import RemoteSession
from coupler.schema.methods import method_for, offers
from coupler.schema.unstable import AgentCapabilities, ForkSessionRequest, ForkSessionResponse
from coupler.schema.v1 import (
    AuthenticateRequest,
    AuthenticateResponse,
    AuthMethod,
    DeleteSessionRequest,
    DeleteSessionResponse,
    Implementation,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    LogoutRequest,
    LogoutResponse,
    NewSessionRequest,
    NewSessionResponse,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionInfo,
)
from coupler.wire.peer import Peer

MOST_PAGES = 1000
"""Pages of an agent's list of sessions that are read."""

T = TypeVar("T")


class RemoteAgent:
    """An agent on the other side of a link; an async context manager that starts and ends it."""

    def __init__(
        self,
        link: Callable[[], Link],
        *,
        cwd: Directory,
        startup_timeout: float,
        frame_limit: int = FRAME_LIMIT,
        offer: Offer | None = None,
        quirks: Quirks | None = None,
        on_event: OnEvent | None = None,
        confinement: Confinement | None = None,
    ) -> None:
        """`link` makes a way to the agent, a new one for each start."""
        self.capabilities = AgentCapabilities()
        self.info: Implementation | None = None
        self.auth_methods: tuple[AuthMethod, ...] = ()
        self._link = link
        self.cwd = cwd
        """Where its process runs, and where sessions are opened that name no other directory."""
        self.confinement = confinement
        """How it is kept to a policy, if it asks for nothing."""
        self._startup_timeout = startup_timeout
        self._frame_limit = frame_limit
        self._offer = offer or Offer()
        self._quirks: Quirks = quirks or Usual()
        self._observers = Observers(*filter(None, [on_event]))
        self._connection: Connection | None = None
        self._beginning: Connection | None = None
        self._is_closed = False
        self._restarting = asyncio.Lock()

    @property
    def peer(self) -> Peer:
        """The connection."""
        return self._started.peer

    @property
    def is_running(self) -> bool:
        """Whether the agent is there; one that has died is started again when a session is wanted."""
        return self._connection is not None and not self._connection.is_over

    @property
    def wanted_files(self) -> FileAccess | None:
        """What it was asked to be offered of files; None if nobody has said."""
        return self._offer.wanted_files

    def offers(self, gate: str) -> bool:
        """Whether the agent has advertised a capability, such as `sessionCapabilities.list`."""
        return offers(self.capabilities, gate)

    async def __aenter__(self) -> Self:
        if self._connection is not None:
            raise AgentError("closed", "this agent was started before: connect again for another one")
        await self._start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the agent and everything that it started."""
        self._is_closed = True
        # One that is being started again is not known to anybody else.
        for connection in (self._beginning, self._connection):
            if connection is not None:
                await self._end(connection)

    def kill(self) -> None:
        """End the agent's process at once, without asking it: whoever waits for it is told that it died."""
        if self._connection is not None:
            self._connection.kill_soon()

    def start_within(self, seconds: float) -> None:
        """Give it no more time than this to start, and to open its first session."""
        self._startup_timeout = min(self._startup_timeout, seconds)

    def offer_instead(self, offer: Offer) -> None:
        """Offer the agent something else, from its next start on."""
        self._offer = offer

    async def restart(self) -> None:
        """End the agent, if it runs, and start it again. Sessions of before can be loaded, where it can."""
        async with self._restarting:
            await self._end(self._started)
            await self._start()

    async def new(self, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Open a session; see `SessionOptions` and `OpeningOptions`."""
        opening = Opening(options, self.cwd, self.confinement)
        request = NewSessionRequest(opening.cwd, opening.mcp_servers, opening.additional_directories)
        return await self._open("new", request, NewSessionResponse, opening)

    async def load(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Open a session of before; the agent tells its history again, which is the session's `record`."""
        opening = Opening(options, self.cwd, self.confinement)
        request = LoadSessionRequest(
            opening.mcp_servers, opening.cwd, session_id, opening.additional_directories
        )
        return await self._open("load", request, LoadSessionResponse, opening, session_id)

    async def resume(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Go on with a session of before, without its history being told."""
        opening = Opening(options, self.cwd, self.confinement)
        request = ResumeSessionRequest(
            session_id, opening.cwd, opening.additional_directories, opening.mcp_servers
        )
        return await self._open("resume", request, ResumeSessionResponse, opening, session_id)

    async def fork(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """A new session that begins with what another one holds."""
        opening = Opening(options, self.cwd, self.confinement)
        request = ForkSessionRequest(
            session_id, opening.cwd, opening.additional_directories, opening.mcp_servers
        )
        return await self._open("fork", request, ForkSessionResponse, opening)

    async def list(self, cwd: Directory | None = None) -> list[SessionInfo]:
        """The sessions that the agent keeps, of one directory or of all."""
        found: builtins.list[SessionInfo] = []
        cursor: str | UnsetType | None = UNSET
        directory = UNSET if cwd is None else os.path.abspath(cwd)
        for _ in range(MOST_PAGES):
            page = await self._ask(ListSessionsRequest(cursor=cursor, cwd=directory), ListSessionsResponse)
            found.extend(page.sessions)
            cursor = page.next_cursor
            if not cursor:
                return found
        raise AgentError("session", f"the agent's list of sessions has no end: {MOST_PAGES} pages were read")

    async def delete(self, session_id: str) -> None:
        """Let the agent forget a session."""
        await self._ask(DeleteSessionRequest(session_id), DeleteSessionResponse)

    async def authenticate(self, method_id: str) -> None:
        """Log in by one of `auth_methods`; whoever has to look at a browser takes as long as it takes."""
        await self._ask(AuthenticateRequest(method_id), AuthenticateResponse, is_hurried=False)

    async def logout(self) -> None:
        """Log out."""
        await self._ask(LogoutRequest(), LogoutResponse)

    async def _open(
        self, how: How, request: Any, type: type[Any], opening: Opening, id: str | None = None
    ) -> RemoteSession:
        try:
            connection = await self._running()
            self._refuse_unoffered(connection, request)
            opening.check(connection)
            request = await opening.equip(connection, request)
            session = await self._requested(connection, request, type, opening, id)
            try:
                await opening.furnish(session)
            except BaseException:
                session.abandon()
                raise
        except BaseException:
            await opening.clear()
            raise
        self._observers.notice(SessionOpened(session.id, how, opening.reason))
        return session

    async def _requested(
        self, connection: Connection, request: Any, type: type[Any], opening: Opening, id: str | None
    ) -> RemoteSession:
        """Ask for the session. One whose id is known hears what comes before the answer."""
        known = None if id is None else self._session(connection, id, opening)
        if known is not None:
            connection.adopt(known)

        def adopt(response: Any, answer: Raw) -> RemoteSession:
            session = known or self._session(connection, response.session_id, opening)
            if known is None:
                connection.adopt(session)
            session.settings.opened(response.modes, response.config_options, answer)
            return session

        try:
            return await connection.open_session(method_for(request.__class__).name, request, type, adopt)
        except BaseException:
            if known is not None:
                connection.sessions.pop(known.id, None)
            raise

    def _session(self, connection: Connection, id: str, opening: Opening) -> RemoteSession:
        return RemoteSession(
            connection,
            id,
            opening.cwd,
            opening.policy,
            roots=opening.roots,
            quirks=self._quirks,
            observers=self._observers.copy(),
        )

    async def _ask(self, request: Any, type: type[T], *, is_hurried: bool = True) -> T:
        connection = await self._running()
        self._refuse_unoffered(connection, request)
        method = method_for(request.__class__).name
        return await connection.ask("session", method, request, type, is_hurried=is_hurried)

    def _refuse_unoffered(self, connection: Connection, request: Any) -> None:
        method = method_for(request.__class__)
        if not connection.offers(method.gate):
            raise AgentError("session", f"the agent does not offer {method.name} (capability {method.gate})")

    async def _running(self) -> Connection:
        """The connection; an agent that has died is started again."""
        async with self._restarting:
            if self._started.is_over and not self._is_closed:
                await self._end(self._started)
                await self._start()
            return self._started

    @property
    def _started(self) -> Connection:
        if self._connection is None:
            raise AgentError("closed", "the agent was not started: use `async with connect(…) as agent`")
        return self._connection

    async def _start(self) -> None:
        if self._is_closed:
            raise AgentError("closed", "the agent was closed: connect again for another one")
        connection = Connection(
            self._link(),
            self._offer.responders(),
            startup_timeout=self._startup_timeout,
            frame_limit=self._frame_limit,
            on_death=lambda: self._observers.notice(AgentEnded("the agent ended by itself")),
        )
        self._beginning = connection
        try:
            response = await connection.start(self._offer.capabilities())
        finally:
            self._beginning = None
        self._connection = connection
        self.capabilities = response.agent_capabilities
        self.info = response.agent_info or None
        self.auth_methods = tuple(response.auth_methods)

    async def _end(self, connection: Connection) -> None:
        try:
            for session in [*connection.sessions.values()]:
                await session.end_belongings()
        finally:
            await connection.close()
