"""Logging in to the agent behind: its methods are ours, and it alone knows whether somebody is."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from coupler.agent.auth import Logins
from coupler.agent.errors import AuthRequiredError
from coupler.client.errors import AgentError
from coupler.relay.errors import as_answer
from coupler.schema.v1 import AuthMethod, AuthMethodAgent, AuthMethodTerminal

if TYPE_CHECKING:
    from coupler.relay.relay import Relay

LOGIN_VARIABLE = "COUPLER_RELAY_LOGIN"
"""Set for a login in a terminal: the agent's command is then run itself, and nothing is served."""

BY_NAME = "by name"
"""What it is set to if the first word of the command may be a name of the catalogue, and not a program."""


class RelayedLogins(Logins):
    """Passes on. Whether it is needed the agent says when it is asked for a session."""

    def __init__(self, relay: Relay) -> None:
        super().__init__(())
        self._relay = relay

    async def authenticate(self, method_id: str) -> None:
        await self._relay.started()
        try:
            await self._relay.remote.authenticate(method_id)
        except AgentError as error:
            raise AuthRequiredError(f"logging in failed: {error}") from None

    async def log_out(self) -> None:
        await self._relay.started()
        try:
            await self._relay.remote.logout()
        except AgentError as error:
            raise as_answer(error, self._relay.words) from None


def relayed_method(method: AuthMethod, words: str) -> AuthMethod | None:
    """A way to log in, as the editor is told of it; None for one that this version does not know.

    Who logs in in a terminal runs our command, which ends with the `words`, with the method's own behind it.
    """
    match method:
        case AuthMethodTerminal(env=env):
            how = BY_NAME if len(words.split()) == 1 else "1"
            return msgspec.structs.replace(method, env={**(env or {}), LOGIN_VARIABLE: how})
        case AuthMethodAgent():
            return method
        case _:
            return None
