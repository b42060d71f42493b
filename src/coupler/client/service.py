"""What an agent may ask of its client: the seam between the connection and those who answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from coupler.wire.request import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession


class Service(Protocol):
    """Answers one method. What no service answers gets "method not found"."""

    params: type[Any]
    """What the request's parameters are decoded as."""

    def requested(self, request: Request, params: Any, session: RemoteSession | None) -> None:
        """Answer now, raise an RpcError, or start what will answer; the session is None if none is named."""
