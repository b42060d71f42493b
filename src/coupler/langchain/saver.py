"""Stores the states of graphs in the sessions' database: every message once, and small checkpoints.

LangGraph hands over the whole state with every step. A `ThreadItems` knows which parts of it are stored: of a
conversation that has grown by a message, one item and one small checkpoint are written, and the checkpoint
before it goes. So what a turn costs, in time and on disk, grows with what happened in it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import threading
import zlib
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from hashlib import blake2b
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from langchain_core.messages import BaseMessage
from langgraph.checkpoint.base import (
    WRITES_IDX_MAP,
    BaseCheckpointSaver,
    CheckpointTuple,
    get_checkpoint_metadata,
)
from langgraph.checkpoint.serde import types as serde_types

from coupler.langchain.messages import Conversation, copied_fields, fields_of
from coupler.langchain.serializer import LOST, StateSerializer, copy_live_values, forget_live_values
from coupler.store import checkpoints as tables
from coupler.store.carry_over import OpenThreads
from coupler.store.checkpoints import Range, StoredCheckpoint, StoredItem, StoredWrite
from coupler.store.database import IN_MEMORY, Database
from coupler.store.errors import StoreError
from coupler.store.store import database_in_use
from coupler.store.store_thread import DatabaseWork

if TYPE_CHECKING:
    import sqlite3

    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import ChannelVersions, Checkpoint, CheckpointMetadata

log = logging.getLogger("coupler.langchain")

T = TypeVar("T")

CLOSE_TIMEOUT = 10.0
"""Seconds to wait for what is still being written when the database is closed."""

_DeltaSnapshot: Any = getattr(serde_types, "_DeltaSnapshot", None)
"""LangGraph's class for the values of delta channels; None in a version that has no such."""

TO_NODE = "branch:to:"
TASKS = "__pregel_tasks"
"""The channels by which LangGraph runs nodes next: their beginning, and the one for all that were sent."""

SMALL = 512
"""Bytes up to which a part of a state is stored in the checkpoint itself."""

INLINE_LIMIT = 256 * 1024
"""Bytes that are written on the event loop; more is written by the database's thread."""

SEEN_UNCHANGED = 8
"""Checkpoints with the same large value after which it becomes an item, and is not written again."""

MOST_REMEMBERED = 64 * 1024 * 1024
"""Bytes of stored messages that are kept in memory, so that the next prompt need not read them."""

ZLIB = "+zlib"
"""Ending of the format of an item that is compressed."""

_DIGEST_SIZE = 16


class StoredValue(msgspec.Struct, tag="v", array_like=True, frozen=True):
    """A value in the checkpoint itself, and in which format."""

    format: str
    body: bytes


class StoredRun(msgspec.Struct, tag="r", array_like=True, frozen=True):
    """Items with neighbouring numbers: one value, or some of a list."""

    first: int
    last: int


class StoredList(msgspec.Struct, tag="l", array_like=True, frozen=True):
    """A list, of items and values."""

    parts: list[StoredValue | StoredRun]


class StoredDict(msgspec.Struct, tag="d", array_like=True, frozen=True):
    """A dictionary, of items and values."""

    parts: dict[str, StoredValue | StoredRun]


class StoredSnapshot(msgspec.Struct, tag="s", array_like=True, frozen=True):
    """The whole value of a channel that is otherwise stored as differences."""

    value: StoredValue | StoredRun | StoredList | StoredDict


Part = StoredValue | StoredRun
Form = Part | StoredList | StoredDict | StoredSnapshot


class StoredState(msgspec.Struct, array_like=True, frozen=True):
    """The body of a checkpoint: the values of its channels, and the rest of it."""

    rest: StoredValue
    values: dict[str, Form]


_encode = msgspec.msgpack.encode
_decode_state = msgspec.msgpack.Decoder(StoredState).decode
_decode_form = msgspec.msgpack.Decoder(Form).decode


class _KnownMessage(NamedTuple):
    """A message that is stored, and how it was then: who changes one in place has another one stored."""

    message: BaseMessage
    fields: tuple[dict[str, Any], dict[str, Any] | None]
    number: int

    @property
    def is_as_stored(self) -> bool:
        return bool(fields_of(self.message) == self.fields)


class _KnownValue(NamedTuple):
    """The value of a channel as it was last stored."""

    version: Any
    form: Form
    seen: int
    """The number of times that it was stored again without a change."""
    messages: Conversation | None
    """If it is a list of messages: those."""


class ThreadItems:
    """The items of one thread: finds the stored ones in a state, and numbers those that are new.

    An object of LangChain's that was stored is known by its identity, everything else by its content.
    """

    def __init__(self, last: int) -> None:
        self.last = last
        """The highest number that was given to an item."""
        self.unwritten: dict[int, StoredItem] = {}
        """Items that are not known to be stored: every write takes them along."""
        self.size = 0
        self._by_identity: dict[int, _KnownMessage] = {}
        self._by_number: dict[int, _KnownMessage] = {}
        self._by_content: dict[bytes, int] = {}
        self._channels: dict[tuple[str, str], _KnownValue] = {}

    def state(self, checkpoint: Checkpoint, namespace: str, serde: StateSerializer) -> StoredState:
        """Return a checkpoint as it is stored."""
        rest = {key: value for key, value in checkpoint.items() if key != "channel_values"}
        versions = checkpoint["channel_versions"]
        channels = checkpoint["channel_values"]
        # In the middle of a turn, with nodes to run, it is enough to look at what has just come.
        ends = not channels.get(TASKS) and not any(name.startswith(TO_NODE) for name in channels)
        values = {
            name: self._channel((namespace, name), versions.get(name), value, serde, thoroughly=ends)
            for name, value in channels.items()
        }
        return StoredState(StoredValue(*serde.dumps_typed(rest)), values)

    def write(self, channel: str, value: Any, serde: StateSerializer) -> Form:
        """Return what a task has written into a channel as it is stored."""
        serde.channel = channel
        return self.form(value, serde)

    def form(self, value: Any, serde: StateSerializer) -> Form:
        """Return a value as it is stored."""
        if _DeltaSnapshot is not None and isinstance(value, _DeltaSnapshot):
            inner = self.form(value.value, serde)
            assert not isinstance(inner, StoredSnapshot)
            return StoredSnapshot(inner)
        if isinstance(value, BaseMessage):
            return self._message(value, serde)
        typed = serde.dumps_typed
        if type(value) is list and any(isinstance(each, BaseMessage) for each in value):
            return StoredList(self._parts(value, serde))
        whole = StoredValue(*typed(value))
        if len(whole.body) <= SMALL:
            return whole
        if type(value) is list:
            return StoredList(self._parts(value, serde))
        if type(value) is dict and all(type(key) is str for key in value):
            return StoredDict({key: self._part(each, serde) for key, each in value.items()})
        return whole

    def remember_value(self, namespace: str, channel: str, version: Any, form: Form, value: Any) -> None:
        """Note how a channel's value is stored, when it was read."""
        self._channels[namespace, channel] = _KnownValue(version, form, 0, _conversation(value))

    def remember_item(self, item: StoredItem, value: Any) -> None:
        """Note an item that was read."""
        self._by_content[_digest(item.format, item.body)] = item.number
        self.last = max(self.last, item.number)
        if isinstance(value, BaseMessage):
            self._know(value, item.number, len(item.body))

    def message(self, number: int) -> BaseMessage | None:
        """The message with this number, if it is known and nobody has changed it since it was stored."""
        known = self._by_number.get(number)
        return known.message if known is not None and known.is_as_stored else None

    def written(self, items: Iterable[StoredItem]) -> None:
        """Note that items are stored."""
        for item in items:
            self.unwritten.pop(item.number, None)

    def keep_only(self, needed: Sequence[Range]) -> None:
        """Forget the items that nothing refers to any more: they are about to be removed."""
        numbers = {number for first, last in needed for number in range(first, last + 1)}
        self._channels.clear()
        self._by_content = {key: number for key, number in self._by_content.items() if number in numbers}
        self._by_number = {number: known for number, known in self._by_number.items() if number in numbers}
        self._by_identity = {id(known.message): known for known in self._by_number.values()}
        self.unwritten = {number: item for number, item in self.unwritten.items() if number in numbers}

    def _channel(
        self,
        place: tuple[str, str],
        version: Any,
        value: Any,
        serde: StateSerializer,
        *,
        thoroughly: bool,
    ) -> Form:
        known = self._channels.get(place)
        serde.channel = place[1]
        if known is not None and version is not None and known.version == version:
            form = known.form
            if isinstance(form, StoredValue) and len(form.body) > SMALL and known.seen >= SEEN_UNCHANGED:
                form = self._item(form)
            now = known._replace(form=form, seen=known.seen + 1)
        elif known is not None and (more := _more_messages(known, value, thoroughly=thoroughly)) is not None:
            assert isinstance(known.form, StoredList)
            form = StoredList(_joined([*known.form.parts, *self._parts(more, serde)]))
            now = _KnownValue(version, form, 0, known.messages)
        else:
            now = _KnownValue(version, self.form(value, serde), 0, _conversation(value))
        self._channels[place] = now
        return now.form

    def _parts(self, values: Sequence[Any], serde: StateSerializer) -> list[Part]:
        return _joined([self._part(each, serde) for each in values])

    def _part(self, value: Any, serde: StateSerializer) -> Part:
        if isinstance(value, BaseMessage):
            return self._message(value, serde)
        whole = StoredValue(*serde.dumps_typed(value))
        return whole if len(whole.body) <= SMALL else self._item(whole)

    def _message(self, message: BaseMessage, serde: StateSerializer) -> StoredRun:
        known = self._by_identity.get(id(message))
        if known is not None and known.message is message and known.is_as_stored:
            return StoredRun(known.number, known.number)
        whole = StoredValue(*serde.dumps_typed(message))
        run = self._item(whole)
        self._know(message, run.first, len(whole.body))
        return run

    def _item(self, whole: StoredValue) -> StoredRun:
        digest = _digest(whole.format, whole.body)
        number = self._by_content.get(digest)
        if number is None:
            self.last += 1
            number = self._by_content[digest] = self.last
            self.unwritten[number] = _compressed(StoredItem(number, whole.format, whole.body))
        return StoredRun(number, number)

    def _know(self, message: BaseMessage, number: int, size: int) -> None:
        self.size += size
        known = _KnownMessage(message, copied_fields(message), number)
        self._by_identity[id(message)] = self._by_number[number] = known


def _more_messages(known: _KnownValue, value: Any, *, thoroughly: bool) -> list[Any] | None:
    """Return the messages that a list has after those of the last one, if it only has more at its end."""
    if known.messages is None or type(value) is not list:
        return None
    return known.messages.grow(value, thoroughly=thoroughly)


def _conversation(value: Any) -> Conversation | None:
    return Conversation(value) if _has_only_messages(value) else None


def _has_only_messages(value: Any) -> bool:
    return type(value) is list and len(value) > 0 and all(isinstance(each, BaseMessage) for each in value)


def _joined(parts: list[Part]) -> list[Part]:
    """Join runs of items that are neighbours."""
    joined: list[Part] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, StoredRun) and isinstance(last, StoredRun) and part.first == last.last + 1:
            joined[-1] = StoredRun(last.first, part.last)
        else:
            joined.append(part)
    return joined


def _compressed(item: StoredItem) -> StoredItem:
    """Compress an item, if that makes it much smaller: sources and outputs take a quarter of their size."""
    if len(item.body) <= SMALL:
        return item
    body = zlib.compress(item.body, 1)
    return (
        item._replace(format=f"{item.format}{ZLIB}", body=body) if len(body) < 0.8 * len(item.body) else item
    )


def _decompressed(item: StoredItem) -> StoredItem:
    if not item.format.endswith(ZLIB):
        return item
    return item._replace(format=item.format.removesuffix(ZLIB), body=zlib.decompress(item.body))


def _digest(format: str, body: bytes) -> bytes:
    return blake2b(body, digest_size=_DIGEST_SIZE, person=format.encode()[:16]).digest()


def _runs(form: Form) -> Iterator[Range]:
    """The items that a form refers to."""
    match form:
        case StoredRun(first, last):
            yield first, last
        case StoredList(parts):
            yield from (run for part in parts for run in _runs(part))
        case StoredDict(named):
            yield from (run for part in named.values() for run in _runs(part))
        case StoredSnapshot(value):
            yield from _runs(value)


class SessionSaver(BaseCheckpointSaver[str]):
    """Stores the threads of all sessions in their database; without a path, in memory.

    Small writes are done at once, on the event loop. From other threads, and by code without an event loop,
    everything is done in the database's thread. What was begun is done to its end, whoever is cancelled
    meanwhile. What goes wrong with the file is told in words that help, as of the store.
    """

    def __init__(self, path: str | None) -> None:
        self._serializer = StateSerializer()
        super().__init__(serde=self._serializer)
        self._path = path or IN_MEMORY
        self._home = threading.get_ident()
        self._opened: Database | None = None
        self._is_owner = False
        self._open_threads = OpenThreads(lambda: {*self._threads, *self._last, *self._kept}, self._forget_all)
        self._lock = threading.RLock()
        self._threads: OrderedDict[str, ThreadItems] = OrderedDict()
        self._last: dict[str, int] = {}
        """The highest number that each thread has ever given to an item."""
        self._kept: dict[str, str] = {}
        """The checkpoints that turns have begun with: what a turn adds to them is its own to remove."""
        self._lost: dict[str, dict[str, str]] = {}
        """The types of values that were lost with another process, by the thread and the key of its state."""

    async def close(self) -> None:
        """Leave the database, or close it when all pending work is done."""
        if self._opened is None:
            return
        database, self._opened = self._opened, None
        if self._is_owner:
            await asyncio.to_thread(database.close, CLOSE_TIMEOUT)
        else:
            database.open_work.remove(self._open_threads)

    async def begin_turn(self, thread_id: str, checkpoint: str | None, *, with_tasks: bool = False) -> None:
        """Remove what the last turn has left besides the checkpoint that the next one begins with.

        Items that nothing refers to any more go by and by, a few at a time. `with_tasks`: a graph inside of
        this one waits for an answer, or was cut off.
        """
        self._lost.pop(thread_id, None)
        if checkpoint is None:
            await self.adelete_thread(thread_id)
            self._kept[thread_id] = ""
            return
        self._serializer.of_thread(thread_id).begin_turn()
        needed, last = await self._write(
            lambda connection: tables.keep_only(connection, thread_id, checkpoint, with_tasks=with_tasks)
        )
        with self._lock:
            self._kept[thread_id] = checkpoint
            # A number is never given again while items with lower ones are being removed.
            self._last[thread_id] = max(last, self._last.get(thread_id, 0))
            if (items := self._threads.get(thread_id)) is not None:
                items.keep_only(needed)
        if needed != [(1, last)]:
            self._database.reclaim_space(
                lambda connection: tables.remove_items(connection, thread_id, last, needed)
            )

    def lost_values(self, thread_id: str) -> dict[str, str]:
        """Return the types of values that were not found again, by the keys of the state."""
        return self._lost.get(thread_id, {})

    async def take_over_earlier(self, thread_id: str, checkpoint: str | None) -> None:
        """Move a thread that version 0.1 has stored, in a file of its own, into the database."""
        if self._path != IN_MEMORY and tables.has_earlier(self._path):
            await asyncio.to_thread(self._take_over, thread_id, checkpoint)

    def _take_over(self, thread_id: str, checkpoint: str | None) -> None:
        for each in tables.read_earlier(self._path, thread_id, checkpoint):
            named = {"thread_id": thread_id, "checkpoint_ns": each.namespace}
            state = self.serde.loads_typed((each.format, each.body))
            parent: RunnableConfig = {"configurable": {**named, "checkpoint_id": each.parent}}
            self.put(parent, state, json.loads(each.metadata), {})
            place: RunnableConfig = {"configurable": {**named, "checkpoint_id": each.id}}
            by_task: dict[tuple[str, str, bool], list[tuple[str, Any]]] = {}
            for task, path, _, channel, kind, value in each.writes:
                written = by_task.setdefault((task, path, channel in WRITES_IDX_MAP), [])
                written.append((channel, self.serde.loads_typed((kind, value))))
            for (task, path, _), written in by_task.items():
                self.put_writes(place, written, task, path)
        tables.remove_earlier(self._path, [thread_id])

    def get_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = self._do_read(lambda connection: self._found(connection, config))
        return None if found is None else self._loaded(found, self._do_read(found.read_missing))

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        found = await self._read(lambda connection: self._found(connection, config))
        if found is None:
            return None
        return self._loaded(found, await self._read_much(found.read_missing) if found.missing else [])

    def list(self, config: RunnableConfig | None, **wanted: Any) -> Iterator[CheckpointTuple]:
        for found in self._do_read(lambda connection: self._listed(connection, config, **wanted)):
            yield self._loaded(found, self._do_read(found.read_missing))

    async def alist(self, config: RunnableConfig | None, **wanted: Any) -> AsyncIterator[CheckpointTuple]:
        for found in await self._read_much(lambda connection: self._listed(connection, config, **wanted)):
            yield self._loaded(found, await self._read_much(found.read_missing))

    def put(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        self._store(self._checkpoint(self._items_now(config), config, checkpoint, metadata))
        return _place(config, checkpoint["id"])

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        items = await self._items_soon(config)
        await self._store_soon(self._checkpoint(items, config, checkpoint, metadata))
        return _place(config, checkpoint["id"])

    def put_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        self._store(self._writes(self._items_now(config), config, writes, task_id, task_path))

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        items = await self._items_soon(config)
        await self._store_soon(self._writes(items, config, writes, task_id, task_path))

    def delete_thread(self, thread_id: str) -> None:
        self._forget(thread_id)
        forget_live_values(thread_id)
        if self._do(lambda connection: tables.delete_thread(connection, thread_id)):
            self._database.reclaim_space(tables.purge_threads)

    async def adelete_thread(self, thread_id: str) -> None:
        self._forget(thread_id)
        forget_live_values(thread_id)
        if await self._write(lambda connection: tables.delete_thread(connection, thread_id)):
            self._database.reclaim_space(tables.purge_threads)

    def copy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copy_live_values(source_thread_id, target_thread_id)
        self._do(lambda connection: tables.copy_thread(connection, source_thread_id, target_thread_id))

    async def acopy_thread(self, source_thread_id: str, target_thread_id: str) -> None:
        copy_live_values(source_thread_id, target_thread_id)
        # Never on the event loop: a conversation may have many megabytes.
        await self._write(
            lambda connection: tables.copy_thread(connection, source_thread_id, target_thread_id),
            INLINE_LIMIT,
        )

    def get_next_version(self, current: str | None, channel: None) -> str:
        """Count on, with something at random behind it: two branches never have the same version."""
        count = "0" * 10 if current is None else str(current).partition(".")[0]
        return f"{int(count) + 1:0{len(count)}}.{random.getrandbits(32):08x}"

    def _found(self, connection: sqlite3.Connection, config: RunnableConfig) -> _Found | None:
        """Find the checkpoint that is meant, with what is already known of it."""
        place = config["configurable"]
        thread_id, namespace = str(place["thread_id"]), place.get("checkpoint_ns", "")
        thread = tables.thread_number(connection, thread_id)
        if thread is None:
            return None
        stored = tables.find_checkpoint(connection, thread, namespace, place.get("checkpoint_id"))
        return None if stored is None else self._completed(connection, thread_id, thread, stored)

    def _listed(
        self,
        connection: sqlite3.Connection,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> Sequence[_Found]:
        place = {} if config is None else config["configurable"]
        bound = None if before is None else before["configurable"].get("checkpoint_id")
        thread_id = str(place["thread_id"]) if "thread_id" in place else None
        found: list[_Found] = []
        for of, stored in tables.list_checkpoints(connection, thread_id, place.get("checkpoint_ns"), bound):
            if place.get("checkpoint_id") not in (None, stored.id) or len(found) == limit:
                continue
            metadata = json.loads(stored.metadata)
            if all(metadata.get(key) == value for key, value in (filter or {}).items()):
                thread = tables.thread_number(connection, of)
                assert thread is not None
                found.append(self._completed(connection, of, thread, stored))
        return found

    def _completed(
        self, connection: sqlite3.Connection, thread_id: str, thread: int, stored: StoredCheckpoint
    ) -> _Found:
        state = _decode_state(stored.body)
        rows = tables.find_writes(connection, thread, stored.namespace, stored.id)
        writes = [(each, _decode_form(each.body)) for each in rows]
        last = tables.last_item(connection, thread_id)
        found = _Found(thread_id, thread, last, stored, state, writes, {}, [])
        with self._lock:
            items = self._items(thread_id, last)
            forms = [*state.values.values(), *(form for _, form in writes)]
            for first, last in tables.join_ranges(run for form in forms for run in _runs(form)):
                for number in range(first, last + 1):
                    message = items.message(number)
                    if message is None:
                        found.missing.append((number, number))
                    else:
                        found.values[number] = message
        return found

    def _loaded(self, found: _Found, read: Iterable[StoredItem]) -> CheckpointTuple:
        """Make a checkpoint of what was found and read."""
        stored, serde = found.stored, self._serializer.of_thread(found.thread_id)
        with self._lock:
            items = self._items(found.thread_id, found.last)
            for item in map(_decompressed, read):
                found.values[item.number] = serde.loads_typed((item.format, item.body))
                items.remember_item(item, found.values[item.number])
            if any(first not in found.values for first, _ in found.missing):
                log.warning("some of the conversation %s is missing in the store", found.thread_id)
            state = serde.loads_typed((found.state.rest.format, found.state.rest.body))
            read_values = {name: found.value(form, serde) for name, form in found.state.values.items()}
            values = {name: value for name, value in read_values.items() if value is not LOST}
            state["channel_values"] = values
            for name, value in values.items():
                version = state["channel_versions"].get(name)
                items.remember_value(stored.namespace, name, version, found.state.values[name], value)
            writes = [(write.task, write.channel, found.value(form, serde)) for write, form in found.writes]
            if serde.lost:
                self._lost.setdefault(found.thread_id, {}).update(serde.lost)
        place = {"thread_id": found.thread_id, "checkpoint_ns": stored.namespace}
        return CheckpointTuple(
            {"configurable": {**place, "checkpoint_id": stored.id}},
            state,
            json.loads(stored.metadata),
            {"configurable": {**place, "checkpoint_id": stored.parent}} if stored.parent else None,
            [write for write in writes if write[2] is not LOST],
        )

    def _checkpoint(
        self, items: ThreadItems, config: RunnableConfig, checkpoint: Checkpoint, metadata: CheckpointMetadata
    ) -> _Writing:
        """Prepare the writing of a checkpoint, as it is now: the graph continues meanwhile."""
        place = config["configurable"]
        thread_id, namespace = str(place["thread_id"]), place.get("checkpoint_ns", "")
        with self._lock:
            state = items.state(checkpoint, namespace, self._serializer.of_thread(thread_id))
            new = [*items.unwritten.values()]
            kept = self._kept.get(thread_id)
        stored = StoredCheckpoint(
            namespace,
            checkpoint["id"],
            place.get("checkpoint_id"),
            _depth(checkpoint, metadata),
            tables.pack_ranges(run for form in state.values.values() for run in _runs(form)),
            _encode(state),
            json.dumps(get_checkpoint_metadata(config, metadata), default=str).encode(),
        )
        return _Writing(
            items,
            new,
            len(stored.body) + sum(len(each.body) for each in new),
            lambda connection: tables.write_checkpoint(connection, thread_id, stored, new, kept),
        )

    def _writes(
        self,
        items: ThreadItems,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task: str,
        path: str,
    ) -> _Writing:
        place = config["configurable"]
        thread_id, namespace = str(place["thread_id"]), str(place.get("checkpoint_ns", ""))
        with self._lock:
            serde = self._serializer.of_thread(thread_id)
            forms = [(channel, items.write(channel, value, serde)) for channel, value in writes]
            new = [*items.unwritten.values()]
        stored = [
            StoredWrite(
                namespace,
                str(place["checkpoint_id"]),
                task,
                WRITES_IDX_MAP.get(channel, position),
                path,
                channel,
                tables.pack_ranges(_runs(form)),
                _encode(form),
            )
            for position, (channel, form) in enumerate(forms)
        ]
        replace = all(channel in WRITES_IDX_MAP for channel, _ in writes)
        return _Writing(
            items,
            new,
            sum(len(each.body) for each in stored) + sum(len(each.body) for each in new),
            lambda connection: tables.write_writes(connection, thread_id, stored, new, replace=replace),
        )

    def _items_now(self, config: RunnableConfig) -> ThreadItems:
        thread_id = str(config["configurable"]["thread_id"])
        known = self._threads.get(thread_id)
        if known is not None:
            return known
        return self._items(thread_id, self._do_read(lambda each: tables.last_item(each, thread_id)))

    async def _items_soon(self, config: RunnableConfig) -> ThreadItems:
        thread_id = str(config["configurable"]["thread_id"])
        known = self._threads.get(thread_id)
        if known is not None:
            return known
        return self._items(thread_id, await self._read(lambda each: tables.last_item(each, thread_id)))

    def _items(self, thread_id: str, last: int) -> ThreadItems:
        """Return the items of a thread that are known; those of threads that were not used for long go."""
        with self._lock:
            items = self._threads.get(thread_id)
            if items is None:
                items = self._threads[thread_id] = ThreadItems(max(last, self._last.get(thread_id, 0)))
            self._threads.move_to_end(thread_id)
            total = sum(each.size for each in self._threads.values())
            for other, known in [*self._threads.items()][:-1]:
                if total <= MOST_REMEMBERED:
                    break
                if not known.unwritten:
                    total -= known.size
                    self._last[other] = known.last
                    del self._threads[other]
            return items

    def _forget(self, thread_id: str) -> None:
        with self._lock:
            known = self._threads.pop(thread_id, None)
            if known is not None:
                self._last[thread_id] = known.last

    def _store(self, writing: _Writing) -> None:
        self._do(writing.write)
        with self._lock:
            writing.items.written(writing.new)

    async def _store_soon(self, writing: _Writing) -> None:
        await self._write(writing.write, writing.size)
        with self._lock:
            writing.items.written(writing.new)

    def _do(self, work: DatabaseWork[T]) -> T:
        """Write in the database's thread, and block until it is done."""
        return self._database.submit(work).result()

    def _do_read(self, work: DatabaseWork[T]) -> T:
        """Read in the database's thread, and block until it is done."""
        return self._database.submit_to_read(work).result()

    async def _write(self, work: DatabaseWork[T], size: int = 0) -> T:
        """Write, at once if it is little; what was begun in the database's thread is done to its end."""
        database = self._database
        if self._is_at_home and size < INLINE_LIMIT and not database.has_waiting_work:
            try:
                return database.transaction(work)
            except StoreError as error:
                if error.kind != "locked":
                    raise
        return await asyncio.shield(asyncio.wrap_future(database.submit(work)))

    async def _read(self, work: DatabaseWork[T]) -> T:
        """Read a little."""
        if self._is_at_home:
            return await self._database.attempt_to_read(work)
        return await self._read_much(work)

    async def _read_much(self, work: DatabaseWork[T]) -> T:
        """Read in the database's thread."""
        return await asyncio.wrap_future(self._database.submit_to_read(work))

    @property
    def _is_at_home(self) -> bool:
        """True in the thread whose connection never waits; agents in tools may run in others."""
        return threading.get_ident() == self._home

    @property
    def _database(self) -> Database:
        """The database: the one that the sessions are kept in, or one of its own, opened on use."""
        with self._lock:
            if self._opened is None or self._opened.is_closed:
                shared = database_in_use(self._path, self._home)
                self._is_owner = shared is None
                self._opened = shared or Database(self._path)
                self._opened.open_work.append(self._open_threads)
            return self._opened

    def _forget_all(self) -> None:
        """Take nothing for stored any more: the file that had it is gone, and cannot be read."""
        with self._lock:
            for thread_id in [*self._threads]:
                self._forget(thread_id)


class _Found(NamedTuple):
    """A checkpoint that was found, and the values of those of its items that are known.

    An item that is not in the store, as after damage, is left out: the conversation goes on without it.
    """

    thread_id: str
    thread: int
    last: int
    stored: StoredCheckpoint
    state: StoredState
    writes: Sequence[tuple[StoredWrite, Form]]
    values: dict[int, Any]
    missing: list[Range]

    def read_missing(self, connection: sqlite3.Connection) -> list[StoredItem]:
        """Read the items that are not known."""
        return tables.read_items(connection, self.thread, tables.join_ranges(self.missing))

    def value(self, form: Form, serde: StateSerializer) -> Any:
        """Return the value that a form stands for."""
        match form:
            case StoredValue(format, body):
                return serde.loads_typed((format, body))
            case StoredRun(first):
                return self.values.get(first)
            case StoredList(parts):
                return [each for part in parts for each in self._elements(part, serde)]
            case StoredDict(named):
                values = {key: self.value(part, serde) for key, part in named.items()}
                return {key: value for key, value in values.items() if value is not LOST}
            case StoredSnapshot(inner):
                value = self.value(inner, serde)
                return value if value is LOST or _DeltaSnapshot is None else _DeltaSnapshot(value)

    def _elements(self, part: Part, serde: StateSerializer) -> Iterator[Any]:
        if isinstance(part, StoredRun):
            numbers = range(part.first, part.last + 1)
            found = [self.values[number] for number in numbers if number in self.values]
        else:
            found = [serde.loads_typed((part.format, part.body))]
        yield from (value for value in found if value is not LOST)


class _Writing(NamedTuple):
    """Rows to be written in one transaction, with the items that were not stored before."""

    items: ThreadItems
    new: Sequence[StoredItem]
    size: int
    write: DatabaseWork[None]


def _depth(checkpoint: Checkpoint, metadata: CheckpointMetadata) -> int:
    """Return how many checkpoints before this one are needed to read it: channels may store differences."""
    counters = metadata.get("counters_since_delta_snapshot") or {}
    versions = checkpoint["channel_versions"]
    return max((steps for name, (_, steps) in counters.items() if name in versions), default=0)


def _place(config: RunnableConfig, checkpoint: str) -> RunnableConfig:
    place = config["configurable"]
    named = {"thread_id": place["thread_id"], "checkpoint_ns": place.get("checkpoint_ns", "")}
    return {"configurable": {**named, "checkpoint_id": checkpoint}}
