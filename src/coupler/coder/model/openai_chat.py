"""The client of OpenAI-compatible servers.

A long conversation costs little more than a short one. Images that tools return go where such servers take
them: into a message of the user. A stream that stops before the answer has ended is an error. What a model
thinks is read and returned as its server has it (`reasoning`).
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar, cast, get_args

from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI, AsyncStream
from pydantic import PrivateAttr, model_validator

from coupler.coder.model.reasoning import (
    StreamedReasoning,
    fields_in,
    returned_details,
    returned_text,
    with_whole_reasoning,
)
from coupler.coder.usage import COST_KEY, reported_cost
from coupler.langchain.content import MEDIA_BLOCKS
from coupler.langchain.errors import AnswerCutOffError
from coupler.langchain.messages import PerMessage

if TYPE_CHECKING:
    from openai._models import FinalRequestOptions
    from openai._streaming import ServerSentEvent

T = TypeVar("T")

AS_IT_IS = "extra_body"
"""The argument of the openai package for what goes into the request without a look at it."""


_PRIVATE = (
    "_convert_chunk_to_generation_chunk",
    "_convert_input",
    "_create_chat_result",
    "_default_params",
    "_get_request_payload",
    "_use_responses_api",
)
IS_KNOWN_VERSION = all(hasattr(ChatOpenAI, name) for name in _PRIVATE)
"""False if LangChain's client is made otherwise: then it converts all messages for every request."""
IMAGES_FOLLOW = "(What the tool returned besides text follows in the next message of the user.)"
"""Text of a tool's result whose images are in another message."""

IMAGES_LEAD = "(Returned by the tools, not sent by the user:)"
"""Text before the images of tools in a message of the user."""

_END = re.compile(r'^\[DONE\]|"finish_reason"\s*:\s*"|"type"\s*:\s*"response\.(completed|incomplete|failed)"')
"""The last events of an answer, in chat completions and in responses."""


class _ConvertedMessage(NamedTuple):
    """A message as servers read it, and its JSON."""

    value: dict[str, Any]
    encoded: bytes
    media: tuple[dict[str, Any], bytes] | None = None
    """The message of the user with the images of a tool's result, and the JSON of its blocks."""
    with_reasoning: tuple[dict[str, Any], bytes] | None = None
    """The same message with what the model has thought."""


class _ConvertedMessages(list[dict[str, Any]]):
    """Messages as servers read them, with their JSON."""

    def __init__(self, messages: Sequence[_ConvertedMessage]) -> None:
        super().__init__(message.value for message in messages)
        self.encoded = [message.encoded for message in messages]


class _EncodedClient(AsyncOpenAI):
    """A client of the openai package that does not encode again what is encoded."""

    async def request(
        self, cast_to: Any, options: Any, *, stream: bool = False, stream_cls: Any = None
    ) -> Any:
        """Make a request; a streamed answer is checked for its end."""
        if stream_cls is not None:
            stream_cls = CompleteStream[get_args(stream_cls)[0]]  # type: ignore[misc]
        return await super().request(cast_to, options, stream=stream, stream_cls=stream_cls)

    async def _prepare_options(self, options: FinalRequestOptions) -> FinalRequestOptions:
        options = await super()._prepare_options(options)
        body = getattr(options, "json_data", None)
        others = {**cast("dict[str, Any]", body or {}), **(getattr(options, "extra_json", None) or {})}
        messages = others.pop("messages", None)
        if isinstance(messages, _ConvertedMessages) and messages:
            # Joined once: it may be megabytes.
            parts = [*messages.encoded]
            parts[0] = _encoded(others)[:-1] + b',"messages":[' + parts[0]
            parts[-1] += b"]}"
            options.json_data, options.extra_json = b",".join(parts), None
        return options


class CompleteStream(AsyncStream[T]):
    """A stream of the openai package that raises an error if it stops before the answer has ended.

    A proxy that closes a connection in good order would make half an answer look like a whole one.
    """

    async def _iter_events(self) -> AsyncIterator[ServerSentEvent]:
        # What is no stream, such as a page, cannot break off: that nothing came of it is told by others.
        is_stream = self.response.headers.get("content-type", "").startswith("text/event-stream")
        has_ended = False
        async for event in super()._iter_events():
            has_ended = has_ended or _END.search(event.data) is not None
            yield event
        if is_stream and not has_ended:
            raise AnswerCutOffError("the stream stopped without a finish reason")


class OpenAIChat(ChatOpenAI):
    """A chat client that converts and encodes each message of a conversation once.

    LangChain converts all messages for every request. After it the openai package looks for values with types
    of their own in all of them, and finds none: that takes 150 µs a message, a third of a second in a
    conversation of 2,000. Then it encodes all of them, which takes 4 µs a message.
    """

    _converted: PerMessage[_ConvertedMessage] | None = PrivateAttr(None)

    @model_validator(mode="after")
    def send_encoded(self) -> Self:
        """Have the client send what is encoded as it is."""
        # A version without the method sends the same, and encodes it itself.
        if type(self.root_async_client) is AsyncOpenAI and hasattr(AsyncOpenAI, "_prepare_options"):
            self.root_async_client.__class__ = _EncodedClient
        return self

    def _get_request_payload(
        self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        if not IS_KNOWN_VERSION:
            return super()._get_request_payload(input_, stop=stop, **kwargs)
        if self._use_responses_api({**self._default_params, **kwargs}) or "response_format" in kwargs:
            return self._usual_payload(input_, stop, kwargs)
        if self._converted is None:
            self._converted = PerMessage(self._convert)
        # Messages of LangChain's are what all its own requests come with.
        messages = input_ if isinstance(input_, list) else self._convert_input(input_).to_messages()
        reasoned = _with_reasoning(self._converted(messages))
        converted = _ConvertedMessages([*_with_media_after_results(reasoned)])
        payload = super()._get_request_payload([], stop=stop, **kwargs)
        as_it_is = {
            "messages": converted,
            **{name: payload.pop(name) for name in ("tools",) if name in payload},
        }
        return {**payload, AS_IT_IS: {**as_it_is, **(payload.get(AS_IT_IS) or {})}}

    async def _astream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        if not IS_KNOWN_VERSION or self._use_responses_api({**more, **self.model_kwargs}):
            async for chunk in super()._astream(messages, stop, run_manager, **more):
                yield chunk
            return
        reasoning = StreamedReasoning()
        # Listeners are told here: they are to have each chunk as it is stored.
        async for raw in super()._astream(messages, stop, None, **more):
            chunk = reasoning.take(raw)
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        if (last := reasoning.last()) is not None:
            yield last

    def _stream(
        self, messages: Any, stop: Any = None, run_manager: Any = None, **more: Any
    ) -> Iterator[ChatGenerationChunk]:
        if not IS_KNOWN_VERSION or self._use_responses_api({**more, **self.model_kwargs}):
            yield from super()._stream(messages, stop, run_manager, **more)
            return
        reasoning = StreamedReasoning()
        for raw in super()._stream(messages, stop, None, **more):
            chunk = reasoning.take(raw)
            if run_manager is not None:
                run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk
        if (last := reasoning.last()) is not None:
            yield last

    def _convert_chunk_to_generation_chunk(
        self, chunk: dict[str, Any], default_chunk_class: type, base_generation_info: dict[str, Any] | None
    ) -> ChatGenerationChunk | None:
        made = super()._convert_chunk_to_generation_chunk(chunk, default_chunk_class, base_generation_info)
        choices = chunk.get("choices")
        if made is not None and choices and isinstance(made.message, AIMessageChunk):
            made.message.additional_kwargs.update(fields_in(choices[0].get("delta") or {}))
        if made is not None and (cost := reported_cost(chunk.get("usage"))) is not None:
            made.message.response_metadata[COST_KEY] = [cost]
        return made

    def _create_chat_result(self, response: Any, generation_info: dict[str, Any] | None = None) -> ChatResult:
        result = super()._create_chat_result(response, generation_info)
        said = response if isinstance(response, dict) else response.model_dump(warnings=False)
        for generation, choice in zip(result.generations, said["choices"], strict=True):
            if isinstance(generation.message, AIMessage):
                generation.message = with_whole_reasoning(generation.message, choice["message"])
                if (cost := reported_cost(said.get("usage"))) is not None:
                    generation.message.response_metadata[COST_KEY] = [cost]
        return result

    def _usual_payload(self, input_: Any, stop: list[str] | None, options: dict[str, Any]) -> dict[str, Any]:
        """Return the payload as LangChain makes it; OpenAI's responses take images of tools as they are."""
        return super()._get_request_payload(input_, stop=stop, **options)

    def _convert(self, message: BaseMessage) -> _ConvertedMessage:
        media: list[Any] = []
        if isinstance(message, ToolMessage) and isinstance(message.content, list):
            media = [part for part in message.content if _is_media(part)]
            message = message.model_copy(update={"content": _text_of_result(message.content)})
        [converted] = super()._get_request_payload([message])["messages"]
        converted = {**converted, **returned_details(message)}
        if thought := returned_text(message, converted.get("content")):
            reasoned = {**converted, **thought}
            return _ConvertedMessage(
                converted, _encoded(converted), with_reasoning=(reasoned, _encoded(reasoned))
            )
        if not media:
            return _ConvertedMessage(converted, _encoded(converted))
        [said] = super()._get_request_payload([HumanMessage(media)])["messages"]
        blocks = _encoded(said["content"])[1:-1]
        return _ConvertedMessage(converted, _encoded(converted), (dict(said), blocks))


def _is_media(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") in MEDIA_BLOCKS


def _text_of_result(content: Sequence[Any]) -> str:
    """Return the text of a tool's result, which is all that servers take in its message."""
    texts = []
    for part in content:
        if isinstance(part, str):
            texts.append(part)
        elif isinstance(part, dict) and isinstance(part.get("text"), str):
            texts.append(part["text"])
        elif not _is_media(part):
            texts.append(json.dumps(part, ensure_ascii=False, default=str))
    if any(map(_is_media, content)):
        texts.append(IMAGES_FOLLOW)
    return "\n\n".join(text for text in texts if text)


def _with_reasoning(messages: Iterable[_ConvertedMessage]) -> Iterator[_ConvertedMessage]:
    """Yield the messages, with the model's reasoning in those turns in which it has called tools."""
    turn: list[_ConvertedMessage] = []
    for message in messages:
        if message.value.get("role") == "user":
            yield from _turn_with_reasoning(turn)
            turn = []
        turn.append(message)
    yield from _turn_with_reasoning(turn)


def _turn_with_reasoning(turn: Sequence[_ConvertedMessage]) -> Iterator[_ConvertedMessage]:
    has_calls = any("tool_calls" in message.value for message in turn)
    for message in turn:
        if has_calls and message.with_reasoning is not None:
            message = _ConvertedMessage(*message.with_reasoning)
        yield message


def _with_media_after_results(messages: Iterable[_ConvertedMessage]) -> Iterator[_ConvertedMessage]:
    """Yield the messages, and the images of all results of a step in one message behind these."""
    waiting: list[tuple[dict[str, Any], bytes]] = []
    for message in messages:
        if waiting and message.value.get("role") != "tool":
            yield _media_message(waiting)
            waiting = []
        yield message
        if message.media is not None:
            waiting.append(message.media)
    if waiting:
        yield _media_message(waiting)


def _media_message(parts: Sequence[tuple[dict[str, Any], bytes]]) -> _ConvertedMessage:
    lead = {"type": "text", "text": IMAGES_LEAD}
    value = {"role": "user", "content": [lead, *(block for said, _ in parts for block in said["content"])]}
    # Images may be megabytes: their JSON is not made again for each request.
    blocks = b",".join([_encoded(lead), *(encoded for _, encoded in parts)])
    return _ConvertedMessage(value, b'{"role":"user","content":[' + blocks + b"]}")


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
