"""Serves a graph as an agent: prompts run it, from the checkpoint at which the last turn ended.

The agent's state names that checkpoint, and is stored with the turn's end. What a killed process has left
behind it is the beginning of a turn that was cut off: the next one goes on from there, as after a cancel.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

import msgspec
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langgraph.prebuilt import ToolNode
from msgspec import Raw

from coupler.agent.agent import FrameworkAgent, declared_commands
from coupler.agent.content import json_value
from coupler.agent.errors import store_failed
from coupler.agent.factory import ExternalSession
from coupler.events import Content, Text, Thought, ToolOutput, ToolUpdate
from coupler.events.records import RecordedEvent, UserMessage
from coupler.langchain.answers import register_refusals
from coupler.langchain.checkpoints import (
    checkpoint_store,
    copy_thread,
    refuse_unentered_store,
    saver_pool,
    set_up,
    with_async_saver,
)
from coupler.langchain.content import citations, client_block, client_blocks, message_blocks
from coupler.langchain.current import Current, set_current
from coupler.langchain.errors import failure_of, is_unreadable_prompt, listen_for_retries, stop_of_error
from coupler.langchain.graph_run import Graph, GraphRun, GraphShape, ensure_enough_threads
from coupler.langchain.mcp_tools import begin_connecting as begin_mcp
from coupler.langchain.mcp_tools import warn_if_unused
from coupler.langchain.messages import DisplayOptions, StreamFilters, stream_filters
from coupler.langchain.middleware import declared_in, run_plain_middleware_in_threads
from coupler.langchain.presentation import Presentation
from coupler.langchain.projection import TurnProjection
from coupler.langchain.tool_arguments import speed_up_partial_json
from coupler.langchain.tool_calls import STOPPED, ToolCalls
from coupler.langchain.tool_guard import guarded
from coupler.langchain.usage import TokenUsage, context_sizes
from coupler.runtime.exceptions import only_cause
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import StopReason
from coupler.store.errors import StoreError

if TYPE_CHECKING:
    from langchain_core.messages import ToolCall
    from langchain_core.tools import BaseTool
    from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
    from langgraph.pregel import Pregel

    from coupler.agent.agent import Command
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.langchain.usage import AnswerCounter

log = logging.getLogger("coupler.langchain")

MOST_LISTED_THREADS = 1000
"""Most threads that each listing considers, the last begun first."""

MOST_CHECKPOINTS = 100
"""Most checkpoints, the latest first, that are searched for threads without their first steps."""

FIRST_STEPS = (-1, 0)
"""The steps that a thread begins with: by a run, or by an update from outside."""

LONGEST_TITLE = 80


class GraphAgent(FrameworkAgent):
    """An agent of one graph, for any number of sessions."""

    keeps_prompts = True

    def __init__(
        self,
        graph: Graph,
        origin: tuple[str, str],
        called: str,
        *,
        look: DisplayOptions,
        store: str | None,
        commands: Sequence[Command] = (),
        keep_cut_off: bool = True,
        count: AnswerCounter | None = None,
    ) -> None:
        """`keep_cut_off`: a turn that a kill has cut off is part of a conversation that has messages.

        `count` is called with every answer of a model.
        """
        super().__init__(origin, called)
        refuse_unentered_store(graph)
        self.graph = guarded(with_async_saver(graph))
        self.tools = tools_of(graph)
        self.modes, self.options = declared_in(graph)
        self.commands = declared_commands(commands)
        self._look = look
        self._store = store
        self._count = count
        self._shape = GraphShape(graph)
        self._keep_cut_off = keep_cut_off and self._shape.has_messages
        self._sizes = context_sizes(graph)
        self._filters = stream_filters(graph)
        listen_for_retries()
        register_refusals()
        speed_up_partial_json()
        run_plain_middleware_in_threads()
        self._saver: BaseCheckpointSaver[Any] | None = None
        self._kept: Graph | None = None
        self._sessions = 0
        self._may_be_cut_off: WeakSet[Session] = WeakSet()
        """Sessions whose last turn may have been cut off: nothing was answered since they were opened."""

    @property
    def has_own_saver(self) -> bool:
        """True if the graph was compiled with a checkpointer."""
        return self.graph.checkpointer is not None and not isinstance(self.graph.checkpointer, bool)

    async def opened(self, session: Session) -> None:
        """Take the saver, and give a session that was forked a thread of its own."""
        ensure_enough_threads()
        if self._keep_cut_off:
            self._may_be_cut_off.add(session)
        state = session.state if isinstance(session.state, Mapping) else {}
        thread = state.get("thread")
        if not self.has_own_saver:
            saver = self._saver = saver_pool().take(checkpoint_store(self._store))
            self._sessions += 1
            if thread is not None:
                await saver.take_over_earlier(str(thread), state.get("checkpoint"))
        if thread is not None and state.get("session") != session.id:
            try:
                await self._fork(session, str(thread))
            except BaseException:
                await self.closed(session)
                raise
        elif thread is None:
            session.state = {**state, "session": session.id, "thread": session.id, "checkpoint": None}
        begin_mcp(session)

    async def moved(self, session: Session) -> None:
        """Connect to the servers that the session has now."""
        begin_mcp(session)

    async def closed(self, session: Session) -> None:
        """Release the saver."""
        if not self.has_own_saver and self._sessions:
            self._sessions -= 1
            await saver_pool().leave(checkpoint_store(self._store))

    async def forget(self, session_id: str, state: Any) -> None:
        """Delete the thread of a session that was deleted from the graph's own checkpointer."""
        thread = state.get("thread") if isinstance(state, Mapping) else None
        if thread is None or not self.has_own_saver:
            return
        await set_up(self.graph)
        try:
            await self._checkpointer.adelete_thread(thread)
        except NotImplementedError:
            log.warning("the graph's checkpointer cannot delete the thread %s", thread)

    async def external_sessions(self, known: set[str]) -> list[ExternalSession]:
        """Return the threads that were begun elsewhere in the graph's own checkpointer, as sessions."""
        if not self.has_own_saver:
            return []
        await set_up(self.graph)
        return await external_threads(self.graph, self._checkpointer, self._shape, self.tools, known)

    async def perform(self, turn: Turn) -> StopReason | None:
        """Run the graph for one prompt, as often as it stops to ask something."""
        await set_up(self.graph)
        await turn.files.note_attached(turn.blocks)
        filters = StreamFilters(self._filters) if self._filters else None
        presentation = Presentation(turn.session.cwd, turn.session.roots, filters)
        tools: dict[str, BaseTool] = dict(self.tools)
        current = Current(turn, ToolCalls(turn, presentation, tools), presentation, tools, self._sizes)
        projection = TurnProjection(
            current, self._look, TokenUsage(turn, current.sizes, self._count), filters
        )
        set_current(current)
        run = GraphRun(
            self._with_saver(),
            self._checkpointer,
            self._shape,
            current,
            projection,
            may_be_cut_off=turn.session in self._may_be_cut_off,
        )
        try:
            stop = await run.perform()
            self._may_be_cut_off.discard(turn.session)
            warn_if_unused(turn)
            return stop
        except Exception as error:
            return await self._end_with(error, run, projection)
        except BaseException:  # a cancel, or a tool that wants to end the process
            await run.look_where_it_stopped()
            raise

    async def _end_with(self, error: Exception, run: GraphRun, projection: TurnProjection) -> StopReason:
        cause = only_cause(error)
        error = cause if isinstance(cause, Exception) else error
        stop = stop_of_error(error)
        # A turn that was stopped is no failure, so that nobody else says that its calls were not made.
        projection.fail_open(STOPPED if stop is not None else None)
        # A prompt that no model can read would make an end of the conversation.
        is_wasted = not projection.has_spoken and is_unreadable_prompt(error, projection.model_error)
        if stop == "refusal" or is_wasted:
            run.forget_prompt()
        else:
            await run.look_where_it_stopped()
        if stop is not None:
            return stop
        if isinstance(error, StoreError):
            raise store_failed(error) from error
        failure = failure_of(error, projection.model_error)
        if failure is None:
            raise error
        log.warning("the model failed: %s", failure.message)
        raise failure from error

    @property
    def _checkpointer(self) -> BaseCheckpointSaver[Any]:
        own = self.graph.checkpointer
        saver = own if own is not None and not isinstance(own, bool) else self._saver
        assert saver is not None, "a session is open"
        return saver

    def _with_saver(self) -> Graph:
        if self.has_own_saver:
            return self.graph
        if self._kept is None or self._kept.checkpointer is not self._saver:
            self._kept = self.graph.copy({"checkpointer": self._saver})
        return self._kept

    async def _fork(self, session: Session, thread: str) -> None:
        await set_up(self.graph)
        try:
            await self._checkpointer.acopy_thread(thread, session.id)
        except NotImplementedError:
            await copy_thread(self._checkpointer, thread, session.id)
        session.state = {**session.state, "session": session.id, "thread": session.id, "forked": True}


def tools_of(graph: Graph) -> dict[str, BaseTool]:
    """The tools of a graph, as far as it has nodes that run tools."""
    found: dict[str, BaseTool] = {}
    for node in graph.nodes.values():
        if isinstance(node.bound, ToolNode):
            found |= node.bound.tools_by_name
    return found


async def external_threads(
    graph: Pregel[Any, Any, Any, Any],
    saver: BaseCheckpointSaver[Any],
    shape: GraphShape,
    tools: dict[str, BaseTool],
    known: set[str],
) -> list[ExternalSession]:
    """Return the threads of a graph's own checkpointer that were not begun here, as sessions."""
    found: list[ExternalSession] = []
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
    """Return the threads of a saver, found by their first steps, of which each has few and small ones.

    Their names are collected before anything else is asked for: some savers are locked as long as they list.
    """
    found: dict[str, None] = {}
    looks: list[tuple[dict[str, Any] | None, int]] = [
        ({"step": step}, MOST_LISTED_THREADS) for step in FIRST_STEPS
    ]
    for beginning, limit in [*looks, (None, MOST_CHECKPOINTS)]:
        async for each in saver.alist(None, filter=beginning, limit=limit):
            place = each.config["configurable"]
            if not place.get("checkpoint_ns"):
                found[str(place["thread_id"])] = None
    return [*found]


class _Thread:
    """Reads one thread of a checkpointer as a session."""

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
        """Ids of the latest calls by the models' ids, which some models count from zero again."""

    def as_session(self, thread: str) -> ExternalSession:
        """The thread under its own id, at its latest checkpoint."""
        checkpoint = self._last.config["configurable"]["checkpoint_id"]
        return ExternalSession(
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

    def _turns(self) -> Iterator[tuple[UserMessage | RecordedEvent, ...]]:
        turn: list[UserMessage | RecordedEvent] = []
        for message in self._messages:
            if isinstance(message, HumanMessage) and turn:
                yield tuple(turn)
                turn = []
            turn.extend(self._told(message))
        if turn:
            yield tuple(turn)

    def _told(self, message: BaseMessage) -> Iterator[UserMessage | RecordedEvent]:
        """Yield what a client is shown of a message; nothing of those for the model alone."""
        key = message.id or ""
        if isinstance(message, HumanMessage):
            blocks = client_blocks(message.content)
            yield UserMessage(key, tuple(Raw(msgspec.json.encode(block)) for block in blocks))
        elif isinstance(message, AIMessage):
            for block in message_blocks(message):
                yield from _said(block, key)
            yield from (self._call(call, f"{key}_{at}") for at, call in enumerate(message.tool_calls))
        elif isinstance(message, ToolMessage):
            call_id = self._calls.get(message.tool_call_id, message.tool_call_id)
            for shown in client_blocks(message.content):
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
            locations=self._presentation.locations(name, arguments, tool=tool),
            raw_input=json_value(arguments),
        )


def _said(block: dict[str, Any], key: str) -> Iterator[RecordedEvent]:
    if block["type"] == "text" and block["text"]:
        yield Text(str(block["text"]), key)
    elif block["type"] == "reasoning" and block.get("reasoning"):
        yield Thought(str(block["reasoning"]), key)
    elif (shown := client_block(block)) is not None:
        yield Content(shown, "agent", key)
    yield from (Content(link, "agent", key) for link in citations(block))
