"""How the bridge hears what happens in a graph: LangChain's callbacks, without a queue in between.

A model's tokens are told to the client in the very call in which LangChain reports them, and a model that
is faster than its client is held up there. Models stream because the listener has the two `tap` methods: that
is what LangChain asks for. Plain nodes run in threads; what is heard there is told on the loop, in order.
There is one listener for all of this, because LangChain takes its time for each, at every token.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage
from langgraph.errors import GraphBubbleUp

from coupler.langchain.current import running_call
from coupler.langchain.messages import ModelRun
from coupler.langchain.tool_calls import Writer, write_to

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage, ToolMessage
    from langchain_core.outputs import ChatGenerationChunk, GenerationChunk, LLMResult
    from tenacity import RetryCallState

    from coupler.agent.turn import Turn
    from coupler.langchain.current import Current
    from coupler.langchain.messages import Look
    from coupler.langchain.projection import Projection
    from coupler.langchain.tool_calls import ToolCalls

if TYPE_CHECKING:
    Chunk = GenerationChunk | ChatGenerationChunk | None

T = TypeVar("T")

NOT_STREAMED = "nostream"
"""LangGraph's tag for models whose answers are nobody's business."""

BREATH = 128
"""Tokens after which others get their turn, also if the model never waits for anything."""

SUMMARY = "summarization"
INTERNAL_RUNS = frozenset({"tool_selection", "tool_emulation"})
"""What LangChain's own middleware asks models for, beside the conversation."""


class _Tool(NamedTuple):
    """A tool that runs, and what its code is in."""

    key: str
    outer: str | None
    outer_writer: Writer | None
    is_asked_for: bool


class Listener(BaseCallbackHandler):
    """Hears one run of a graph."""

    run_inline = True
    ignore_llm = False  # LangChain asks this at every token, and its own is a property

    def __init__(self, current: Current, projection: Projection) -> None:
        self._current = current
        self.projection = projection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tools: dict[UUID, _Tool] = {}
        self._running: dict[str, UUID] = {}
        """Which of them has a call's key."""
        self._outlet = current.session.outlet
        self._until_breath = BREATH
        """Tokens that may come before others get their turn."""
        self._next: Callable[..., Awaitable[None] | None] = self._take
        """What takes the next token on the loop, with or without waiting."""
        self._summaries: set[UUID] = set()

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[T]) -> AsyncIterator[T]:
        """What makes models stream; what they say is heard elsewhere."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[T]) -> Iterator[T]:
        """The same for plain functions."""
        return output

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        tags: list[str] | None = None,
        metadata: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        options = more.get("options") or {}
        if (metadata or {}).get("lc_source") == SUMMARY:
            self._summaries.add(run_id)
            self.tell(self.projection.begin_summary, run_id)
            return
        if _is_hidden(tags, metadata or {}) or "ls_structured_output_format" in options:
            return
        model = (metadata or {}).get("ls_model_name")
        self.tell(self.projection.begin_model, run_id, running_call.get(), model)

    @property
    def on_llm_new_token(self) -> Callable[..., Awaitable[None] | None]:
        """Hears a token. LangChain looks this up for each: only where something is to wait, it can."""
        return self._next if threading.get_ident() == self._thread else self._take_in_thread

    def _take(
        self,
        token: Any,
        *,
        chunk: Chunk = None,
        run_id: UUID,
        parent_run_id: Any = None,  # named, like the next: a mapping of what is left over takes its time
        tags: Any = None,
        **more: Any,
    ) -> None:
        message = getattr(chunk, "message", None)
        if message is not None:
            self._until_breath -= 1
            if not self.projection.take(run_id, message) or self._until_breath <= 0:
                self._next = self._take_and_wait

    async def _take_and_wait(self, token: Any, *, chunk: Chunk = None, run_id: UUID, **more: Any) -> None:
        self._until_breath, self._next = BREATH, self._take
        self._take(token, chunk=chunk, run_id=run_id)
        # Who asks a model without awaiting it holds up the loop: then nothing goes out until it is done.
        if self.projection.is_alive and asyncio.get_running_loop() is self._loop:
            await self._outlet.wait_for_room()
            await asyncio.sleep(0)

    def _take_in_thread(self, token: Any, *, chunk: Chunk = None, run_id: UUID, **more: Any) -> None:
        message = getattr(chunk, "message", None)
        if message is not None:
            self.tell(self.projection.take, run_id, message)

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: Any) -> None:
        message = _answer_in(response)
        if message is not None and run_id in self._summaries:
            self.tell(self.projection.end_summary, run_id, str(message.text))
        elif message is not None:
            self.tell(self.projection.end_model, run_id, message)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        is_summary = run_id in self._summaries
        fail = self.projection.fail_summary if is_summary else self.projection.fail_model
        self.tell(fail, run_id, error)

    def on_retry(self, retry_state: RetryCallState, *, run_id: UUID, **more: Any) -> None:
        outcome = retry_state.outcome
        error = outcome.exception() if outcome is not None and outcome.failed else None
        seconds = retry_state.next_action.sleep if retry_state.next_action is not None else None
        self.tell(self.projection.retry_model, seconds, error)

    def on_tool_start(
        self,
        serialized: dict[str, Any],
        input_str: str,
        *,
        run_id: UUID,
        metadata: dict[str, Any] | None = None,
        inputs: dict[str, Any] | None = None,
        **more: Any,
    ) -> None:
        name = (serialized or {}).get("name") or more.get("name") or "tool"
        asked_for = more.get("tool_call_id")
        outer = running_call.get()
        wanted = self._current.calls.key(str(asked_for or run_id), outer)
        # A model may give two calls one id: what the one shows and may do is not the other's. They may run in
        # threads, so who comes first is found out in one step.
        key = wanted if self._running.setdefault(wanted, run_id) == run_id else str(run_id)
        writer = write_to(lambda delta: self.tell(self.projection.output, key, delta))
        self._tools[run_id] = _Tool(key, outer, writer, asked_for is not None and key == wanted)
        running_call.set(key)
        place = (metadata or {}).get("langgraph_checkpoint_ns")
        if isinstance(place, str):
            self._current.namespaces[place.rpartition("|")[2]] = key
        arguments = dict(inputs) if isinstance(inputs, Mapping) else {"input": input_str}
        self.tell(self.projection.begin_tool, key, name, arguments, outer)

    def on_tool_end(self, output: Any, *, run_id: UUID, **more: Any) -> None:
        if (tool := self._leave_tool(run_id)) is not None:
            self.tell(lambda: self.projection.end_tool(tool.key, output, is_asked_for=tool.is_asked_for))

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        tool = self._leave_tool(run_id)
        if tool is None or isinstance(error, GraphBubbleUp):
            return  # a tool that asks something is not over: it runs again with the answer
        self.tell(lambda: self.projection.fail_tool(tool.key, error, is_asked_for=tool.is_asked_for))

    def _leave_tool(self, run_id: UUID) -> _Tool | None:
        tool = self._tools.pop(run_id, None)
        if tool is None:
            return None
        if self._running.get(tool.key) == run_id:
            del self._running[tool.key]
        if running_call.get() == tool.key:
            running_call.set(tool.outer)
            write_to(tool.outer_writer)
        return tool

    def tell(self, what: Callable[..., object], *arguments: Any) -> None:
        """Tell something on the loop: now, or from a thread as soon as it can."""
        if threading.get_ident() == self._thread:
            self._tell_now(what, arguments)
        else:
            self._loop.call_soon_threadsafe(self._tell_now, what, arguments)

    def _tell_now(self, what: Callable[..., object], arguments: tuple[Any, ...]) -> None:
        # What a cancel has left behind may go on, but nobody hears of it.
        if self.projection.is_alive:
            what(*arguments)


def _is_hidden(tags: list[str] | None, metadata: Mapping[str, Any]) -> bool:
    return NOT_STREAMED in (tags or ()) or metadata.get("lc_source") in INTERNAL_RUNS


def _answer_in(response: LLMResult) -> AIMessage | None:
    if not response.generations or not response.generations[0]:
        return None
    message = getattr(response.generations[0][0], "message", None)
    return message if isinstance(message, AIMessage) else None


# What an author takes out of the stream before anybody sees it, such as personal data.
#
# LangGraph has a place for that: transformers that stand before all others and change what passes by, as
# `PIIMiddleware` has one. They are asked about whole answers, because what is to be taken out may come in
# pieces: where there are such transformers, nothing of an answer is shown before it is complete.


Factory = Callable[[tuple[str, ...]], Any]

log = logging.getLogger("coupler.langchain")

INTERNAL_TRANSFORMER = "InternalCallTransformer"
"""LangChain's own for what middleware asks models beside the conversation, which is not shown anyway."""


def filters_in(graph: Any) -> tuple[Factory, ...]:
    """What makes the transformers of a graph that change what is shown; most have none."""
    return tuple(each for each in getattr(graph, "stream_transformers", ()) if _changes_stream(each))


class Filters:
    """The transformers of one prompt, which remember what has passed."""

    def __init__(self, factories: Iterable[Factory]) -> None:
        self._transformers = [factory(()) for factory in factories]

    def answer(self, message: AIMessage) -> AIMessage | None:
        """An answer as it may be shown; None if it may not."""
        told = self._passed("messages", (message, {}))
        return None if told is None else told[0]

    def result(self, message: ToolMessage) -> ToolMessage:
        """What a tool has returned, as it may be shown."""
        told = self._passed("tools", {**_event("tool-finished", message.tool_call_id), "output": message})
        return message.model_copy(update=_NOTHING) if told is None else told["output"]

    def output(self, id: str, delta: Any) -> Any:
        """A piece of what a tool puts out; the end of it is held back, because more may belong to it."""
        told = self._passed("tools", {**_event("tool-output-delta", id), "delta": delta})
        return "" if told is None else told["delta"]

    def arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a tool is called with, as it may be shown."""
        if not arguments:
            return arguments
        told = self._passed("tools", {**_event("tool-started", ""), "input": dict(arguments)})
        return {} if told is None else told["input"]

    def _passed(self, method: str, data: Any) -> Any:
        """What the transformers leave of an event's data; None if one of them lets nothing pass."""
        params = {"namespace": [], "timestamp": int(time.time() * 1000), "data": data}
        event = {"type": "event", "method": method, "params": params}
        for transformer in self._transformers:
            try:
                if transformer.process(event) is False:
                    return None
            except Exception as error:
                # Also a way to say no. What it says may hold just what nobody may see.
                log.info("%s lets nothing pass: %s", type(transformer).__name__, type(error).__name__)
                return None
        return params["data"]


class HeldRun(ModelRun):
    """An answer that is shown when it is complete, and as the filters leave it."""

    def __init__(
        self, turn: Turn, calls: ToolCalls, look: Look, parent: str | None, filters: Filters
    ) -> None:
        super().__init__(turn, calls, look, parent)
        self._filters = filters

    def take(self, message: BaseMessage) -> bool:
        """Wait for the rest."""
        return True

    def take_whole(self, message: BaseMessage) -> None:
        """Show what may be shown of it."""
        if (shown := self._filters.answer(message)) is not None:  # type: ignore[arg-type]
            super().take_whole(shown)


_NOTHING = {"content": "", "artifact": None}


def _event(kind: str, id: str) -> dict[str, Any]:
    return {"event": kind, "tool_call_id": id}


def _changes_stream(factory: Factory) -> bool:
    transformer = factory(())
    if (
        not getattr(transformer, "before_builtins", False)
        or type(transformer).__name__ == INTERNAL_TRANSFORMER
    ):
        return False
    from langgraph.stream import StreamTransformer

    if type(transformer).process is not StreamTransformer.process:
        return True
    log.warning("%s has no `process`: what it would change is shown as it is", type(transformer).__name__)
    return False
