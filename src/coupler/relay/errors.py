"""What the agent behind did not do, as the editor is told of it."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from coupler.agent.errors import AGENT_FAILED, AUTH_REQUIRED, AuthRequiredError
from coupler.client.errors import AgentError
from coupler.wire.messages import Reason, RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.relay.mirror import Mirror
    from coupler.relay.permission import Guard


def as_answer(error: AgentError, words: str) -> RpcError:
    """The answer to whoever waits: with the end of the agent's stderr, or with the way to log in."""
    if error.code == AUTH_REQUIRED.code:
        how = f"log in by one of the agent's methods, or run `coupler login {shlex.quote(words)}`"
        return AuthRequiredError(f"{error.message}; {how}")
    return RpcError.because(AGENT_FAILED, str(error))


# The relay's rows of the error table: why it did not do what the agent behind asked.


NOT_PERMITTED = Reason("not_permitted", -32603, "A rule, an earlier choice or the user does not permit it.")
NOT_IN_A_TURN = Reason("not_in_a_turn", -32600, "The editor can be asked only while a turn runs.")

REASONS = (NOT_PERMITTED, NOT_IN_A_TURN)


# What has another agent behind it: as much of it as what that agent asks for needs.
#
# A relayed session has one for all of its turns, a tool call that was delegated has one for itself.


class Behind(Protocol):
    """A session of ours, and the turn in which the agent behind it works."""

    session: Session
    turn: Turn | None
    mirror: Mirror | None
    guard: Guard
    editor_terminals: set[str]
    """The terminals that the editor has made for the agent behind, and that are not released."""

    def can_ask_editor(self, gate: str) -> bool:
        """Whether the editor offers something, and has heard of the session."""
        ...

    def editor_made(self, terminal_id: str) -> None:
        """The editor has made a terminal."""
        ...

    def show_output(self, terminal_id: str, text: str) -> None:
        """Show what was written in a terminal of ours, which the editor does not know."""
        ...
