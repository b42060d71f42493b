"""How a process that serves an agent ends: on signals, on time, and with nothing left running."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Coroutine, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.runtime.process import Descendants

LAST_MOMENT = 1.9
"""Seconds after which the process ends even if its code does not let go."""

CHILDREN_GRACE = 0.5
"""Seconds between asking the agent's child processes to end and ending them, at most."""

THREADS_GRACE = 0.1
"""Seconds for asynchronous generators and idle worker threads to finish, each, at most."""

SIGNALS = (signal.SIGINT, signal.SIGTERM)

_exits: list[threading.Timer] = []
_before: Surroundings | None = None


class Surroundings:
    """The threads and child processes that were there before serving began: they are left alone."""

    def __init__(self, *, may_have_children: bool) -> None:
        self.threads = {*threading.enumerate()}
        self._children = _children_by_now() if may_have_children else set()

    def children_since(self) -> Descendants | None:
        """The processes that were started since, if there may be any."""
        if not _may_have_children():
            return None
        # Imported on use: most agents have none.
        from coupler.runtime.process import Descendants

        return Descendants(self._children | _resource_tracker())


def begin(*, may_have_children: bool) -> None:
    """Serving begins: what is started from now on ends with it."""
    global _before
    _before = Surroundings(may_have_children=may_have_children)


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
    """Make sure that the process ends, even if its code does not let go; its children end with it."""
    grace = min(CHILDREN_GRACE, moment)
    timer = threading.Timer(moment - grace, lambda: _exit_after(grace, timer.finished))
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
    is_finished = [
        loop.run_until_complete(_finishes(loop.shutdown_asyncgens())),
        # First the children: a worker may wait for one.
        loop.run_until_complete(_end_children()),
        loop.run_until_complete(_finishes(loop.shutdown_default_executor())),
    ]
    if left_behind or not all(is_finished) or _has_other_threads():
        _exit_now()
    loop.close()


async def _finishes(work: Coroutine[Any, Any, None]) -> bool:
    """Whether the work is done in time. It is not cancelled: Python 3.11 would wait for a stuck worker."""
    _, unfinished = await asyncio.wait([asyncio.ensure_future(work)], timeout=THREADS_GRACE)
    return not unfinished


async def _end_children() -> bool:
    children = _before.children_since() if _before is not None else None
    if children is None:
        return True
    children.terminate()
    try:
        async with asyncio.timeout(CHILDREN_GRACE):
            # No system call waits for the children of children.
            while children.alive():  # noqa: ASYNC110
                await asyncio.sleep(0.02)
    except TimeoutError:
        children.kill()
    return True


def _has_other_threads() -> bool:
    known = {threading.main_thread(), threading.current_thread()}
    if _before is not None:
        known |= _before.threads
    return any(not thread.daemon and thread not in known for thread in threading.enumerate())


def _exit_after(grace: float, called_off: threading.Event) -> None:
    children = None
    # Whatever goes wrong here, the process has to end.
    with contextlib.suppress(Exception):
        children = _before.children_since() if _before is not None else None
        if children is not None:
            children.terminate()
    if called_off.wait(grace):
        return
    with contextlib.suppress(Exception):
        if children is not None:
            children.kill()
    os._exit(0)


def _exit_now() -> None:
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError, AttributeError):
            stream.flush()
    os._exit(0)


def _children_by_now() -> set[int]:
    if not _may_have_children():
        return set()
    from coupler.runtime.process import children

    return children()


def _may_have_children() -> bool:
    """False if there is none for sure; asked first, because it costs next to nothing."""
    if sys.platform == "win32":
        return False
    if not hasattr(os, "waitid"):
        return True
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _resource_tracker() -> set[int]:
    """The helper process of `multiprocessing`: it cleans up after us, and ends when we are gone."""
    module = sys.modules.get("multiprocessing.resource_tracker")
    pid = getattr(getattr(module, "_resource_tracker", None), "_pid", None)
    return set() if pid is None else {pid}
