"""`asyncio.timeout` in the first releases of Python 3.11, as it is in all later ones.

There a timeout that runs out in a task which was cancelled before is taken for another cancel. Whoever cleans
up after a cancel, and takes some seconds for it, is then cut short: commands are killed without their grace.
Connections and child processes install it where it is needed; later releases never import it.
"""

from __future__ import annotations

import asyncio
from asyncio import timeouts
from types import TracebackType


class Timeout(timeouts.Timeout):  # type: ignore[misc]  # final for those who would change what it does
    """Runs out with a TimeoutError, however often its task was cancelled before."""

    async def __aenter__(self) -> Timeout:
        task = asyncio.current_task()
        self._cancels_before = 0 if task is None else task.cancelling()
        await super().__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await super().__aexit__(kind, error, traceback)
        task = asyncio.current_task()
        is_cut_short = self.expired() and kind is asyncio.CancelledError
        if is_cut_short and task is not None and task.cancelling() <= self._cancels_before:
            raise TimeoutError from error


def install() -> None:
    """Let `asyncio.timeout` make these."""
    timeouts.Timeout = Timeout  # type: ignore[misc]
