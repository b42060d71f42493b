"""Questions of the agent behind to the user, for editors that can show them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec
from msgspec import UNSET

from coupler.client.elicitation import MOST_PAGES
from coupler.client.responder import Listener, Responder
from coupler.relay.reasons import NOT_IN_A_TURN
from coupler.schema.v1 import (
    CancelElicitationResponse,
    CompleteElicitationNotification,
    CreateElicitationRequest,
    CreateElicitationResponse,
    CreateFormElicitationRequest,
    CreateUrlElicitationRequest,
)
from coupler.wire.messages import INVALID_PARAMS, RpcError
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession
    from coupler.relay.behind import Behind

CANCELLED = CancelElicitationResponse()


class RelayedQuestions:
    """Passes on what is asked, and that a page has done what it was opened for."""

    params = CreateElicitationRequest

    def __init__(self, find: Callable[[str], Behind | None]) -> None:
        self._find = find
        self._pages: dict[str, Behind] = {}

    def responders(self) -> dict[str, Responder | Listener]:
        """Who answers, and who hears of completed pages."""
        return {
            "elicitation/create": self,
            "elicitation/complete": Listener(CompleteElicitationNotification, self._complete),
        }

    def requested(
        self, request: Request, params: CreateElicitationRequest, session: RemoteSession | None
    ) -> None:
        relayed = self._find(session.id) if session is not None else None
        if session is None or relayed is None or relayed.turn is None:
            raise RpcError.because(NOT_IN_A_TURN, "the user can be asked only in a turn of a session")
        if not isinstance(params, CreateFormElicitationRequest | CreateUrlElicitationRequest):
            raise RpcError.because(INVALID_PARAMS, "mode: expected 'form' or 'url'", path="mode")
        asked = params
        session.questions.ask(request, lambda: self._passed_on(asked, relayed), CANCELLED, "the editor")

    async def _passed_on(
        self, asked: CreateFormElicitationRequest | CreateUrlElicitationRequest, relayed: Behind
    ) -> CreateElicitationResponse:
        turn, mirror = relayed.turn, relayed.mirror
        if turn is None or mirror is None:
            return CANCELLED
        mirror.flush()
        call_id = mirror.known(asked.tool_call_id) if isinstance(asked.tool_call_id, str) else None
        ours = msgspec.structs.replace(
            asked, session_id=relayed.session.id, tool_call_id=call_id or UNSET, request_id=UNSET
        )
        if isinstance(asked, CreateUrlElicitationRequest):
            self._pages[asked.elicitation_id] = relayed
            if len(self._pages) > MOST_PAGES:
                del self._pages[next(iter(self._pages))]
        response: CreateElicitationResponse = await turn.call_editor(ours)
        return response

    def _complete(self, notification: CompleteElicitationNotification) -> None:
        relayed = self._pages.pop(notification.elicitation_id, None)
        if relayed is not None:
            relayed.session.editor.tell(notification, relayed.session.id)
