"""Starts an agent, opens sessions with it, and starts it again if it has died.

`RemoteAgent` is what `connect` gives. `SessionOpening` checks and applies the options of one session, and
`ClientOffer` computes the capabilities that the client advertises.
"""

from __future__ import annotations

import asyncio
import builtins
import logging
import os.path
import shutil
import tempfile
from collections.abc import Awaitable, Callable, Mapping, Sequence
from os import PathLike
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, TypedDict, TypeVar, Unpack, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from coupler.client.connection import FRAME_LIMIT, ClientConnection, Link
from coupler.client.errors import AgentError, NotificationListener, Responder
from coupler.client.files import ClientFiles, FileAccess
from coupler.client.limits import Limits
from coupler.client.observation import AgentEnded, Observers, OnEvent, OpenedBy, SessionOpened
from coupler.client.policy import Decide, PermissionResponder, Policy, PolicyName
from coupler.client.quirks import Quirks, Usual, known_by_info
from coupler.client.reply import Budget, TokenReports, refuse_no_budget
from coupler.client.resources import ToolResources
from coupler.client.session import RemoteSession
from coupler.mcp.servers import server_name
from coupler.schema.methods import method_for, offers
from coupler.schema.unstable import AgentCapabilities, ForkSessionRequest, ForkSessionResponse
from coupler.schema.v1 import (
    AuthenticateRequest,
    AuthenticateResponse,
    AuthMethod,
    BooleanConfigOptionCapabilities,
    ClientCapabilities,
    ClientSessionCapabilities,
    CompactionCapabilities,
    DeleteSessionRequest,
    DeleteSessionResponse,
    FileSystemCapabilities,
    Implementation,
    ListSessionsRequest,
    ListSessionsResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    LogoutRequest,
    LogoutResponse,
    McpServer,
    NewSessionRequest,
    NewSessionResponse,
    NoticeCapabilities,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SessionConfigOptionsCapabilities,
    SessionInfo,
)
from coupler.wire.peer import Peer

if TYPE_CHECKING:
    from coupler.client.agent_profile import AgentProfile
    from coupler.client.elicitation import Elicitation, OnForm, OnUrl
    from coupler.client.policy import Confinement

log = logging.getLogger("coupler.client")

MOST_PAGES = 1000
"""Pages of an agent's list of sessions that are read."""

MOST_REPORTING = 1000
"""Sessions whose tokens are remembered, for the case that they are opened again."""

TEMPORARY = "temporary"
"""Value of a session's `cwd` for a directory that is made for the session, and removed when it ends."""

Directory: TypeAlias = str | PathLike[str]

T = TypeVar("T")

OpeningRequest = TypeVar("OpeningRequest", bound=msgspec.Struct)


class SessionOptions(TypedDict, total=False):
    """Options of `ask`, `new`, `load`, `resume` and `fork`."""

    cwd: Directory
    """Made absolute; by default that of the agent's process. "temporary" makes one and removes it."""
    additional_directories: Sequence[Directory]
    mcp_servers: Sequence[McpServer]
    """MCP servers for the agent; one that it cannot reach by itself is bridged."""
    tools: Sequence[Any]
    """Python functions that the agent's model may call, or context managers that yield such."""
    permissions: Policy | Decide | PolicyName
    """Answers permission requests; by default the agent may read and nothing else."""
    model: str
    mode: str
    options: Mapping[str, str | bool]
    """Values of config options, set like model and mode before the first prompt."""
    strict: bool
    """False: a model, mode or option that is not offered is a warning in the log, and no error."""


class OpeningOptions(SessionOptions, total=False):
    """Options of `new`, `load`, `resume` and `fork`: those of `ask`, and what it takes as arguments."""

    output: Any
    """The type that prompts will ask for, or True: typed answers then come by a tool, if possible."""
    budget: Budget
    """The budget of all prompts of the session together; a prompt's own `budget` takes its place."""
    meta: Mapping[str, Any]
    """The `_meta` of the request that opens the session, for agents that know more than the protocol."""
    reason: str
    """The reason why an earlier session was not resumed, for observers: see `SessionOpened`."""


class RemoteAgent:
    """An agent to open sessions with; an async context manager that starts and ends it."""

    def __init__(
        self,
        link: Callable[[], Link],
        *,
        cwd: Directory,
        startup_timeout: float,
        frame_limit: int = FRAME_LIMIT,
        limits: Limits | None = None,
        offer: ClientOffer | None = None,
        quirks: Quirks | None = None,
        assumed_quirks: Quirks | None = None,
        on_event: OnEvent | None = None,
        confinement: Confinement | None = None,
        profile: AgentProfile | None = None,
        is_in_process: bool = False,
    ) -> None:
        """Prepare an agent; `link` returns a new link to it for each start.

        One that is `is_in_process` is served by Coupler, whatever its name, and asks for tools in its turns.
        `quirks` are its user's. Without them those hold that are known of the agent by what it says it is,
        and `assumed_quirks` if nothing is known by that.
        """
        self.capabilities = AgentCapabilities()
        self.info: Implementation | None = None
        self.auth_methods: tuple[AuthMethod, ...] = ()
        self.meta: Mapping[str, Any] | None = None
        """The `_meta` of the agent's answer to `initialize`."""
        self._link = link
        self.cwd = cwd
        """The directory that its process runs in, and that sessions get which name none."""
        self.confinement = confinement
        """The modes that enforce policies, for an agent that sends no permission requests."""
        self._profile = profile
        self._is_in_process = is_in_process
        self._startup_timeout = startup_timeout
        self._frame_limit = frame_limit
        if limits is not None and not isinstance(limits, Limits):
            raise TypeError(f"limits= is a Limits, as in `Limits(characters=1_000_000)`, not {limits!r}")
        self._limits = limits or Limits()
        self._offer = offer or ClientOffer()
        self._given_quirks = quirks
        self._assumed_quirks = assumed_quirks
        self._quirks: Quirks = quirks or assumed_quirks or Usual()
        self._observers = Observers(*filter(None, [on_event]))
        self._connection: ClientConnection | None = None
        self._beginning: ClientConnection | None = None
        self._is_closed = False
        self._restarting = asyncio.Lock()
        self._token_reports: dict[str, TokenReports] = {}
        """The tokens that the latest sessions have reported, by id: they may be opened again."""

    @property
    def peer(self) -> Peer:
        """The JSON-RPC peer of the running connection."""
        return self._started.peer

    @property
    def is_running(self) -> bool:
        """True if the agent runs; one that has died is started again when a session is opened."""
        return self._connection is not None and not self._connection.is_over

    @property
    def wanted_files(self) -> FileAccess | None:
        """The file access that was asked for with `files=`; None if it was left out."""
        return self._offer.wanted_files

    def offers(self, gate: str) -> bool:
        """Return whether the agent has advertised a capability, such as `sessionCapabilities.list`."""
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
        """Kill the agent's process at once; pending requests fail with the kind `died`."""
        if self._connection is not None:
            self._connection.kill_soon()

    def start_within(self, seconds: float) -> None:
        """Limit the time to start the agent and to open its first session."""
        self._startup_timeout = min(self._startup_timeout, seconds)

    def offer_instead(self, offer: ClientOffer) -> None:
        """Advertise other client capabilities from the next start on."""
        self._offer = offer

    async def restart(self) -> None:
        """End the agent, if it runs, and start it again.

        Earlier sessions can be loaded if the agent supports it.
        """
        async with self._restarting:
            await self._end(self._started)
            await self._start()

    async def new(self, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Open a session; see `SessionOptions` and `OpeningOptions`."""
        refuse_unknown("new", options, OpeningOptions)
        preface = None
        if self._profile is not None:
            options = self._profile.completed(options)
            preface = await self._profile.preface()
        opening = SessionOpening(options, self.cwd, self.confinement, preface)
        request = NewSessionRequest(opening.cwd, opening.mcp_servers, opening.additional_directories)
        return await self._open("new", request, NewSessionResponse, opening)

    async def load(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Load an earlier session; the agent replays its history, which becomes the session's `record`."""
        refuse_unknown("load", options, OpeningOptions)
        opening = SessionOpening(options, self.cwd, self.confinement)
        request = LoadSessionRequest(
            opening.mcp_servers, opening.cwd, session_id, opening.additional_directories
        )
        return await self._open("load", request, LoadSessionResponse, opening, session_id)

    async def resume(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Resume an earlier session without a replay of its history."""
        refuse_unknown("resume", options, OpeningOptions)
        opening = SessionOpening(options, self.cwd, self.confinement)
        request = ResumeSessionRequest(
            session_id, opening.cwd, opening.additional_directories, opening.mcp_servers
        )
        return await self._open("resume", request, ResumeSessionResponse, opening, session_id)

    async def fork(self, session_id: str, **options: Unpack[OpeningOptions]) -> RemoteSession:
        """Open a new session that begins with the context of another one."""
        refuse_unknown("fork", options, OpeningOptions)
        opening = SessionOpening(options, self.cwd, self.confinement)
        request = ForkSessionRequest(
            session_id, opening.cwd, opening.additional_directories, opening.mcp_servers
        )
        return await self._open("fork", request, ForkSessionResponse, opening)

    async def list(self, cwd: Directory | None = None) -> list[SessionInfo]:
        """List the sessions that the agent keeps, of one directory or of all."""
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
        """Delete a session that the agent keeps."""
        await self._ask(DeleteSessionRequest(session_id), DeleteSessionResponse)

    async def authenticate(
        self, method_id: str, *, meta: Mapping[str, Any] | None = None
    ) -> Mapping[str, Any] | None:
        """Log in by one of `auth_methods`; without a timeout, because a login in a browser takes its time.

        `meta` is the `_meta` of the request; returns that of the answer.
        """
        request = AuthenticateRequest(method_id, meta=meta or UNSET)
        return (await self._ask(request, AuthenticateResponse, is_hurried=False)).meta or None

    async def logout(self, *, meta: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
        """Log out. `meta` is the `_meta` of the request; returns that of the answer."""
        return (await self._ask(LogoutRequest(meta=meta or UNSET), LogoutResponse)).meta or None

    async def _open(
        self, how: OpenedBy, request: Any, type: type[Any], opening: SessionOpening, id: str | None = None
    ) -> RemoteSession:
        try:
            connection = await self._running()
            self._refuse_unoffered(connection, request)
            opening.check(connection)
            request = await opening.open_resources(connection, request)
            session = await self._requested(connection, request, type, opening, id)
            try:
                await opening.apply_settings(session)
            except BaseException:
                session.abandon()
                raise
        except BaseException:
            await opening.clear()
            raise
        self._observers.notice(SessionOpened(session.id, how, opening.reason))
        return session

    async def _requested(
        self,
        connection: ClientConnection,
        request: Any,
        type: type[Any],
        opening: SessionOpening,
        id: str | None,
    ) -> RemoteSession:
        """Send the request. A session whose id is known receives updates before the answer."""
        known = None if id is None else self._session(connection, id, opening, is_known=True)
        if known is not None:
            connection.adopt(known)

        def adopt(response: Any, answer: Raw) -> RemoteSession:
            session = known or self._session(connection, response.session_id, opening)
            if known is None:
                connection.adopt(session)
            session.settings.opened(response.modes, response.config_options, answer)
            session.meta = response.meta or None
            return session

        try:
            return await connection.open_session(method_for(request.__class__).name, request, type, adopt)
        except BaseException:
            if known is not None:
                connection.sessions.pop(known.id, None)
            raise

    def _session(
        self, connection: ClientConnection, id: str, opening: SessionOpening, *, is_known: bool = False
    ) -> RemoteSession:
        return RemoteSession(
            connection,
            id,
            opening.cwd,
            opening.policy,
            roots=opening.roots,
            servers=[server_name(server) for server in opening.mcp_servers],
            quirks=self._quirks,
            observers=self._observers.copy(),
            profile=self._profile,
            preface=opening.preface,
            budget=opening.budget,
            token_reports=self._reports_of(id, is_known=is_known),
            limits=self._limits,
        )

    def _reports_of(self, id: str, *, is_known: bool) -> TokenReports:
        """Return what a session has reported of its tokens, if it was open before."""
        reports = self._token_reports.pop(id, None) if is_known else None
        if reports is None:
            reports = TokenReports(self._quirks.sums_tokens, has_history=is_known)
        self._token_reports[id] = reports
        if len(self._token_reports) > MOST_REPORTING:
            del self._token_reports[next(iter(self._token_reports))]
        return reports

    async def _ask(self, request: Any, type: type[T], *, is_hurried: bool = True) -> T:
        connection = await self._running()
        self._refuse_unoffered(connection, request)
        method = method_for(request.__class__).name
        return await connection.ask("session", method, request, type, is_hurried=is_hurried)

    def _refuse_unoffered(self, connection: ClientConnection, request: Any) -> None:
        method = method_for(request.__class__)
        if not connection.offers(method.gate):
            raise AgentError("session", f"the agent does not offer {method.name} (capability {method.gate})")

    async def _running(self) -> ClientConnection:
        """Return the connection; an agent that has died is started again."""
        async with self._restarting:
            if self._started.is_over and not self._is_closed:
                await self._end(self._started)
                await self._start()
            return self._started

    @property
    def _started(self) -> ClientConnection:
        if self._connection is None:
            raise AgentError("closed", "the agent was not started: use `async with connect(…) as agent`")
        return self._connection

    async def _start(self) -> None:
        if self._is_closed:
            raise AgentError("closed", "the agent was closed: connect again for another one")
        connection = ClientConnection(
            self._link(),
            self._offer.responders(),
            startup_timeout=self._startup_timeout,
            frame_limit=self._frame_limit,
            on_death=lambda: self._observers.notice(AgentEnded("the agent ended by itself")),
        )
        self._beginning = connection
        try:
            response = await connection.start(self._offer.capabilities(), self._offer.meta)
        finally:
            self._beginning = None
        self._connection = connection
        connection.asks_for_tools = not self._is_in_process
        self.capabilities = response.agent_capabilities
        self.info = response.agent_info or None
        if self._given_quirks is None:
            known = known_by_info(self.info)
            self._quirks = self._assumed_quirks or Usual() if known is None else known.quirks
        self.auth_methods = tuple(response.auth_methods)
        self.meta = response.meta or None

    async def _end(self, connection: ClientConnection) -> None:
        try:
            for session in [*connection.sessions.values()]:
                await session.end_belongings()
        finally:
            await connection.close()


def refuse_unknown(function: str, given: Mapping[str, object], taken: type) -> None:
    """Raise TypeError for keyword arguments that a function does not take: Python cannot know them."""
    known = taken.__annotations__
    if unknown := [name for name in given if name not in known]:
        raise TypeError(
            f"{function}() takes no {', '.join(unknown)}; of keywords it takes {', '.join(sorted(known))}"
        )


class SessionOpening:
    """Checks the options of one session before anything is sent, and applies them when it is open."""

    def __init__(
        self,
        given: OpeningOptions,
        usual_cwd: Directory,
        confinement: Confinement | None = None,
        preface: str | None = None,
    ) -> None:
        wanted = given.get("permissions")
        self.preface = preface
        self.budget = given.get("budget")
        self.meta = given.get("meta")
        refuse_no_budget(self.budget)
        self.policy = Policy.of(wanted)
        self.mcp_servers = tuple(given.get("mcp_servers", ()))
        self._resources = ToolResources(given.get("tools", ()), self.mcp_servers, given.get("output"))
        self.roots = tuple(map(_absolute, given.get("additional_directories", ())))
        self._model = given.get("model")
        self._mode = given.get("mode")
        if confinement is not None:
            self._mode = confinement.mode_for(None if wanted is None else self.policy, self._mode)
        self._options = given.get("options", {})
        self._is_strict = given.get("strict", True)
        self.reason = given.get("reason")
        directory = given.get("cwd", usual_cwd)
        self.is_temporary = directory == TEMPORARY
        self.cwd = tempfile.mkdtemp(prefix="coupler-") if self.is_temporary else _absolute(directory)

    @property
    def additional_directories(self) -> Sequence[str] | UnsetType:
        """The additional directories as the protocol has them."""
        return self.roots or UNSET

    def check(self, connection: ClientConnection) -> None:
        """Raise for options whose capability the agent has not advertised."""
        if self.roots and not connection.offers("sessionCapabilities.additionalDirectories"):
            raise AgentError("session", "the agent does not take additional directories")

    async def open_resources(self, connection: ClientConnection, request: OpeningRequest) -> OpeningRequest:
        """Open the tools and servers of the session, and return the request with those servers."""
        servers = await self._resources.open(
            connection.capabilities.mcp_capabilities, connection.server_names
        )
        return msgspec.structs.replace(request, mcp_servers=servers, meta=self.meta or UNSET)

    async def apply_settings(self, session: RemoteSession) -> None:
        """Set the model, mode and options of a session that was just opened."""
        session.at_end(self.clear)
        self._resources.belong_to(session)
        if self._model is not None:
            await self._wish(session.set_model(self._model))
        if self._mode is not None:
            await self._wish(session.set_mode(self._mode), is_optional=session.may_refuse_mode(self._mode))
        for option, value in self._options.items():
            await self._wish(session.set_option(option, value))

    async def clear(self) -> None:
        """Close the session's resources, and remove a temporary directory."""
        await self._resources.close()
        if self.is_temporary:
            await asyncio.to_thread(shutil.rmtree, self.cwd, ignore_errors=True)

    async def _wish(self, setting: Awaitable[None], *, is_optional: bool = False) -> None:
        try:
            await setting
        except AgentError as error:
            if error.kind != "session" or (self._is_strict and not is_optional):
                raise
            log.warning("%s", error.message)


def _absolute(directory: Directory) -> str:
    return os.path.abspath(directory)  # the agent sees the path as written, links and all


class ClientOffer:
    """The client capabilities that are advertised, and the responders that serve exactly these.

    Permission requests are always answered; files, terminals and elicitation as they were asked for.
    """

    meta: Mapping[str, Any] | None = None
    """The `_meta` of `initialize`."""

    def __init__(
        self,
        *,
        files: FileAccess | None = None,
        terminals: bool = False,
        on_form: OnForm | None = None,
        on_url: OnUrl | None = None,
    ) -> None:
        if files is not None and files not in get_args(FileAccess):
            raise ValueError(f"files= is one of {', '.join(get_args(FileAccess))}, not {files!r}")
        for name, function in {"on_form": on_form, "on_url": on_url}.items():
            if function is not None and not callable(function):
                raise TypeError(f"{name}= is a function that asks the user; this is {function!r}")
        self.wanted_files = files
        """The file access that was asked for; None if it was left out."""
        self._files: FileAccess = files or "read"
        self._terminals = terminals
        self._on_form = on_form
        self._on_url = on_url

    def capabilities(self) -> ClientCapabilities:
        """Return the capabilities for `initialize`."""
        return ClientCapabilities(
            fs=FileSystemCapabilities(
                read_text_file=self._files != "none", write_text_file=self._files == "write"
            ),
            terminal=self._terminals,
            session=ClientSessionCapabilities(
                compaction=CompactionCapabilities(),
                config_options=SessionConfigOptionsCapabilities(boolean=BooleanConfigOptionCapabilities()),
                notices=NoticeCapabilities(),
            ),
            elicitation=UNSET if (elicitation := self._elicitation()) is None else elicitation.capabilities(),
        )

    def responders(self) -> Mapping[str, Responder | NotificationListener]:
        """Return the responder of each method, for one run of the agent."""
        responders: dict[str, Responder | NotificationListener] = {
            "session/request_permission": PermissionResponder()
        }
        responders |= ClientFiles(self._files).responders()
        if (elicitation := self._elicitation()) is not None:
            responders |= elicitation.responders()
        if self._terminals:
            from coupler.client.terminals import ClientTerminals

            responders |= ClientTerminals().responders()
        return responders

    # What most clients do not offer is imported on use.

    def _elicitation(self) -> Elicitation | None:
        if self._on_form is None and self._on_url is None:
            return None
        from coupler.client.elicitation import Elicitation

        return Elicitation(self._on_form, self._on_url)
