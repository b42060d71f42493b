"""A run of a graph as a turn: what models, tools and nodes do, told to the client in the order of the doing.

Everything here happens on the event loop. Who calls it from a thread has to hop there first; see `Listener`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any
from uuid import UUID

from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    ToolMessage,
    convert_to_messages,
)
from langgraph.types import Command, Interrupt
from msgspec import UNSET

from coupler.agent.errors import describe
from coupler.agent.turn import COMPACTION, NOTICES
from coupler.events import Compaction, Notice, Thought
from coupler.langchain.content import blocks_of
from coupler.langchain.errors import stop_of_message, trouble_of
from coupler.langchain.listener import Filters, HeldRun
from coupler.langchain.messages import Look, ModelRun, Sayings
from coupler.langchain.tool_calls import STOPPED
from coupler.langchain.usage import Usage
from coupler.schema.v1 import Content, StopReason, TextContent, ToolCallContent

if TYPE_CHECKING:
    from coupler.langchain.current import Current

INTERRUPT = "__interrupt__"
MESSAGES = "messages"

SILENCE = 0.3
"""Seconds after the failure of a model in which somebody may ask it again before the user is told."""


class Projection:
    """Tells one prompt's client what happens."""

    def __init__(self, current: Current, look: Look, usage: Usage, filters: Filters | None = None) -> None:
        self.stop: StopReason | None = None
        """Why the last model at the top has stopped, if it was not done."""
        self.interrupts: list[Interrupt] = []
        """What the run has stopped to ask."""
        self.is_at_breakpoint = False
        """Whether the run has stopped without a question."""
        self.has_spoken = False
        """Whether anything was shown that answers the prompt."""
        self.model_error: BaseException | None = None
        """What a model has failed with at last."""
        self._current = current
        current.when_retried = self.retry_model
        self._calls = current.calls
        self._turn = current.turn
        self._look = look
        self._usage = usage
        self._filters = filters
        self._runs: dict[UUID, ModelRun] = {}
        self._last: ModelRun | None = None
        """Whose token came last. Its id is the same object each time, and ids are slow to compare."""
        self._last_id: UUID | None = None
        self._sayings = Sayings()
        self._failed: BaseException | None = None
        self._errors: dict[str, BaseException] = {}
        self._heard: dict[int, ToolMessage] = {}

    @property
    def is_alive(self) -> bool:
        """Whether the client still hears of this."""
        return self._turn.is_alive

    def know(self, messages: Iterable[BaseMessage]) -> None:
        """These messages were there before."""
        self._sayings.know(messages)

    def unfinished(self) -> str:
        """What was said in an answer that broke off."""
        return "".join(text for run in self._runs.values() if not run.is_nested for text in run.said)

    # Models

    def begin_model(self, run_id: UUID, parent: str | None, model: str | None) -> None:
        """A model is asked, in this tool call if in any."""
        if parent is None:
            self._usage.begin(model)
        if self._failed is not None:
            error, self._failed = self._failed, None
            self._tell_trouble(error, "It is asked again now.")
        if self._filters is None:
            self._runs[run_id] = ModelRun(self._turn, self._calls, self._look, parent)
        else:
            self._runs[run_id] = HeldRun(self._turn, self._calls, self._look, parent, self._filters)

    def take(self, run_id: UUID, message: AIMessageChunk) -> bool:
        """A model has said something more. Returns whether its client takes yet more without waiting."""
        if run_id is not self._last_id:
            self._last_id, self._last = run_id, self._runs.get(run_id)
        if self._last is None or not self._turn.is_alive:
            return True
        return self._last.take(message)

    def end_model(self, run_id: UUID, message: AIMessage) -> None:
        """A model has answered."""
        run, self._last_id = self._runs.pop(run_id, None), None
        if run is None:
            # What nobody is shown was paid for all the same.
            self._usage.add(message, is_nested=True)
            return
        self._sayings.know([message])
        if not run.has_begun:
            run.take_whole(message)
        run.end(message)
        self._usage.add(message, is_nested=run.is_nested)
        if not run.is_nested:
            self.stop = stop_of_message(message)
            self._sayings.answer("".join(run.said))
            self.has_spoken = self.has_spoken or bool(run.said or run.called)

    def fail_model(self, run_id: UUID, error: BaseException) -> None:
        """A model has failed; somebody may ask it again."""
        run, self._last_id = self._runs.pop(run_id, None), None
        if run is not None:
            run.fail(describe(error))
            self.model_error = self._failed = error
            asyncio.get_running_loop().call_later(SILENCE, self._tell_wait, error)

    def retry_model(self, seconds: float | None, error: BaseException | None = None) -> None:
        """A model is going to be asked again."""
        whole = round(seconds or 0)
        when = "now" if whole == 0 else "in a second" if whole == 1 else f"in {whole} seconds"
        self._tell_trouble(error, f"It is asked again {when}.")

    def _tell_wait(self, error: BaseException) -> None:
        """Nobody has asked the model again by now, and nobody has given up: somebody may wait for long."""
        if self._failed is error and self.is_alive:
            self._failed = None
            self._tell_trouble(error, "The agent waits before it tries again, or goes on without it.")

    # Summaries

    def begin_summary(self, run_id: UUID) -> None:
        """Middleware has the conversation shortened."""
        self._tell_compaction(Compaction(str(run_id), "in_progress"))

    def end_summary(self, run_id: UUID, summary: str) -> None:
        """It was shortened to this."""
        self._tell_compaction(Compaction(str(run_id), "completed", (TextContent(summary),)))

    def fail_summary(self, run_id: UUID, error: BaseException) -> None:
        """It could not be."""
        self._tell_compaction(Compaction(str(run_id), "failed", UNSET, describe(error)))

    def _tell_compaction(self, compaction: Compaction) -> None:
        # To all others it would be a message, which the model has never said.
        if self._turn.editor.offers(COMPACTION):
            self._turn.begin_new_message()
            self._turn.session.outlet.send(compaction)

    # Tools

    def begin_tool(self, key: str, name: str, arguments: dict[str, Any], parent: str | None) -> None:
        """A tool runs."""
        self._calls.free(key)
        self._calls.withdraw(key, name, arguments)
        if key not in self._calls:
            self._calls.announce(key, name, arguments, parent=parent)
        self._calls.run(key)

    def end_tool(self, key: str, output: Any, *, is_asked_for: bool) -> None:
        """A tool has returned. One that says that it failed may be tried again, so its message is awaited."""
        message = _message_of(output)
        if message is not None and (message.status != "error" or not is_asked_for):
            self._heard[id(message)] = message
            self._settle(key, message)
        elif not is_asked_for:
            self._calls.settle(key, "completed", content=_shown(blocks_of(_plain(output))))

    def fail_tool(self, key: str, error: BaseException, *, is_asked_for: bool) -> None:
        """A tool has raised; what becomes of that, its message tells."""
        if error is self._failed:
            self._failed = None  # the model of an agent in it: nobody asks that again, and the call tells why
        if is_asked_for:
            self._errors[key] = error
        else:
            self._fail_inside(key, has_failed=True)
            self._calls.settle(key, "failed", reason=describe(error))

    def _fail_inside(self, key: str, *, has_failed: bool) -> None:
        """A call ends: those in it whose tools raised will have no message that says so.

        If it has failed, nothing goes on in it; otherwise its tool may have left something running.
        """
        for inner in self._calls.open_inside(key):
            error = self._errors.get(inner)
            if has_failed or error is not None:
                self._fail_inside(inner, has_failed=True)
                self._calls.settle(inner, "failed", reason=STOPPED if error is None else describe(error))

    def output(self, key: str, delta: Any) -> None:
        """A tool has put out something before its end."""
        for block in blocks_of(delta):
            self._calls.append(key, getattr(block, "text", None) or block)

    def fail_open(self, reason: str | None) -> None:
        """The run was broken off: calls whose tool raised are told why, and all others for this reason.

        Without one they are left open: whoever is told that the turn has failed will hear it of them, too.
        """
        self._failed = None
        for key, error in self._errors.items():
            if self._calls.is_open(key):
                self._calls.settle(key, "failed", reason=describe(error))
        if reason is not None:
            self._calls.settle_open("failed", reason)

    # Nodes

    def update(self, namespace: tuple[str, ...], update: Mapping[str, Any]) -> None:
        """Nodes have written this into the state."""
        for node, written in update.items():
            if node == INTERRUPT:
                self._note_interrupts(namespace, written)
            else:
                for values in written if isinstance(written, list) else [written]:
                    self._take_values(namespace, values)

    def custom(self, value: Any) -> None:
        """A node or a tool has written into LangGraph's stream: text there is the output of what runs."""
        running = self._calls.running_ids
        if isinstance(value, str) and len(running) == 1:
            self._calls.append(running[0], value)

    def _note_interrupts(self, namespace: tuple[str, ...], interrupts: Any) -> None:
        """Nodes that run side by side are told of one by one, and asked about together."""
        if not namespace:
            self.is_at_breakpoint = not interrupts
            known = {each.id for each in self.interrupts}
            self.interrupts += [
                each for each in interrupts if isinstance(each, Interrupt) and each.id not in known
            ]

    def _take_values(self, namespace: tuple[str, ...], values: Any) -> None:
        if isinstance(values, Command):
            values = values.update
        for message in _messages_in(values):
            if id(message) in self._heard:
                continue  # what an agent in a tool writes is told late: the id may be another call's by now
            if isinstance(message, ToolMessage):
                parent = self._current.call_around(namespace)
                self._settle(self._calls.open_key(message.tool_call_id, parent), message)
            elif isinstance(message, AIMessage):
                self._say_whole(message, namespace)
        if not namespace and isinstance(values, Mapping):
            if "todos" in values:
                self._current.board.todos(values["todos"])
            if "plan" in values:
                self._current.board.plan(values["plan"])

    def _say_whole(self, message: AIMessage, namespace: tuple[str, ...]) -> None:
        """A message that no model has streamed: a node has made it."""
        if self._sayings.has(message, namespace):
            return
        shown = message if self._filters is None else self._filters.answer(message)
        if shown is None or self._current.call_around(namespace) is not None:
            return
        if self._sayings.repeats(message, shown.text, namespace):
            return
        run = ModelRun(self._turn, self._calls, self._look, None)
        if shown.id is None:
            shown = shown.model_copy(update={"id": self._turn.session.outlet.new_message_id()})
        run.take_whole(shown)
        run.end(message)
        self.has_spoken = self.has_spoken or bool(run.said or run.called)

    def _settle(self, key: str, message: ToolMessage) -> None:
        if not self._calls.is_open(key):
            return
        if self._filters is not None:
            message = self._filters.result(message)
        name, arguments = self._calls.name(key), self._calls.arguments(key)
        content = self._current.presentation.content(name, arguments, message)
        if content is None:
            content = _shown(blocks_of(message.content))
        status = "failed" if message.status == "error" else "completed"
        self._fail_inside(key, has_failed=status == "failed")
        self._calls.settle(key, status, content=content, output=_raw_output(message))

    def _tell_trouble(self, error: BaseException | None, description: str) -> None:
        trouble = trouble_of(error, of_model=error) if error is not None else None
        what = trouble.what if trouble is not None else "The model has failed"
        if self._turn.editor.offers(NOTICES):
            self._turn.session.outlet.send(Notice("warning", what, description))
        else:
            # Not as a message: what the agent answers may be read by a program.
            self._turn.begin_new_message()
            outlet = self._turn.session.outlet
            outlet.send(Thought(f"{what}. {description}", outlet.new_message_id()))


def _message_of(output: Any) -> ToolMessage | None:
    """The message that a tool has returned, also as part of a change of the state."""
    if isinstance(output, ToolMessage):
        return output
    told = _messages_in(output.update) if isinstance(output, Command) else ()
    return next((message for message in told if isinstance(message, ToolMessage)), None)


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


def _made_of(value: Any) -> list[BaseMessage]:
    """A message that was written as a pair or a dictionary; the state makes one of it as well."""
    if not isinstance(value, tuple | dict):
        return []
    try:
        return convert_to_messages([value])
    except (ValueError, TypeError, KeyError, NotImplementedError):
        return []


def _shown(blocks: list[Any]) -> list[ToolCallContent]:
    return [Content(block) for block in blocks]


def _plain(output: Any) -> Any:
    return output.content if isinstance(output, BaseMessage) else "" if output is None else str(output)


def _raw_output(message: ToolMessage) -> Any:
    """What is no text, and so can be used by a program: what a tool has returned beside its message."""
    if message.artifact is not None:
        return message.artifact
    return message.content if isinstance(message.content, list) else UNSET
