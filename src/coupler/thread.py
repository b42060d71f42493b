"""Work that may block, in a thread of its own.

A disk that hangs costs who waits for it and nobody else: there is no pool that could run out of threads, and
Python's end waits for none of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


async def in_thread(work: Callable[[], T]) -> T:
    """What `work` returns or raises. Cancelled, nobody waits for it any more, but it goes on."""
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
