"""Looks at the workflows of a session's directory: when the session begins, and again while it is open."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from coupler.runtime.threads import in_thread
from coupler.workflow.editor.shelf import Shelf, look_at, state_of

if TYPE_CHECKING:
    from coupler.agent.session import Session

log = logging.getLogger("coupler.workflow")

INTERVAL = 1.0
"""Seconds between two looks at the files, at least."""

REST = 10
"""How many times as long as a look the time is until the next one, at least."""

FIRST_LOOK = 0.5
"""Seconds that a new session waits for its commands, so that they come with it."""


class Lookout:
    """Of one session; `put_up` is told what there is, each time that it has changed."""

    def __init__(self, session: Session, put_up: Callable[[Session, Shelf], None]) -> None:
        self._session = session
        self._put_up = put_up
        self._is_known = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None

    async def begin(self) -> None:
        """Look, and go on with that; a first look that takes long is not waited for."""
        self._watching = asyncio.create_task(self._watch())
        with suppress(TimeoutError):
            async with asyncio.timeout(FIRST_LOOK):
                await self._is_known.wait()

    async def until_known(self) -> None:
        """Wait until there was a first look, however long that takes."""
        await self._is_known.wait()

    async def end(self) -> None:
        """Look no more."""
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait([self._watching])

    async def _watch(self) -> None:
        state = None
        while True:
            began = time.monotonic()
            try:
                found = await in_thread(lambda: state_of(self._session.cwd))
                if found != state:
                    state = found
                    self._put_up(self._session, await in_thread(lambda: look_at(self._session.cwd)))
            except Exception:
                log.exception("the workflows of a session could not be looked at")
            self._is_known.set()
            # A clone may have any number of files: looking at them must not keep a processor busy.
            await asyncio.sleep(max(INTERVAL, REST * (time.monotonic() - began)))
