"""Runs one process of an agent: starts it, initializes it, routes its messages and ends it.

Updates and requests go to their session, answers to whoever asked. A `Link` is what starts an agent and gives
a transport to it: a child process, or anything else. A recorded link also writes all messages to a file.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

from msgspec import UNSET, Raw
from msgspec import json as msgspec_json
from msgspec.structs import replace

from coupler.__about__ import __version__
from coupler.client.errors import (
    AgentError,
    AgentErrorKind,
    NotificationListener,
    Responder,
)
from coupler.client.observation import Telemetry
from coupler.client.resources import ServerNames
from coupler.redaction.sources import Secret
from coupler.runtime.environment import Environment, SpawnError
from coupler.runtime.process import Child
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import PROTOCOL_VERSION, offers
from coupler.schema.unstable import AgentCapabilities, InitializeResponse
from coupler.schema.v1 import (
    AgentMessageChunk,
    AudioContent,
    ClientCapabilities,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    Implementation,
    InitializeRequest,
    SessionNotification,
    TextContent,
)
from coupler.wire.messages import (
    ANSWERS_UNREAD,
    CONNECTION_CLOSED,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    TOO_MANY_REQUESTS,
    RpcError,
)
from coupler.wire.peer import Peer, Request, Response
from coupler.wire.pipe_transport import PipeTransport
from coupler.wire.tap import RecordingFeed, RecordingFileError, open_recording
from coupler.wire.transport import TappedTransport, Transport

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


log = logging.getLogger("coupler.client")

FRAME_LIMIT = 64 * 1024 * 1024
"""Bytes of the longest line that an agent may send: images and whole files come in one."""

EXIT_CODE_TIMEOUT = 1.0
"""Seconds to wait for the exit code of an agent that closed its output."""

STDOUT_EOF_TIMEOUT = 0.5
"""Seconds in which the output of a dead process must end; another process may hold it open."""

UNSENT_SOFT_LIMIT = 16 * 1024 * 1024
"""Unsent bytes over which long answers wait until the agent has read the earlier ones."""

MOST_OPEN_REQUESTS = 200
"""Unanswered requests of the agent at which it is not read on; twice as many are refused."""

MOST_UPDATES = 1000
MOST_BYTES = 4 * 1024 * 1024

CLIENT_SIDE_KINDS = frozenset({"busy", "closed", "budget"})
"""Kinds of errors that the agent's process has no part in."""

T = TypeVar("T")
Opened = TypeVar("Opened")


class ExitDetails(NamedTuple):
    """The exit code and stderr of an agent that ended, as far as known."""

    exit_code: int | None = None
    stderr: str = ""


def _with_meta_in_update(notification: SessionNotification) -> SessionNotification:
    """Return the notification with its `_meta` in an empty chunk, where other agents report tokens."""
    update = notification.update
    if not isinstance(update, AgentMessageChunk) or update.meta:
        return notification
    if not isinstance(update.content, TextContent) or update.content.text:
        return notification
    return replace(notification, update=replace(update, meta=notification.meta))


class Link(Protocol):
    """Starts an agent, gives a transport to it and ends it. Nothing runs before `open`."""

    def open(self) -> Transport:
        """Start the agent; called once."""

    async def wait(self) -> None:
        """Wait until the agent has ended by itself."""

    async def close(self, grace: float = 5.0) -> None:
        """End the agent and everything it started; what ignores that for `grace` seconds is killed."""

    def exit_details(self) -> ExitDetails:
        """Return the exit code and stderr, as far as known."""


class ClientConnection:
    """Talks to one run of an agent over a link."""

    def __init__(
        self,
        link: Link,
        responders: Mapping[str, Responder | NotificationListener],
        *,
        startup_timeout: float,
        frame_limit: int = FRAME_LIMIT,
        on_death: Callable[[], object] | None = None,
    ) -> None:
        """Prepare a connection; `on_death` is called if the agent ends by itself."""
        self.sessions: dict[str, RemoteSession] = {}
        self.server_names = ServerNames()
        self.asks_for_tools = True
        """False once the agent has not asked for a session's tools in time: it is not waited for again."""
        self.telemetry = Telemetry()
        self.has_ignored_cancel = False
        """True if the agent had its grace to end a turn and did not: it gets no other to end itself."""
        self._responders = responders
        self.capabilities = AgentCapabilities()
        self._link = link
        self._startup_timeout = startup_timeout
        self._startup_spent = 0.0
        self._frame_limit = frame_limit
        self._on_death = on_death
        self._opening = 0
        self._provisional = EarlyUpdates()
        self._ended = asyncio.Event()
        self._is_closed = False
        self._killing: asyncio.Task[None] | None = None
        self._is_echo = False
        self._held_back: dict[object, RemoteSession | None] = {}
        self._asking = 0
        self._open_requests = 0
        self._is_paused = False

    @property
    def is_over(self) -> bool:
        """True if the agent is gone, by itself or because we ended it."""
        return self._is_closed or self._ended.is_set()

    async def start(
        self, capabilities: ClientCapabilities, meta: Mapping[str, Any] | None = None
    ) -> InitializeResponse:
        """Start and initialize the agent; one that fails at this is ended.

        `meta` is the `_meta` of `initialize`.
        """
        started = time.monotonic()
        self.peer = Peer(self._link.open(), self, frame_limit=self._frame_limit, answers_garbage=False)
        try:
            self.peer.open()
            self.peer.start(self._watch_for_death())
            response = await self._initialize(capabilities, meta, started)
        except BaseException:
            await self.close()
            raise
        self._startup_spent = time.monotonic() - started
        self.capabilities = response.agent_capabilities
        self.telemetry.introduced(response.agent_info or None)
        return response

    def offers(self, gate: str | None) -> bool:
        """Return whether the agent has advertised a capability, such as `sessionCapabilities.list`."""
        return offers(self.capabilities, gate)

    def refuse_unaccepted(self, blocks: Sequence[ContentBlock]) -> None:
        """Raise for a content block whose prompt capability the agent has not advertised."""
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

    async def close(self, grace: float = 5.0) -> None:
        """End the agent and everything that it started."""
        self._is_closed = self._is_closed or not self._ended.is_set()
        try:
            await self.peer.close()
        finally:
            if self._killing is not None:
                await self._killing
            await self._link.close(0.0 if self.has_ignored_cancel else grace)

    def refuse_if_over(self) -> None:
        """Raise if nothing can be sent any more."""
        if self._is_closed:
            raise AgentError("closed", "the agent was closed, so that nothing was sent: connect again")
        if self._ended.is_set():
            message = "the agent has ended, so that nothing was sent: open another session, or load this one"
            raise AgentError("died", message)

    def kill_soon(self) -> None:
        """Kill an agent that no longer responds, without waiting for its end."""
        if self._killing is None:
            self._killing = asyncio.get_running_loop().create_task(self._link.close(grace=0.0))

    async def open_session(
        self, method: str, params: Any, type: type[T], adopt: Callable[[T, Raw], Opened]
    ) -> Opened:
        """Send a request that opens a session.

        `adopt` runs when the answer is received, so that updates right behind it find their session.
        """
        started = time.monotonic() - self._startup_spent
        self._startup_spent = 0.0
        self._opening += 1
        try:
            return await self._answered("session", method, params, type, adopt, started)
        finally:
            self._opening -= 1
            if not self._opening:
                self._provisional.clear()

    async def ask(
        self, kind: AgentErrorKind, method: str, params: Any, type: type[T], *, is_hurried: bool = True
    ) -> T:
        """Send a request and wait for its answer, within the startup timeout if `is_hurried`."""
        started = time.monotonic() if is_hurried else None
        return await self._answered(kind, method, params, type, _first, started)

    async def _answered(
        self,
        kind: AgentErrorKind,
        method: str,
        params: Any,
        type: type[T],
        adopt: Callable[[T, Raw], Opened],
        started: float | None,
    ) -> Opened:
        answered: asyncio.Future[Opened] = asyncio.get_running_loop().create_future()

        def deliver(answer: Response) -> None:
            try:
                outcome = adopt(*self._result(kind, method, type, answer))
            except AgentError as error:
                _fail(answered, error)
            else:
                if not answered.done():
                    answered.set_result(outcome)

        with self.telemetry.request(method, params) as traced:
            request = self.peer.ask(method, traced, deliver)
            self._asking += 1
            self.update_reading()
            try:
                return await self._in_time(kind, method, answered, started)
            except BaseException:
                self.peer.give_up(request)
                raise
            finally:
                self._asking -= 1
                self.update_reading()

    def adopt(self, session: RemoteSession) -> None:
        """Route a session's messages to it from now on, and hand over the updates that came before."""
        if session.id in self.sessions:
            message = f"the agent gave a new session the id of an open one: {session.id!r}"
            raise AgentError("session", message)
        self.sessions[session.id] = session
        for notification, size in self._provisional.take(session.id):
            session.update_received(notification.update, size)

    def hold_back(self, holder: object, session: RemoteSession | None = None) -> None:
        """Stop reading the agent until `holder` lets it go on: it says more than is read.

        With a session, only while no other session has a running prompt that reads what comes.
        """
        self._held_back[holder] = session
        self.update_reading()

    def let_go_on(self, holder: object) -> None:
        """Read the agent again, as far as `holder` is concerned."""
        if self._held_back.pop(holder, holder) is not holder:
            self.update_reading()

    def update_reading(self) -> None:
        """Stop or continue reading the agent; whoever waits for an answer of it must get it."""
        is_paused = bool(self._held_back) and not self._asking and self._may_all_wait()
        if is_paused != self._is_paused and not self.is_over:
            self._is_paused = is_paused
            self.peer.pause_reading() if is_paused else self.peer.resume_reading()

    def _may_all_wait(self) -> bool:
        if any(session.is_cancelled for session in self.sessions.values()):
            return False  # the end of the turn is to be read
        holding = [*self._held_back.values()]
        return None in holding or all(
            session in holding for session in self.sessions.values() if session.is_prompted
        )

    async def room(self) -> None:
        """Wait until the agent has read enough for a long answer to be sent."""
        while self.peer.outbox.unsent > UNSENT_SOFT_LIMIT:
            await self.peer.drain()

    def request_received(self, request: Request) -> None:
        self._is_echo = self._is_echo or request.method == "initialize"
        responder = self._responders.get(request.method)
        if responder is None or isinstance(responder, NotificationListener):
            message = f"this client has no method {request.method!r}"
            raise RpcError.because(METHOD_NOT_FOUND, message, method=request.method)
        self._count_request(request)
        try:
            params = decode(responder.params, request.params, "client")
        except DecodingError as error:
            raise RpcError.because(INVALID_PARAMS, f"{request.method}: {error}", path=error.path) from None
        session = self._session_of(params)
        self.telemetry.asked(request, params, None if session is None else session.span)
        responder.requested(request, params, session)

    def _count_request(self, request: Request) -> None:
        """Count a request until it is answered; an agent that asks more than is answered has to wait."""
        if self._open_requests >= 2 * MOST_OPEN_REQUESTS:
            message = f"{self._open_requests} requests are not answered yet: wait for some of them"
            raise RpcError.because(TOO_MANY_REQUESTS, message)
        self._open_requests += 1
        request.when_answered(self._request_answered)
        if self._open_requests >= MOST_OPEN_REQUESTS:
            self.hold_back(self)

    def _request_answered(self) -> None:
        self._open_requests -= 1
        if self._open_requests <= MOST_OPEN_REQUESTS // 2:
            self.let_go_on(self)

    def notification_received(self, method: str, params: Raw) -> None:
        if method != "session/update":
            self._listener_notified(method, params)
            return
        try:
            notification = decode(SessionNotification, params, "client")
        except DecodingError as error:
            log.warning("an update was dropped: %s", error)
            return
        if notification.meta:
            notification = _with_meta_in_update(notification)
        size = len(memoryview(params))
        session = self.sessions.get(notification.session_id)
        if session is not None:
            session.update_received(notification.update, size)
        elif self._opening:
            self._provisional.keep(notification, size)
        else:
            log.debug("an update of the unknown session %r was ignored", notification.session_id[:100])

    def _listener_notified(self, method: str, params: Raw) -> None:
        listener = self._responders.get(method)
        if not isinstance(listener, NotificationListener):
            log.debug("the notification %s was ignored", method)
            return
        try:
            listener.notice(decode(listener.params, params, "client"))
        except DecodingError as error:
            log.warning("the notification %s was dropped: %s", method, error)

    def disconnected(self, error: RpcError) -> None:
        if error.reason == ANSWERS_UNREAD.name:
            self.kill_soon()
        self._ended.set()
        for session in self.sessions.values():
            session.disconnected()
        if self._on_death is not None and not self._is_closed:
            self._on_death()

    def failure(self, kind: AgentErrorKind, what: str, error: RpcError) -> AgentError:
        """Convert an error answer, or the lack of an answer, to an `AgentError`."""
        if error is self.peer.closed_because:
            if self._is_closed:
                return AgentError("closed", f"the connection was closed before the agent answered {what}")
            is_unread = error.reason == ANSWERS_UNREAD.name
            because = f": it was ended, because {error.message}" if is_unread else ""
            message = f"the agent ended before it answered {what}{because}"
            # One that never spoke has not died: it cannot be started, or is no agent.
            return AgentError(kind if kind == "initialize" else "died", message)
        message = f"the agent refused {what}: {error.message} ({error.code}){_details(error.data)}"
        if _is_explained(error.data):
            message = error.message
        return AgentError(kind, message, code=error.code, data=error.data)

    async def with_exit_details(self, error: AgentError) -> AgentError:
        """Return a copy of the error with the exit code and stderr of the agent's process."""
        message = error.message
        if error.kind == "died" or (error.kind == "initialize" and self._ended.is_set()):
            try:
                async with asyncio.timeout(EXIT_CODE_TIMEOUT):
                    await self._link.wait()
            except TimeoutError:
                message = f"{message}: its output is closed, its process still runs"
        has_no_words = error.kind in CLIENT_SIDE_KINDS or _is_explained(error.data)
        words = ExitDetails() if has_no_words else self._link.exit_details()
        return error.explained(message, words.exit_code, words.stderr)

    async def _initialize(
        self, capabilities: ClientCapabilities, meta: Mapping[str, Any] | None, started: float
    ) -> InitializeResponse:
        info = Implementation("coupler", __version__, title="Coupler")
        request = InitializeRequest(PROTOCOL_VERSION, capabilities, info, meta=meta or UNSET)
        try:
            response = await self._answered(
                "initialize", "initialize", request, InitializeResponse, _first, started
            )
        except AgentError as error:
            raise self._with_what_it_wrote(error) from None
        if response.protocol_version != PROTOCOL_VERSION:
            spoken = response.protocol_version
            message = f"the agent speaks version {spoken} of the protocol, Coupler speaks {PROTOCOL_VERSION}"
            raise AgentError("initialize", message)
        return response

    def _with_what_it_wrote(self, error: AgentError) -> AgentError:
        """Quote the output of a program that may not be an agent at all."""
        if self._is_echo:
            message = "the program sends back what it is sent: it is no ACP agent"
            return AgentError("initialize", message, exit_code=error.exit_code, stderr=error.stderr)
        if error.code is not None or not self.peer.unreadable:
            return error
        wrote = self.peer.unreadable.decode(errors="replace")
        message = f"{error.message}, and wrote what is no ACP: {wrote!r}"
        return error.explained(message, error.exit_code, error.stderr)

    async def _in_time(
        self, kind: AgentErrorKind, what: str, future: asyncio.Future[T], started: float | None
    ) -> T:
        began = time.monotonic() if started is None else started
        limit = None if started is None else max(began + self._startup_timeout - time.monotonic(), 0.0)
        try:
            async with asyncio.timeout(limit):
                return await future
        except TimeoutError:
            elapsed = time.monotonic() - began
            message = f"the agent did not answer {what} within {elapsed:.1f} s"
            raise await self.with_exit_details(AgentError(kind, message)) from None
        except AgentError as error:
            raise await self.with_exit_details(error) from None

    def _result(self, kind: AgentErrorKind, what: str, type: type[T], answer: Response) -> tuple[T, Raw]:
        if isinstance(answer, RpcError):
            raise self.failure(kind, what, answer)
        try:
            return decode(type, answer, "client"), answer
        except DecodingError as error:
            raise AgentError(kind, f"the agent's answer to {what} cannot be read: {error}") from None

    def _session_of(self, params: Any) -> RemoteSession | None:
        """The session that a request belongs to; None if it names none."""
        named = getattr(params, "session_id", UNSET)
        if named is UNSET:
            return None
        session = self.sessions.get(named)
        if session is None:
            message = f"sessionId: this client has no session {named!r}"
            raise RpcError.because(INVALID_PARAMS, message, path="sessionId")
        return session

    async def _watch_for_death(self) -> None:
        await self._link.wait()
        self._held_back.clear()
        self.update_reading()  # what it wrote at last is to be read
        try:
            async with asyncio.timeout(STDOUT_EOF_TIMEOUT):
                await self._ended.wait()
        except TimeoutError:
            self.peer.input_ended(RpcError.because(CONNECTION_CLOSED, "the agent's process has ended"))


def _first(response: T, answer: Raw) -> T:
    return response


def _fail(future: asyncio.Future[Any], error: AgentError) -> None:
    if not future.done():
        future.set_exception(error)
        future.exception()  # whoever waits may be cancelled in the same moment, and never look


_EXPLAINED = ("agent_failed", "auth_required")
"""Reasons of errors that agents of Coupler put into a sentence for the user, if they also say a kind."""


def _is_explained(data: object) -> bool:
    """Return whether the error of an agent made with Coupler explains itself and needs no details."""
    return isinstance(data, dict) and data.get("reason") in _EXPLAINED and "kind" in data


def _details(data: Any) -> str:
    """Return what an error says besides its message; some agents put everything there."""
    if data is None or (isinstance(data, dict) and data.keys() <= {"reason"}):
        return ""
    return f": {data if isinstance(data, str) else msgspec_json.encode(data).decode()}"[:500]


class EarlyUpdates:
    """Keeps updates of sessions whose opening request is not answered yet, within two limits.

    Agents may send updates of a session before the answer that tells its id.
    """

    def __init__(self) -> None:
        self._waiting: list[tuple[SessionNotification, int]] = []
        self._bytes = 0
        self._is_full = False

    def keep(self, notification: SessionNotification, size: int) -> None:
        """Keep an update that took `size` bytes on the wire, if there is room."""
        if len(self._waiting) >= MOST_UPDATES or self._bytes + size > MOST_BYTES:
            if not self._is_full:
                self._is_full = True
                log.warning("updates came before their session was opened, and too many: some are dropped")
            return
        self._waiting.append((notification, size))
        self._bytes += size

    def take(self, session_id: str) -> list[tuple[SessionNotification, int]]:
        """Remove and return the updates of a session, in their order."""
        taken = [kept for kept in self._waiting if kept[0].session_id == session_id]
        self._waiting = [kept for kept in self._waiting if kept[0].session_id != session_id]
        self._bytes -= sum(size for _, size in taken)
        return taken

    def clear(self) -> None:
        """Drop all updates: no session is being opened any more."""
        self._waiting.clear()
        self._bytes = 0
        self._is_full = False


class ProcessLink:
    """Runs an agent as a child process in a process group of its own."""

    def __init__(
        self,
        command: str | Sequence[str],
        *,
        cwd: str | PathLike[str] | None = None,
        env: Environment | Mapping[str, str | None] | None = None,
    ) -> None:
        self._command = command
        self._cwd = cwd
        self._env = env
        self._child: Child

    @property
    def pid(self) -> int:
        """The process id, which is also the id of its group and session."""
        return self._child.pid

    def open(self) -> Transport:
        try:
            self._child = Child.spawn(self._command, cwd=self._cwd, env=self._env)
        except SpawnError as error:
            raise AgentError("spawn", str(error)) from error
        return PipeTransport(self._child.stdout_fd, self._child.stdin_fd)

    async def wait(self) -> None:
        await self._child.wait()

    async def close(self, grace: float = 5.0) -> None:
        await self._child.end(grace)

    def exit_details(self) -> ExitDetails:
        return ExitDetails(self._child.returncode, self._child.stderr)


def recorded(
    link: Link,
    path: str | os.PathLike[str],
    *,
    label: str = "",
    mask: bool = True,
    secrets: Iterable[Secret] = (),
) -> RecordingLink:
    """Return the link, recorded to a new file as `coupler record` does it.

    If the file exists, a number is added to the name. Secrets of this process's environment are masked, and
    `secrets` besides: those that only the agent gets.
    """
    return RecordingLink(link, path, label=label, mask=mask, secrets=secrets)


class RecordingLink:
    """Records everything that passes over another link."""

    def __init__(
        self,
        link: Link,
        path: str | os.PathLike[str],
        *,
        label: str = "",
        mask: bool = True,
        secrets: Iterable[Secret] = (),
    ) -> None:
        self.path = os.path.abspath(path)
        """The file; once the link is open, the one that is really written."""
        self._link = link
        self._header = {
            "label": label,
            "mask": mask,
            "secrets": [[secret.name, secret.value] for secret in secrets],
        }
        self._feed = RecordingFeed()
        self._began = 0.0
        self._is_over = False

    def open(self) -> Transport:
        try:
            file, self.path = open_recording(self.path)
        except RecordingFileError as error:
            raise AgentError("spawn", f"the recording cannot be begun: {error}") from None
        self._began = time.monotonic()
        started = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        try:
            transport = self._link.open()
            self._feed.start(file, json.dumps({**self._header, "started": started}).encode())
        finally:
            os.close(file)
        return TappedTransport(transport, self)

    async def wait(self) -> None:
        await self._link.wait()

    async def close(self, grace: float = 5.0) -> None:
        """End the agent, and wait for the recording's end, but not for long."""
        try:
            await self._link.close(grace)
        finally:
            if not self._is_over:
                self._is_over = True
                words = self._link.exit_details()
                self._note(b"e", words.stderr.encode(errors="replace"))
                self._note(b"E")
                await asyncio.to_thread(self._feed.finish, self._now(), words.exit_code)

    def exit_details(self) -> ExitDetails:
        return self._link.exit_details()

    def sent(self, data: bytes) -> None:
        self._note(b"c", data)

    def received(self, data: bytes) -> None:
        self._note(b"a", data)

    def output_ended(self) -> None:
        self._note(b"C")

    def input_ended(self) -> None:
        self._note(b"A")

    def _note(self, kind: bytes, data: bytes = b"") -> None:
        self._feed.note(self._now(), kind, data)

    def _now(self) -> float:
        return time.monotonic() - self._began
