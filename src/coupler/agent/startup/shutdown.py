"""Ends a process that serves an agent: on signals, in time, and with nothing left running.

It also detects a client that has left, or code that hangs, while the event loop is blocked and cannot read.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import linecache
import logging
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.runtime.process import Descendants

EXIT_DEADLINE = 1.9
"""Seconds after which the process ends even if its code does not let go."""

CHILDREN_GRACE = 0.5
"""Seconds between asking the agent's child processes to end and ending them, at most."""

THREADS_GRACE = 0.1
"""Seconds for asynchronous generators and idle worker threads to finish, each, at most."""

_exits: list[threading.Timer] = []
_before: ProcessBaseline | None = None

HANGUP_POLL_INTERVAL = 0.25
"""Seconds between two checks whether stdin was closed."""

_READABLE = getattr(select, "POLLIN", 0)

log = logging.getLogger("coupler.agent")

BLOCKING_LIMIT = 1.0
"""Seconds without an answer of the event loop after which code counts as blocking."""

WATCHDOG_INTERVAL = 0.25
"""Seconds between two checks of the watchdog."""

_NOT_THE_AGENT = (os.path.dirname(os.path.dirname(os.path.dirname(__file__))), os.path.dirname(os.__file__))


class ProcessBaseline:
    """The threads and child processes from before serving began, which are left alone at the end."""

    def __init__(self, *, may_have_children: bool) -> None:
        self.threads = {*threading.enumerate()}
        self._children = _children_by_now() if may_have_children else set()

    def children_since(self) -> Descendants | None:
        """Return the processes that were started since, or None if there are certainly none."""
        if not _may_have_children():
            return None
        # Imported on use: most agents have none.
        from coupler.runtime.process import Descendants

        return Descendants(self._children | _resource_tracker())


def record_baseline(*, may_have_children: bool) -> None:
    """Record the threads and children of this moment: what is started from now on ends with serving."""
    global _before
    _before = ProcessBaseline(may_have_children=may_have_children)


def ending_signals() -> list[signal.Signals]:
    """Return the signals that end a program in order: SIGHUP, too, but not under nohup, which ignores it."""
    ending = [signal.SIGINT, signal.SIGTERM]
    if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        ending.append(signal.SIGHUP)
    return ending


def end_on_signals(ended: asyncio.Event) -> None:
    """Let SIGINT, SIGTERM and SIGHUP end serving as a closed stdin does."""
    if threading.current_thread() is not threading.main_thread():
        return
    loop = asyncio.get_running_loop()

    def end(number: int, frame: object) -> None:
        # Python calls this even while agent code blocks the loop, which the loop's own handlers would not be.
        exit_soon()
        loop.call_soon_threadsafe(ended.set)

    for number in ending_signals():
        signal.signal(number, end)


@contextlib.contextmanager
def signals_restored() -> Iterator[None]:
    """Restore the script's signal handlers afterwards."""
    in_main_thread = threading.current_thread() is threading.main_thread()
    handlers = [(number, signal.getsignal(number)) for number in ending_signals()]
    try:
        yield
    finally:
        for number, handler in handlers:
            if in_main_thread and handler is not None:
                signal.signal(number, handler)


def exit_soon(moment: float = EXIT_DEADLINE) -> None:
    """End the process and its children after this time, even if its code does not let go."""
    grace = min(CHILDREN_GRACE, moment)
    timer = threading.Timer(moment - grace, lambda: _exit_after(grace, timer.finished))
    timer.daemon = True
    _exits.append(timer)
    timer.start()


def cancel_exit() -> None:
    """Cancel `exit_soon`: the process may go on after all."""
    for timer in _exits:
        timer.cancel()
    _exits.clear()


def close_loop(loop: asyncio.AbstractEventLoop) -> None:
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


def exit_without_collection() -> None:
    """Let the interpreter end without looking for cycles in all objects of a program with large imports.

    Exit handlers run, threads are joined, and what the globals of modules hold is freed as ever; what only
    cycles hold is left to the operating system. So this is for code that has closed its files by then.
    """
    gc.freeze()
    gc.disable()


async def _finishes(work: Coroutine[Any, Any, None]) -> bool:
    """Return whether the work ends in time, without a cancel: Python 3.11 would wait for a stuck worker."""
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
    from coupler.runtime.process import child_pids

    return child_pids()


def _may_have_children() -> bool:
    """Return False if there are certainly no child processes; a cheap check to do first."""
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


@contextlib.contextmanager
def watch_for_hangup(read_fd: int, client_left: Callable[[], None]) -> Iterator[None]:
    """Detect a closed stdin while a slow import blocks the event loop: a thread calls `client_left`.

    Who pipes a file in and closes the pipe still wants the answers, so an unanswered request is waited for,
    but not for ever. If nobody waits for anything, the import is not worth finishing.
    """
    over = threading.Event()

    def watch() -> None:
        while not over.wait(HANGUP_POLL_INTERVAL):
            if hung_up(read_fd):
                client_left()
                return

    threading.Thread(target=watch, name="coupler-stdin-watch", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def hung_up(fd: int) -> bool:
    """Return whether the other side of a pipe has closed it."""
    return bool(_events(fd) & ~_READABLE)


def has_input(fd: int) -> bool:
    """Return whether there is something to read before the end."""
    return bool(_events(fd) & _READABLE)


def _events(fd: int) -> int:
    if not hasattr(select, "poll"):
        return 0
    poll = select.poll()
    poll.register(fd, _READABLE)
    return sum(event for _, event in poll.poll(0))


class Watchdog:
    """Logs where agent code blocks the event loop, and ends a process whose client leaves meanwhile.

    While code blocks, nothing is read: no cancel, no other session, not even the client's leaving. So a
    thread asks the loop for signs of life while `is_busy` says so, and after a second without one the log
    names file and line. It watches only while turns run; an idle agent is left asleep.
    """

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
        """Start to watch, because a turn began that may block."""
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
            pause.wait(WATCHDOG_INTERVAL)

    def _wait_for_sign(self) -> None:
        reported = has_left = False
        since = time.monotonic()
        while not self._sign.wait(WATCHDOG_INTERVAL):
            if not has_left and hung_up(self._input_fd):
                has_left = True
                self._client_left()
            if not reported and time.monotonic() - since >= BLOCKING_LIMIT:
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
