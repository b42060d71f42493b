"""No model gets to read a key of the models, whatever its tools have found, and no error repeats one.

A key may stand in a file of the project or in a prompt, or be read from another process. The model has no use
for it, and what it has read is kept with the conversation: so it gets the key's name instead. Errors are kept
there, too, and some servers repeat the key that they refuse.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest
from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langgraph.types import Command
from msgspec import Struct, structs

from coupler.langchain.graph_agent import GraphAgent
from coupler.redaction.masker import Masker
from coupler.redaction.sources import declared_secrets

if TYPE_CHECKING:
    from langgraph.prebuilt.tool_node import ToolCallRequest

    from coupler.agent.turn import Turn
    from coupler.schema.v1 import StopReason


class KeyConcealment(AgentMiddleware[Any, Any, Any]):
    """Hides these keys, each by its name, in instructions, and in what tools return or fail with."""

    def __init__(self, keys: Mapping[str, str]) -> None:
        super().__init__()
        self._cover = _Cover(keys)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """Ask the model without them: files of instructions may have one."""
        system = request.system_message
        if system is not None and (content := self._cover.covered(system.content)) is not system.content:
            request = request.override(system_message=system.model_copy(update={"content": content}))
        return await handler(request)

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


class Keyless(GraphAgent):
    """An agent that is asked nothing in which one of these keys stands."""

    def __init__(self, *arguments: Any, keys: Mapping[str, str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._cover = _Cover(keys)

    async def perform(self, turn: Turn) -> StopReason | None:
        """Hide the keys in what the user has typed or mentioned before anything of it is kept."""
        turn.blocks = tuple(self._cover.covered([*turn.blocks]))
        return await super().perform(turn)


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
            case Struct():
                fields = {name: getattr(value, name) for name in value.__struct_fields__}
                changed = {name: new for name, old in fields.items() if (new := self.covered(old)) is not old}
                return structs.replace(value, **changed) if changed else value
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
