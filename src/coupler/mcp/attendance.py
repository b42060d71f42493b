"""Who is with a call while a server works on it: hears how far it is, and answers what the server asks.

A server that asks says for which call only in newer versions of MCP; in older ones it is taken to mean the
call that began last. While somebody is asked, the server's time stands still.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal, Protocol

from msgspec import Struct


class Reply(Struct, frozen=True):
    """What became of a question."""

    action: Literal["accept", "decline", "cancel"]
    content: dict[str, Any] | None = None
    """The values of the form's fields, if it was filled in."""


class Attendant(Protocol):
    """Who is with one call."""

    async def hear_progress(self, progress: float, total: float | None, message: str | None) -> None:
        """The server tells how far it is."""

    async def ask(self, message: str, schema: dict[str, Any]) -> Reply:
        """The server asks for the fields of a form, a flat JSON Schema."""

    async def ask_url(self, message: str, url: str) -> Reply:
        """The server asks to have a page opened."""


class Attended:
    """One running call, with who attends it and how long it may take."""

    def __init__(self, attendant: Attendant) -> None:
        self.attendant = attendant
        self.limit: asyncio.Timeout | None = None
        self._asking: set[asyncio.Task[Reply]] = set()

    async def asked(self, question: Coroutine[Any, Any, Reply]) -> Reply:
        """Ask something that ends with the call at the latest; it is cancelled then."""
        task = asyncio.get_running_loop().create_task(question)
        self._asking.add(task)
        try:
            with self.paused():
                return await task
        except asyncio.CancelledError:
            asker = asyncio.current_task()
            if asker is not None and asker.cancelling():
                raise
            return Reply("cancel")
        finally:
            task.cancel()
            self._asking.discard(task)

    async def end(self) -> None:
        """The call has ended: take back what is still asked, before anybody learns of the end."""
        for task in self._asking:
            task.cancel()
        if self._asking:
            await asyncio.wait(self._asking)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """The time that a person takes is not the server's."""
        limit = self.limit
        ends = limit.when() if limit is not None and not limit.expired() else None
        if limit is None or ends is None:
            yield
            return
        now = asyncio.get_running_loop().time
        left = ends - now()
        limit.reschedule(None)
        try:
            yield
        finally:
            if not limit.expired():
                limit.reschedule(now() + left)
