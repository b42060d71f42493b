"""The thread that does what the event loop must not wait for, with a connection of its own."""

from __future__ import annotations

import heapq
import logging
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from itertools import count
from typing import Any, NamedTuple, TypeVar

log = logging.getLogger("coupler.store")

T = TypeVar("T")
DatabaseWork = Callable[[sqlite3.Connection], T]


class _Job(NamedTuple):
    work: DatabaseWork[Any]
    future: Future[Any]
    is_chore: bool


class StoreThread:
    """One daemon thread with a connection of its own, started by the first job.

    It does patiently, one after the other, what cannot be done at once on the event loop. Chores
    (checkpoints, purges) wait until nothing else does, and are left undone or broken off at the end.
    """

    def __init__(self, connect: Callable[[], sqlite3.Connection], name: str = "coupler-store") -> None:
        self._connect = connect
        self._name = name
        self._changed = threading.Condition()
        self._jobs: deque[_Job] = deque()
        self._chores: list[tuple[float, int, _Job]] = []
        self._numbers = count()
        self._unfinished = 0
        self._is_at_chore = False
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self._connection: sqlite3.Connection | None = None

    @property
    def has_work(self) -> bool:
        """True if a job waits or runs; chores do not count, because nothing depends on their order."""
        return self._unfinished > 0

    def submit(self, work: DatabaseWork[T], *, chore: bool = False, after: float = 0.0) -> Future[T]:
        """Do this after everything that was submitted before; a chore not before so many seconds."""
        future: Future[T] = Future()
        with self._changed:
            if self._is_closed:
                if not chore:
                    raise RuntimeError("the store is closed")
                future.cancel()
                return future
            if chore:
                due_at = time.monotonic() + after
                heapq.heappush(self._chores, (due_at, next(self._numbers), _Job(work, future, True)))
            else:
                self._jobs.append(_Job(work, future, False))
                self._unfinished += 1
            self._changed.notify()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
                self._thread.start()
        return future

    def reconnect(self) -> sqlite3.Connection:
        """Use another connection from now on, also if it cannot be made yet; on the thread itself."""
        self._connection = None
        self._connection = self._connect()
        return self._connection

    def close(self, patience: float) -> None:
        """Finish the jobs, for so many seconds; a thread that is stuck ends with the process."""
        with self._changed:
            self._is_closed = True
            chores = list(self._chores)
            self._chores.clear()
            if self._is_at_chore and self._connection is not None:
                self._connection.interrupt()
            self._changed.notify()
        for _, _, chore in chores:
            chore.future.cancel()
        if self._thread is not None:
            self._thread.join(patience)
            if self._thread.is_alive():
                log.warning("the database is still busy: what was not yet written is lost")

    def _run(self) -> None:
        while (job := self._next()) is not None:
            self._do(job)
            # A job may hold megabytes, and the next one may be long in coming.
            del job
        if self._connection is not None:
            # Ends the interruption of a chore, which would also keep the log from being folded now.
            self._connection.execute("SELECT 1").fetchone()
            self._connection.close()

    def _do(self, job: _Job) -> None:
        if not job.future.set_running_or_notify_cancel():
            self._finish(job)
            return
        try:
            if self._connection is None:
                self._connection = self._connect()
            result = job.work(self._connection)
        except BaseException as error:
            self._finish(job)
            job.future.set_exception(error)
        else:
            self._finish(job)
            job.future.set_result(result)

    def _next(self) -> _Job | None:
        with self._changed:
            self._is_at_chore = False
            while True:
                if self._jobs:
                    return self._jobs.popleft()
                if self._is_closed:
                    return None
                rest = self._chores[0][0] - time.monotonic() if self._chores else None
                if rest is not None and rest <= 0:
                    self._is_at_chore = True
                    return heapq.heappop(self._chores)[2]
                self._changed.wait(rest)

    def _finish(self, job: _Job) -> None:
        """Count the job as done before its result is delivered: the receiver may write at once again."""
        if not job.is_chore:
            with self._changed:
                self._unfinished -= 1
