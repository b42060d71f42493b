"""A graph's own checkpointer that has no coroutines, such as `SqliteSaver`: it is used in threads.

Graphs that are served are awaited. A checkpointer that has nothing to await would end their first prompt, and
it is the one that a module can make before there is an event loop.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from langgraph.checkpoint.base import BaseCheckpointSaver

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
Work = Callable[[BaseCheckpointSaver[Any]], T]

_WITH_WARNINGS = frozenset({"langgraph.checkpoint.sqlite"})
"""Modules whose savers have coroutines that only say which other saver has them."""


def awaitable(graph: Pregel[Any, Any, Any, Any]) -> Pregel[Any, Any, Any, Any]:
    """The graph with a checkpointer that can be awaited, if it has any."""
    saver = graph.checkpointer
    if not isinstance(saver, BaseCheckpointSaver) or not _has_no_coroutines(type(saver)):
        return graph
    return graph.copy({"checkpointer": SaverInThreads(saver)})


def _has_no_coroutines(kind: type[BaseCheckpointSaver[Any]]) -> bool:
    owner = next(each for each in kind.__mro__ if "aget_tuple" in vars(each))
    return owner is BaseCheckpointSaver or owner.__module__ in _WITH_WARNINGS


class SaverInThreads(BaseCheckpointSaver[Any]):
    """Does with another saver what it is told, and holds up nobody meanwhile."""

    def __init__(self, saver: BaseCheckpointSaver[Any]) -> None:
        super().__init__(serde=saver.serde)
        self._saver = saver

    def do(self, work: Work[T]) -> T:
        """Do something with the saver, at once."""
        return work(self._saver)

    async def do_aside(self, work: Work[T]) -> T:
        """Do something with the saver, in a thread."""
        return await asyncio.to_thread(self.do, work)

    def prepared(self, value: Any) -> Any:
        """A part of a state, as it is handed over to be kept."""
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
        return await self.do_aside(lambda saver: saver.get_tuple(config))

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for each in await self.do_aside(lambda saver: [*saver.list(config, **wanted)]):
            yield each

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        kept = self.prepared(checkpoint)
        return await self.do_aside(lambda saver: saver.put(config, kept, metadata, new_versions))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        kept = self._prepared_writes(writes)
        await self.do_aside(lambda saver: saver.put_writes(config, kept, task_id, task_path))

    async def adelete_thread(self, thread_id: str) -> None:
        await self.do_aside(lambda saver: saver.delete_thread(thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        await self.do_aside(lambda saver: saver.copy_thread(source_thread_id, target_thread_id))

    async def aget_delta_channel_history(
        self, *, config: RunnableConfig, channels: Sequence[str]
    ) -> Mapping[str, DeltaChannelHistory]:
        return await self.do_aside(
            lambda saver: saver.get_delta_channel_history(config=config, channels=channels)
        )

    def _prepared_writes(self, writes: Sequence[tuple[str, Any]]) -> Sequence[tuple[str, Any]]:
        return [(channel, self.prepared(value)) for channel, value in writes]
