"""Turns a run of a graph into a turn: what models, tools and nodes do, told to the client in order.

`RunListener` hears LangChain's callbacks, `TurnProjection` tells the client.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage, convert_to_messages
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command, Interrupt, Send
from msgspec import UNSET

from coupler.agent.errors import describe
from coupler.agent.turn import COMPACTION
from coupler.events import Compaction
from coupler.langchain.content import client_blocks
from coupler.langchain.current import running_call, send_warning
from coupler.langchain.errors import AnswerTooLongError, failure_kind_of, stop_of_message
from coupler.langchain.file_backends import starting_tool
from coupler.langchain.messages import (
    DisplayOptions,
    FilteredModelRun,
    MessageDeduplicator,
    ModelRun,
    StreamFilters,
)
from coupler.langchain.tool_calls import STOPPED, OutputWriter, write_to
from coupler.langchain.usage import TokenUsage
from coupler.schema.v1 import Content, StopReason, TextContent, ToolCallContent

if TYPE_CHECKING:
    from langchain_core.outputs import ChatGenerationChunk, GenerationChunk, LLMResult
    from langchain_core.tools import BaseTool
    from tenacity import RetryCallState

    from coupler.langchain.current import Current


if TYPE_CHECKING:
    Chunk = GenerationChunk | ChatGenerationChunk | None

T = TypeVar("T")

INTERRUPT = "__interrupt__"
METADATA = "__metadata__"
MESSAGES = "messages"
STRUCTURED = "structured_response"

MODEL_NODE = "model"
"""The node of `create_agent` that asks the model."""

RETRY_GRACE = 0.3
"""Seconds after a model's failure in which it may be asked again before the user is told."""

NOT_STREAMED = "nostream"
"""LangGraph's tag for models whose answers are not shown."""

TOKENS_BEFORE_YIELD = 128
"""Tokens after which other tasks may run, even if the model never waits."""

SUMMARY_SOURCE = "summarization"

INTERNAL_RUNS = frozenset({"tool_selection", "tool_emulation"})
"""Sources of model calls by LangChain's own middleware, which are no part of the conversation."""


MOST_PIECES = 200_000
"""Pieces of one answer: LangChain holds them all until it ends, and each takes about 3 KB."""

LONGEST_ANSWER = 16 * 1024 * 1024
"""Characters of one answer: its text, what the model thinks, and the arguments of its calls."""


class _AnswerSize:
    """Counts the pieces and the characters of one answer."""

    __slots__ = ("characters", "pieces")

    def __init__(self) -> None:
        self.pieces = self.characters = 0

    def add(self, token: object, message: AIMessageChunk) -> str | None:
        """Count a piece; returns the limit that the answer is over, if it is."""
        self.pieces += 1
        self.characters += len(token) if type(token) is str and token else _length(message)
        if self.pieces > MOST_PIECES:
            return f"{MOST_PIECES:,} pieces"
        return f"{LONGEST_ANSWER:,} characters" if self.characters > LONGEST_ANSWER else None


def _length(message: AIMessageChunk) -> int:
    """Return the length of a piece that is not only text, about."""
    content = message.content
    length = len(content) if isinstance(content, str) else sum(map(_length_of_block, content))
    length += sum(len(call.get("args") or "") for call in message.tool_call_chunks)
    return length + sum(len(value) for value in message.additional_kwargs.values() if isinstance(value, str))


def _length_of_block(block: object) -> int:
    if isinstance(block, Mapping):
        return sum(len(value) for value in block.values() if isinstance(value, str))
    return len(block) if isinstance(block, str) else 0


class _Tool(NamedTuple):
    """A running tool, with the call and the writer of the code around it."""

    key: str
    outer: str | None
    outer_writer: OutputWriter | None
    is_asked_for: bool


class RunListener(BaseCallbackHandler):
    """Receives LangChain's callbacks of one run of a graph, without a queue in between.

    A model's tokens are told to the client in the very call in which LangChain reports them, and a model that
    is faster than its client is held up there. Models stream because the listener has the two `tap` methods:
    that is what LangChain asks for. Plain nodes run in threads; what is heard there is told on the loop, in
    order. There is one listener for all of this, because LangChain takes its time for each, at every token.
    """

    run_inline = True
    ignore_llm = False  # LangChain asks this at every token, and its own is a property

    def __init__(self, current: Current, projection: TurnProjection) -> None:
        self._current = current
        self.projection = projection
        self._loop = asyncio.get_running_loop()
        self._thread = threading.get_ident()
        self._tools: dict[UUID, _Tool] = {}
        self._running: dict[str, UUID] = {}
        """Ids of running tools by the keys of their calls."""
        self._outlet = current.session.outlet
        self._until_breath = TOKENS_BEFORE_YIELD
        """Tokens left before other tasks may run."""
        self._next: Callable[..., Awaitable[None] | None] = self._take
        """Handles the next token on the loop, with or without waiting."""
        self._summaries: set[UUID] = set()
        self._models: dict[UUID, str | None] = {}
        """The names of the models that are asked, by their runs."""
        self._sizes: dict[UUID, _AnswerSize] = {}
        self._last_size: tuple[UUID | None, _AnswerSize] = (None, _AnswerSize())
        """The answer of the last token, with its id because ids are slow to compare."""

    def tap_output_aiter(self, run_id: UUID, output: AsyncIterator[T]) -> AsyncIterator[T]:
        """Return the stream as it is; that this method exists makes LangChain stream models."""
        return output

    def tap_output_iter(self, run_id: UUID, output: Iterator[T]) -> Iterator[T]:
        """Make models stream for plain functions; see `tap_output_aiter`."""
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
        model = (metadata or {}).get("ls_model_name")
        self._models[run_id] = model
        if (metadata or {}).get("lc_source") == SUMMARY_SOURCE:
            self._summaries.add(run_id)
            self.tell(self.projection.begin_summary, run_id)
            return
        if _is_hidden(tags, metadata or {}) or "ls_structured_output_format" in options:
            return
        self.tell(self.projection.begin_model, run_id, running_call.get(), model)

    @property
    def on_llm_new_token(self) -> Callable[..., Awaitable[None] | None]:
        """Callback for a token; looked up for each, so that only those that have to wait are awaited."""
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
            # `asyncio.wait_for` of Python 3.11 loses a cancel while its result is there, as that of a stream
            # that never pauses always is.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                raise asyncio.CancelledError
            self._count(run_id, token, message)
            if not self.projection.take(run_id, message) or self._until_breath <= 0:
                self._next = self._take_and_wait

    async def _take_and_wait(self, token: Any, *, chunk: Chunk = None, run_id: UUID, **more: Any) -> None:
        self._until_breath, self._next = TOKENS_BEFORE_YIELD, self._take
        self._take(token, chunk=chunk, run_id=run_id)
        # Who asks a model without awaiting it holds up the loop: then nothing goes out until it is done.
        if self.projection.is_alive and asyncio.get_running_loop() is self._loop:
            await self._outlet.wait_for_room()
            await asyncio.sleep(0)

    def _take_in_thread(self, token: Any, *, chunk: Chunk = None, run_id: UUID, **more: Any) -> None:
        message = getattr(chunk, "message", None)
        if message is not None:
            self._count(run_id, token, message)
            self.tell(self.projection.take, run_id, message)

    def _count(self, run_id: UUID, token: object, message: AIMessageChunk) -> None:
        """Count a piece of an answer; raises AnswerTooLongError, which ends the model's stream."""
        last, size = self._last_size
        if run_id is not last:
            size = self._sizes.setdefault(run_id, _AnswerSize())
            self._last_size = run_id, size
        if (limit := size.add(token, message)) is not None:
            self.raise_error = True  # LangChain logs the errors of other listeners, and goes on
            raise AnswerTooLongError(f"it is over {limit}")

    def on_llm_end(self, response: LLMResult, *, run_id: UUID, **more: Any) -> None:
        self._sizes.pop(run_id, None)
        message, model = _answer_in(response), self._models.pop(run_id, None)
        if message is not None and run_id in self._summaries:
            self.tell(self.projection.end_summary, run_id, str(message.text))
        elif message is not None:
            self.tell(self.projection.end_model, run_id, message, model)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **more: Any) -> None:
        self._models.pop(run_id, None)
        self._sizes.pop(run_id, None)
        self.raise_error = False
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
        self.tell(self.projection.begin_tool, key, name, arguments, outer, starting_tool())

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
        """Call a function that reports something on the loop: now, or from a thread as soon as possible."""
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


class TurnProjection:
    """Reports to one prompt's client what models, tools and nodes do.

    Everything here happens on the event loop. Who calls it from a thread has to hop there first, as
    `RunListener` does.
    """

    def __init__(
        self, current: Current, look: DisplayOptions, usage: TokenUsage, filters: StreamFilters | None = None
    ) -> None:
        self.stop: StopReason | None = None
        """Stop reason of the last model at the top; None if it simply finished."""
        self.interrupts: list[Interrupt] = []
        """Interrupts at which the run has stopped."""
        self.is_at_breakpoint = False
        """True if the run has stopped without an interrupt."""
        self.has_spoken = False
        """True if something was shown that answers the prompt."""
        self.model_error: BaseException | None = None
        """The last error of a model."""
        self._current = current
        current.when_retried = self.retry_model
        current.when_restored = self.know
        self._calls = current.calls
        self._turn = current.turn
        self._look = look
        self._usage = usage
        self._filters = filters
        self._runs: dict[UUID, ModelRun] = {}
        self._last: ModelRun | None = None
        """The model run of the last token, cached with its id because ids are slow to compare."""
        self._last_id: UUID | None = None
        self._deduplicator = MessageDeduplicator()
        self._failed: BaseException | None = None
        self._broken_off = ""
        """The text of the last answer at the top, if it has failed after it began."""
        self._errors: dict[str, BaseException] = {}
        self._heard: dict[int, ToolMessage] = {}
        self._places: set[tuple[str, ...]] = set()
        """The graphs that have written something, by LangGraph's names of their places."""
        self._repeating: set[tuple[str, ...]] = set()
        """Those that go on in the middle of a step, and write again what is done of it."""

    @property
    def is_alive(self) -> bool:
        """True if the turn still runs, so that the client can be told."""
        return self._turn.is_alive

    def know(self, messages: Iterable[BaseMessage]) -> None:
        """Note messages that were there before, so that they are not shown again."""
        self._deduplicator.know(messages)

    def go_on_in(self, places: Iterable[tuple[str, ...]] = ()) -> None:
        """Expect that graphs go on in the middle of a step: these, and all that have run in this turn.

        If one of several nodes has asked something, LangGraph tells again what the others have written.
        """
        self._places.update(places)
        self._repeating = {(), *self._places}

    def unfinished(self) -> str:
        """Return the text of answers that broke off."""
        said = "".join(text for run in self._runs.values() if not run.is_nested for text in run.said)
        return said or self._broken_off

    def begin_model(self, run_id: UUID, parent: str | None, model: str | None) -> None:
        """Begin to show the answer of a model, which may be asked inside of a tool call."""
        if parent is None:
            self._usage.begin(model)
            self._broken_off = ""
        if self._failed is not None:
            error, self._failed = self._failed, None
            self._tell_trouble(error, "It is asked again now.")
        if self._filters is None:
            self._runs[run_id] = ModelRun(self._turn, self._calls, self._look, parent)
        else:
            self._runs[run_id] = FilteredModelRun(self._turn, self._calls, self._look, parent, self._filters)

    def take(self, run_id: UUID, message: AIMessageChunk) -> bool:
        """Show a piece of a model's answer. Returns whether more can be sent without waiting."""
        if run_id is not self._last_id:
            self._last_id, self._last = run_id, self._runs.get(run_id)
        if self._last is None or not self._turn.is_alive:
            return True
        return self._last.take(message)

    def end_model(self, run_id: UUID, message: AIMessage, model: str | None = None) -> None:
        """End a model's answer: announce its calls, count its usage, and note its stop reason."""
        run, self._last_id = self._runs.pop(run_id, None), None
        if run is None:
            # What nobody is shown was paid for all the same.
            self._usage.add(message, is_nested=True, model=model)
            return
        self._deduplicator.know([message])
        if not run.has_begun:
            run.take_whole(message)
        run.end(message)
        self._usage.add(message, is_nested=run.is_nested, model=model)
        if not run.is_nested:
            self.stop = stop_of_message(message)
            self._deduplicator.answer("".join(run.said))
            self.has_spoken = self.has_spoken or bool(run.said or run.called)

    def fail_model(self, run_id: UUID, error: BaseException) -> None:
        """End a model's answer as failed; the user is told after RETRY_GRACE seconds."""
        run, self._last_id = self._runs.pop(run_id, None), None
        if run is not None:
            run.fail(describe(error))
            if not run.is_nested:
                self._broken_off = "".join(run.said)
            self.model_error = self._failed = error
            asyncio.get_running_loop().call_later(RETRY_GRACE, self._tell_wait, error)

    def retry_model(
        self, seconds: float | None, error: BaseException | None = None, remark: str = ""
    ) -> None:
        """Tell the user that a model is asked again."""
        if error is not None:
            self._failed = None  # nobody has to tell that it has failed
        whole = round(seconds or 0)
        when = "now" if whole == 0 else "in a second" if whole == 1 else f"in {whole} seconds"
        self._tell_trouble(error, f"{remark} It is asked again {when}.".lstrip())

    def _tell_wait(self, error: BaseException) -> None:
        """Tell the user of a model's failure if it was neither asked again nor given up by now."""
        if self._failed is error and self.is_alive:
            self._failed = None
            self._tell_trouble(error, "The agent waits before it tries again, or continues without it.")

    def begin_summary(self, run_id: UUID) -> None:
        """Report that middleware has the conversation shortened."""
        self._tell_compaction(Compaction(str(run_id), "in_progress"))

    def end_summary(self, run_id: UUID, summary: str) -> None:
        """Report what the conversation was shortened to."""
        self._tell_compaction(Compaction(str(run_id), "completed", (TextContent(summary),)))

    def fail_summary(self, run_id: UUID, error: BaseException) -> None:
        """Report that the conversation could not be shortened."""
        self._tell_compaction(Compaction(str(run_id), "failed", UNSET, describe(error)))

    def _tell_compaction(self, compaction: Compaction) -> None:
        # To all others it would be a message, which the model has never said.
        if self._turn.editor.offers(COMPACTION):
            self._turn.begin_new_message()
            self._turn.session.outlet.send(compaction)

    def begin_tool(
        self, key: str, name: str, arguments: dict[str, Any], parent: str | None, tool: BaseTool | None
    ) -> None:
        """Show a call as running, and announce it if no model has."""
        self._calls.free(key)
        self._calls.withdraw(key, name, arguments)
        if key not in self._calls:
            self._calls.announce(key, name, arguments, parent=parent)
        if tool is not None:
            self._calls.identify(key, tool)
        self._calls.begin(key)

    def end_tool(self, key: str, output: Any, *, is_asked_for: bool) -> None:
        """Settle the call of a tool that has returned.

        One that reports a failure may be tried again, so its message is awaited. One that hands over to
        another agent leaves its graph, so that nothing else is told of it.
        """
        message = _message_of(output, self._calls.model_id(key) if is_asked_for else None)
        if message is not None and (message.status != "error" or not is_asked_for):
            self._heard[id(message)] = message
            self._settle(key, message)
        elif not is_asked_for:
            told = output.content if isinstance(output, BaseMessage) else output
            shown = "" if told is None else told if isinstance(output, BaseMessage) else str(told)
            self._calls.settle(key, "completed", content=_shown(client_blocks(shown)), output=told)
        elif isinstance(output, Command) and output.graph == Command.PARENT and message is None:
            self._calls.settle(key, "completed")

    def fail_tool(self, key: str, error: BaseException, *, is_asked_for: bool) -> None:
        """Note a tool's error if its model gets a message about it; settle any other call as failed."""
        if error is self._failed:
            self._failed = None  # the model of an agent in it: nobody asks that again, and the call tells why
        if is_asked_for:
            self._errors[key] = error
        else:
            self._fail_inside(key, has_failed=True)
            self._calls.settle(key, "failed", reason=describe(error))

    def _fail_inside(self, key: str, *, has_failed: bool) -> None:
        """Settle calls inside of one that ends, whose tools raised: no message will follow.

        If the outer call has failed, nothing goes on in it; otherwise its tool may have left something
        running.
        """
        for inner in self._calls.open_inside(key):
            error = self._errors.get(inner)
            if has_failed or error is not None:
                self._fail_inside(inner, has_failed=True)
                self._calls.settle(inner, "failed", reason=STOPPED if error is None else describe(error))

    def output(self, key: str, delta: Any) -> None:
        """Show output of a tool that still runs."""
        for block in client_blocks(delta):
            self._calls.append(key, getattr(block, "text", None) or block)

    def fail_open(self, reason: str | None) -> None:
        """Settle open calls when the run was broken off: with the error of their tool, else with this reason.

        Without a reason the others are left open: whoever reports that the turn has failed settles them.
        """
        self._failed = None
        for key, error in self._errors.items():
            if self._calls.is_open(key):
                self._calls.settle(key, "failed", reason=describe(error))
        if reason is not None:
            self._calls.settle_open("failed", reason)

    def update(self, namespace: tuple[str, ...], update: Mapping[str, Any]) -> None:
        """Show what nodes have written into the state."""
        self._places.add(namespace)
        # Nodes with a cache are marked in the same way, but only what was interrupted begins with these.
        is_repeated = METADATA in update and namespace in self._repeating
        if not is_repeated:
            self._repeating.discard(namespace)
        for node, written in update.items():
            if node == INTERRUPT:
                self._note_interrupts(namespace, written)
            elif node != METADATA:
                for values in _written_by(node, written):
                    self._take_values(namespace, values, is_repeated=is_repeated)

    def custom(self, value: Any) -> None:
        """Show text in LangGraph's custom stream as output of the one tool that runs."""
        running = self._calls.running_ids
        if isinstance(value, str) and len(running) == 1:
            self._calls.append(running[0], value)

    def _note_interrupts(self, namespace: tuple[str, ...], interrupts: Any) -> None:
        """Collect the interrupts of concurrent nodes, which come one by one and are asked about together."""
        if not namespace:
            self.is_at_breakpoint = not interrupts
            known = {each.id for each in self.interrupts}
            self.interrupts += [
                each for each in interrupts if isinstance(each, Interrupt) and each.id not in known
            ]

    def _take_values(self, namespace: tuple[str, ...], values: Any, *, is_repeated: bool) -> None:
        for message in _messages_in(values):
            if id(message) in self._heard:
                continue  # what an agent in a tool writes is told late: the id may be another call's by now
            if isinstance(message, ToolMessage):
                parent = self._current.call_around(namespace)
                self._settle(self._calls.open_key(message.tool_call_id, parent), message)
            elif isinstance(message, AIMessage) and is_repeated:
                self._deduplicator.note(message, namespace)
            elif isinstance(message, AIMessage):
                self._say_whole(message, namespace)
        if not namespace and isinstance(values, Mapping):
            if "todos" in values:
                self._current.board.todos(values["todos"])
            if "plan" in values:
                self._current.board.plan(values["plan"])

    def _say_whole(self, message: AIMessage, namespace: tuple[str, ...]) -> None:
        """Show a message that a node has made, and no model has streamed."""
        if self._deduplicator.has(message, namespace):
            return
        shown = message if self._filters is None else self._filters.answer(message)
        if shown is None or self._current.call_around(namespace) is not None:
            return
        if self._deduplicator.repeats(message, shown.text, namespace):
            return
        run = ModelRun(self._turn, self._calls, self._look, None)
        if shown.id is None:
            shown = shown.model_copy(update={"id": self._turn.session.outlet.new_message_id()})
        run.take_whole(shown)
        run.end(message)
        self.stop = stop_of_message(message) or self.stop
        self.has_spoken = self.has_spoken or bool(run.said or run.called)

    def _settle(self, key: str, message: ToolMessage) -> None:
        if not self._calls.is_open(key):
            return
        if self._filters is not None:
            message = self._filters.result(message)
        name, arguments = self._calls.name(key), self._calls.arguments(key)
        content = self._current.presentation.content(name, arguments, message)
        if content is None:
            content = _shown(client_blocks(message.content))
        status = "failed" if message.status == "error" else "completed"
        self._fail_inside(key, has_failed=status == "failed")
        self._calls.settle(key, status, content=content, output=_raw_output(message))

    def _tell_trouble(self, error: BaseException | None, description: str) -> None:
        trouble = failure_kind_of(error, of_model=error) if error is not None else None
        what = trouble.what if trouble is not None else "The model has failed"
        send_warning(self._turn, what, description)


def _message_of(output: Any, own: str | None) -> ToolMessage | None:
    """The message that a tool has returned, also as part of a change of the state.

    A change of the state may hold the whole conversation, as that of a handoff does, so the message is the
    one with the call's own id; of a call without an id it is the last one.
    """
    if isinstance(output, ToolMessage):
        return output
    told: list[BaseMessage] = []
    for each in output if isinstance(output, list) else [output]:
        if isinstance(each, Command):
            goto = each.goto if isinstance(each.goto, list | tuple) else [each.goto]
            sent = (to.arg for to in goto if isinstance(to, Send))
            told += [message for values in (each.update, *sent) for message in _messages_in(values)]
    results = [message for message in told if isinstance(message, ToolMessage)]
    return next((each for each in reversed(results) if own in (None, each.tool_call_id)), None)


def _written_by(node: str, written: Any) -> Iterator[Any]:
    """Return what a node has written into the state, once or several times."""
    for values in written if isinstance(written, list) else [written]:
        if isinstance(values, Command):
            values = values.update
        if node == MODEL_NODE and isinstance(values, Mapping) and values.get(STRUCTURED) is None:
            values = {**values, MESSAGES: _with_refused_answers(values.get(MESSAGES))}
        yield values


def _messages_in(values: Any) -> Iterator[BaseMessage]:
    """All messages in what a node has written, under whatever key."""
    if isinstance(values, BaseMessage):
        yield values
    elif isinstance(values, Mapping):
        for key, value in values.items():
            for each in value if isinstance(value, list) else [value]:
                if isinstance(each, BaseMessage):
                    yield each
                elif key == MESSAGES:
                    yield from _made_of(each)
    elif isinstance(values, list | tuple):
        yield from (each for each in values if isinstance(each, BaseMessage))


def _with_refused_answers(messages: Any) -> Any:
    """Return what LangChain's model node has written, with failed calls for answers that it could not read.

    A call that gives a structured answer is answered in that node; one whose arguments do not fit gets an
    error to read, as a message that does not say so.
    """
    if not isinstance(messages, list) or not isinstance(messages[-1] if messages else None, ToolMessage):
        return messages
    asked = {call["id"] for each in messages if isinstance(each, AIMessage) for call in each.tool_calls}
    return [
        each.model_copy(update={"status": "error"})
        if isinstance(each, ToolMessage) and each.tool_call_id in asked
        else each
        for each in messages
    ]


def _made_of(value: Any) -> list[BaseMessage]:
    """Convert a message that was written as a pair or a dictionary, as the state does."""
    if not isinstance(value, tuple | dict):
        return []
    try:
        return convert_to_messages([value])
    except (ValueError, TypeError, KeyError, NotImplementedError):
        return []


def _shown(blocks: list[Any]) -> list[ToolCallContent]:
    return [Content(block) for block in blocks]


def _raw_output(message: ToolMessage) -> Any:
    """Return what a tool has returned for programs: beside its message, or in it."""
    return message.content if message.artifact is None else message.artifact
