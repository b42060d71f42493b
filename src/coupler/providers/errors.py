"""The one error of this layer: what a program or a server failed to do, in words that say what to do next."""

from __future__ import annotations

from coupler.agent.errors import TurnFailedError

STDERR_SHOWN = 2000
"""Characters of the end of stderr that an error carries."""


class ProviderError(TurnFailedError):
    """A turn could not be answered; the session lives on."""

    def __init__(self, message: str, *, exit_code: int | None = None, stderr: str = "") -> None:
        tail = stderr.strip()[-STDERR_SHOWN:]
        quoted = f"{message}\nstderr: {tail}" if tail else message
        if exit_code is None:
            super().__init__(quoted)
        else:
            super().__init__(quoted, exitCode=exit_code)
