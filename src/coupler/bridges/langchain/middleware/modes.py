"""`acp.modes(…)`: what the agent is told, has and may do in each mode; a switch holds from the next call."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from coupler.agent.agent import declared_modes
from coupler.bridges.langchain.addition import with_prompt
from coupler.bridges.langchain.asking.permission import permit, permit_and_wait, refusal
from coupler.bridges.langchain.current import Current, current
from coupler.bridges.langchain.declared import Declared, marked_schema
from coupler.bridges.langchain.middleware.chat_model import chosen_model
from coupler.bridges.langchain.middleware.mode import PRESETS, Mode, modes_of
from coupler.bridges.langchain.middleware.permissions import (
    Result,
    as_decided,
    requested_tool,
    wishes_of,
    with_note,
)
from coupler.bridges.langchain.tool_calls.kinds import about_tool


class ModesMiddleware(AgentMiddleware[Any, Any, Any]):
    """Offers these modes, or the ready-made ones: agentic, interactive, read-only, planning.

    A session begins in the `default`, or in the first. The system prompt, the tools and the model of the
    mode that the session is in count for each model call, its tools and rules for each tool call.
    """

    def __init__(self, *modes: str | Mode | Iterable[str | Mode], default: str | None = None) -> None:
        super().__init__()
        listed = modes_of(_flat(modes) or PRESETS)
        declared_modes(listed)
        self._modes = {mode.id: mode for mode in listed}
        self._default = _checked_default(default, self._modes)
        self.state_schema = marked_schema("modes", self)

    @property
    def declared(self) -> Declared:
        """The modes as sessions have them."""
        others = (mode for mode in self._modes.values() if mode is not self._default)
        return Declared(modes=(self._default, *others))

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model as the mode wants it."""
        served = current()
        return handler(request if served is None else self._in_mode(served, request))

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same."""
        served = current()
        return await handler(request if served is None else self._in_mode(served, request))

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run the tool if the mode has it and its rules are not against it."""
        served = current()
        if served is None:
            return handler(request)
        mode = self._mode(served)
        if (missing := _missing(mode, served, request)) is not None:
            return missing
        wishes = wishes_of(mode.rules, served, request, f"the mode {mode.id}") if mode.rules else None
        if wishes is None:
            return handler(request)
        decision = permit_and_wait(served, request.tool_call, requested_tool(served, request), **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_note(handler(as_decided(request, decision)), decision)

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """The same."""
        served = current()
        if served is None:
            return await handler(request)
        mode = self._mode(served)
        if (missing := _missing(mode, served, request)) is not None:
            return missing
        wishes = wishes_of(mode.rules, served, request, f"the mode {mode.id}") if mode.rules else None
        if wishes is None:
            return await handler(request)
        decision = await permit(served, request.tool_call, requested_tool(served, request), **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_note(await handler(as_decided(request, decision)), decision)

    def _mode(self, served: Current) -> Mode:
        """The mode that the session is in; one that is not known here counts as the default."""
        return self._modes.get(served.session.mode or "", self._default)

    def _in_mode(self, served: Current, request: ModelRequest[Any]) -> ModelRequest[Any]:
        mode = self._mode(served)
        # For middleware further in, which may add tools to those that are looked at here.
        served.offers = lambda tool: _has(self._mode(served), served, tool)
        changes: dict[str, Any] = {}
        if mode.prompt is not None:
            changes["system_message"] = with_prompt(request.system_message, mode.prompt)
        if not mode.offers_all:
            changes["tools"] = [tool for tool in request.tools if _has(mode, served, tool)]
            if not changes["tools"]:
                changes["tool_choice"] = None
        if mode.model is not None:
            changes["model"] = chosen_model(served, mode.model)
        return request.override(**changes) if changes else request


def _missing(mode: Mode, served: Current, request: ToolCallRequest) -> ToolMessage | None:
    """What the model reads if it calls a tool that the mode does not have; it may know it from before."""
    call = request.tool_call
    if _offers(mode, served, call["name"], requested_tool(served, request), call["args"]):
        return None
    parent = served.call_id
    key = served.calls.key(call["id"] or "", parent)
    served.call_on_loop(partial(served.calls.announce, key, call["name"], dict(call["args"]), parent=parent))
    return refusal(call, f"there is no such tool in the mode {mode.name!r}, which the user has chosen")


def _has(mode: Mode, served: Current, tool: BaseTool | dict[str, Any]) -> bool:
    if isinstance(tool, BaseTool):
        return _offers(mode, served, tool.name, tool, {})
    return _offers(mode, served, str(tool.get("name") or tool.get("type") or ""), None, {})


def _offers(mode: Mode, served: Current, name: str, tool: BaseTool | None, args: Mapping[str, Any]) -> bool:
    is_believed = mode.believes_servers or "server" not in about_tool(tool)
    return mode.offers(name, served.presentation.kind(name, tool, args) if is_believed else "other")


def _flat(modes: Iterable[str | Mode | Iterable[str | Mode]]) -> list[str | Mode]:
    flat: list[str | Mode] = []
    for each in modes:
        flat += [each] if isinstance(each, str | Mode) else each
    return flat


def _checked_default(default: str | None, modes: dict[str, Mode]) -> Mode:
    if default is None:
        return next(iter(modes.values()))
    if default in modes:
        return modes[default]
    nearest = difflib.get_close_matches(str(default), [*modes], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(modes)}"
    raise ValueError(f"acp.modes has no mode {default!r:.100} that could be the default: {hint}")
