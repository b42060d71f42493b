"""The run that a session has begun and not ended: it waits for the user, or was interrupted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

if TYPE_CHECKING:
    from coupler.agent.session import Session

KEY = "run"
"""The part of a session's state that it is kept in; other agents of the session have parts of their own."""


class UnfinishedRun(msgspec.Struct, frozen=True):
    """What a session remembers of its last run, as long as that can go on."""

    run: str
    given: str
    """How its workflow was named."""
    place: str | None = None
    """The step that waits for the user; None: it was cancelled, has failed, or its process died."""

    @classmethod
    def of(cls, state: Any) -> UnfinishedRun | None:
        """The run that a session's state tells of, if there is one."""
        try:
            return msgspec.convert(state.get(KEY) if isinstance(state, Mapping) else None, cls)
        except msgspec.ValidationError:
            return None


def remember(session: Session, unfinished: UnfinishedRun | None) -> None:
    """The session has this run to go on with, or none any more."""
    state = session.state if isinstance(session.state, Mapping) else {}
    others = {key: value for key, value in state.items() if key != KEY}
    run = {} if unfinished is None else {KEY: msgspec.to_builtins(unfinished)}
    session.state = {**others, **run} or None
