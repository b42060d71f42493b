"""What an agent may do that works for another one: what the session allows its own agent, and no more.

Where it asks, the user sees who does. What it does through us without having asked is asked about as well,
unless rules, choices or the mode allow it: that the user has let it work is no word about what it does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coupler.client.rules import action_of
from coupler.relay.errors import NOT_PERMITTED
from coupler.relay.permission import REJECTING, Guard
from coupler.wire.messages import RpcError

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest
    from coupler.coder.delegation.denials import Denials
    from coupler.permission.action import Action
    from coupler.relay.errors import Behind
    from coupler.schema.v1 import PermissionToolCall


class DelegatedGuard(Guard):
    """Decides for one delegated task."""

    def __init__(self, behind: Behind, name: str, denials: Denials) -> None:
        super().__init__(behind)
        self._name = name
        self._denials = denials

    async def decide(self, request: PermissionRequest) -> str | None:
        if await self._denials.reason(action_of(request)) is None:
            return await super().decide(request)
        rejecting = {option.kind: option.option_id for option in reversed(request.options)}
        return next((rejecting[kind] for kind in REJECTING if kind in rejecting), None)

    async def require(self, action: Action, title: str) -> None:
        if (reason := await self._denials.reason(action)) is not None:
            raise RpcError.because(NOT_PERMITTED, f"not permitted: {reason}")
        if self.has_granted(action):
            return
        verdict = await self._relayed.session.project.permitting().judge(action)
        if verdict.decision == "deny":
            raise RpcError.because(NOT_PERMITTED, f"not permitted: {verdict.reason}")
        if verdict.decision == "ask":
            await self._ask(self._relayed.turn, action, f"{self._name}: {title}")

    def _as_asked(self, request: PermissionRequest) -> PermissionToolCall:
        asked = super()._as_asked(request)
        return msgspec.structs.replace(asked, title=f"{self._name}: {asked.title}")
