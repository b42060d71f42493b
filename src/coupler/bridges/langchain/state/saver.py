"""Where graphs without a checkpointer of their own keep their threads: one SQLite file for all sessions.

It lies beside the store of the sessions, and like it is the user's alone. A thread grows by the whole state
with every step; what no turn has ended at is removed when the next turn begins.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

import aiosqlite
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

from coupler.agent.project import configuration_of
from coupler.agent.serve_options import NO_STORE
from coupler.bridges.langchain.state.serializer import Serializer
from coupler.config import keys
from coupler.home import store_file
from coupler.store.database import make_private_directory
from coupler.store.errors import translated

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        BaseCheckpointSaver,
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )

T = TypeVar("T")

IN_MEMORY = ":memory:"

SUFFIX = ".langgraph"
"""What the file is called after the store's."""

BUSY = 5.0
"""Seconds to wait for another process that writes."""


class Saver(AsyncSqliteSaver):
    """LangGraph's own, with what sessions need: threads that are copied, and that do not grow for ever.

    What goes wrong with the file is told in words that help, as of the store. All sessions use one
    connection: nothing that is cancelled may leave it half open, or a change half made.
    """

    def __init__(self, path: str) -> None:
        super().__init__(_connection(path), serde=Serializer())
        self._path = path
        self._opening: asyncio.Task[None] | None = None

    async def setup(self) -> None:
        if self.is_setup:
            return
        if self._opening is None:
            self._opening = asyncio.create_task(self._open(), name="open the saver")
            self._opening.add_done_callback(self._end_opening)
        # Shielded: who waits here may be cancelled, and the next one finds the connection open.
        await asyncio.shield(self._opening)

    async def close(self) -> None:
        """Close the file; it can be opened again."""
        if self._opening is not None:
            await asyncio.wait([self._opening])
        await self.conn.close()

    async def _open(self) -> None:
        with _in_words(self._path):
            try:
                await super().setup()
                # With a write-ahead log a killed process loses nothing; a power cut may cost the last
                # moments.
                await self.conn.execute("PRAGMA synchronous=NORMAL")
            except BaseException:
                # A connection can be tried only once.
                await self.conn.close()
                self.conn, self.is_setup = _connection(self._path), False
                raise

    def _end_opening(self, done: asyncio.Task[None]) -> None:
        self._opening = None
        if not done.cancelled():
            done.exception()  # it was told to who waits, unless nobody does

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._at_home(super().aget_tuple(config))

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        found = super().alist(config, filter=filter, before=before, limit=limit)
        if asyncio.get_running_loop() is self.loop:
            async for each in found:
                yield each
        else:
            for each in await self._at_home(_all_of(found)):
                yield each

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self._at_home(super().aget_delta_channel_history(config=config, channels=channels))

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        return await self._at_home(super().aput(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._at_home(super().aput_writes(config, writes, task_id, task_path))

    async def _at_home(self, work: Coroutine[Any, Any, T]) -> T:
        """Do something on the loop that the connection belongs to.

        A plain tool may run a graph in a loop of its own, and LangGraph has that graph use this saver.
        """
        with _in_words(self._path):
            if asyncio.get_running_loop() is self.loop:
                return await work
            return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self.loop))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.setup()
        async with self._changing():
            for table, columns in _COLUMNS.items():
                await self.conn.execute(
                    f"INSERT OR REPLACE INTO {table} (thread_id, {columns}) "
                    f"SELECT ?, {columns} FROM {table} WHERE thread_id = ?",
                    (target_thread_id, source_thread_id),
                )

    async def adelete_thread(self, thread_id: str) -> None:
        await self.setup()
        async with self._changing():
            for table in _COLUMNS:
                await self.conn.execute(f"DELETE FROM {table} WHERE thread_id = ?", (thread_id,))

    async def keep_only(self, thread_id: str, checkpoint_id: str) -> None:
        """Remove what leads to a checkpoint, and what came after it but was never answered.

        Graphs inside of this one that have a memory of their own (`compile(checkpointer=True)`) keep what
        they knew then: they are named without the task that they ran in, and ids grow with time.
        """
        await self.setup()
        async with self._changing():
            for table in _COLUMNS:
                await self.conn.execute(
                    f"DELETE FROM {table} "
                    "WHERE thread_id = ? AND NOT (checkpoint_ns = '' AND checkpoint_id = ?) "
                    "AND (checkpoint_ns = '' OR checkpoint_ns LIKE '%:%' OR checkpoint_id > ?)",
                    (thread_id, checkpoint_id, checkpoint_id),
                )

    @asynccontextmanager
    async def _changing(self) -> AsyncIterator[None]:
        """All of a change, or nothing of it: the connection goes on to be everybody's."""
        async with self.lock:
            with _in_words(self._path):
                try:
                    yield
                    await self.conn.commit()
                except BaseException:
                    await self.conn.rollback()
                    raise


async def _all_of(items: AsyncIterator[T]) -> list[T]:
    return [each async for each in items]


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


def _connection(path: str) -> aiosqlite.Connection:
    connection = aiosqlite.connect(path, timeout=BUSY)
    # Python's end waits for no thread of ours, and a session that is left closes it anyway.
    thread: Any = getattr(connection, "_thread", connection)
    thread.daemon = True
    return connection


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
