"""Shows the answers of models while they come: what they say, think and call."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter, eq, is_
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from coupler.agent.content import BLOCKS, LONGEST_PIECE, pieces
from coupler.events import Content, Thought
from coupler.langchain.content import (
    HANDLED_ELSEWHERE,
    citations,
    client_block,
    message_blocks,
    pages_found,
    without_encrypted,
)
from coupler.langchain.tool_calls import LONGEST_ID
from coupler.schema.v1 import Content as ToolContent
from coupler.schema.v1 import ContentBlock, TextContent

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, ToolMessage

    from coupler.agent.turn import Turn
    from coupler.langchain.tool_calls import ToolCalls

log = logging.getLogger("coupler.langchain")

T = TypeVar("T")

BlockMapper = Callable[[dict[str, Any]], Any]

TransformerFactory = Callable[[tuple[str, ...]], Any]

Namespace: TypeAlias = tuple[str, ...]
"""Namespace of the graph that writes something: that of the graph around it, and one more name."""

NO_JSON = "the model wrote arguments that are not JSON, so the call was not made"

INTERNAL_TRANSFORMER = "InternalCallTransformer"
"""LangChain's transformer for internal model calls of middleware, which are not shown anyway."""

LAST_ONES = 32
"""Messages at the end of a conversation that somebody may well have changed since they were added."""

_NOTHING = {"content": "", "artifact": None}


class PerMessage(Generic[T]):
    """Computes something of each message of a conversation, once as long as those before it stay the same.

    A conversation is handed over whole with every step: what is computed of all its messages each time makes
    a long turn cost the square of its length. Use it where nobody changes a message in place.
    """

    def __init__(self, compute: Callable[[BaseMessage], T]) -> None:
        self._compute = compute
        self._messages: list[BaseMessage] = []
        self._values: list[T] = []

    def __call__(self, messages: Sequence[BaseMessage]) -> list[T]:
        """Return the value of each message."""
        same = self._same(messages)
        self._values[same:] = [self._compute(message) for message in messages[same:]]
        self._messages[same:] = messages[same:]
        return [*self._values]

    def _same(self, messages: Sequence[BaseMessage]) -> int:
        """Return how many messages at the beginning are, or say, the same as before."""
        before = self._messages
        # Usually all are: compared without a step of Python's for each.
        if len(messages) >= len(before) and all(map(is_, messages, before)):
            return len(before)
        for at, (new, old) in enumerate(zip(messages, before, strict=False)):
            if new is not old and fields_of(new) != fields_of(old):
                return at
        return min(len(messages), len(before))


class Conversation:
    """Messages as they were, to compare others with: most conversations only grow at their end."""

    def __init__(self, messages: Sequence[BaseMessage]) -> None:
        self._messages = [*messages]
        self._fields = [copied_fields(message) for message in messages]

    def grow(self, messages: list[Any], *, thoroughly: bool) -> list[Any] | None:
        """Take the messages after those, and return them; None if any of the earlier ones is another.

        Messages that were changed in place are found thoroughly, or if they are among the last ones.
        """
        known = len(self._messages)
        sure = 0 if thoroughly else max(known - LAST_ONES, 0)
        if not all(map(is_, messages, self._messages[:sure])):
            sure = 0
        more = messages[known:]
        try:
            is_same = all(map(eq, map(fields_of, messages[sure:known]), self._fields[sure:]))
            new = [copied_fields(message) for message in more]
        except AttributeError:
            # Something that is no message.
            return None
        if not is_same or len(messages) < known:
            return None
        self._messages += more
        self._fields += new
        return more


fields_of = attrgetter("__dict__", "__pydantic_extra__")
"""Everything that a message says."""


def copied_fields(message: BaseMessage) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Return what a message says now; it stays as it is when the message is given other values."""
    fields, more = fields_of(message)
    return {**fields}, more and {**more}


class DisplayOptions:
    """The parts of an answer that are shown, as `serve(graph, …)` was told."""

    def __init__(
        self, *, text: bool = True, thoughts: bool = True, blocks: BlockMapper | None = None
    ) -> None:
        self.text = text
        self.thoughts = thoughts
        self._blocks = blocks

    def block(self, block: Mapping[str, Any]) -> ContentBlock | None:
        """A block that is no text, for the client: as the author's mapper has it, or as usual."""
        if self._blocks is None:
            return client_block(block)
        mapped = self._blocks(dict(block))
        if isinstance(mapped, str):
            return TextContent(mapped)
        if isinstance(mapped, Mapping):
            return client_block(mapped)
        if mapped is None or isinstance(mapped, BLOCKS):
            return cast("ContentBlock | None", mapped)
        raise TypeError(
            "serve(graph, blocks=…) gives a content block of ACP, text, a block of LangChain, or None "
            f"for nothing, not {type(mapped).__name__}"
        )


class ModelRun:
    """Shows one answer of a model, at the top or inside of the tool call that it was asked in."""

    def __init__(self, turn: Turn, calls: ToolCalls, look: DisplayOptions, parent: str | None) -> None:
        self.has_begun = False
        """True if a part of the answer has come."""
        self.said: list[str] = []
        """The text so far."""
        self.called: list[str] = []
        """The keys of the tool calls so far."""
        self._turn = turn
        self._outlet = turn.session.outlet
        self._calls = calls
        self._look = look
        self._parent = parent
        self._is_answer = parent is None and look.text
        self._by_index: dict[Any, str] = {}
        self._unnamed: dict[Any, dict[str, Any]] = {}
        self._linked: set[str] = set()
        self._named: str | None = ""
        self._message_id: str | None = None

    @property
    def is_nested(self) -> bool:
        """True if this is asked in a tool call, and so no part of the answer."""
        return self._parent is not None

    def take(self, message: AIMessageChunk) -> bool:
        """Show a piece of the answer. Returns whether more can be sent without waiting."""
        self.has_begun = True
        content = message.content
        if type(content) is str and not message.tool_call_chunks and not message.additional_kwargs:
            # What models stream: worth a way without detours.
            if content:
                if message.id != self._named:
                    self._name(message.id)
                if self._is_answer and len(content) <= LONGEST_PIECE:
                    self.said.append(content)
                    return self._outlet.say(content, self._message_id)
                self._say(content)
            return self._outlet.has_room()
        if message.id != self._named:
            self._name(message.id)
        for block in message_blocks(message):
            self._take_block(block)
        if isinstance(refusal := message.additional_kwargs.get("refusal"), str):
            self._say(refusal)
        return self._outlet.has_room()

    def take_whole(self, message: BaseMessage) -> None:
        """Show an answer that came in one piece."""
        self.has_begun = True
        self._name(message.id)
        for block in message_blocks(message):
            self._take_block(block)

    def end(self, message: AIMessage) -> None:
        """Announce the calls of the complete answer; those with invalid arguments fail."""
        for call in message.tool_calls:
            if call["id"] is not None:
                self._announce(call["id"], call["name"], call["args"])
        for wrong in message.invalid_tool_calls:
            call_id = wrong.get("id")
            if call_id is not None:
                key = self._announce(call_id, wrong.get("name") or "tool", None)
                self._calls.settle(key, "failed", reason=wrong.get("error") or NO_JSON)

    def fail(self, reason: str) -> None:
        """Settle the open calls of an answer that broke off as failed."""
        for key in self.called:
            if self._calls.is_open(key):
                self._calls.settle(key, "failed", reason=reason)

    def _take_block(self, block: dict[str, Any]) -> None:
        match block.get("type"):
            case "text":
                self._say(str(block.get("text") or ""))
                self._cite(block)
            case "reasoning":
                self._think(str(block.get("reasoning") or ""))
            case "tool_call_chunk" | "server_tool_call_chunk":
                self._take_piece_of_call(block)
            case "tool_call" | "server_tool_call":
                self._take_call(block)
            case "server_tool_result":
                self._take_server_result(block)
            case "non_standard":
                self._show({**_mapping(block.get("value"))})
            case _:
                self._show(block)

    def _name(self, id: str | None) -> None:
        """Begin a message with this id, or with a new one if a provider's id is unusable."""
        self._named = id
        is_name = id is not None and len(id) <= LONGEST_ID and id.isprintable()
        self._message_id = id if is_name else self._outlet.new_message_id()

    def _say(self, text: str) -> None:
        if not text:
            return
        self.said.append(text)
        if self._parent is not None:
            self._calls.append(self._parent, text)
        elif self._is_answer:
            for piece in pieces(text):
                self._outlet.say(piece, self._message_id)

    def _think(self, text: str) -> None:
        # What a sub-agent thinks is nobody's answer and nobody's output.
        if self._parent is None and self._look.thoughts:
            for piece in pieces(text):
                self._outlet.send(Thought(piece, self._message_id))

    def _cite(self, block: Mapping[str, Any]) -> None:
        for link in citations(block):
            if link.uri not in self._linked:
                self._linked.add(link.uri)
                self._show_block(link)

    def _show(self, block: dict[str, Any]) -> None:
        if block.get("type") not in HANDLED_ELSEWHERE and (shown := self._look.block(block)) is not None:
            self._show_block(shown)

    def _show_block(self, block: ContentBlock) -> None:
        if self._parent is not None:
            self._calls.append(self._parent, block)
        elif self._look.text:
            self._outlet.send(Content(block, "agent", self._message_id))

    def _take_call(self, block: dict[str, Any]) -> None:
        if block.get("id"):
            key = self._announce(block["id"], block.get("name") or "tool", _arguments(block.get("args")))
            if block["type"] == "server_tool_call":
                self._calls.run(key)

    def _take_piece_of_call(self, piece: dict[str, Any]) -> None:
        """Take a piece of a call, which has its id and name only once, and later only its index."""
        index = piece.get("index") if piece.get("index") is not None else piece.get("id")
        call_id = self._by_index.get(index)
        if call_id is None or (piece.get("id") and piece["id"] != call_id and piece.get("name")):
            # Some providers send the name before the call_id, or more than one call at one index.
            known = {**self._unnamed.pop(index, {}), **{k: v for k, v in piece.items() if v}}
            if not known.get("id") or not known.get("name"):
                self._unnamed[index] = known
                return
            call_id = self._by_index[index] = known["id"]
            key = self._announce(call_id, known["name"], None)
            if piece["type"] == "server_tool_call_chunk":
                self._calls.run(key)
        arguments = piece.get("args")
        if isinstance(arguments, str) and arguments:
            self._calls.write(self._calls.key(call_id, self._parent), arguments)

    def _take_server_result(self, block: dict[str, Any]) -> None:
        """Settle the call of a tool that the provider runs itself."""
        call_id = block.get("tool_call_id") or block.get("id")
        if not call_id:
            return
        key = self._announce(call_id, block.get("name") or "tool", None)
        self._calls.finish_writing(key)
        output = block.get("output")
        reason = output.get("error_code") if isinstance(output, Mapping) else None
        self._calls.settle(
            key,
            "failed" if block.get("status") == "error" else "completed",
            content=[ToolContent(link) for link in pages_found(output)],
            output=without_encrypted(output),
            reason=str(reason) if reason else None,
        )

    def _announce(self, id: str, name: str, arguments: dict[str, Any] | None) -> str:
        key = self._calls.key(id, self._parent)
        if key not in self.called:
            self.called.append(key)
            self._calls.free(key)
        self._calls.announce(key, name, arguments, parent=self._parent)
        return key


class FilteredModelRun(ModelRun):
    """Shows an answer when it is complete, and as the filters leave it."""

    def __init__(
        self, turn: Turn, calls: ToolCalls, look: DisplayOptions, parent: str | None, filters: StreamFilters
    ) -> None:
        super().__init__(turn, calls, look, parent)
        self._filters = filters

    def take(self, message: BaseMessage) -> bool:
        """Show nothing yet: the answer is filtered when it is complete."""
        return True

    def take_whole(self, message: BaseMessage) -> None:
        """Show the answer as the filters leave it."""
        if (shown := self._filters.answer(message)) is not None:  # type: ignore[arg-type]
            super().take_whole(shown)


def _arguments(value: object) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def stream_filters(graph: Any) -> tuple[TransformerFactory, ...]:
    """Return the factories of a graph's transformers that change what is shown; most have none."""
    return tuple(each for each in getattr(graph, "stream_transformers", ()) if _changes_stream(each))


class StreamFilters:
    """Removes from one prompt's stream what the graph's author wants nobody to see, such as personal data.

    LangGraph has a place for that: transformers that stand before all others and change what passes by, as
    `PIIMiddleware` has one; they remember what has passed. They are asked about whole answers, because what
    is to be taken out may come in pieces: where there are such transformers, nothing of an answer is shown
    before it is complete.
    """

    def __init__(self, factories: Iterable[TransformerFactory]) -> None:
        self._transformers = [factory(()) for factory in factories]

    def answer(self, message: AIMessage) -> AIMessage | None:
        """Return an answer as it may be shown; None if it may not."""
        told = self._passed("messages", (message, {}))
        return None if told is None else told[0]

    def result(self, message: ToolMessage) -> ToolMessage:
        """Return what a tool has returned, as it may be shown."""
        told = self._passed("tools", {**_event("tool-finished", message.tool_call_id), "output": message})
        return message.model_copy(update=_NOTHING) if told is None else told["output"]

    def output(self, id: str, delta: Any) -> Any:
        """Return a piece of a tool's output as it may be shown; what more may belong to is held back."""
        told = self._passed("tools", {**_event("tool-output-delta", id), "delta": delta})
        return "" if told is None else told["delta"]

    def arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return what a tool is called with, as it may be shown."""
        if not arguments:
            return arguments
        told = self._passed("tools", {**_event("tool-started", ""), "input": dict(arguments)})
        return {} if told is None else told["input"]

    def _passed(self, method: str, data: Any) -> Any:
        """Return what the transformers leave of an event's data; None if one of them lets nothing pass."""
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


def _event(kind: str, id: str) -> dict[str, Any]:
    return {"event": kind, "tool_call_id": id}


def _changes_stream(factory: TransformerFactory) -> bool:
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


class MessageDeduplicator:
    """Tells messages that are new from those that repeat what was said in the turn.

    A model's answer is streamed, and then written into the state: as the message that it is, or by a node
    that makes another one of its text. What a node says by itself is written once by it, and once more by
    each graph around that node's own.
    """

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._written: dict[int, BaseMessage] = {}
        self._without_id: list[BaseMessage] = []
        self._answers: set[str] = set()
        self._places: dict[str, list[Namespace]] = {}

    def know(self, messages: Iterable[BaseMessage]) -> None:
        """Note these messages as known."""
        self._ids.update(message.id for message in messages if message.id is not None)

    def answer(self, text: str) -> None:
        """Note the text of a model's answer."""
        self._answers.add(text)

    def note(self, message: BaseMessage, place: Namespace) -> None:
        """Note a message that was said in this place in an earlier turn, or earlier in this one."""
        if not self.has(message, place):
            self._places.setdefault(message.text, []).append(place)

    def has(self, message: BaseMessage, place: Namespace) -> bool:
        """True if this very message was written before; otherwise notes it."""
        # The state gives ids to messages that have none, but only after they were written.
        self.know(self._without_id)
        self._without_id = [each for each in self._without_id if each.id is None]
        if id(message) in self._written or message.id in self._ids:
            self._hand_up(message.text, place)
            return True
        self._written[id(message)] = message
        self._without_id.append(message)
        return False

    def repeats(self, message: BaseMessage, shown: str, place: Namespace) -> bool:
        """True if another message, of which this text is shown, only repeats what was said.

        Two nodes of one graph may well say the same. If it is no repetition, it is said now.
        """
        if shown in self._answers:
            return True
        if self._hand_up(message.text, place):
            return True
        self._places.setdefault(message.text, []).append(place)
        return False

    def _hand_up(self, text: str, place: Namespace) -> bool:
        """True if the text was said by a graph inside of the one in this place, which is noted for it now."""
        places = self._places.get(text, [])
        for at, each in enumerate(places):
            if len(each) > len(place) and each[: len(place)] == place:
                places[at] = place
                return True
        return False
