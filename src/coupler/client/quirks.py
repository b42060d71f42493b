"""What is particular about an agent: one small protocol, so that no other code names an agent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from coupler.client.reply import Reply


class Quirks(Protocol):
    """How to take one agent. Derive from `Usual` and change what differs."""

    linger: float
    """Seconds of silence to wait for after a turn's answer, for agents that send content late; mostly 0."""

    def model_for(self, wanted: str, offered: Sequence[str]) -> str | None:
        """The offered model that is meant; None if there is none."""

    def may_refuse_mode(self, mode: str) -> bool:
        """Whether a refused mode is worth a warning and no error."""

    def is_failure(self, reply: Reply) -> bool:
        """Whether a turn that ended well has failed all the same, as with an empty answer."""


class Usual:
    """An agent that keeps to the protocol."""

    linger: float = 0.0

    def model_for(self, wanted: str, offered: Sequence[str]) -> str | None:
        return wanted if wanted in offered else None

    def may_refuse_mode(self, mode: str) -> bool:
        return False

    def is_failure(self, reply: Reply) -> bool:
        return False


class FailsEmpty(Usual):
    """An agent that hides its failures behind an empty answer, as many do whose model was not reached."""

    def is_failure(self, reply: Reply) -> bool:
        return reply.is_complete and reply.is_empty
