"""What a client can ask about logging in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from coupler.agent.blueprint import Blueprint
from coupler.schema import v1
from coupler.wire.peer import Request


class LoginCalls:
    """Answers `authenticate` and `logout`, for an agent that has logins."""

    def __init__(self, blueprint: Callable[[], Awaitable[Blueprint]]) -> None:
        self._blueprint = blueprint

    def receive(self, request: Request, params: v1.AuthenticateRequest | v1.LogoutRequest) -> None:
        """Answer a request."""
        if isinstance(params, v1.AuthenticateRequest):
            request.run(self._authenticate(params.method_id))
        else:
            request.run(self._log_out())

    async def _authenticate(self, method_id: str) -> v1.AuthenticateResponse:
        await (await self._blueprint()).logins.authenticate(method_id)
        return v1.AuthenticateResponse()

    async def _log_out(self) -> v1.LogoutResponse:
        await (await self._blueprint()).logins.log_out()
        return v1.LogoutResponse()
