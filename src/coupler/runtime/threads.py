"""Runs blocking work in threads, coroutines for threads, and backports `asyncio.timeout`."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import threading
import time
from asyncio import timeouts
from collections import deque
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")


MOST_AT_ONCE = 4
"""Threads that do blocking work at once while they get on: each takes time from the event loop."""

STUCK_SECONDS = 0.1
"""Time in which no work was done after which those who wait get threads of their own."""


async def in_thread(work: Callable[[], T]) -> T:
    """Run `work` in a thread; what it returns or raises comes back here.

    Few threads do much work. A disk that hangs still costs only who waits for it: there is no pool that could
    run out of threads, and Python's end waits for none of them. Cancelled, nobody waits for the work any
    more, but it goes on.
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

    if not _threads.begin(run):
        while not (await asyncio.wait([done], timeout=STUCK_SECONDS))[0]:
            _threads.add_if_stuck()
    return await done


class _BlockingThreads:
    """The threads that do blocking work; each ends when nothing is left to do."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._running = 0
        self._waiting: deque[Callable[[], None]] = deque()
        self._done_at = 0.0

    def begin(self, work: Callable[[], None]) -> bool:
        """Do the work now or later; returns True if it is done now."""
        with self._changing:
            if self._running >= MOST_AT_ONCE:
                self._waiting.append(work)
                return False
            self._start(work)
            return True

    def add_if_stuck(self) -> None:
        """Start another thread if something waits and nothing was done for a while."""
        with self._changing:
            if self._waiting and time.monotonic() - self._done_at >= STUCK_SECONDS:
                self._start(self._waiting.popleft())

    def _start(self, work: Callable[[], None]) -> None:
        threading.Thread(target=self._run, args=(work,), name="coupler-blocking", daemon=True).start()
        self._running += 1

    def _run(self, work: Callable[[], None]) -> None:
        following: Callable[[], None] | None = work
        while following is not None:
            following()
            with self._changing:
                self._done_at = time.monotonic()
                following = self._waiting.popleft() if self._waiting else None
                self._running -= following is None


_threads = _BlockingThreads()


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
