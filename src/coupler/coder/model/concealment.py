"""No model gets to read a key of the models, whatever its tools have found, and no error repeats one.

A key may stand in a file of the project, or be read from another process. The model has no use for it, and
what it has read is kept with the conversation: so it gets the key's name instead. Errors are kept there, too,
and some servers repeat the key that they refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langgraph.types import Command

from coupler.secrets import Masker, declared_secrets

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest


class KeyConcealment(AgentMiddleware[Any, Any, Any]):
    """Hides these keys, each by its name, in what tools return or fail with."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._cover = _Cover(keys)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Any]]
    ) -> Any:
        """Run the tool, and mask what it returns."""
        try:
            return self._covered(await handler(request))
        except Exception as error:
            self._cover.conceal_in(error)
            raise

    def _covered(self, result: Any) -> Any:
        match result:
            case ToolMessage():
                content = self._cover.covered(result.content)
                if content is result.content and result.artifact is None:
                    return result
                artifact = self._cover.covered(result.artifact)
                return result.model_copy(update={"content": content, "artifact": artifact})
            case Command(update={"messages": list(messages), **others}):
                told = [self._covered(message) for message in messages]
                return replace(result, update={**others, "messages": told})
        return result


class ErrorConcealment(BaseCallbackHandler):
    """Hides these keys in what a model fails with, whoever asked it; the error stays the same one."""

    run_inline = True

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._cover = _Cover(keys)

    def on_llm_error(self, error: BaseException, **_: Any) -> None:
        """LangChain tells of an error before it raises it."""
        self._cover.conceal_in(error)


class _Cover:
    """Puts names in the place of keys."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        self._masker = Masker(declared_secrets(keys))

    def covered(self, value: Any) -> Any:
        """A text, or what holds some; the very same if there is nothing to hide."""
        match value:
            case str():
                return self._masker.mask(value)
            case list():
                items = [self.covered(item) for item in value]
                return value if all(new is old for new, old in zip(items, value, strict=True)) else items
            case dict():
                table = {name: self.covered(item) for name, item in value.items()}
                return value if all(table[name] is value[name] for name in value) else table
        return value

    def conceal_in(self, error: BaseException) -> None:
        """Mask the words of an error and of those that it came from."""
        seen: set[int] = set()
        each: BaseException | None = error
        while each is not None and id(each) not in seen:
            seen.add(id(each))
            each.args = (*self.covered([*each.args]),)
            for name in ("message", "body"):
                value = getattr(each, name, None)
                if isinstance(value, str | dict) and (covered := self.covered(value)) is not value:
                    setattr(each, name, covered)
            each = each.__cause__ or each.__context__
