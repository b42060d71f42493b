"""Defines why an agent failed, why a client refuses an agent's request, and who answers such requests."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

from coupler.wire.messages import ErrorReason, RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.reply import Reply
    from coupler.client.session import RemoteSession


AgentErrorKind: TypeAlias = Literal[
    "spawn",
    "initialize",
    "session",
    "prompt",
    "died",
    "output",
    "tool",
    "budget",
    "deadline",
    "refused",
    "cancelled",
    "limit",
    "busy",
    "overflow",
    "closed",
]


class AgentError(Exception):
    """An agent failed, or could not do what it was asked for.

    `kind` says what failed; `exit_code` and `stderr` are those of the agent's process, as far as known. If
    the agent answered with an error, `code` and `data` are that error's. `reply` is what had come of the
    turn's answer until then.
    """

    def __init__(
        self,
        kind: AgentErrorKind,
        message: str,
        *,
        exit_code: int | None = None,
        stderr: str = "",
        code: int | None = None,
        data: Any = None,
        reply: Reply | None = None,
    ) -> None:
        super().__init__(message)
        self.kind: AgentErrorKind = kind
        self.message = message
        self.exit_code = exit_code
        self.stderr = stderr
        self.code = code
        self.data = data
        self.reply = reply

    def __str__(self) -> str:
        lines = [self.message]
        if self.exit_code is not None:
            lines.append(f"exit code: {self.exit_code}")
        if self.stderr.strip():
            # Imported on use: errors are defined where nothing is run.
            from coupler.runtime.process import last_lines

            lines.append(f"stderr: {last_lines(self.stderr)}")
        return "\n".join(lines)

    def __reduce__(self) -> tuple[type[AgentError], tuple[AgentErrorKind, str], dict[str, Any]]:
        return type(self), (self.kind, self.message), self.__dict__

    def explained(self, message: str, exit_code: int | None, stderr: str) -> AgentError:
        """Return a copy with what is known of the agent's process by now."""
        return AgentError(
            self.kind,
            message,
            exit_code=exit_code,
            stderr=stderr,
            code=self.code,
            data=self.data,
            reply=self.reply,
        )


class EndTurn(Exception):  # noqa: N818 - it is no failure: a tool has what the prompt was for
    """Raised by a tool to end the turn: the prompt raises it again, after everything was received."""

    def __init__(self, payload: Any = None) -> None:
        super().__init__(payload)
        self.payload = payload


RESOURCE_NOT_FOUND = ErrorReason("resource_not_found", -32002, "There is no such file, or no such terminal.")
OUTSIDE_ROOTS = ErrorReason(
    "outside_roots", -32602, "The path is not, or not for certain, in the session's directories."
)
UNSUITABLE_FILE = ErrorReason(
    "unsuitable_file", -32602, "It is no UTF-8 text, too large, or not a file of the ordinary kind."
)
FILE_FAILED = ErrorReason("file_failed", -32603, "The system could not read or write the file.")
SPAWN_FAILED = ErrorReason("spawn_failed", -32603, "The command could not be started.")
TOO_MANY_TERMINALS = ErrorReason("too_many_terminals", -32603, "The session must release a terminal first.")
SESSION_ENDED = ErrorReason("session_ended", -32600, "The session is being closed: it gets nothing more.")

NOT_PERMITTED = ErrorReason(
    "not_permitted", -32603, "A rule, an earlier choice or the user does not permit it."
)
"""Listed with the reasons of a relay, where most refusals come from."""

REASONS = (
    RESOURCE_NOT_FOUND,
    OUTSIDE_ROOTS,
    UNSUITABLE_FILE,
    FILE_FAILED,
    SPAWN_FAILED,
    TOO_MANY_TERMINALS,
    SESSION_ENDED,
)


class Responder(Protocol):
    """Answers one method of the agent. A method without a responder gets "method not found"."""

    params: type[Any]
    """The type that the request's parameters are decoded as."""

    def requested(self, request: Request, params: Any, session: RemoteSession | None) -> None:
        """Answer now, raise an RpcError, or start what will answer; the session is None if none is named."""


class AsyncResponder:
    """Answers a method for a session with a coroutine function, which may raise RpcError."""

    def __init__(
        self, params: type[Any], do: Callable[[Any, RemoteSession], Coroutine[Any, Any, Any]]
    ) -> None:
        self.params = params
        self._do = do

    def requested(self, request: Request, params: Any, session: RemoteSession | None) -> None:
        assert session is not None  # the parameters name one
        if session.has_ended:
            raise RpcError.because(SESSION_ENDED, "the session is being closed: it gets nothing more")
        request.run(self._permitted(params, session))

    async def _permitted(self, params: Any, session: RemoteSession) -> Any:
        await session.refuse_denied(params)
        return await self._do(params, session)


class NotificationListener:
    """Receives one kind of notification. A notification without a listener is ignored."""

    def __init__(self, params: type[Any], notice: Callable[[Any], None]) -> None:
        self.params = params
        self.notice = notice
