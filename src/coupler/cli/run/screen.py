"""What shows a run while it goes on: it follows the log, and writes in a thread.

So neither a terminal that was stopped nor a pipe that nobody reads holds up the run, which goes on also when
nothing can be written any more.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from coupler.runtime.threads import in_thread
from coupler.workflow.journal.run_events import RunFinished, RunResumed

if TYPE_CHECKING:
    from coupler.workflow.journal.log import Log
    from coupler.workflow.journal.run_events import Logged

log = logging.getLogger("coupler.cli")

MOST_PENDING = 1_000
"""What happened and is not shown yet, before no more of it is read from the log."""


class Display(Protocol):
    """One way of showing; all of it runs in threads, one call at a time. May raise OSError."""

    pace: float | None
    """Seconds between two pictures; None: what happens is shown when it happens."""
    tells_texts: bool
    """Whether what agents say can be read in it."""
    recalls: bool
    """Whether it also shows what happened before the run was resumed."""

    def show(self, happened: Sequence[Logged]) -> None:
        """Something has happened, or it is time for another picture."""

    def clear(self) -> None:
        """Somebody is asked now."""

    def tell(self, hint: str) -> None:
        """Something for the person who looks on; called on the event loop, so it must not wait."""

    def finish(self, run: str, finished: RunFinished) -> None:
        """The run of this id is over, and all of it was shown."""


class Screen:
    """Keeps a display up to date, and lends the terminal to questions."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display
        self.tells_texts = display.tells_texts
        self.mask: Callable[[str], str] = str
        """Hides the run's secrets from whoever is asked something."""
        self._pace = display.pace
        self._recalls = display.recalls
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._pending: list[Logged] = []
        self._log: Log | None = None
        self._shown = 0
        self._is_over = False
        self.failure: OSError | None = None
        """Why what was shown could not be written, as on a full disk."""

    async def follow(self, log: Log, start: int) -> None:
        """Show what happens, until the run is over; `start` is the log's last entry when it began."""
        self._log = log
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            try:
                async for logged in log.follow():
                    if self._recalls or _is_new(logged, start):
                        await self._add(logged)
            finally:
                # Whatever ended it, nobody may wait for what will not be shown.
                async with self._changed:
                    self._is_over = True
                    self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Have the terminal for a question, once all is shown that led to it."""
        if self._log is not None:
            until = self._log.seq
            async with self._changed:
                await self._changed.wait_for(lambda: self._shown >= until or self._is_over)
        async with self._turn:
            await self._draw(lambda display: display.clear())
            yield

    async def finish(self, run: str, finished: RunFinished) -> None:
        """Show how it ended."""
        async with self._turn:
            await self._draw(lambda display: display.finish(run, finished))

    async def _add(self, logged: Logged) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._pending) < MOST_PENDING)
            self._pending.append(logged)
            self._changed.notify_all()

    async def _write(self) -> None:
        while not self._is_over or self._pending:
            await self._next_picture()
            async with self._turn:
                happened, self._pending = self._pending, []
                await self._draw(partial(_show, happened))
            async with self._changed:
                self._shown = happened[-1].seq if happened else self._shown
                self._changed.notify_all()

    async def _next_picture(self) -> None:
        async with self._changed:
            if self._pace is None:
                await self._changed.wait_for(lambda: self._pending or self._is_over)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace):
                    await self._changed.wait_for(lambda: self._is_over)

    async def _draw(self, draw: Callable[[Display], None]) -> None:
        display = self._display
        if display is None:
            return
        try:
            await in_thread(lambda: draw(display))
        except BrokenPipeError:
            # Nobody looks any more: the run has its own reasons to go on.
            self._display = None
        except OSError as error:
            self._display, self.failure = None, error
        except Exception:
            log.exception("the run is not shown any more, and goes on")
            self._display = None


def _show(happened: Sequence[Logged], display: Display) -> None:
    display.show(happened)


def _is_new(logged: Logged, start: int) -> bool:
    """Whether it happened since the run was started or resumed, which is told just before it goes on."""
    return logged.seq > start or (logged.seq > start - 2 and isinstance(logged.happening, RunResumed))
