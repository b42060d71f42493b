"""Sends typed requests and notifications to the client, if it has advertised them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from msgspec import UNSET, Raw, UnsetType

from coupler.agent.errors import NOT_OFFERED, EditorError
from coupler.schema.decoding import DecodingError, decode
from coupler.schema.methods import Method, method_for, offers
from coupler.schema.v1 import ClientCapabilities, Implementation
from coupler.wire.messages import INVALID_PARAMS, RpcError
from coupler.wire.outbox import LaneKey
from coupler.wire.peer import Peer

PASS_ARGUMENTS = frozenset({"coupler", "coupler-check", "toad", "zed"})
"""Names of clients whose terminals are known to pass the arguments of a command on unchanged."""

HONOUR_MESSAGE_IDS = frozenset({"coupler", "coupler-check", "zed"})
"""Names of clients that are known to show chunks with different `messageId`s as different messages."""


class Editor:
    """The client after `initialize`: its name, its capabilities, and typed requests to it."""

    def __init__(
        self,
        peer: Peer,
        capabilities: ClientCapabilities,
        info: Implementation | None,
        meta: Mapping[str, Any] | None = None,
    ) -> None:
        self.capabilities = capabilities
        self.info = info
        self.meta = meta
        """The `_meta` of its `initialize`."""
        self._peer = peer
        self.passes_arguments: bool | None = True if self.name in PASS_ARGUMENTS else None
        """True if its terminals pass arguments on unchanged; None until it is known."""
        self.terminal_probe = asyncio.Lock()
        """Held by whoever finds that out."""

    @property
    def name(self) -> str:
        """The client's name in lower case; empty if it has not told one."""
        return "" if self.info is None else self.info.name.casefold()

    @property
    def has_terminals(self) -> bool:
        """True if it offers terminals that are not known to change commands."""
        return self.offers("terminal") and self.passes_arguments is not False

    @property
    def honours_message_ids(self) -> bool:
        """True if it is known to tell messages apart by their ids."""
        return self.name in HONOUR_MESSAGE_IDS

    def offers(self, gate: str | None) -> bool:
        """Return whether a capability, such as `fs.readTextFile`, was advertised."""
        return offers(self.capabilities, gate)

    def tell(self, params: Any, lane: LaneKey) -> None:
        """Send the notification that these params belong to, unless the client has not advertised it."""
        method = method_for(type(params))
        if self.offers(method.gate):
            self._peer.notify(method.name, params, lane)

    async def call(self, params: Any, lane: LaneKey, deadline: float | UnsetType | None = UNSET) -> Any:
        """Send the request that these params belong to, and return its typed result.

        What the client did not advertise is never sent. Files and terminals have a deadline unless one is
        given, because clients exist that never answer; a dialog waits for its user.
        """
        method = self._offered(params)
        seconds = method.deadline if deadline is UNSET else deadline
        try:
            result = await self._peer.request(method.name, params, lane=lane, deadline=seconds)
        except RpcError as error:
            raise _refusal(error) from None
        return _typed(method, result)

    def ask(self, params: Any, lane: LaneKey, answered: Callable[[Any], None]) -> None:
        """Send a request at once, and do not withdraw it when its turn ends.

        `answered` gets the typed result or the EditorError, whenever it comes, if it comes.
        """
        method = self._offered(params)

        def deliver(answer: Raw | RpcError) -> None:
            try:
                result = _refusal(answer) if isinstance(answer, RpcError) else _typed(method, answer)
            except EditorError as error:
                result = error
            answered(result)

        self._peer.ask(method.name, params, deliver, lane)

    def _offered(self, params: Any) -> Method:
        method = method_for(type(params))
        if method.gate is not None and not self.offers(method.gate):
            message = f"the client does not offer {method.name} (capability {method.gate})"
            raise RpcError.because(NOT_OFFERED, message, method=method.name)
        return method


def _typed(method: Method, result: Raw) -> Any:
    try:
        return decode(method.result or type(None), result, "agent")
    except DecodingError as error:
        message = f"the client's answer to {method.name} does not fit: {error}"
        data = {"reason": INVALID_PARAMS.name, "path": error.path}
        raise EditorError(INVALID_PARAMS.code, message, data) from error


def _refusal(error: RpcError) -> EditorError:
    return EditorError(error.code, error.message, error.data)
