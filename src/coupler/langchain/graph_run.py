"""One prompt to a graph: from the checkpoint before it to the one at which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from langchain_core.messages import ToolMessage
from langgraph.channels import DeltaChannel
from langgraph.errors import is_invalid_resume
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot
from pydantic import ValidationError

from coupler.langchain import tool_calls
from coupler.langchain.checkpoints import Saver, calls_without_result, continued, mending, results_in
from coupler.langchain.listener import Listener
from coupler.langchain.tool_calls import STOPPED
from coupler.langchain.tool_guard import gates
from coupler.schema.v1 import StopReason

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from coupler.langchain.current import Current
    from coupler.langchain.graph_shape import Shape
    from coupler.langchain.projection import Projection


log = logging.getLogger("coupler.langchain")

Graph = Pregel[Any, Any, Any, Any]

LAST_LOOK = 1.0
"""Seconds that a turn that was cut off may take to find out how far it came."""

MOST_MISFITS = 3
"""Answers in one prompt that may be of no use to the graph before the prompt fails."""

_PROGRESS = frozenset({"checkpoint", "unfinished", "asked", "below"})
"""What the agent's state says of how far the conversation has come."""

PROMPT = "coupler_prompt"
"""Where the metadata of checkpoints names their prompt; the last that was answered is in the state."""

WAITS_FOR_ANSWER = "this waits for an answer, and goes on with the next prompt"

_NONE: Any = object()
"""Stands for nothing to go on with: after a breakpoint a graph goes on with `None`."""


class GraphRun:
    """One prompt: from the checkpoint before it to the one at which it ends."""

    def __init__(
        self,
        graph: Graph,
        saver: BaseCheckpointSaver[Any],
        shape: Shape,
        current: Current,
        projection: Projection,
        *,
        keeps_cut_off: bool = False,
    ) -> None:
        self._id = uuid4().hex
        self._graph = graph
        self._saver = saver
        self._shape = shape
        self._current = current
        self._projection = projection
        self._keeps_cut_off = keeps_cut_off
        self._session = current.session
        self._listener = Listener(current, projection)
        self._values: Any = None
        self._is_waiting = False
        self._misfits = 0
        self._before: dict[str, Any] = {}

    async def perform(self) -> StopReason | None:
        """Run the graph to its end, as often as it stops to ask something."""
        if self._keeps_cut_off:
            await self._take_what_was_cut_off()
        self._before = {key: each for key, each in self._session.state.items() if key in _PROGRESS}
        await self._drop_what_was_not_answered()
        given = await self._given()
        await self._go_on(given, self._config(self._session.state.get("checkpoint")))
        while self._projection.interrupts or self._projection.is_at_breakpoint:
            answers = await self._answers()
            if answers is _NONE:
                break  # the turn is over, and the graph waits
            await self._go_on(answers, self._config())
        await self._note_checkpoint()
        self._fail_what_was_not_done()
        await self._say_output()
        self._current.board.finish()
        if self._projection.stop == "refusal":
            self.forget_prompt()
        return self._projection.stop

    async def _go_on(self, given: Any, config: RunnableConfig) -> None:
        """Run the graph until it ends or asks; an answer that it cannot use leaves its question open."""
        try:
            await self._stream(given, config)
        except ValidationError as error:
            if not is_invalid_resume(error) or self._misfits == MOST_MISFITS:
                raise
            self._misfits += 1
            await self._current.turn.notice("The answer did not fit", _misfit(error), severity="warning")
            state = await self._graph.aget_state(_place(self._config()))
            self._projection.interrupts = [*state.interrupts]

    async def _answers(self) -> Any:
        """What the graph goes on with after it has stopped in the middle; `_NONE` if it does not."""
        # Imported on use: most graphs never stop to ask.
        interrupts, self._projection.interrupts = self._projection.interrupts, []
        if interrupts:
            from coupler.langchain.interrupts import answers_to

            answers = await answers_to(interrupts, self._current)
            return _NONE if answers is None else answers
        from coupler.langchain.interrupts import may_pass

        self._projection.is_at_breakpoint = False
        state = await self._graph.aget_state(_place(self._config()), subgraphs=True)
        return None if await may_pass(state, self._current) else _NONE

    async def _given(self) -> Any:
        """What the graph goes on with: the prompt, as a new input or as the answer to what it has asked."""
        checkpoint, asked = self._session.state.get("checkpoint"), self._session.state.pop("asked", None)
        has_more_below = self._session.state.pop("below", False)
        if checkpoint is None:
            return self._shape.input(self._current.turn, [])
        place = _place(self._config(checkpoint))
        state = await self._graph.aget_state(place, subgraphs=asked is not None or has_more_below)
        if state.created_at is None:
            await self._begin_anew()
            return self._shape.input(self._current.turn, [])
        messages = self._shape.messages(state.values)
        below = [*_snapshots_below(state)]
        self._projection.know([*messages, *(said for each in below for said in self._said_in(each))])
        if asked is not None:
            from coupler.langchain.interrupts import answer_in_prompt

            answer = answer_in_prompt(state.interrupts, asked, self._current.turn.text)
            if answer is not None:
                return answer
        mended = await self._mending(messages, below)
        # Nodes that return the whole conversation return these, too: nobody says them now.
        self._projection.know(mended)
        return self._shape.input(self._current.turn, mended)

    def _said_in(self, state: StateSnapshot) -> list[BaseMessage]:
        return self._shape.messages(state.values)

    def forget_prompt(self) -> None:
        """The prompt was refused, or could not be read: it is no part of the conversation.

        Clients know that of refused ones, and the user is told of the others.
        """
        rest = {key: each for key, each in self._session.state.items() if key not in _PROGRESS}
        self._session.state = {**rest, "checkpoint": None, **self._before, "answered": self._id}

    async def look_where_it_stopped(self) -> None:
        """The run was cut off: the next one goes on from where it came to."""
        try:
            async with asyncio.timeout(LAST_LOOK):
                await self._note_checkpoint(self._projection.unfinished())
        except Exception as error:
            log.warning("the next prompt goes on from the turn before: %s", error)

    async def _stream(self, given: Any, config: RunnableConfig) -> None:
        # Asked for each time: the user may be against something by now.
        config = {**config, "callbacks": [*await gates(self._current), self._listener]}
        modes: Any = ["updates", "custom"] if tool_calls.IS_KNOWN else ["updates", "custom", "tools"]
        stream: AsyncIterator[Any] = self._graph.astream(
            given, config, context=self._shape.context, stream_mode=modes, subgraphs=True
        )
        async for namespace, mode, told in stream:
            if mode == "updates":
                self._projection.update(namespace, told)
            elif mode == "tools":
                if told["event"] == "tool-output-delta":
                    parent = self._current.call_around(namespace)
                    key = self._current.calls.open_key(told["tool_call_id"], parent)
                    self._projection.output(key, told["delta"])
            elif mode == "custom":
                self._projection.custom(told)
            await self._session.outlet.wait_for_room()

    def _config(self, checkpoint: str | None = None) -> RunnableConfig:
        place: dict[str, Any] = {"thread_id": self._session.state["thread"]}
        if checkpoint is not None:
            place["checkpoint_id"] = checkpoint
        return {
            "configurable": place,
            "metadata": {"session_id": self._session.id, "cwd": self._session.cwd, PROMPT: self._id},
        }

    async def _take_what_was_cut_off(self) -> None:
        """A kill has ended the turn before: what its user was shown is remembered, as after a cancel."""
        if self._session.state.pop("forked", False):
            return  # what the other session was in the middle of is not common to both
        newest = await self._saver.aget_tuple(_place(self._config()))
        if newest is not None and newest.metadata.get(PROMPT) != self._session.state.get("answered"):
            noted = newest.config["configurable"]["checkpoint_id"]
            self._session.state = {**self._session.state, "checkpoint": noted}

    async def _drop_what_was_not_answered(self) -> None:
        """Checkpoints that no answer names: of earlier steps, and of a turn that a kill has cut off."""
        checkpoint = self._session.state.get("checkpoint")
        if checkpoint is None and self._session.state.get("foreign"):
            return  # somebody else may need what is in it
        if checkpoint is None:
            with contextlib.suppress(NotImplementedError):
                await self._saver.adelete_thread(self._session.state["thread"])
            return
        # Some states are kept as differences to those before them; and a question may wait inside of a graph
        # in this one, or what was cut off be there, which has checkpoints of its own.
        grows = any(isinstance(channel, DeltaChannel) for channel in self._graph.channels.values())
        needs_more = grows or not self._session.state.keys().isdisjoint(("asked", "below"))
        if isinstance(self._saver, Saver) and not needs_more:
            await self._saver.keep_only(self._session.state["thread"], checkpoint)

    async def _begin_anew(self) -> None:
        """What the graph's checkpointer has forgotten cannot be gone on with: say so, and begin again."""
        self._session.state = {**self._session.state, "checkpoint": None}
        await self._current.turn.notice(
            "The agent does not remember this conversation",
            "Its checkpointer has lost it. What was said before is shown, but the model does not know it.",
            severity="warning",
        )

    async def _mending(
        self, messages: list[BaseMessage], below: Sequence[StateSnapshot]
    ) -> list[BaseMessage]:
        state = self._session.state
        unfinished = state.pop("unfinished", "")
        if not messages:
            return []
        kept = results_in(await self._saver.aget_tuple(_place(self._config(state["checkpoint"]))))
        more: dict[str | None, BaseMessage] = {}
        for each in below:
            more |= {said.id: said for said in continued(messages, self._said_in(each))}
            kept += results_in(await self._saver.aget_tuple(_place(each.config)))
        return mending(messages, kept, unfinished, [*more.values()])

    async def _note_checkpoint(self, unfinished: str = "") -> None:
        """The turn ends here; its row in the journal says so."""
        state = await self._graph.aget_state(_place(self._config()))
        self._values, self._is_waiting = state.values, bool(state.next)
        noted = state.config["configurable"].get("checkpoint_id")
        changed = {**self._session.state, "checkpoint": noted, "answered": self._id}
        if unfinished:
            changed["unfinished"] = unfinished
        if any(task.state is not None for task in state.tasks):
            changed["below"] = True
        if self._current.asked_in_chat is not None:
            changed["asked"] = self._current.asked_in_chat
        self._session.state = changed

    def _fail_what_was_not_done(self) -> None:
        """If the graph has stopped in the middle, calls that are open there were not carried out.

        If it is over, those were not that its tools never ran for and that have no result, as when middleware
        jumps to the end. Others are its nodes' own matter: a call may be but the choice of a way.
        """
        calls = self._current.calls
        if self._is_waiting:
            reason = WAITS_FOR_ANSWER if self._current.asked_in_chat is not None else STOPPED
            calls.settle_open("failed", reason)
            return
        for call_id, name in calls_without_result(self._shape.messages(self._values)):
            if calls.is_open(call_id) and call_id not in calls.running_ids and name in self._current.tools:
                calls.settle(call_id, "failed", reason=STOPPED)

    async def _say_output(self) -> None:
        """What answers the prompt and is no message of a model: said, if nobody has."""
        # Also a function that takes messages may return a text.
        if self._shape.has_messages and isinstance(self._values, Mapping):
            text = self._direct_answer()
        else:
            is_said = self._projection.has_spoken
            text = "" if is_said else self._shape.answer(self._values, self._current.turn.text)
        if text:
            self._current.turn.begin_new_message()
            await self._current.turn.say(text)

    def _direct_answer(self) -> str:
        """The result of a tool that answers in the agent's place (`return_direct`), if that is the end.

        Or what the agent was to answer with by its `response_format`, if the model has given it by a call: no
        tool runs then, and there is nothing that the model says after it.
        """
        last = next(reversed(self._shape.messages(self._values)), None)
        if not isinstance(last, ToolMessage) or last.status == "error" or self._is_waiting:
            return ""
        tool = self._current.tools.get(last.name or "")
        if tool is None:
            return self._shape.structured_answer(self._values)
        return str(last.text) if tool.return_direct else ""


def _misfit(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join([*map(str, first["loc"]), first["msg"]])


def _snapshots_below(state: StateSnapshot) -> Iterator[StateSnapshot]:
    """The graphs that stand still inside of this one: what they hold comes up only when they are done."""
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            yield task.state
            yield from _snapshots_below(task.state)


def _place(config: RunnableConfig) -> RunnableConfig:
    return {"configurable": config["configurable"]}


# Threads for the plain functions of graphs: enough of them that some may be left behind.
#
# A cancel waits for no plain function, so its thread goes on until it is done. With asyncio's own few threads
# a handful of those would keep all other tools from running.


MOST_THREADS = 128


def have_enough_threads() -> None:
    """Give the running loop as many threads as that, unless somebody has chosen its threads already."""
    loop = asyncio.get_running_loop()
    if getattr(loop, "_default_executor", None) is None:
        loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="graph"))
