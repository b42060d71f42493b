"""Reads the reasoning of OpenAI-compatible servers, and returns it to those that want it back.

OpenAI's chat completions have no place for reasoning, so servers have made their own: `reasoning_content`
(DeepSeek, Kimi, vLLM, SGLang, llama.cpp), `reasoning` (Ollama, Groq, OpenRouter), `reasoning_details`
(OpenRouter), or `<think>…</think>` before the text. The text of all of them is stored where LangChain has it,
in `additional_kwargs["reasoning_content"]`, and how it came beside it.

Reasoning goes back as it came, with all answers of a turn that has called tools: DeepSeek and Kimi refuse the
conversation without it, and models that think between calls lose the thread. Answers of other turns go
without: the first DeepSeek models refuse it there, later ones ignore it. OpenRouter's details go back with
every answer, because signatures and encrypted parts are in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage
from langchain_core.outputs import ChatGenerationChunk

from coupler.langchain.content import REASONING

DETAILS = "reasoning_details"
"""The field, and the key in `additional_kwargs`, of OpenRouter's details."""

SOURCE = "reasoning_source"
"""The key in `additional_kwargs` of the field that the reasoning came in."""

FIELDS = (REASONING, "reasoning")
"""Fields of deltas and messages that have reasoning as text; servers that send both say the same in both."""

THINK = "think"
"""The source of reasoning that came as a block before the text."""

_OPEN, _CLOSE = "<think>", "</think>"

_DETAIL_TEXTS = ("text", "summary")
"""Members of details that come in pieces."""

NO_REASONING = "(none)"
"""Reasoning of answers of other models, for servers that refuse an answer without."""


class ThinkBlock:
    """Splits the text of an answer into a `<think>` block at its beginning, and the rest.

    A block anywhere else is text: a model may write about such blocks.
    """

    def __init__(self) -> None:
        self._held = ""
        """Text that may be the beginning of a tag, or space around one."""
        self._state = "before"

    @property
    def is_over(self) -> bool:
        """True if all that follows is text."""
        return self._state == "text"

    def feed(self, piece: str) -> tuple[str, str]:
        """Return what is known now of the reasoning and of the text."""
        self._held += piece
        thought = ""
        if self._state == "before":
            begun = self._held.lstrip()
            if begun.startswith(_OPEN):
                self._state, self._held = "inside", begun.removeprefix(_OPEN).lstrip("\n")
            elif not _OPEN.startswith(begun):
                self._state = "text"
        if self._state == "inside":
            thought, found, rest = self._held.partition(_CLOSE)
            if found:
                self._state, self._held = "after", rest
            else:
                kept = _length_of_start(thought, _CLOSE)
                thought, self._held = thought[: len(thought) - kept], thought[len(thought) - kept :]
        if self._state == "after":
            self._held = self._held.lstrip()
            self._state = "text" if self._held else "after"
        if self._state != "text":
            return thought, ""
        text, self._held = self._held, ""
        return thought, text

    def close(self) -> tuple[str, str]:
        """Return what was held back, at the end of the text: a block without an end is reasoning."""
        held, self._held = self._held, ""
        is_inside, self._state = self._state == "inside", "text"
        return (held, "") if is_inside else ("", held)


def _length_of_start(text: str, tag: str) -> int:
    """Return how many characters at the end of a text may be the start of a tag."""
    return next((size for size in range(len(tag) - 1, 0, -1) if text.endswith(tag[:size])), 0)


class StreamedReasoning:
    """Takes the reasoning out of the chunks of one answer, and puts it where it is stored."""

    def __init__(self) -> None:
        self._block = ThinkBlock()
        self._source: str | None = None
        self._details: list[Any] = []

    def take(self, chunk: ChatGenerationChunk) -> ChatGenerationChunk:
        """Return a chunk with its reasoning; `with_fields` has put what the server sent into it."""
        message = chunk.message
        if not isinstance(message, AIMessageChunk) or not isinstance(message.content, str):
            return chunk
        more = message.additional_kwargs
        self._details = joined_details(self._details, more.pop(DETAILS, ()))
        source, thought = more.pop(SOURCE, None), more.pop(REASONING, "")
        text = message.content
        if not self._block.is_over:
            # A server that has a field for it puts none into the text.
            is_last = bool(thought or message.tool_call_chunks) or _is_end(chunk)
            said, text = self._block.feed(text)
            if is_last:
                said, text = _added((said, text), self._block.close())
            if said and not thought:
                source, thought = THINK, said
        if thought:
            more[REASONING] = thought
            if self._source is None:
                # Once: LangChain joins the values of all chunks.
                self._source = more[SOURCE] = source
        if text == message.content:
            return chunk
        # A chunk has its text beside the message as well, from when it was made.
        changed = message.model_copy(update={"content": text})
        return ChatGenerationChunk(message=changed, generation_info=chunk.generation_info)

    def last(self) -> ChatGenerationChunk | None:
        """Return the chunk that ends the answer, if there is something left to store."""
        if not self._details:
            return None
        return ChatGenerationChunk(
            message=AIMessageChunk(content="", additional_kwargs={DETAILS: self._details}),
        )


def _is_end(chunk: ChatGenerationChunk) -> bool:
    return "finish_reason" in (chunk.generation_info or {})


def _added(first: tuple[str, str], second: tuple[str, str]) -> tuple[str, str]:
    return first[0] + second[0], first[1] + second[1]


def fields_in(said: Mapping[str, Any]) -> dict[str, Any]:
    """Return the reasoning in a delta or a message of a server, as it is stored."""
    found: dict[str, Any] = {}
    details = said.get(DETAILS)
    if isinstance(details, list) and details:
        found[DETAILS] = details
    for name in FIELDS:
        text = said.get(name)
        if isinstance(text, str) and text:
            return {**found, REASONING: text, SOURCE: name}
    if DETAILS in found and (text := _text_of_details(found[DETAILS])):
        return {**found, REASONING: text, SOURCE: DETAILS}
    return found


def with_whole_reasoning(message: AIMessage, said: Mapping[str, Any]) -> AIMessage:
    """Return an answer that came in one piece with its reasoning."""
    found = fields_in(said)
    content: Any = message.content
    if isinstance(content, str) and REASONING not in found:
        block = ThinkBlock()
        thought, content = _added(block.feed(content), block.close())
        if thought:
            found = {**found, REASONING: thought, SOURCE: THINK}
    if not found:
        return message
    more = {**message.additional_kwargs, **found}
    return message.model_copy(update={"content": content, "additional_kwargs": more})


def _text_of_details(details: Iterable[Any]) -> str:
    parts = (part.get(name) for part in details if isinstance(part, dict) for name in _DETAIL_TEXTS)
    return "".join(part for part in parts if isinstance(part, str))


def joined_details(before: list[Any], more: Iterable[Any]) -> list[Any]:
    """Join the pieces of details: texts grow, everything else is what was said last."""
    joined = [*before]
    for part in more:
        last = joined[-1] if joined else None
        if not isinstance(part, dict) or not isinstance(last, dict) or _place(part) != _place(last):
            joined.append(part)
            continue
        grown = {
            name: f"{last[name]}{part[name]}"
            for name in _DETAIL_TEXTS
            if isinstance(last.get(name), str) and isinstance(part.get(name), str)
        }
        known = {name: value for name, value in part.items() if value is not None or name not in last}
        joined[-1] = {**last, **known, **grown}
    return joined


def _place(part: Mapping[str, Any]) -> tuple[Any, Any]:
    return part.get("type"), part.get("index")


def returned_details(message: BaseMessage) -> dict[str, Any]:
    """Return the details of an answer, which go back with every request."""
    details = message.additional_kwargs.get(DETAILS) if isinstance(message, AIMessage) else None
    return {DETAILS: details} if details else {}


def returned_text(message: BaseMessage, content: Any) -> dict[str, Any]:
    """Return the reasoning of an answer as the member of a message that it came in, beside this content."""
    more = message.additional_kwargs if isinstance(message, AIMessage) else {}
    text, source = more.get(REASONING), more.get(SOURCE)
    if not isinstance(text, str) or not text:
        return {}
    if source in FIELDS:
        return {str(source): text}
    if source == THINK and (content is None or isinstance(content, str)):
        return {"content": f"{_OPEN}\n{text.strip()}\n{_CLOSE}\n\n{content or ''}".strip()}
    return {}


def with_reasoning(message: Any) -> Any:
    """Return an answer with some reasoning, for servers that refuse one without."""
    if not isinstance(message, AIMessage) or message.additional_kwargs.get(SOURCE) == REASONING:
        return message
    text = message.additional_kwargs.get(REASONING) or NO_REASONING
    more = {**message.additional_kwargs, REASONING: text, SOURCE: REASONING}
    return message.model_copy(update={"additional_kwargs": more})


def without_reasoning(message: Any) -> Any:
    """Return an answer without what this module has stored in it; the same object if there is nothing."""
    more = message.additional_kwargs
    if not isinstance(message, AIMessage) or not {REASONING, DETAILS} & more.keys():
        return message
    left = {name: value for name, value in more.items() if name not in (REASONING, DETAILS, SOURCE)}
    return message.model_copy(update={"additional_kwargs": left})
