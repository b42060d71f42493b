"""What an agent may ask of its client: the seam between the connection and those who answer."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, Protocol

from coupler.client.reasons import SESSION_ENDED
from coupler.wire.messages import RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


class Responder(Protocol):
    """Answers one method. What nobody answers gets "method not found"."""

    params: type[Any]
    """What the request's parameters are decoded as."""

    def requested(self, request: Request, params: Any, session: RemoteSession | None) -> None:
        """Answer now, raise an RpcError, or start what will answer; the session is None if none is named."""


class Work:
    """Answers for sessions, which takes time: a coroutine function finds each answer, or raises RpcError."""

    def __init__(
        self, params: type[Any], do: Callable[[Any, RemoteSession], Coroutine[Any, Any, Any]]
    ) -> None:
        self.params = params
        self._do = do

    def requested(self, request: Request, params: Any, session: RemoteSession | None) -> None:
        assert session is not None  # the parameters name one
        if session.has_ended:
            raise RpcError.because(SESSION_ENDED, "the session is being closed: it gets nothing more")
        request.run(self._do(params, session))


class Listener:
    """Hears one notification, which wants no answer. What nobody hears is ignored."""

    def __init__(self, params: type[Any], notice: Callable[[Any], None]) -> None:
        self.params = params
        self.notice = notice
