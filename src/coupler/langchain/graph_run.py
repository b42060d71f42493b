"""Runs a graph for one prompt: from the checkpoint before it to the one at which it ends."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import inspect
import logging
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NotRequired,
    Required,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import uuid4

from langchain_core.messages import BaseMessage, ToolMessage
from langgraph.constants import START
from langgraph.errors import is_invalid_resume
from langgraph.pregel import Pregel
from langgraph.types import StateSnapshot
from pydantic import ValidationError
from pydantic_core import to_json

from coupler.langchain import tool_calls
from coupler.langchain.checkpoints import (
    calls_without_result,
    continuation,
    pending_results,
    repairs,
)
from coupler.langchain.content import human_message
from coupler.langchain.projection import MESSAGES, STRUCTURED, RunListener
from coupler.langchain.saver import SessionSaver
from coupler.langchain.tool_calls import STOPPED
from coupler.langchain.tool_guard import permission_callbacks
from coupler.schema.v1 import StopReason

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig
    from langgraph.checkpoint.base import BaseCheckpointSaver

    from coupler.agent.turn import Turn
    from coupler.langchain.current import Current
    from coupler.langchain.projection import TurnProjection

log = logging.getLogger("coupler.langchain")

Graph = Pregel[Any, Any, Any, Any]

LAST_LOOK_TIMEOUT = 1.0
"""Seconds that a turn that was cut off may take to find its last checkpoint."""

MOST_INVALID_ANSWERS = 3
"""Most answers in one prompt that the graph cannot use, before the prompt fails."""

MOST_THREADS = 128

PROMPT_KEY = "coupler_prompt"
"""Key for the prompt's id in the metadata of checkpoints; the last answered one is in the state."""

WAITS_FOR_ANSWER = "this waits for an answer, and continues with the next prompt"

ROOT = "__root__"
"""The key of a state that has no keys."""

_PROGRESS = frozenset({"checkpoint", "unfinished", "not_begun", "asked", "below"})
"""Keys of the agent's state about how far the conversation has come."""

_NONE: Any = object()
"""Stands for no input at all, as `None` continues a graph after a breakpoint."""


class GraphRun:
    """Runs a graph for one prompt: from the checkpoint before it to the one at which it ends."""

    def __init__(
        self,
        graph: Graph,
        saver: BaseCheckpointSaver[Any],
        shape: GraphShape,
        current: Current,
        projection: TurnProjection,
        *,
        may_be_cut_off: bool = True,
    ) -> None:
        self._id = uuid4().hex
        self._graph = graph
        self._saver = saver
        self._shape = shape
        self._current = current
        self._projection = projection
        self._may_be_cut_off = may_be_cut_off
        self._session = current.session
        self._listener = RunListener(current, projection)
        self._values: Any = None
        self._is_waiting = False
        self._misfits = 0
        self._before: dict[str, Any] = {}

    async def perform(self) -> StopReason | None:
        """Run the graph to its end, as often as it stops to ask something."""
        if self._may_be_cut_off:
            await self._take_what_was_cut_off()
        self._before = {key: each for key, each in self._session.state.items() if key in _PROGRESS}
        await self._drop_what_was_not_answered()
        given = await self._given()
        if given is _NONE:
            return None  # the user has dropped the question that was open, or it is asked again
        await self._go_on(given, self._config(self._session.state.get("checkpoint")))
        while self._projection.interrupts or self._projection.is_at_breakpoint:
            answers = await self._answers()
            if answers is _NONE:
                break  # the turn is over, and the graph waits
            self._projection.go_on_in()
            await self._go_on(answers, self._config())
        await self._note_checkpoint()
        self._fail_what_was_not_done()
        await self._say_output()
        self._current.board.finish()
        if self._projection.stop == "refusal":
            self.forget_prompt()
        return self._projection.stop

    async def _go_on(self, given: Any, config: RunnableConfig) -> None:
        """Run the graph until it ends or asks; an answer that it cannot use leaves the question open."""
        try:
            await self._stream(given, config)
        except ValidationError as error:
            if not is_invalid_resume(error) or self._misfits == MOST_INVALID_ANSWERS:
                raise
            self._misfits += 1
            await self._current.turn.notice(
                "The answer did not fit", _validation_message(error), severity="warning"
            )
            state = await self._graph.aget_state(_place(self._config()))
            self._projection.interrupts = [*state.interrupts]

    async def _answers(self) -> Any:
        """Return what the graph continues with after it has stopped in the middle; `_NONE` if it does not."""
        # Imported on use: most graphs never stop to ask.
        interrupts, self._projection.interrupts = self._projection.interrupts, []
        if interrupts:
            from coupler.langchain.interrupts import answers_to

            answers = await answers_to(interrupts, self._current)
            return _NONE if answers is None else answers
        from coupler.langchain.interrupts import may_continue

        self._projection.is_at_breakpoint = False
        state = await self._graph.aget_state(_place(self._config()), subgraphs=True)
        return None if await may_continue(state, self._current) else _NONE

    async def _given(self) -> Any:
        """Return the prompt as the graph takes it: as a new input, or as the answer to what it has asked.

        `_NONE` if the prompt neither answers the open question nor is anything else to the graph.
        """
        told = self._session.state
        checkpoint, asked, has_more_below = told.get("checkpoint"), told.get("asked"), "below" in told
        if checkpoint is None:
            return self._shape.input(self._current.turn, [])
        place = _place(self._config(checkpoint))
        state = await self._graph.aget_state(place, subgraphs=asked is not None or has_more_below)
        if state.created_at is None:
            await self._begin_anew()
            return self._shape.input(self._current.turn, [])
        await self._tell_what_is_lost()
        messages = self._shape.messages(state.values)
        below = [*_snapshots_below(state)]
        self._projection.know([*messages, *(said for each in below for said in self._said_in(each))])
        if asked is not None:
            from coupler.langchain.interrupts import answer_in_prompt

            answer = await answer_in_prompt(state.interrupts, asked, self._current)
            if answer == "again":
                self._session.state = {**told, "asked": self._current.asked_in_chat}
                return _NONE
            self._forget("asked")
            if answer == "dropped":
                return _NONE
            if answer is not None:
                self._forget("below")
                self._projection.go_on_in(map(_namespace, below))
                return answer
        self._forget("below")
        mended = await self._mending(messages, below)
        # Nodes that return the whole conversation return these, too: nobody says them now.
        self._projection.know(mended)
        return self._shape.input(self._current.turn, mended)

    def _forget(self, key: str) -> None:
        self._session.state = {name: each for name, each in self._session.state.items() if name != key}

    def _said_in(self, state: StateSnapshot) -> list[BaseMessage]:
        return self._shape.messages(state.values)

    def forget_prompt(self) -> None:
        """Remove a prompt that was refused, or that the model cannot read, from the conversation.

        Clients know that of refused ones, and the user is told of the others.
        """
        rest = {key: each for key, each in self._session.state.items() if key not in _PROGRESS}
        self._session.state = {**rest, "checkpoint": None, **self._before, "answered": self._id}

    async def look_where_it_stopped(self) -> None:
        """Note the checkpoint at which the run was cut off, from which the next one continues."""
        try:
            async with asyncio.timeout(LAST_LOOK_TIMEOUT):
                await self._note_checkpoint(self._projection.unfinished())
        except Exception as error:
            log.warning("the next prompt continues from the turn before: %s", error)

    async def _stream(self, given: Any, config: RunnableConfig) -> None:
        # Asked for each time: the user may be against something by now.
        config = {**config, "callbacks": [*await permission_callbacks(self._current), self._listener]}
        modes: Any = ["updates", "custom"] if tool_calls.HAS_OUTPUT_WRITER else ["updates", "custom", "tools"]
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
            "metadata": {"session_id": self._session.id, "cwd": self._session.cwd, PROMPT_KEY: self._id},
        }

    async def _take_what_was_cut_off(self) -> None:
        """Take over the last checkpoint of a turn that a kill has ended, as after a cancel."""
        if self._session.state.pop("forked", False):
            return  # what the other session was in the middle of is not common to both
        newest = await self._saver.aget_tuple(_place(self._config()))
        if newest is None:
            return
        state, noted = self._session.state, newest.config["configurable"]["checkpoint_id"]
        # Without a key it was written by somebody else, who uses the same thread.
        is_answered = newest.metadata.get(PROMPT_KEY) in (None, state.get("answered"))
        if noted != state.get("checkpoint") and not is_answered:
            rest = {key: each for key, each in state.items() if key not in _PROGRESS}
            self._session.state = {**rest, "checkpoint": noted, "below": True}

    async def _drop_what_was_not_answered(self) -> None:
        """Delete checkpoints that no answer names: of earlier steps, and of a turn that a kill has ended."""
        checkpoint = self._session.state.get("checkpoint")
        if checkpoint is None and self._session.state.get("foreign"):
            return  # somebody else may need what is in it
        thread = self._session.state["thread"]
        if isinstance(self._saver, SessionSaver):
            # A question may wait inside of a graph in this one, or what was cut off be there.
            has_more_below = not self._session.state.keys().isdisjoint(("asked", "below"))
            await self._saver.begin_turn(thread, checkpoint, with_tasks=has_more_below)
        elif checkpoint is None:
            with contextlib.suppress(NotImplementedError):
                await self._saver.adelete_thread(thread)

    async def _begin_anew(self) -> None:
        """Say that the graph's checkpointer has lost the conversation, and begin again."""
        rest = {key: each for key, each in self._session.state.items() if key not in _PROGRESS}
        self._session.state = {**rest, "checkpoint": None}
        await self._current.turn.notice(
            "The agent does not remember this conversation",
            "Its checkpointer has lost it. What was said before is shown, but the model does not know it.",
            severity="warning",
        )

    async def _tell_what_is_lost(self) -> None:
        """Tell the user of values in the state that lived in a process that is gone."""
        saver = self._saver
        lost = saver.lost_values(self._session.state["thread"]) if isinstance(saver, SessionSaver) else {}
        if lost:
            named = ", ".join(f"`{name}` ({kind})" for name, kind in lost.items())
            await self._current.turn.notice(
                "The agent has lost a part of its state",
                f"It was restarted, and this could not be stored: {named}.",
                severity="warning",
            )

    async def _mending(
        self, messages: list[BaseMessage], below: Sequence[StateSnapshot]
    ) -> list[BaseMessage]:
        state = self._session.state
        unfinished, not_begun = state.pop("unfinished", ""), state.pop("not_begun", ())
        if not messages:
            return []
        kept = pending_results(await self._saver.aget_tuple(_place(self._config(state["checkpoint"]))))
        more: dict[str | None, BaseMessage] = {}
        for each in below:
            more |= {said.id: said for said in continuation(messages, self._said_in(each))}
            kept += pending_results(await self._saver.aget_tuple(_place(each.config)))
        return repairs(messages, kept, unfinished, [*more.values()], not_begun)

    async def _note_checkpoint(self, unfinished: str = "") -> None:
        """Note the checkpoint at which the turn ends in the session's state."""
        state = await self._graph.aget_state(_place(self._config()))
        self._values, self._is_waiting = state.values, bool(state.next)
        noted = state.config["configurable"].get("checkpoint_id")
        rest = {key: each for key, each in self._session.state.items() if key != "not_begun"}
        changed = {**rest, "checkpoint": noted, "answered": self._id}
        if unfinished:
            changed["unfinished"] = unfinished
        if not_begun := self._current.calls.never_begun:
            changed["not_begun"] = not_begun
        if any(task.state is not None for task in state.tasks):
            changed["below"] = True
        if self._current.asked_in_chat is not None:
            changed["asked"] = self._current.asked_in_chat
        self._session.state = changed

    def _fail_what_was_not_done(self) -> None:
        """Settle the tool calls that were not carried out as failed.

        If the graph has stopped in the middle, these are all that are open. If it is over, those that its
        tools never ran for and that have no result, as when middleware jumps to the end. Others are left to
        its nodes: a call may only stand for a choice.
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
        """Say an answer that is no message of a model, such as a returned text, unless it was said."""
        if self._is_waiting:
            return  # there is no answer yet: what is in the state is that of the turn before
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
        if not isinstance(last, ToolMessage) or last.status == "error":
            return ""
        tool = self._current.tools.get(last.name or "")
        if tool is None:
            return self._shape.structured_answer(self._values)
        return str(last.text) if tool.return_direct else ""


def _validation_message(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    return ": ".join([*map(str, first["loc"]), first["msg"]])


def _snapshots_below(state: StateSnapshot) -> Iterator[StateSnapshot]:
    """Yield the states of graphs that have stopped inside of this one, which has their values only later."""
    for task in state.tasks:
        if isinstance(task.state, StateSnapshot):
            yield task.state
            yield from _snapshots_below(task.state)


def _namespace(state: StateSnapshot) -> tuple[str, ...]:
    return tuple(str(state.config["configurable"]["checkpoint_ns"]).split("|"))


def _place(config: RunnableConfig) -> RunnableConfig:
    return {"configurable": config["configurable"]}


def ensure_enough_threads() -> None:
    """Give the running loop `MOST_THREADS` threads, unless somebody has chosen its threads already.

    A cancel waits for no plain function, so its thread goes on until it is done. With asyncio's own few
    threads a handful of those would keep all other tools from running.
    """
    loop = asyncio.get_running_loop()
    if getattr(loop, "_default_executor", None) is None:
        loop.set_default_executor(ThreadPoolExecutor(MOST_THREADS, thread_name_prefix="graph"))


class GraphShape:
    """Converts a prompt to the input of a graph, and finds the answer in its output.

    Most graphs have `messages`. Others take the prompt's text: as their whole input, or as the one text that
    they ask for. What they answer with is the text in their output, if no message said anything.
    """

    def __init__(self, graph: Pregel[Any, Any, Any, Any]) -> None:
        schema = _input_of(graph)
        fields = _fields_of(graph, schema)
        self.has_messages = MESSAGES in fields
        self._is_text = _is_text(schema)
        self._field = None if self.has_messages else _only_text(graph, fields, schema)
        self.context = _context_of(graph)
        """Context for the graph besides its input: the defaults of its own schema, as prompts have none."""
        self._outputs = [name for name in _names(graph.output_channels) if name != self._field]
        if not (self.has_messages or self._is_text or self._field or _is_list(schema)):
            raise GraphShapeError(
                f"this graph takes {', '.join(fields) or schema}, and a prompt is text: "
                "give its state a key `messages`, or its input exactly one required key that is text, and "
                "mark the others as `NotRequired[str]`; "
                "an @entrypoint may take a `str` or a list of messages as well"
            )

    def input(self, turn: Turn, before: Sequence[BaseMessage]) -> Any:
        """The prompt as the graph's input, behind messages that mend the conversation."""
        if self.has_messages:
            return {MESSAGES: [*before, human_message(turn.blocks)]}
        if self._field is not None:
            return {self._field: turn.text}
        if self._is_text:
            return turn.text
        return [*before, human_message(turn.blocks)]

    def messages(self, values: Any) -> list[BaseMessage]:
        """Return the messages in a state."""
        found = values.get(MESSAGES) if isinstance(values, Mapping) else values
        return [each for each in found if isinstance(each, BaseMessage)] if isinstance(found, list) else []

    def answer(self, values: Any, prompt: str) -> str:
        """The text in what a graph has returned, for graphs whose nodes say nothing themselves."""
        if isinstance(values, str):
            return values
        if not isinstance(values, Mapping):
            return ""
        given = values.get(self._field) if self._field is not None else None
        texts = {name: values[name] for name in self._outputs if isinstance(values.get(name), str)}
        if not texts and isinstance(given, str) and given != prompt:
            return given
        if len(texts) == 1:
            return str(*texts.values())
        return "\n".join(f"{name}: {text}" for name, text in texts.items())

    def structured_answer(self, values: Any) -> str:
        """Return the result of a `response_format`, as the JSON that other models would write."""
        given = values.get(STRUCTURED) if isinstance(values, Mapping) else None
        return "" if given is None else to_json(given, serialize_unknown=True).decode()


def _input_of(graph: Pregel[Any, Any, Any, Any]) -> Any:
    """The schema of the input's keys; or the type of the input, if it has none."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        return _parameter_of(graph)
    root = builder.schemas[builder.input_schema].get(ROOT)
    return builder.input_schema if root is None else getattr(root, "ValueType", Any)


def _parameter_of(graph: Pregel[Any, Any, Any, Any]) -> Any:
    """Return the type that the function of an `@entrypoint` takes."""
    kind = getattr(graph.channels.get(START), "ValueType", Any)
    if not isinstance(kind, str):
        return kind
    # In a module that has its annotations as text LangGraph keeps no more than that.
    for node in graph.nodes.values():
        function: Any = getattr(node.bound, "func", None) or getattr(node.bound, "afunc", None)
        with contextlib.suppress(NameError, TypeError, StopIteration):
            return get_type_hints(function)[next(iter(inspect.signature(function).parameters))]
    return kind


def _fields_of(graph: Pregel[Any, Any, Any, Any], schema: Any) -> dict[str, Any]:
    """The types of the input's keys."""
    builder = getattr(graph, "builder", None)
    if builder is None:
        # Not asked of `typing`, which does not know the typed dictionaries of `typing_extensions`.
        return get_type_hints(schema, include_extras=True) if hasattr(schema, "__required_keys__") else {}
    channels = builder.schemas[builder.input_schema]
    return {name: getattr(channel, "ValueType", Any) for name, channel in channels.items() if name != ROOT}


def _context_of(graph: Pregel[Any, Any, Any, Any]) -> dict[str, Any] | None:
    """The context of the graph's own schema, if there are defaults for all that is in it."""
    schema = graph.context_schema
    has_keys = dataclasses.is_dataclass(schema) or any(
        hasattr(schema, mark) for mark in ("__required_keys__", "model_fields")
    )
    return {} if has_keys and not _required(schema, {}) else None


def _only_text(graph: Pregel[Any, Any, Any, Any], fields: Mapping[str, Any], schema: Any) -> str | None:
    """Return the only required key that is text, or the only text if no text is required."""
    texts = [name for name, kind in fields.items() if _is_text(kind)]
    required = [name for name in _required(schema, fields) if name in fields]
    if hasattr(schema, "__required_keys__"):
        # LangGraph asks for no key of a typed dictionary, and nodes fill what a prompt cannot be.
        required = [name for name in required if name in texts and not _has_value(graph.channels.get(name))]
    if len(required) == 1 and required[0] in texts:
        return required[0]
    return texts[0] if len(texts) == 1 and not set(required) - set(texts) else None


def _has_value(channel: Any) -> bool:
    """Return whether a key has a value before anybody gives it one, as those with reducers have."""
    return channel is not None and bool(channel.is_available())


def _required(schema: Any, fields: Mapping[str, Any]) -> list[str]:
    """The keys that have to be given, as far as the kind of the schema tells."""
    if (keys := getattr(schema, "__required_keys__", None)) is not None:
        return sorted(keys)
    if (models := getattr(schema, "model_fields", None)) is not None:
        return [name for name, field in models.items() if field.is_required()]
    if dataclasses.is_dataclass(schema):
        return [field.name for field in dataclasses.fields(schema) if _has_no_default(field)]
    return [*fields]


def _has_no_default(field: dataclasses.Field[Any]) -> bool:
    return field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING


def _is_text(type: Any) -> bool:
    if get_origin(type) in (Union, UnionType, Annotated, Required, NotRequired):
        return any(_is_text(option) for option in get_args(type))
    return type is str


def _is_list(type: Any) -> bool:
    return type is Any or type is list or get_origin(type) in (list, Sequence)


def _names(channels: str | Sequence[str]) -> list[str]:
    return [channels] if isinstance(channels, str) else [*channels]


class GraphShapeError(TypeError):
    """The graph takes something that a prompt is not."""
