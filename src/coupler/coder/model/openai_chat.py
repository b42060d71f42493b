"""The client of OpenAI-compatible servers: a long conversation costs little more than a short one."""

from __future__ import annotations

from typing import Any

from langchain_core.messages import BaseMessage
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from coupler.langchain.messages import PerMessage

AS_IT_IS = "extra_body"
"""The argument of the openai package for what goes into the request without a look at it."""


class OpenAIChat(ChatOpenAI):
    """A chat client that converts each message of a conversation once.

    LangChain converts all messages for every request. After it the openai package looks for values with types
    of their own in all of them, and finds none: that takes 150 µs a message, a third of a second in a
    conversation of 2,000.
    """

    _converted: PerMessage[dict[str, Any]] | None = PrivateAttr(None)

    def _get_request_payload(
        self, input_: Any, *, stop: list[str] | None = None, **kwargs: Any
    ) -> dict[str, Any]:
        if self._use_responses_api({**self._default_params, **kwargs}) or "response_format" in kwargs:
            return super()._get_request_payload(input_, stop=stop, **kwargs)
        if self._converted is None:
            self._converted = PerMessage(self._convert)
        messages = self._converted(self._convert_input(input_).to_messages())
        payload = super()._get_request_payload([], stop=stop, **kwargs)
        as_it_is = {
            "messages": messages,
            **{name: payload.pop(name) for name in ("tools",) if name in payload},
        }
        return {**payload, AS_IT_IS: {**as_it_is, **(payload.get(AS_IT_IS) or {})}}

    def _convert(self, message: BaseMessage) -> dict[str, Any]:
        [converted] = super()._get_request_payload([message])["messages"]
        return dict(converted)
