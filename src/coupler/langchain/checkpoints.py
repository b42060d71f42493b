"""Stores the threads of graphs without a checkpointer of their own, in one SQLite file for all sessions.

The file lies beside the store of the sessions, and like it is the user's alone. A thread grows by the whole
state with every step; what no turn has ended at is removed when the next turn begins. `repairs` mends a
conversation that broke off before a model reads it again.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sqlite3
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES

from coupler.agent.content import json_value
from coupler.agent.session import configuration_of
from coupler.agent.startup.serve_options import NO_STORE
from coupler.config import keys
from coupler.runtime.directories import store_file
from coupler.store.database import StoreThread, make_private_directory
from coupler.store.errors import translate_error

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import (
        ChannelVersions,
        Checkpoint,
        CheckpointMetadata,
        CheckpointTuple,
        DeltaChannelHistory,
    )
    from langgraph.pregel import Pregel

T = TypeVar("T")

IN_MEMORY = ":memory:"

SUFFIX = ".langgraph"
"""Suffix of the file's name, after that of the store."""

BUSY_TIMEOUT = 5.0
"""Seconds to wait for another process that writes."""

CLOSE_TIMEOUT = 2 * BUSY_TIMEOUT
"""Seconds to wait for the thread when the file is closed."""

MOST_LEVELS = 6
"""Most levels of a state in which single values are replaced; what is deeper is replaced as a whole."""

INTERRUPTED = "This call was interrupted before it returned: it is not known how much of it was done."

SaverWork = Callable[[BaseCheckpointSaver[Any]], T]

_WITH_WARNINGS = frozenset({"langgraph.checkpoint.sqlite"})
"""Modules whose savers have coroutines that only name the saver to use instead."""

_COLUMNS = {
    "checkpoints": "checkpoint_ns, checkpoint_id, parent_checkpoint_id, type, checkpoint, metadata",
    "writes": "checkpoint_ns, checkpoint_id, task_id, task_path, idx, channel, type, value",
}


def checkpoint_file(store: str | None) -> str | None:
    """Return the file for threads beside the store of the sessions; None if they are not kept."""
    if store in (NO_STORE, IN_MEMORY):
        return None
    path = store or configuration_of(None, os.environ)[keys.STORE] or store_file()
    return None if path == IN_MEMORY else f"{Path(path).absolute()}{SUFFIX}"


class SaverPool:
    """Shares savers among the sessions of one event loop; each is open as long as a session uses it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[BaseCheckpointSaver[Any], int]] = {}

    def take(self, path: str | None) -> BaseCheckpointSaver[Any]:
        """Return the saver of this file, or without a path one in memory that the last session ends."""
        key = path or ""
        saver, users = self._open.get(key) or (_opened(path), 0)
        self._open[key] = (saver, users + 1)
        return saver

    async def leave(self, path: str | None) -> None:
        """Note that a session does not use the saver any more; the last one closes it."""
        key = path or ""
        saver, users = self._open[key]
        if users > 1:
            self._open[key] = (saver, users - 1)
            return
        del self._open[key]
        if isinstance(saver, SessionSaver):
            await saver.close()


def saver_pool() -> SaverPool:
    """Return the pool of the running event loop."""
    return _saver_pools.setdefault(asyncio.get_running_loop(), SaverPool())


_saver_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, SaverPool] = WeakKeyDictionary()


def _opened(path: str | None) -> BaseCheckpointSaver[Any]:
    if path is None:
        return InMemorySaver(serde=TolerantSerializer())
    _create_private(path)
    return SessionSaver(path)


def _create_private(path: str) -> None:
    """Create the file, if it is new, readable by its owner only.

    One that exists is not opened: closing it would drop the locks of another connection in this process.
    """
    with contextlib.suppress(FileExistsError):
        make_private_directory(str(Path(path).parent))
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))


def with_async_saver(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """Return the graph with a checkpointer that can be awaited, if it has any."""
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver) or not _has_no_coroutines(type(saver)):
        return graph
    return graph.copy({"checkpointer": ThreadedSaver(saver)})


def _has_no_coroutines(kind: type[BaseCheckpointSaver[Any]]) -> bool:
    owner = next(each for each in kind.__mro__ if "aget_tuple" in vars(each))
    return owner is BaseCheckpointSaver or owner.__module__ in _WITH_WARNINGS


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """Runs a checkpointer that has no coroutines, such as `SqliteSaver`, in threads.

    Graphs that are served are awaited. A checkpointer that has nothing to await would end their first prompt,
    and it is the one that a module can make before there is an event loop.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def do(self, work: SaverWork[T]) -> T:
        """Run a function with the saver and return its result; blocks meanwhile."""
        return work(self._saver)

    async def run_in_thread(self, work: SaverWork[T]) -> T:
        """Run a function with the saver in a thread."""
        return await asyncio.to_thread(self.do, work)

    def prepared(self, value: Any) -> Any:
        """Return a part of a state in the form in which it is handed over to be stored."""
        return value

    @property
    def config_specs(self) -> list[Any]:
        return self._saver.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._saver.get_next_version(current, channel)

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return self.do(lambda saver: saver.get_tuple(config))

    def list(self, config: RunnableConfig | None, **wanted: Any) -> Iterator[CheckpointTuple]:
        return iter(self.do(lambda saver: [*saver.list(config, **wanted)]))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        kept = self.prepared(checkpoint)
        return self.do(lambda saver: saver.put(config, kept, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        kept = self._prepared_writes(writes)
        self.do(lambda saver: saver.put_writes(config, kept, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self.do(lambda saver: saver.delete_thread(thread_id))

    def get_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return self.do(lambda saver: saver.get_delta_channel_history(config=config, channels=channels))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self.run_in_thread(lambda saver: saver.get_tuple(config))

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for each in await self.run_in_thread(lambda saver: [*saver.list(config, **wanted)]):
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        kept = self.prepared(checkpoint)
        return await self.run_in_thread(lambda saver: saver.put(config, kept, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        kept = self._prepared_writes(writes)
        await self.run_in_thread(lambda saver: saver.put_writes(config, kept, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self.run_in_thread(lambda saver: saver.delete_thread(thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.run_in_thread(lambda saver: saver.copy_thread(source_thread_id, target_thread_id))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self.run_in_thread(
            lambda saver: saver.get_delta_channel_history(config=config, channels=channels)
        )

    def _prepared_writes(self, writes: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        return [(channel, self.prepared(value)) for channel, value in writes]


class SessionSaver(ThreadedSaver):
    """LangGraph's SQLite saver for sessions, which also copies threads and removes old checkpoints.

    All sessions use one connection, in a thread of its own: what was begun there is done to its end, whoever
    is cancelled meanwhile, and it can be waited for by any loop, and by code that has none.
    What goes wrong with the file is told in words that help, as of the store.
    """

    def __init__(self, path: str) -> None:
        self._serializer = TolerantSerializer()
        # Its connection is made in the thread.
        self._file = SqliteSaver(None, serde=self._serializer)  # type: ignore[arg-type]
        super().__init__(self._file)
        self._path = path
        self._thread = StoreThread(self._connect, "coupler-saver")

    async def close(self) -> None:
        """Close the file when all pending work is done."""
        await asyncio.to_thread(self._thread.close, CLOSE_TIMEOUT)

    def do(self, work: SaverWork[T]) -> T:
        with _translated_errors(self._path):
            return self._submit(work).result()

    async def run_in_thread(self, work: SaverWork[T]) -> T:
        with _translated_errors(self._path):
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

        await self.run_in_thread(copy)

    async def keep_only(self, thread_id: str, checkpoint_id: str) -> None:
        """Remove a thread's other checkpoints: those before this one, and those after it without an answer.

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

        await self.run_in_thread(remove)

    def _submit(self, work: SaverWork[T]) -> Future[T]:
        def do(connection: sqlite3.Connection) -> T:
            with connection:
                return work(self._file)

        return self._thread.submit(do)

    def _connect(self) -> sqlite3.Connection:
        """Open the file, in the saver's thread; after a failure, the next use tries again."""
        connection = sqlite3.connect(self._path, timeout=BUSY_TIMEOUT)
        self._file.conn, self._file.is_setup = connection, False
        try:
            self._file.setup()
            # With a write-ahead log a killed process loses nothing; a power cut may cost the last moments.
            connection.execute("PRAGMA synchronous=NORMAL")
        except BaseException:
            connection.close()
            raise
        return connection


@contextlib.contextmanager
def _translated_errors(path: str) -> Iterator[None]:
    try:
        yield
    except sqlite3.Error as error:
        raise translate_error(error, path) from error


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


class SerializedValue(dict[str, Any]):
    """A value that is serialized already; of a checkpoint it has the id, which LangGraph reads."""

    def __init__(self, typed: tuple[str, bytes], value: Any) -> None:
        super().__init__(id=value["id"] if isinstance(value, dict) and "id" in value else None)
        self.typed = typed


class TolerantSerializer(JsonPlusSerializer):
    """LangGraph's serializer, which also takes states with values that it refuses.

    Graphs that nobody gave a checkpointer may hold anything: a tool's artifact may be a picture that is open,
    or refer to itself. That is no reason to fail; what can be written is kept, and of the rest what it looks
    like.
    """

    def written(self, value: Any) -> Any:
        """Serialize the value as it is now, because it may change before it is stored."""
        return SerializedValue(self.dumps_typed(value), value)

    def dumps_typed(self, obj: Any) -> tuple[str, bytes]:
        if isinstance(obj, SerializedValue):
            return obj.typed
        try:
            return super().dumps_typed(obj)
        except (TypeError, ValueError, RecursionError):
            return super().dumps_typed(self._writable(obj, MOST_LEVELS))

    def _writable(self, value: Any, depth: int) -> Any:
        """Return the value with the parts replaced that cannot be serialized."""
        if self._can_be_written(value):
            return value
        if isinstance(value, BaseMessage):
            fields = {name: self._writable(each, depth - 1) for name, each in vars(value).items()}
            return value.model_copy(update=fields)
        if depth > 0 and isinstance(value, dict) and all(isinstance(key, str) for key in value):
            return {key: self._writable(each, depth - 1) for key, each in value.items()}
        if depth > 0 and isinstance(value, list):
            return [self._writable(each, depth - 1) for each in value]
        return json_value(value)

    def _can_be_written(self, value: Any) -> bool:
        try:
            super().dumps_typed(value)
        except (TypeError, ValueError, RecursionError):
            return False
        return True


def repairs(
    messages: Sequence[BaseMessage],
    kept: Iterable[ToolMessage] = (),
    unfinished: str = "",
    more: Sequence[BaseMessage] = (),
) -> list[BaseMessage]:
    """Return the messages to add so that a conversation can go on; usually none.

    Providers refuse a history in which a tool call has no result. A cancel leaves such calls behind; so does
    a limit of steps. They get a message that says what is known of them, and an answer that was cut off gets
    its beginning back. `kept` are results that had come when it broke off, but had not been written into the
    state; `more` are messages of the same kind. If calls without results are not at the end, the messages are
    stated anew as a whole.
    """
    messages = [*messages, *more]
    results = {message.tool_call_id: message for message in kept}
    mended: list[BaseMessage] = []
    has_gap = False
    added: list[BaseMessage] = []
    for at, message in enumerate(messages):
        if added and not isinstance(message, ToolMessage):
            mended, added, has_gap = [*mended, *added], [], True
        if isinstance(message, AIMessage) and any(not call["id"] for call in message.tool_calls):
            # No result can name such a call.
            message, has_gap = _with_ids(message), True
        mended.append(message)
        open_calls = _open_calls(message, messages, at)
        added += [results.get(call_id) or _interrupted_result(call_id, name) for call_id, name in open_calls]
    last = [AIMessage(unfinished, id=f"msg_{os.urandom(8).hex()}")] if unfinished else []
    if has_gap:
        return [RemoveMessage(REMOVE_ALL_MESSAGES), *mended, *added, *last]
    return [*more, *added, *last]


def continuation(messages: Sequence[BaseMessage], inside: Sequence[BaseMessage]) -> list[BaseMessage]:
    """Return the messages of an inner graph that continue these messages of the graph around it.

    Nothing, if it leads a conversation of its own: that of a helper is no part of this one.
    """
    known = [message.id for message in messages]
    goes_on = [message.id for message in inside[: len(known)]] == known
    return [*inside[len(known) :]] if goes_on else []


def calls_without_result(messages: Sequence[BaseMessage]) -> list[tuple[str, str]]:
    """Return the ids and tools of the calls that have no result."""
    found = (_open_calls(message, messages, at) for at, message in enumerate(messages))
    return [call for calls in found for call in calls]


def _open_calls(message: BaseMessage, messages: Sequence[BaseMessage], at: int) -> list[tuple[str, str]]:
    """Return its calls without a result before the model says more: call ids may repeat after that."""
    calls = _calls(message) if isinstance(message, AIMessage) else []
    if not calls:
        return []
    answered: set[str] = set()
    for each in messages[at + 1 :]:
        if isinstance(each, AIMessage):
            break
        if isinstance(each, ToolMessage):
            answered.add(each.tool_call_id)
    return [call for call in calls if call[0] not in answered]


def pending_results(checkpoint: CheckpointTuple | None) -> list[ToolMessage]:
    """Return the results of tools that are stored although their step was never completed."""
    found: list[ToolMessage] = []
    for _, _, value in (checkpoint.pending_writes if checkpoint is not None else None) or ():
        values = value if isinstance(value, list | tuple) else [value]
        found += [each for each in values if isinstance(each, ToolMessage)]
    return found


def _calls(message: AIMessage) -> list[tuple[str, str]]:
    calls: list[Any] = [*message.tool_calls, *message.invalid_tool_calls]
    return [(call["id"], call.get("name") or "tool") for call in calls if call.get("id")]


def _with_ids(message: AIMessage) -> AIMessage:
    calls = [{**call, "id": call["id"] or f"call_{os.urandom(8).hex()}"} for call in message.tool_calls]
    return message.model_copy(update={"tool_calls": calls})


def _interrupted_result(id: str, name: str) -> ToolMessage:
    return ToolMessage(INTERRUPTED, tool_call_id=id, name=name, status="error")
