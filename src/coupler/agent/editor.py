"""The client as an agent sees it: who it is, what it offers, and a typed way to ask for it."""

from __future__ import annotations

from typing import Any

from msgspec import UNSET, UnsetType

from coupler.agent.errors import NOT_OFFERED, EditorError
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import method_for, offers
from coupler.schema.v1 import ClientCapabilities, Implementation
from coupler.wire.errors import INVALID_PARAMS, RpcError
from coupler.wire.outbox import Lane
from coupler.wire.peer import Peer


class Editor:
    """The other side of the connection, after `initialize`."""

    def __init__(self, peer: Peer, capabilities: ClientCapabilities, info: Implementation | None) -> None:
        self.capabilities = capabilities
        self.info = info
        self._peer = peer

    def offers(self, gate: str) -> bool:
        """Whether a capability, such as `fs.readTextFile`, was advertised."""
        return offers(self.capabilities, gate)

    async def call(self, params: Any, lane: Lane, deadline: float | UnsetType | None = UNSET) -> Any:
        """Send the request that these params belong to, and return its typed result.

        What the client did not advertise is never sent. Files and terminals have a deadline unless one is
        given, because clients exist that never answer; a dialog waits for its user.
        """
        method = method_for(type(params))
        if method.gate is not None and not self.offers(method.gate):
            message = f"the client does not offer {method.name} (capability {method.gate})"
            raise RpcError.because(NOT_OFFERED, message, method=method.name)
        try:
            seconds = method.deadline if deadline is UNSET else deadline
            result = await self._peer.request(method.name, params, lane=lane, deadline=seconds)
            return decode(method.result or type(None), result, "agent")
        except DecodingError as error:
            message = f"the client's answer to {method.name} does not fit: {error}"
            data = {"reason": INVALID_PARAMS.name, "path": error.path}
            raise EditorError(INVALID_PARAMS.code, message, data) from error
        except RpcError as error:
            raise EditorError(error.code, error.message, error.data) from None
