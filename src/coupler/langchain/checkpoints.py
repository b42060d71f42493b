"""Gives graphs their checkpointers, and mends conversations that broke off.

A graph without a checkpointer of its own has its threads stored with its sessions, by a `SessionSaver`
(`saver`) that all sessions share. One of its author's that has no coroutines is run in threads. `repairs`
mends a conversation before a model reads it again.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary, finalize

from langchain_core.messages import AIMessage, BaseMessage, RemoveMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.graph.message import REMOVE_ALL_MESSAGES
from langgraph.store.base import BaseStore

from coupler.agent.errors import NOT_ENTERED, TurnFailedError, describe
from coupler.agent.session import configuration_of
from coupler.agent.startup.serve_options import NO_STORE
from coupler.langchain.saver import SessionSaver
from coupler.runtime.directories import store_file
from coupler.store.database import IN_MEMORY

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

log = logging.getLogger("coupler.langchain")

T = TypeVar("T")

INTERRUPTED = "This call was interrupted before it returned: it is not known how much of it was done."

NOT_BEGUN = "This call was not made: the turn ended before it began."

SaverWork = Callable[[BaseCheckpointSaver[Any]], T]

_WITH_WARNINGS = frozenset({"langgraph.checkpoint.sqlite"})
"""Modules whose savers have coroutines that only name the saver to use instead."""


def checkpoint_store(store: str | None) -> str | None:
    """Return the database that the sessions' threads are stored in; None if they are not kept."""
    if store in (NO_STORE, IN_MEMORY):
        return None
    path = store or configuration_of(None, os.environ).sessions.store or store_file()
    return None if path == IN_MEMORY else str(Path(path).absolute())


class SaverPool:
    """Shares savers among the sessions of one event loop; each is open as long as a session uses it."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[SessionSaver, int]] = {}

    def take(self, path: str | None) -> SessionSaver:
        """Return the saver of this database, or without a path one in memory that the last session ends."""
        key = path or ""
        saver, users = self._open.get(key) or (SessionSaver(path), 0)
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
        await saver.close()


def saver_pool() -> SaverPool:
    """Return the pool of the running event loop."""
    return _saver_pools.setdefault(asyncio.get_running_loop(), SaverPool())


_saver_pools: WeakKeyDictionary[asyncio.AbstractEventLoop, SaverPool] = WeakKeyDictionary()


def with_async_saver(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """Return the graph with a checkpointer that can be awaited, if it has any."""
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver) or not _has_no_coroutines(type(saver)):
        return graph
    return graph.copy({"checkpointer": ThreadedSaver(saver)})


def _has_no_coroutines(kind: type[BaseCheckpointSaver[Any]]) -> bool:
    owner = next(each for each in kind.__mro__ if "aget_tuple" in vars(each))
    return owner is BaseCheckpointSaver or owner.__module__ in _WITH_WARNINGS


async def set_up(graph: Pregel[Any, Any, Any, Any]) -> None:
    """Have the graph's own checkpointer and store make their tables, each once.

    Savers and stores do so themselves in some of their methods, or leave it to their author. One that may
    not, because somebody else has made the tables, is used as it is.
    """
    saver = graph.checkpointer
    for each in (saver.wrapped if isinstance(saver, ThreadedSaver) else saver, graph.store):
        if each is not None and not isinstance(each, bool):
            task = _set_up.get(id(each))
            if task is None:
                task = _set_up[id(each)] = asyncio.create_task(_make_tables(each))
                finalize(each, _set_up.pop, id(each), None).atexit = False
            await asyncio.shield(task)


_set_up: dict[int, asyncio.Task[None]] = {}
"""Set-ups by the ids of savers and stores that live: some cannot be hashed, or equal each other."""


async def _make_tables(storage: object) -> None:
    make: Callable[[], Any] | None = getattr(storage, "asetup", None) or getattr(storage, "setup", None)
    if make is None:
        return
    try:
        if inspect.iscoroutinefunction(make):
            await make()
        else:
            await asyncio.to_thread(make)
    except Exception as error:
        _set_up.pop(id(storage), None)
        if any(words in str(error) for words in _CLOSED):
            raise TurnFailedError(
                f"The agent's {type(storage).__name__} is closed: {_STAYS_OPEN}",
                kind="setup",
                retryable=False,
            ) from error
        log.warning("%s could not be set up: %s", type(storage).__name__, describe(error))


_CLOSED = ("closed database", "no active connection", "threads can only be started once", "is closed")
"""Words in the errors of savers and stores whose connections were closed."""

_STAYS_OPEN = (
    "the `with` block that made it has ended. Make it from a connection that stays open, such as "
    'SqliteSaver(sqlite3.connect("agent.db", check_same_thread=False)), or in `async def make(session)` of '
    'serve(factory=make) AsyncSqliteSaver(aiosqlite.connect("agent.db")), without `with`'
)


def refuse_unentered_store(graph: Pregel[Any, Any, Any, Any]) -> None:
    """Raise if the graph's store is a context manager that was not entered; LangGraph checks only savers."""
    if graph.store is not None and not isinstance(graph.store, BaseStore):
        raise TypeError(f"the store of this graph is no store. {NOT_ENTERED}")


class ThreadedSaver(BaseCheckpointSaver[Any]):
    """Runs a checkpointer that has no coroutines, such as `SqliteSaver`, in threads.

    Graphs that are served are awaited. A checkpointer that has nothing to await would end their first prompt,
    and it is the one that a module can make before there is an event loop.
    """

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self.wrapped = saver

    def do(self, work: SaverWork[T]) -> T:
        """Run a function with the saver and return its result; blocks meanwhile."""
        return work(self.wrapped)

    async def run_in_thread(self, work: SaverWork[T]) -> T:
        """Run a function with the saver in a thread."""
        return await asyncio.to_thread(self.do, work)

    @property
    def config_specs(self) -> list[Any]:
        return self.wrapped.config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self.wrapped.get_next_version(current, channel)

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
        return self.do(lambda saver: saver.put(config, checkpoint, metadata, new_versions))

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self.do(lambda saver: saver.put_writes(config, writes, task_id, task_path))

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
        return await self.run_in_thread(lambda saver: saver.put(config, checkpoint, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self.run_in_thread(lambda saver: saver.put_writes(config, writes, task_id, task_path))

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


def repairs(
    messages: Sequence[BaseMessage],
    kept: Iterable[ToolMessage] = (),
    unfinished: str = "",
    more: Sequence[BaseMessage] = (),
    not_begun: Iterable[str] = (),
) -> list[BaseMessage]:
    """Return the messages to add so that a conversation can go on; usually none.

    Providers refuse a history in which a tool call has no result. A cancel leaves such calls behind; so does
    a limit of steps. They get a message that says what is known of them, and an answer that was cut off gets
    its beginning back. `kept` are results that had come when it broke off, but had not been written into the
    state; `more` are messages of the same kind; `not_begun` are ids of calls whose tools never ran. If calls
    without results are not at the end, the messages are stated anew as a whole.
    """
    messages = [*messages, *more]
    results = {message.tool_call_id: message for message in kept}
    not_begun = {*not_begun}
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
        added += [
            results.get(call_id)
            or _missing_result(call_id, name, NOT_BEGUN if call_id in not_begun else INTERRUPTED)
            for call_id, name in open_calls
        ]
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


def _missing_result(id: str, name: str, reason: str) -> ToolMessage:
    return ToolMessage(reason, tool_call_id=id, name=name, status="error")
