"""What the agent behind did not do, as the editor is told of it."""

from __future__ import annotations

import shlex

from coupler.agent.errors import AGENT_FAILED, AUTH_REQUIRED, AuthRequiredError
from coupler.client.errors import AgentError
from coupler.wire.messages import RpcError


def as_answer(error: AgentError, words: str) -> RpcError:
    """The answer to whoever waits: with the end of the agent's stderr, or with the way to log in."""
    if error.code == AUTH_REQUIRED.code:
        how = f"log in by one of the agent's methods, or run `coupler login {shlex.quote(words)}`"
        return AuthRequiredError(f"{error.message}; {how}")
    return RpcError.because(AGENT_FAILED, str(error))
