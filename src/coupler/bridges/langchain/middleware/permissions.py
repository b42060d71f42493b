"""`acp.permissions({pattern: rule})`: tool calls wait until rules, choices or the user allow them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeAlias

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command

from coupler.bridges.langchain.asking.permission import Decision, permit, permit_and_wait
from coupler.bridges.langchain.asking.tool_rules import RuleLike, ToolRules
from coupler.bridges.langchain.current import Current, current
from coupler.bridges.langchain.middleware.name import own_name
from coupler.bridges.langchain.tool_calls.overrides import Overrides

Result: TypeAlias = ToolMessage | Command[Any]


class PermissionsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Asks before tools run, each call by itself; a call that is refused does not hold up its siblings.

    A tool without a rule runs, unless `coupler.toml` or what the user chose before is against it; the
    tools of MCP servers and those of the editor ask for themselves.
    """

    def __init__(self, rules: Mapping[str, RuleLike]) -> None:
        super().__init__()
        self._name = own_name("acp.permissions")
        self._rules = ToolRules(rules, "acp.permissions")
        self._overrides = Overrides(kind=self._rules.kinds) if self._rules.kinds else None

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Say what kinds the tools are, before the model calls them."""
        self._say_kinds()
        return handler(request)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same."""
        self._say_kinds()
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run the tool if it may."""
        served = current()
        wishes = None if served is None else self._wishes(served, request)
        if served is None or wishes is None:
            return handler(request)
        tool = requested_tool(served, request)
        decision = permit_and_wait(served, request.tool_call, tool, **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_note(handler(as_decided(request, decision)), decision)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """Run the tool if it may."""
        served = current()
        wishes = None if served is None else self._wishes(served, request)
        if served is None or wishes is None:
            return await handler(request)
        decision = await permit(served, request.tool_call, requested_tool(served, request), **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_note(await handler(as_decided(request, decision)), decision)

    def _say_kinds(self) -> None:
        served = current()
        if served is not None and self._overrides is not None:
            served.presentation.prefer(self._overrides)

    def _wishes(self, served: Current, request: ToolCallRequest) -> dict[str, Any] | None:
        return wishes_of(self._rules, served, request, "acp.permissions")


def wishes_of(
    rules: ToolRules, served: Current, request: ToolCallRequest, where: str
) -> dict[str, Any] | None:
    """What the rules want to be done about a call, as `permit` takes it; None if that is nothing."""
    call, tool = request.tool_call, requested_tool(served, request)
    found = rules.of(call["name"], served.presentation.kind(call["name"], tool, call["args"]))
    if found is None:
        return None  # it runs, unless the user has said otherwise, which is looked at for every tool
    rule = found.rule
    because = f"{where} denies `{found.pattern}`"
    return {
        "effect": rule.effect,
        "decisions": rule.decisions,
        "because": because,
        "message": rule.message,
    }


def requested_tool(served: Current, request: ToolCallRequest) -> BaseTool | None:
    """The tool that is called, also one that was added for the session."""
    return request.tool or served.tools.get(request.tool_call["name"])


def as_decided(request: ToolCallRequest, decision: Decision) -> ToolCallRequest:
    """The call with the arguments that it may run with."""
    if decision.name != "edit":
        return request
    return request.override(tool_call={**request.tool_call, "args": decision.args})


def with_note(result: Result, decision: Decision) -> Result:
    """The result; the model is told if the user has changed its call, or it would take it for a mistake."""
    if decision.name != "edit" or not isinstance(result, ToolMessage):
        return result
    note = "The user has changed the arguments of this call before it ran."
    text: Any = result.content
    content = f"{note}\n\n{text}" if isinstance(text, str) else [{"type": "text", "text": note}, *text]
    return result.model_copy(update={"content": content})
