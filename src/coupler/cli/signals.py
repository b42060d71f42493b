"""Signals that ask a command to end, heard in its event loop."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import sys
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def signals_heard(hear: Callable[[int], object], *, most: int | None = None) -> Iterator[None]:
    """Hear Ctrl-C, SIGTERM, and that the terminal was closed, unless nohup keeps that away.

    From the `most`-th on they raise KeyboardInterrupt wherever the program stands: one that does not get to
    its loop any more ends all the same.
    """
    loop = asyncio.get_running_loop()
    seen = 0

    def count(number: int, frame: FrameType | None) -> None:
        nonlocal seen
        seen += 1
        if most is not None and seen >= most:
            # What breaks off now does so because it was told to: nobody wants to read where.
            loop.set_exception_handler(lambda loop, context: None)
            raise KeyboardInterrupt
        if sys.platform == "win32":
            loop.call_soon_threadsafe(hear, number)

    before = {number: signal.getsignal(number) for number in _heard()}
    for number in before:
        if sys.platform != "win32":
            # It is the loop that must be woken: a signal may reach another thread, while the loop sleeps.
            loop.add_signal_handler(number, hear, number)
        signal.signal(number, count)
    try:
        yield
    finally:
        for number, receiver in before.items():
            if sys.platform != "win32":
                loop.remove_signal_handler(number)
            signal.signal(number, receiver)


def _heard() -> list[signal.Signals]:
    heard = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        heard.append(signal.SIGHUP)
    return heard
