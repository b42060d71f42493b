"""`acp.plan(…)`: what the agent means to do, as the editor's plan."""

from __future__ import annotations

import difflib
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any

from langchain.agents.middleware.types import AgentMiddleware, ModelRequest, ToolCallRequest
from langchain_core.messages import AIMessage
from langgraph.types import Command

from coupler.langchain.current import SOURCES, Build, Current, Entries, Source, current
from coupler.langchain.middleware import Result, own_name
from coupler.langchain.modes import PLANNING


class PlanMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows plans: of the todo list, of the model's tool calls, of lists in what it thinks, and by hand.

    `on` says which of them: "todos", "tool_calls", "reasoning", "manual" (`acp.emit_plan`). A `plan` in the
    graph's state is always shown, and what the model answers in the mode "planning". `build` makes the
    entries of what a source has, in place of the usual way: it gets the source's name and what it has.
    """

    def __init__(self, *, build: Build | None = None, on: Collection[Source] = ("todos", "manual")) -> None:
        super().__init__()
        self._name = own_name("acp.plan")
        self._build = build
        self._on = _sources(on)

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model, and show what it plans."""
        served = current()
        if served is None:
            return handler(request)
        served.call_on_loop(self._before, served, request.state)
        response = handler(request)
        served.call_on_loop(self._after, served, response)
        return response

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Awaitable[Any]]
    ) -> Any:
        """The same."""
        served = current()
        if served is None:
            return await handler(request)
        self._before(served, request.state)
        response = await handler(request)
        self._after(served, response)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Result]
    ) -> Result:
        """Run the tool, and show what became of the plan."""
        result = handler(request)
        if (served := current()) is not None:
            served.call_on_loop(self._ended, served, request, result)
        return result

    async def awrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], Awaitable[Result]]
    ) -> Result:
        """The same."""
        result = await handler(request)
        if (served := current()) is not None:
            self._ended(served, request, result)
        return result

    def _before(self, served: Current, state: Mapping[str, Any]) -> None:
        board = served.board
        board.listen(self._on, self._build)
        board.plan(state.get("plan"))

    def _after(self, served: Current, response: Any) -> None:
        message = _message_of(response)
        if message is None:
            return
        if served.board.hears("reasoning"):
            served.board.reasoning(_reasoning_of(message))
        if message.tool_calls:
            for call in message.tool_calls:
                served.board.begin_call(_as_step(served, call))
        elif served.session.mode == PLANNING:
            served.board.answer(message.text)

    def _ended(self, served: Current, request: ToolCallRequest, result: Any) -> None:
        served.board.end_call(request.tool_call["id"] or "")
        if isinstance(result, Command) and isinstance(result.update, Mapping):
            served.board.todos(result.update.get("todos"))
            served.board.plan(result.update.get("plan"))


def emit_plan(entries: Entries) -> None:
    """Show a plan: texts, or dictionaries with `content`, `status` and `priority`. From any code, any thread.

    Each time the whole plan is given. In a graph that is not served nothing happens.
    """
    served = current()
    if served is not None:
        served.call_on_loop(served.board.emit, [*entries])


def _as_step(served: Current, call: Any) -> dict[str, Any]:
    tool = served.tools.get(call["name"])
    title = served.presentation.title(call["name"], tool, call["args"])
    return {"id": call["id"] or "", "name": call["name"], "args": call["args"], "title": title}


def _message_of(response: Any) -> AIMessage | None:
    """The model's message in what a handler returned, which may be wrapped."""
    if isinstance(response, AIMessage):
        return response
    inner = getattr(response, "model_response", response)
    found = [message for message in getattr(inner, "result", ()) if isinstance(message, AIMessage)]
    return found[-1] if found else None


def _reasoning_of(message: AIMessage) -> str:
    parts = (block for block in message.content_blocks if block["type"] == "reasoning")
    return "\n".join(str(part.get("reasoning") or "") for part in parts)


def _sources(on: Collection[str]) -> frozenset[str]:
    if isinstance(on, str):
        on = (on,)
    for source in on:
        if source not in SOURCES:
            nearest = difflib.get_close_matches(str(source), SOURCES, n=1, cutoff=0.5)
            hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(SOURCES)}"
            raise ValueError(f"acp.plan has no source {source!r:.100}: {hint}")
    return frozenset(on)
