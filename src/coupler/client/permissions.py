"""`session/request_permission`: what an agent wants to do, decided by the session's policy."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec.structs import replace

from coupler.client.policy import Decision, PermissionRequest
from coupler.events import ToolCall
from coupler.events.v1_codec import patch_of
from coupler.schema.v1 import (
    CancelledPermissionOutcome,
    RequestPermissionRequest,
    RequestPermissionResponse,
)
from coupler.wire.peer import Request

if TYPE_CHECKING:
    from coupler.client.session import RemoteSession

WITHDRAWN = RequestPermissionResponse(CancelledPermissionOutcome())


class Permissions:
    """Asks the session's policy, and answers; a cancel answers first."""

    params = RequestPermissionRequest

    def requested(
        self, request: Request, params: RequestPermissionRequest, session: RemoteSession | None
    ) -> None:
        assert session is not None  # the parameters name one
        if session.is_cancelled or session.has_ended:
            request.answer(WITHDRAWN)
            return
        call = session.tool_calls.get(
            params.tool_call.tool_call_id, ToolCall(id=params.tool_call.tool_call_id)
        )
        question = PermissionRequest(
            call.updated(patch_of(params.tool_call)), tuple(params.options), session.cwd, session.roots
        )
        session.questions.ask(
            request, lambda: _decided(session, question), WITHDRAWN, "the permission policy"
        )


async def _decided(session: RemoteSession, question: PermissionRequest) -> RequestPermissionResponse:
    outcome = await session.policy.answer(question)
    decision = Decision.of(question, outcome)
    if not decision.is_allowed:
        decision = replace(decision, remedy=await session.policy.remedy(question))
    session.permission_answered(decision)
    return RequestPermissionResponse(outcome)
