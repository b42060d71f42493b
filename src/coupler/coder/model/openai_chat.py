"""The client of OpenAI-compatible servers: a long conversation costs little more than a short one."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self, cast

from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from openai import AsyncOpenAI
from pydantic import PrivateAttr, model_validator

from coupler.langchain.messages import PerMessage

if TYPE_CHECKING:
    from openai._models import FinalRequestOptions

AS_IT_IS = "extra_body"
"""The argument of the openai package for what goes into the request without a look at it."""


_PRIVATE = ("_convert_input", "_default_params", "_get_request_payload", "_use_responses_api")
IS_KNOWN_VERSION = all(hasattr(ChatOpenAI, name) for name in _PRIVATE)
"""False if LangChain's client is made otherwise: then it converts all messages for every request."""


class _ConvertedMessage(NamedTuple):
    """A message as servers read it, and its JSON."""

    value: dict[str, Any]
    encoded: bytes


class _ConvertedMessages(list[dict[str, Any]]):
    """Messages as servers read them, with their JSON."""

    def __init__(self, messages: Sequence[_ConvertedMessage]) -> None:
        super().__init__(message.value for message in messages)
        self.encoded = [message.encoded for message in messages]


class _EncodedClient(AsyncOpenAI):
    """A client of the openai package that does not encode again what is encoded."""

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
            return super()._get_request_payload(input_, stop=stop, **kwargs)
        if self._converted is None:
            self._converted = PerMessage(self._convert)
        # Messages of LangChain's are what all its own requests come with.
        messages = input_ if isinstance(input_, list) else self._convert_input(input_).to_messages()
        converted = _ConvertedMessages(self._converted(messages))
        payload = super()._get_request_payload([], stop=stop, **kwargs)
        as_it_is = {
            "messages": converted,
            **{name: payload.pop(name) for name in ("tools",) if name in payload},
        }
        return {**payload, AS_IT_IS: {**as_it_is, **(payload.get(AS_IT_IS) or {})}}

    def _convert(self, message: BaseMessage) -> _ConvertedMessage:
        [converted] = super()._get_request_payload([message])["messages"]
        return _ConvertedMessage(dict(converted), _encoded(converted))


def _encoded(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()
