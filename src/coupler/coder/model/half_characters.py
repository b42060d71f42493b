"""`WholeCharacters`: no half of a character stays in a conversation.

JSON can hold the half of a pair that is one character in UTF-16, and UTF-8 cannot. A model that writes one in
an answer, or a tool that finds one in a file's name, would make the conversation one that can never be sent
again. Two halves that belong together are joined; one alone becomes the mark for what cannot be shown.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import AIMessage, BaseMessage, ToolMessage
from langgraph.types import Command

if TYPE_CHECKING:
    from langchain.agents.middleware.types import ModelRequest, ModelResponse
    from langgraph.prebuilt.tool_node import ToolCallRequest

_HALF = re.compile("[\ud800-\udfff]")


class WholeCharacters(AgentMiddleware[Any, Any, Any]):
    """Mends what models and tools say, and what a conversation has from before."""

    async def awrap_model_call(
        self,
        request: ModelRequest[Any],
        handler: Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]],
    ) -> ModelResponse[Any]:
        """Mend what is sent, and what is answered."""
        messages = [*map(_mended, request.messages)]
        if any(new is not old for new, old in zip(messages, request.messages, strict=True)):
            request = request.override(messages=messages)
        response = await handler(request)
        return replace(response, result=[*map(_mended, response.result)])

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Mend what a tool returns."""
        match await handler(request):
            case ToolMessage() as message:
                return _mended(message)
            case Command(update={"messages": list(messages), **others}) as command:
                return replace(command, update={**others, "messages": [*map(_mended, messages)]})
            case result:
                return result


def _mended(message: Any) -> Any:
    """The message without halves; the very same if there are none."""
    if not isinstance(message, BaseMessage):
        return message
    names = ["content", "additional_kwargs"]
    names += ["tool_calls", "invalid_tool_calls"] if isinstance(message, AIMessage) else []
    names += ["artifact"] if isinstance(message, ToolMessage) else []
    values = {name: getattr(message, name) for name in names}
    mended = {name: new for name, old in values.items() if (new := whole(old)) is not old}
    return message.model_copy(update=mended) if mended else message


def whole(value: Any) -> Any:
    """A text, or what holds some, with whole characters only; the very same if it has no others."""
    match value:
        case str():
            return _joined(value) if _HALF.search(value) else value
        case list():
            items = [whole(item) for item in value]
            return value if all(new is old for new, old in zip(items, value, strict=True)) else items
        case dict():
            table = {whole(name): whole(item) for name, item in value.items()}
            is_same = all(name in table and table[name] is item for name, item in value.items())
            return value if is_same else table
    return value


def _joined(text: str) -> str:
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
