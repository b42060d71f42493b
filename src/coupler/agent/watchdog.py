"""Watches for agent code that blocks the event loop, and says where.

While it blocks nothing is read: no cancel, no other session, not even the client's leaving. So after a
second the log names file and line, and a process whose client is gone meanwhile ends. It watches only
while turns run; an idle agent is left asleep.
"""

from __future__ import annotations

import asyncio
import linecache
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from coupler.agent.departure import hung_up

log = logging.getLogger("coupler.agent")

PATIENCE = 1.0
"""Seconds without a sign of life after which code counts as blocking."""

INTERVAL = 0.25
"""Seconds between two looks."""

_NOT_THE_AGENT = (os.path.dirname(os.path.dirname(__file__)), os.path.dirname(os.__file__))


class Watchdog:
    """A thread that asks the loop for signs of life while `is_busy` says so."""

    def __init__(self, is_busy: Callable[[], bool], input_fd: int, client_left: Callable[[], None]) -> None:
        self._is_busy = is_busy
        self._input_fd = input_fd
        self._client_left = client_left
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._needed = threading.Event()
        self._sign = threading.Event()
        self._thread: threading.Thread | None = None

    def wake(self) -> None:
        """Something started that may block."""
        if self._needed.is_set():
            return
        self._needed.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="coupler-watchdog", daemon=True)
            self._thread.start()

    def _watch(self) -> None:
        pause = threading.Event()
        while self._needed.wait():
            self._sign.clear()
            try:
                self._loop.call_soon_threadsafe(self._give_sign)
            except RuntimeError:
                return  # the loop is closed
            self._wait_for_sign()
            pause.wait(INTERVAL)

    def _wait_for_sign(self) -> None:
        reported = has_left = False
        since = time.monotonic()
        while not self._sign.wait(INTERVAL):
            if not has_left and hung_up(self._input_fd):
                has_left = True
                self._client_left()
            if not reported and time.monotonic() - since >= PATIENCE:
                reported = True
                self._report()

    def _give_sign(self) -> None:
        if not self._is_busy():
            self._needed.clear()
        self._sign.set()

    def _report(self) -> None:
        frame = sys._current_frames().get(self._watched)
        if frame is not None:
            log.warning(
                "the agent's code blocks the event loop in %s; nothing else is served meanwhile "
                "(await something, or use asyncio.to_thread)",
                _place(frame),
            )


def _place(innermost: FrameType) -> str:
    """File and line of the agent's own code, as far as the stack shows any."""
    frame: FrameType | None = innermost
    while frame is not None and frame.f_code.co_filename.startswith(_NOT_THE_AGENT):
        frame = frame.f_back
    frame = frame or innermost
    name, line = frame.f_code.co_filename, frame.f_lineno
    return f"{name}:{line} ({frame.f_code.co_name}: {linecache.getline(name, line).strip()})"
