"""The run that a session has begun and not ended: it waits for the user, or was interrupted."""

from __future__ import annotations

from typing import Any

import msgspec


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
            return msgspec.convert(state, cls)
        except msgspec.ValidationError:
            return None
