"""`KeyConcealment`: no model gets to read a key of the models, whatever its tools have found.

A key may stand in a file of the project, or be read from another process. The model has no use for it, and
what it has read is kept with the conversation: so it gets the key's name instead.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from coupler.secrets import Masker, declared_secrets

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest


class KeyConcealment(AgentMiddleware[Any, Any, Any]):
    """Hides these keys, each by its name, in what tools return."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._masker = Masker(declared_secrets(keys))

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Run the tool, and mask what it returns."""
        return self._covered(await handler(request))

    def _covered(self, result: Any) -> Any:
        match result:
            case ToolMessage():
                content = self._covered_value(result.content)
                if content is result.content and result.artifact is None:
                    return result
                artifact = self._covered_value(result.artifact)
                return result.model_copy(update={"content": content, "artifact": artifact})
            case Command(update={"messages": list(messages), **others}):
                told = [self._covered(message) for message in messages]
                return replace(result, update={**others, "messages": told})
        return result

    def _covered_value(self, value: Any) -> Any:
        """A text, or what holds some; the very same if there is nothing to hide."""
        match value:
            case str():
                return self._masker.mask(value)
            case list():
                items = [self._covered_value(item) for item in value]
                return value if all(new is old for new, old in zip(items, value, strict=True)) else items
            case dict():
                table = {name: self._covered_value(item) for name, item in value.items()}
                return value if all(table[name] is value[name] for name in value) else table
        return value
