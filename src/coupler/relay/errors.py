"""Defines the errors of a relay, and `RelayContext`, which requests of a relayed agent are served with."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Protocol

from coupler.agent.errors import AGENT_FAILED, AUTH_REQUIRED, AuthRequiredError
from coupler.client.errors import NOT_PERMITTED as NOT_PERMITTED
from coupler.client.errors import AgentError
from coupler.wire.messages import ErrorReason, RpcError

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.relay.mirror import TurnMirror
    from coupler.relay.permission import RelayPermissions

NOT_IN_A_TURN = ErrorReason("not_in_a_turn", -32600, "The editor can be asked only while a turn runs.")

REASONS = (NOT_PERMITTED, NOT_IN_A_TURN)


def as_answer(error: AgentError, words: str) -> RpcError:
    """Convert an error of the relayed agent: with the end of its stderr, or with the way to log in."""
    if error.code == AUTH_REQUIRED.code:
        how = f"log in by one of the agent's methods, or run `coupler login {shlex.quote(words)}`"
        return AuthRequiredError(f"{error.message}; {how}")
    return RpcError.because(AGENT_FAILED, str(error))


class RelayContext(Protocol):
    """The session and turn of ours in which a request of the relayed agent is served.

    A relayed session has one for all of its turns, a tool call that was delegated has one for itself.
    """

    session: Session
    turn: Turn | None
    mirror: TurnMirror | None
    guard: RelayPermissions
    editor_terminals: set[str]
    """The terminals that the editor has made for the relayed agent, and that are not released."""

    def can_ask_editor(self, gate: str) -> bool:
        """Return whether the editor offers something, and has heard of the session."""
        ...

    def editor_made(self, terminal_id: str) -> None:
        """Record a terminal that the editor has made."""
        ...

    def show_output(self, terminal_id: str, text: str) -> None:
        """Show the output of one of our terminals, which the editor does not know."""
        ...
