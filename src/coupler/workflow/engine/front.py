"""Who answers what a workflow asks: a terminal, an editor, or nobody."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from coupler.workflow.journal.happenings import Place
from coupler.workflow.language.definition import Input, Json

By = Literal["user", "option", "default", "timeout", "rule", "nobody"]


class Approval(msgspec.Struct, frozen=True):
    """A yes or a no, and whose."""

    approved: bool
    by: By


class Answer(msgspec.Struct, frozen=True):
    """What was answered, as text and as the value that it stands for, and by whom."""

    text: str
    value: Json
    by: Literal["user", "option", "default"]


class Front(Protocol):
    """All may raise `Parked`: nobody can answer now, and the run waits for somebody who can.

    Questions of branches that run beside each other come one at a time; that is the asker's concern.
    """

    async def approve(self, place: Place, question: str, default: bool | None) -> Approval:
        """Ask for a yes or no, for a step or for a tool call of its agent."""
        ...

    async def ask(self, place: Place, question: str, answer: Input) -> Answer:
        """Ask for text or a value; what does not fit is asked for again."""
        ...

    async def message(self, place: Place, reply: str) -> str | None:
        """The user's next message in a conversation, after the agent's reply; None leaves it."""
        ...
