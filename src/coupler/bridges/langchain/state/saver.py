"""Where graphs without a checkpointer of their own keep their threads: one SQLite file for all sessions.

It lies beside the store of the sessions, and like it is the user's alone. A thread grows by the whole state
with every step; what no turn has ended at is removed when the next turn begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import Iterator
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from coupler.agent.session import configuration_of
from coupler.agent.startup.serve_options import NO_STORE
from coupler.bridges.langchain.state.saver_in_threads import SaverInThreads, Work
from coupler.bridges.langchain.state.serializer import Serializer
from coupler.config import keys
from coupler.runtime.directories import store_file
from coupler.store.database import StoreThread, make_private_directory
from coupler.store.errors import translated

if TYPE_CHECKING:
    from langgraph.checkpoint.base import BaseCheckpointSaver

T = TypeVar("T")

IN_MEMORY = ":memory:"

SUFFIX = ".langgraph"
"""What the file is called after the store's."""

BUSY = 5.0
"""Seconds to wait for another process that writes."""

PATIENCE = 2 * BUSY
"""Seconds to wait for the thread when the file is closed."""


class Saver(SaverInThreads):
    """LangGraph's own, with what sessions need: threads that are copied, and that do not grow for ever.

    All sessions use one connection, in a thread of its own: what was begun there is done to its end, whoever
    is cancelled meanwhile, and it can be waited for by any loop, and by code that has none.
    What goes wrong with the file is told in words that help, as of the store.
    """

    def __init__(self, path: str) -> None:
        self._serializer = Serializer()
        # Its connection is made in the thread.
        self._file = SqliteSaver(None, serde=self._serializer)  # type: ignore[arg-type]
        super().__init__(self._file)
        self._path = path
        self._thread = StoreThread(self._connect, "coupler-saver")

    async def close(self) -> None:
        """Close the file when all is done."""
        await asyncio.to_thread(self._thread.close, PATIENCE)

    def do(self, work: Work[T]) -> T:
        with _in_words(self._path):
            return self._submit(work).result()

    async def do_aside(self, work: Work[T]) -> T:
        with _in_words(self._path):
            return await asyncio.wrap_future(self._submit(work))

    def prepared(self, value: Any) -> Any:
        # The graph goes on meanwhile: what is kept of its state is what it is now.
        return self._serializer.written(value)

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        def copy(_: object) -> None:
            for table, columns in _COLUMNS.items():
                self._file.conn.execute(
                    f"INSERT OR REPLACE INTO {table} (thread_id, {columns}) "
                    f"SELECT ?, {columns} FROM {table} WHERE thread_id = ?",
                    (target_thread_id, source_thread_id),
                )

        await self.do_aside(copy)

    async def keep_only(self, thread_id: str, checkpoint_id: str) -> None:
        """Remove what leads to a checkpoint, and what came after it but was never answered.

        Graphs inside of this one that have a memory of their own (`compile(checkpointer=True)`) keep what
        they knew then: they are named without the task that they ran in, and ids grow with time.
        """

        def remove(_: object) -> None:
            for table in _COLUMNS:
                self._file.conn.execute(
                    f"DELETE FROM {table} "
                    "WHERE thread_id = ? AND NOT (checkpoint_ns = '' AND checkpoint_id = ?) "
                    "AND (checkpoint_ns = '' OR checkpoint_ns LIKE '%:%' OR checkpoint_id > ?)",
                    (thread_id, checkpoint_id, checkpoint_id),
                )

        await self.do_aside(remove)

    def _submit(self, work: Work[T]) -> Future[T]:
        def do(connection: sqlite3.Connection) -> T:
            with connection:
                return work(self._file)

        return self._thread.submit(do)

    def _connect(self) -> sqlite3.Connection:
        """Open the file, in the thread; if that fails, the next one who wants something tries again."""
        connection = sqlite3.connect(self._path, timeout=BUSY)
        self._file.conn, self._file.is_setup = connection, False
        try:
            self._file.setup()
            # With a write-ahead log a killed process loses nothing; a power cut may cost the last moments.
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


_COLUMNS = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "writes": "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value",
}


class Savers:
    """The savers of one event loop, each open for as long as a session uses it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[BaseCheckpointSaver[Any], int]] = {}

    def take(self, path: str | None) -> BaseCheckpointSaver[Any]:
        """The saver in this file, or one that forgets with the last session that uses it."""
        key = path or ""
        saver, users = self._open.get(key) or (_opened(path), 0)
        self._open[key] = (saver, users + 1)
        return saver

    async def leave(self, path: str | None) -> None:
        """One session less uses it."""
        key = path or ""
        saver, users = self._open[key]
        if users > 1:
            self._open[key] = (saver, users - 1)
            return
        del self._open[key]
        if isinstance(saver, Saver):
            await saver.close()


def savers() -> Savers:
    """Those of the running loop."""
    return _savers.setdefault(asyncio.get_running_loop(), Savers())


_savers: WeakKeyDictionary[asyncio.AbstractEventLoop, Savers] = WeakKeyDictionary()


async def copy_thread(saver: BaseCheckpointSaver[Any], source: str, target: str) -> None:
    """Copy a thread in a saver that has no way of its own to do that, the oldest checkpoint first."""
    kept = [each async for each in saver.alist({"configurable": {"thread_id": source}})]
    for each in reversed(kept):
        parent = each.parent_config["configurable"].get("checkpoint_id") if each.parent_config else None
        place = {**each.config["configurable"], "thread_id": target, "checkpoint_id": parent}
        versions = each.checkpoint["channel_versions"]
        copied = await saver.aput({"configurable": place}, each.checkpoint, each.metadata, versions)
        by_task: dict[str, list[tuple[str, Any]]] = {}
        for task, channel, value in each.pending_writes or ():
            by_task.setdefault(task, []).append((channel, value))
        for task, writes in by_task.items():
            await saver.aput_writes(copied, writes, task)


def file_beside(store: str | None) -> str | None:
    """Where threads are kept if sessions are kept there; None for nowhere."""
    if store in (NO_STORE, IN_MEMORY):
        return None
    path = store or configuration_of(None, os.environ)[keys.STORE] or store_file()
    return None if path == IN_MEMORY else f"{Path(path).absolute()}{SUFFIX}"


def _opened(path: str | None) -> BaseCheckpointSaver[Any]:
    if path is None:
        return InMemorySaver(serde=Serializer())
    _create_private(path)
    return Saver(path)


@contextlib.contextmanager
def _in_words(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translated(error, path) from error


def _create_private(path: str) -> None:
    """Make the file, if it is new, for its owner's eyes only.

    One that exists is not opened: closing it would drop the locks of another connection in this process.
    """
    with contextlib.suppress(FileExistsError):
        make_private_directory(str(Path(path).parent))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
