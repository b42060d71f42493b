"""What can be watched from outside: one hook sees all of it, in the order in which it happened."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from coupler.client.policy import Decision
from coupler.client.reply import Reply
from coupler.events import Event, ToolCall
from coupler.schema.v1 import ContentBlock

log = logging.getLogger("coupler.client")

How: TypeAlias = Literal["new", "load", "resume", "fork"]


class SessionOpened(Struct, frozen=True):
    """A session is there. `reason` tells why it is not the one that was wanted."""

    session_id: str
    how: How
    reason: str | None = None


class PromptSent(Struct, frozen=True):
    """A prompt is on its way."""

    session_id: str
    content: tuple[ContentBlock, ...]


class Received(Struct, frozen=True):
    """The agent reported something. `late` says that it belongs to a turn that is over."""

    session_id: str
    event: Event
    late: bool = False


class ToolFinished(Struct, frozen=True):
    """A tool call has ended, once for each; `bridged` if it was a Python function of ours."""

    session_id: str
    call: ToolCall
    bridged: bool = False


class PermissionDecided(Struct, frozen=True):
    """Something that the agent asked for was decided."""

    session_id: str
    decision: Decision


class TurnFinished(Struct, frozen=True):
    """A turn is over; the error is there if it failed, with what had come."""

    session_id: str
    reply: Reply | None
    error: BaseException | None = None


class AgentEnded(Struct, frozen=True):
    """The agent's process is gone, and nobody had ended it."""

    message: str


Observation: TypeAlias = (
    SessionOpened | PromptSent | Received | ToolFinished | PermissionDecided | TurnFinished | AgentEnded
)

OnEvent: TypeAlias = Callable[[Observation], object]


class Observers:
    """Those who watch. One that fails is logged, and costs nobody else anything."""

    def __init__(self, *watching: OnEvent) -> None:
        self._watching = [*watching]

    def copy(self) -> Observers:
        """The same, to add others to."""
        return Observers(*self._watching)

    def __bool__(self) -> bool:
        return bool(self._watching)

    def add(self, observer: OnEvent) -> None:
        """Let another one watch, from now on."""
        self._watching.append(observer)

    def remove(self, observer: OnEvent) -> None:
        """Let it watch no more."""
        if observer in self._watching:
            self._watching.remove(observer)

    def notice(self, observation: Observation) -> None:
        """Tell all of them."""
        for observer in (*self._watching,):
            try:
                observer(observation)
            except (KeyboardInterrupt, SystemExit):
                raise
            except BaseException:
                # Whatever it is, such as the failure of a test: the messages behind this one are read.
                log.exception("an observer failed")
