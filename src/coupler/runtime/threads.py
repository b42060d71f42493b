"""Runs blocking work in threads, coroutines for threads, and backports `asyncio.timeout`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
from asyncio import timeouts
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread of its own; what it returns or raises comes back here.

    A disk that hangs costs only who waits for it: there is no pool that could run out of threads, and
    Python's end waits for none of them. Cancelled, nobody waits for the work any more, but it goes on.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[T] = loop.create_future()

    def settle(result: T) -> None:
        if not done.done():
            done.set_result(result)

    def fail(error: Exception) -> None:
        if not done.done():
            done.set_exception(error)

    def run() -> None:
        # The loop may be closed by the time the work is done: nobody is left to tell.
        with contextlib.suppress(RuntimeError):
            try:
                result = work()
            except Exception as error:
                loop.call_soon_threadsafe(fail, error)
            else:
                loop.call_soon_threadsafe(settle, result)

    threading.Thread(target=run, name="coupler-blocking", daemon=True).start()
    return await done


class WorkerLoop:
    """The connection's event loop, for a thread that runs an agent's plain function.

    It runs things on the loop, and knows everything that the thread waits for.
    """

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


class BlockingProxy:
    """Base of blocking objects: runs coroutines on the connection's loop and waits for them."""

    def __init__(self, loop: WorkerLoop) -> None:
        self._loop = loop

    def _wait(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.wait_for(work)


class Timeout(timeouts.Timeout):  # type: ignore[misc]  # final for those who would change what it does
    """Backports `asyncio.timeout` of later releases to the first ones of Python 3.11.

    There a timeout that runs out in a task which was cancelled before is taken for another cancel. Whoever
    cleans up after a cancel, and takes some seconds for it, is then cut short: commands are killed without
    their grace.
    """

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


def install_timeout_backport() -> None:
    """Make `asyncio.timeout` use `Timeout`.

    Connections and child processes call it where it is needed; later releases never import this.
    """
    timeouts.Timeout = Timeout  # type: ignore[misc]
