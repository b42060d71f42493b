"""Threads in a graph's own checkpointer that were not begun here: as sessions, told by their messages."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from msgspec import Raw

from coupler.agent.content import json_value
from coupler.agent.factory import ForeignSession
from coupler.events import Content, Text, Thought, ToolOutput, ToolUpdate
from coupler.events.records import Recorded, UserMessage
from coupler.langchain.content import blocks_of, citations, for_client
from coupler.langchain.presentation import Presentation
from coupler.schema.v1 import Content as ToolContent

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.pregel import Pregel

    from coupler.langchain.graph_shape import Shape

log = logging.getLogger("coupler.langchain")

MOST_THREADS = 1000
"""Threads, those first that were begun last, of which each listing takes notice."""

MOST_CHECKPOINTS = 100
"""Checkpoints, the latest first, among which threads are looked for that have lost their beginnings."""

BEGINNINGS = (-1, 0)
"""The steps that a thread begins with: by a run, or by an update from outside."""

LONGEST_TITLE = 80


async def foreign_threads(
    graph: Pregel[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    shape: Shape,
    tools: dict[str, BaseTool],
    known: set[str],
) -> list[ForeignSession]:
    """The threads with messages in them that are not known by their ids."""
    found: list[ForeignSession] = []
    try:
        threads = [thread for thread in await _threads(saver) if thread not in known]
    except NotImplementedError:
        log.info("the graph's checkpointer lists no threads")
        return []
    for thread in threads:
        last = await saver.aget_tuple({"configurable": {"thread_id": thread, "checkpoint_ns": ""}})
        if last is None:
            continue
        state = await graph.aget_state(last.config)
        messages = shape.messages(state.values)
        if messages:
            found.append(_Thread(last, messages, tools).as_session(thread))
    return found


async def _threads(saver: BaseCheckpointSaver[Any]) -> list[str]:
    """The threads by their beginnings, of which each has few, and they are small.

    Their names are collected before anything else is asked for: some savers are locked as long as they list.
    """
    found: dict[str, None] = {}
    looks: list[tuple[dict[str, Any] | None, int]] = [({"step": step}, MOST_THREADS) for step in BEGINNINGS]
    for beginning, limit in [*looks, (None, MOST_CHECKPOINTS)]:
        async for each in saver.alist(None, filter=beginning, limit=limit):
            place = each.config["configurable"]
            if not place.get("checkpoint_ns"):
                found[str(place["thread_id"])] = None
    return [*found]


class _Thread:
    """One thread, on its way to be a session."""

    def __init__(
        self, last: CheckpointTuple, messages: Sequence[BaseMessage], tools: dict[str, BaseTool]
    ) -> None:
        self._last = last
        self._messages = messages
        self._tools = tools
        cwd = (last.metadata or {}).get("cwd")
        self._cwd = cwd if isinstance(cwd, str) and os.path.isabs(cwd) else os.getcwd()  # noqa: PTH109, PTH117
        self._presentation = Presentation(self._cwd)
        self._calls: dict[str, str] = {}
        """By the model's ids, the ids of the calls that were made last: some models count from nothing."""

    def as_session(self, thread: str) -> ForeignSession:
        """The thread under its own id, at its latest checkpoint."""
        checkpoint = self._last.config["configurable"]["checkpoint_id"]
        return ForeignSession(
            thread,
            self._cwd,
            self._title(),
            int(datetime.fromisoformat(self._last.checkpoint["ts"]).timestamp() * 1000),
            {"session": thread, "thread": thread, "checkpoint": checkpoint, "foreign": True},
            tuple(self._turns()),
        )

    def _title(self) -> str | None:
        for message in self._messages:
            if isinstance(message, HumanMessage) and (words := message.text.strip()):
                return str(words.splitlines()[0][:LONGEST_TITLE])
        return None

    def _turns(self) -> Iterator[tuple[UserMessage | Recorded, ...]]:
        turn: list[UserMessage | Recorded] = []
        for message in self._messages:
            if isinstance(message, HumanMessage) and turn:
                yield tuple(turn)
                turn = []
            turn.extend(self._told(message))
        if turn:
            yield tuple(turn)

    def _told(self, message: BaseMessage) -> Iterator[UserMessage | Recorded]:
        """What a client is told of a message; of those to the model alone nothing."""
        key = message.id or ""
        if isinstance(message, HumanMessage):
            blocks = blocks_of(message.content)
            yield UserMessage(key, tuple(Raw(msgspec.json.encode(block)) for block in blocks))
        elif isinstance(message, AIMessage):
            for block in message.content_blocks:
                yield from _said(dict(block), key)
            yield from (self._call(call, f"{key}_{at}") for at, call in enumerate(message.tool_calls))
        elif isinstance(message, ToolMessage):
            call_id = self._calls.get(message.tool_call_id, message.tool_call_id)
            for shown in blocks_of(message.content):
                yield ToolOutput(call_id, ToolContent(shown))
            status = "failed" if message.status == "error" else "completed"
            yield ToolUpdate(id=call_id, status=status)

    def _call(self, call: ToolCall, unlike: str) -> ToolUpdate:
        name, arguments, tool = call["name"], call["args"], self._tools.get(call["name"])
        own = call["id"] or unlike
        self._calls[own] = f"{own}_{unlike}" if own in self._calls else own
        return ToolUpdate(
            id=self._calls[own],
            title=self._presentation.title(name, tool, arguments),
            kind=self._presentation.kind(name, tool, arguments),
            status="pending",
            name=name,
            locations=self._presentation.locations(name, arguments),
            raw_input=json_value(arguments),
        )


def _said(block: dict[str, Any], key: str) -> Iterator[Recorded]:
    if block["type"] == "text" and block["text"]:
        yield Text(str(block["text"]), key)
    elif block["type"] == "reasoning" and block.get("reasoning"):
        yield Thought(str(block["reasoning"]), key)
    elif (shown := for_client(block)) is not None:
        yield Content(shown, "agent", key)
    yield from (Content(link, "agent", key) for link in citations(block))
