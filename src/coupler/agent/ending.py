"""How a process that serves an agent ends: on signals, on time, and with nothing left running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator

LAST_MOMENT = 1.9
"""Seconds after which the process ends even if its code does not let go."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_exits: list[threading.Timer] = []


def end_on_signals(ended: asyncio.Event) -> None:
    """Let SIGINT and SIGTERM do what the client's leaving does."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()

    def end(number: int, frame: object) -> None:
        # Python calls this even while agent code blocks the loop, which the loop's own handlers would not be.
        exit_soon()
        loop.call_soon_threadsafe(ended.set)

    for number in SIGNALS:
        signal.signal(number, end)


@contextlib.contextmanager
def own_signals() -> Iterator[None]:
    """Give the script its signals back afterwards."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handlers = [(number, signal.getsignal(number)) for number in SIGNALS]
    try:
        yield
    finally:
        for number, handler in handlers:
            if in_main_thread and handler is not None:
                signal.signal(number, handler)


def exit_soon(moment: float = LAST_MOMENT) -> None:
    """Make sure that the process ends, even if its code does not let go."""
    timer = threading.Timer(moment, os._exit, (0,))
    timer.daemon = True
    _exits.append(timer)
    timer.start()


def call_off_exit() -> None:
    """The process may go on after all."""
    for timer in _exits:
        timer.cancel()
    _exits.clear()


def leave(loop: asyncio.AbstractEventLoop) -> None:
    """Close the loop; if code of the agent still runs, end the process instead of waiting for it."""
    left_behind = asyncio.all_tasks(loop)
    for task in left_behind:
        task.cancel()
    if left_behind:
        _, left_behind = loop.run_until_complete(asyncio.wait(left_behind, timeout=0.1))
    others = [thread for thread in threading.enumerate() if not thread.daemon]
    if left_behind or len(others) > 1:
        logging.shutdown()
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError, AttributeError):
                stream.flush()
        os._exit(0)
    loop.close()
