"""One call of a model while it runs: what it says, thinks and calls, told as it comes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from coupler.agent.content import BLOCKS, LONGEST_PIECE, pieces
from coupler.events import Content, Thought
from coupler.langchain.content import SILENT, citations, for_client
from coupler.langchain.tool_calls import LONGEST_ID
from coupler.schema.v1 import ContentBlock, TextContent

if TYPE_CHECKING:
    from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage

    from coupler.agent.turn import Turn
    from coupler.langchain.tool_calls import ToolCalls


Mapper = Callable[[dict[str, Any]], Any]

NO_JSON = "the model wrote arguments that are not JSON, so the call was not made"


class Look:
    """What of an answer is shown, as `serve(graph, …)` was told."""

    def __init__(self, *, text: bool = True, thoughts: bool = True, blocks: Mapper | None = None) -> None:
        self.text = text
        self.thoughts = thoughts
        self._blocks = blocks

    def block(self, block: Mapping[str, Any]) -> ContentBlock | None:
        """A block that is no text, for the client: as the author's mapper has it, or as usual."""
        if self._blocks is None:
            return for_client(block)
        mapped = self._blocks(dict(block))
        if isinstance(mapped, str):
            return TextContent(mapped)
        if isinstance(mapped, Mapping):
            return for_client(mapped)
        if mapped is None or isinstance(mapped, BLOCKS):
            return cast("ContentBlock | None", mapped)
        raise TypeError(
            "serve(graph, blocks=…) gives a content block of ACP, text, a block of LangChain, or None "
            f"for nothing, not {type(mapped).__name__}"
        )


class ModelRun:
    """Shows one answer of a model, at the top or inside of the tool call that it was asked in."""

    def __init__(self, turn: Turn, calls: ToolCalls, look: Look, parent: str | None) -> None:
        self.has_begun = False
        """Whether anything came by now."""
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
        """Whether this is asked in a tool call, and so no part of the answer."""
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
        self._name(message.id)
        for block in message.content_blocks:
            self._take_block(block)  # type: ignore[arg-type]
        if isinstance(refusal := message.additional_kwargs.get("refusal"), str):
            self._say(refusal)
        return self._outlet.has_room()

    def take_whole(self, message: BaseMessage) -> None:
        """Show an answer that came in one piece."""
        self.has_begun = True
        self._name(message.id)
        for block in message.content_blocks:
            self._take_block(block)  # type: ignore[arg-type]

    def end(self, message: AIMessage) -> None:
        """The answer is complete: its calls are made with these arguments."""
        for call in message.tool_calls:
            if call["id"] is not None:
                self._announce(call["id"], call["name"], call["args"])
        for wrong in message.invalid_tool_calls:
            call_id = wrong.get("id")
            if call_id is not None:
                key = self._announce(call_id, wrong.get("name") or "tool", None)
                self._calls.settle(key, "failed", reason=wrong.get("error") or NO_JSON)

    def fail(self, reason: str) -> None:
        """The answer broke off: what it has called will not be done."""
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
        """What follows belongs to this message; what a provider calls it may be no name at all."""
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
        if block.get("type") not in SILENT and (shown := self._look.block(block)) is not None:
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
        """A call is known by its index while it is written; its id and name come once."""
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
        """A tool that the provider runs itself has returned."""
        call_id = block.get("tool_call_id") or block.get("id")
        if not call_id:
            return
        key = self._announce(call_id, block.get("name") or "tool", None)
        failed = block.get("status") == "error"
        self._calls.settle(key, "failed" if failed else "completed", output=block.get("output"))

    def _announce(self, id: str, name: str, arguments: dict[str, Any] | None) -> str:
        key = self._calls.key(id, self._parent)
        if key not in self.called:
            self.called.append(key)
            self._calls.free(key)
        self._calls.announce(key, name, arguments, parent=self._parent)
        return key


def _arguments(value: object) -> dict[str, Any] | None:
    return dict(value) if isinstance(value, Mapping) else None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


# What an agent has said in a turn: messages come in more than one way, and are to be read once.
#
# A model's answer is streamed, and then written into the state: as the message that it is, or by a node that
# makes another one of its text. What a node says by itself is written once by it, and once more by each graph
# around that node's own.


Place: TypeAlias = tuple[str, ...]
"""The namespace of the graph that something is written in: that of the graph around it, and one name more."""


class Sayings:
    """Tells what is new from what is repeated."""

    def __init__(self) -> None:
        self._ids: set[str] = set()
        self._written: dict[int, BaseMessage] = {}
        self._without_id: list[BaseMessage] = []
        self._answers: set[str] = set()
        self._places: dict[str, list[Place]] = {}

    def know(self, messages: Iterable[BaseMessage]) -> None:
        """These messages are nothing new."""
        self._ids.update(message.id for message in messages if message.id is not None)

    def answer(self, text: str) -> None:
        """A model has said this."""
        self._answers.add(text)

    def has(self, message: BaseMessage, place: Place) -> bool:
        """Whether this very message was written before; from now on it was."""
        # The state gives ids to messages that have none, but only after they were written.
        self.know(self._without_id)
        self._without_id = [each for each in self._without_id if each.id is None]
        if id(message) in self._written or message.id in self._ids:
            self._hand_up(message.text, place)
            return True
        self._written[id(message)] = message
        self._without_id.append(message)
        return False

    def repeats(self, message: BaseMessage, shown: str, place: Place) -> bool:
        """Whether another message, of which this text is shown, only repeats what was said.

        Two nodes of one graph may well say the same. If it is no repetition, it is said now.
        """
        if shown in self._answers:
            return True
        if self._hand_up(message.text, place):
            return True
        self._places.setdefault(message.text, []).append(place)
        return False

    def _hand_up(self, text: str, place: Place) -> bool:
        """Whether this was said inside of a graph in this place, which now says it of itself."""
        places = self._places.get(text, [])
        for at, each in enumerate(places):
            if len(each) > len(place) and each[: len(place)] == place:
                places[at] = place
                return True
        return False
