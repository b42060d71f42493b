"""The connection's event loop, as a thread that runs an agent's plain function sees it."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class WorkerLoop:
    """Runs things on the loop, and knows everything that the thread waits for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: set[asyncio.Task[Any]] = set()

    def call_soon(self, callback: Callable[..., object], *arguments: Any) -> None:
        # Once the loop is closed nobody is left to be told.
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback, *arguments)

    def call_later(self, seconds: float, callback: Callable[[], None]) -> None:
        self.call_soon(self._loop.call_later, seconds, callback)

    def wait_for(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the work on the loop; blocks until it is done."""
        tracked = self._tracked(work)
        try:
            future = asyncio.run_coroutine_threadsafe(tracked, self._loop)
        except RuntimeError:
            tracked.close()
            work.close()
            raise asyncio.CancelledError("the connection has ended") from None
        try:
            return future.result()
        except concurrent.futures.CancelledError:
            raise asyncio.CancelledError("the turn was cancelled") from None

    async def stop_waiting(self) -> None:
        """Cancel what the thread still waits for: an open dialog must not outlive its turn."""
        while self._awaited:
            for task in self._awaited:
                task.cancel()
            await asyncio.wait(self._awaited)

    async def _tracked(self, work: Coroutine[Any, Any, T]) -> T:
        task = asyncio.current_task()
        assert task is not None
        self._awaited.add(task)
        task.add_done_callback(self._awaited.discard)
        return await work


class OnLoop:
    """Runs coroutines on the connection's loop and waits for them."""

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait_for(work)
