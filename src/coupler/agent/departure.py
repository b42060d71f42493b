"""The client's leaving, noticed while an import keeps the event loop from reading.

Who pipes a file in and closes the pipe still wants the answers, so an unanswered request is waited for, but
not for ever. If nobody waits for anything, the import is not worth finishing.
"""

from __future__ import annotations

import contextlib
import select
import threading
from collections.abc import Callable, Iterator

INTERVAL = 0.25
"""Seconds between two looks."""

_READABLE = getattr(select, "POLLIN", 0)


@contextlib.contextmanager
def watched_for(read_fd: int, client_left: Callable[[], None]) -> Iterator[None]:
    """Call `client_left`, in a thread, if the client leaves in here."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(INTERVAL):
            if hung_up(read_fd):
                client_left()
                return

    threading.Thread(target=watch, name="coupler-departure", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def hung_up(fd: int) -> bool:
    """Whether the other side of a pipe has closed it."""
    return bool(_events(fd) & ~_READABLE)


def has_input(fd: int) -> bool:
    """Whether there is something to read before the end."""
    return bool(_events(fd) & _READABLE)


def _events(fd: int) -> int:
    if not hasattr(select, "poll"):
        return 0
    poll = select.poll()
    poll.register(fd, _READABLE)
    return sum(event for _, event in poll.poll(0))
