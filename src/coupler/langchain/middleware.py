"""The middleware of `acp.permissions`, `acp.tools` and `acp.plan`, and what all share."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping
from concurrent.futures import CancelledError, Future
from types import FunctionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    NamedTuple,
    NotRequired,
    Protocol,
    TypeAlias,
    TypeVar,
    get_args,
)

from langchain.agents.middleware.types import (
    AgentMiddleware,
    ModelRequest,
    ModelResponse,
    PrivateStateAttr,
    ToolCallRequest,
)
from langchain_core.messages import AIMessage, BaseMessage, SystemMessage, ToolMessage
from langchain_core.tools import BaseTool
from langgraph.types import Command
from typing_extensions import TypedDict

from coupler.agent.agent import Mode, Option
from coupler.langchain.content import message_blocks
from coupler.langchain.current import Current, HeldUpError, current
from coupler.langchain.mcp_tools import START_TIMEOUT, NamePrefix, checked_prefix, mcp_tools
from coupler.langchain.permission import RuleLike, ToolDecision, ToolRules, permit, permit_and_wait
from coupler.langchain.plan import PLAN_SOURCES, PLANNING, PlanBuilder, PlanEntries, PlanSource
from coupler.langchain.presentation import (
    ContentOverride,
    KindOverride,
    LocationsOverride,
    Overrides,
    TitleOverride,
    ToolSelection,
)
from coupler.runtime.formatting import did_you_mean

if TYPE_CHECKING:
    from collections.abc import Iterable

    from langgraph.pregel import Pregel

log = logging.getLogger("coupler.langchain")

ToolResult: TypeAlias = ToolMessage | Command[Any]
ToolHandler: TypeAlias = Callable[[ToolCallRequest], Awaitable[ToolResult]]
ModelHandler: TypeAlias = Callable[[ModelRequest[Any]], Awaitable[ModelResponse[Any]]]

M = TypeVar("M", bound=BaseMessage)

MARK_PREFIX = "coupler_declares_"
"""Prefix of the keys of marks in a graph's state."""

_made: Counter[str] = Counter()


class PreparingMiddleware(AgentMiddleware[Any, Any, Any]):
    """Changes what a model is asked; subclasses say how."""

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return the request as the model gets it."""
        raise NotImplementedError

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Call the model with the prepared request."""
        return handler(self._prepared(request))

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Async version of `wrap_model_call`."""
        return await handler(self._prepared(request))


class RuledMiddleware(PreparingMiddleware):
    """Runs tools as rules have it, each call by itself; subclasses say what the rules want."""

    def _wishes(self, served: Current, request: ToolCallRequest) -> dict[str, Any] | ToolMessage | None:
        """Return what `permit` takes, or the message in the result's place; None if no rule says anything."""
        raise NotImplementedError

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Run the tool if it may."""
        served = current()
        wishes = None if served is None else self._wishes(served, request)
        if served is None or wishes is None:
            return handler(request)
        if isinstance(wishes, ToolMessage):
            return wishes
        tool = requested_tool(served, request)
        decision = permit_and_wait(served, request.tool_call, tool, **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_edit_note(handler(with_decided_arguments(request, decision)), decision)

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        """Async version of `wrap_tool_call`."""
        served = current()
        wishes = None if served is None else self._wishes(served, request)
        if served is None or wishes is None:
            return await handler(request)
        if isinstance(wishes, ToolMessage):
            return wishes
        decision = await permit(served, request.tool_call, requested_tool(served, request), **wishes)
        if not decision.runs:
            return decision.message_for(request.tool_call)
        return with_edit_note(await handler(with_decided_arguments(request, decision)), decision)


class PermissionsMiddleware(RuledMiddleware):
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

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Say what kinds the tools are, before the model calls them."""
        served = current()
        if served is not None and self._overrides is not None:
            served.presentation.prefer(self._overrides)
        return request

    def _wishes(self, served: Current, request: ToolCallRequest) -> dict[str, Any] | None:
        """Return what the rules want to be done about a call."""
        return permit_options(self._rules, served, request, "acp.permissions")


class ToolsMiddleware(AgentMiddleware[Any, Any, Any]):
    """Presents tool calls as their author wants, and gives the agent the editor's MCP tools.

    `kind`, `title`, `content` and `locations` are functions, or mappings from patterns of tool names.
    `starts` says which calls are shown while they run, `results` of which it is shown what they returned.
    With `mcp` the tools of the session's MCP servers are offered to the model; `prefix` says when the
    server's name stands before a tool's: on "collision", "always" or "never". A model call waits for a server
    until `mcp_wait` seconds after its start.
    """

    def __init__(
        self,
        *,
        kind: KindOverride | None = None,
        title: TitleOverride | None = None,
        content: ContentOverride | None = None,
        locations: LocationsOverride | None = None,
        starts: ToolSelection = True,
        results: ToolSelection = True,
        mcp: bool = True,
        prefix: NamePrefix = "collision",
        mcp_wait: float = START_TIMEOUT,
    ) -> None:
        super().__init__()
        self._name = own_name("acp.tools")
        self._overrides = Overrides(
            kind=kind, title=title, content=content, locations=locations, starts=starts, results=results
        )
        self._offers_mcp = mcp
        self._prefix = checked_prefix(prefix)
        self._mcp_wait = mcp_wait

    @property
    def name(self) -> str:
        return self._name

    def wrap_model_call(self, request: ModelRequest[Any], handler: Callable[[ModelRequest[Any]], Any]) -> Any:
        """Have the calls of this model shown as wanted, and offer the MCP servers' tools to it."""
        served = current()
        if served is None:
            return handler(request)
        self._prepare(served, request)
        if self._offers_mcp and served.session.servers.names:
            try:
                request = _with(served.wait_for(self._found(served, request)), served, request)
            except HeldUpError as error:
                log.warning("the tools of MCP servers are left out: %s", error)
        return handler(request)

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Async version of `wrap_model_call`."""
        served = current()
        if served is None:
            return await handler(request)
        self._prepare(served, request)
        if self._offers_mcp:
            request = _with(await self._found(served, request), served, request)
        return await handler(request)

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Run the tool, also one that was added for the session."""
        return handler(_completed(request))

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        """Run the tool, also one that was added for the session."""
        return await handler(_completed(request))

    async def _found(self, served: Current, request: ModelRequest[Any]) -> list[BaseTool]:
        taken = names_of(request.tools)
        return await mcp_tools(served.session, self._prefix, taken=taken, wait=self._mcp_wait)

    def _prepare(self, served: Current, request: ModelRequest[Any]) -> None:
        served.presentation.prefer(self._overrides)
        for tool in request.tools:
            if isinstance(tool, BaseTool):
                served.tools.setdefault(tool.name, tool)


def names_of(tools: Iterable[BaseTool | dict[str, Any]]) -> set[str]:
    """The names that tools have; a provider's own may have none."""
    return {tool.name if isinstance(tool, BaseTool) else str(tool.get("name", "")) for tool in tools}


def _with(found: list[BaseTool], served: Current, request: ModelRequest[Any]) -> ModelRequest[Any]:
    """Return the request with those of the tools that the mode has."""
    served.tools.update({tool.name: tool for tool in found})
    offered = [tool for tool in found if served.offers is None or served.offers(tool)]
    return request.override(tools=[*request.tools, *offered]) if offered else request


def _completed(request: ToolCallRequest) -> ToolCallRequest:
    if request.tool is not None:
        return request
    served = current()
    tool = requested_tool(served, request) if served is not None else None
    return request if tool is None else request.override(tool=tool)


class PlanMiddleware(AgentMiddleware[Any, Any, Any]):
    """Shows plans: of the todo list, of the model's tool calls, of lists in what it thinks, and by hand.

    `on` says which of them: "todos", "tool_calls", "reasoning", "manual" (`acp.emit_plan`). A `plan` in the
    graph's state is always shown, and what the model answers in the mode "planning". `build` makes the
    entries of what a source has, in place of the usual way: it gets the source's name and what it has.
    """

    def __init__(
        self, *, build: PlanBuilder | None = None, on: Collection[PlanSource] = ("todos", "manual")
    ) -> None:
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

    async def awrap_model_call(self, request: ModelRequest[Any], handler: ModelHandler) -> Any:
        """Async version of `wrap_model_call`."""
        served = current()
        if served is None:
            return await handler(request)
        self._before(served, request.state)
        response = await handler(request)
        self._after(served, response)
        return response

    def wrap_tool_call(
        self, request: ToolCallRequest, handler: Callable[[ToolCallRequest], ToolResult]
    ) -> ToolResult:
        """Run the tool, and show what became of the plan."""
        result = handler(request)
        if (served := current()) is not None:
            served.call_on_loop(self._ended, served, request, result)
        return result

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolHandler) -> ToolResult:
        """Async version of `wrap_tool_call`."""
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
                served.board.begin_call(_call_step(served, call))
        elif served.session.mode == PLANNING:
            served.board.answer(message.text)

    def _ended(self, served: Current, request: ToolCallRequest, result: Any) -> None:
        served.board.end_call(request.tool_call["id"] or "")
        if isinstance(result, Command) and isinstance(result.update, Mapping):
            served.board.todos(result.update.get("todos"))
            served.board.plan(result.update.get("plan"))


def emit_plan(entries: PlanEntries) -> None:
    """Show a plan: texts, or dictionaries with `content`, `status` and `priority`. From any code, any thread.

    Each time the whole plan is given. In a graph that is not served nothing happens.
    """
    served = current()
    if served is not None:
        served.call_on_loop(served.board.emit, [*entries])


def _call_step(served: Current, call: Any) -> dict[str, Any]:
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
    parts = (block for block in message_blocks(message) if block["type"] == "reasoning")
    return "\n".join(str(part.get("reasoning") or "") for part in parts)


def _sources(on: Collection[str]) -> frozenset[str]:
    if isinstance(on, str):
        on = (on,)
    for source in on:
        if source not in PLAN_SOURCES:
            hint = did_you_mean(str(source), PLAN_SOURCES, f"there are {', '.join(PLAN_SOURCES)}")
            raise ValueError(f"acp.plan has no source {source!r:.100}: {hint}")
    return frozenset(on)


def permit_options(
    rules: ToolRules, served: Current, request: ToolCallRequest, where: str
) -> dict[str, Any] | None:
    """Return what the rules want to be done about a call, as `permit` takes it; None if nothing."""
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
    """Return the tool that is called, also one that was added for the session."""
    return request.tool or served.tools.get(request.tool_call["name"])


def with_decided_arguments(request: ToolCallRequest, decision: ToolDecision) -> ToolCallRequest:
    """Return the request with the arguments that were decided on."""
    if decision.name != "edit":
        return request
    return request.override(tool_call={**request.tool_call, "args": decision.args})


def with_edit_note(result: ToolResult, decision: ToolDecision) -> ToolResult:
    """Return the result, with a note for the model if the user has changed the arguments."""
    if decision.name != "edit" or not isinstance(result, ToolMessage):
        return result
    note = "The user has changed the arguments of this call before it ran."
    text: Any = result.content
    content = f"{note}\n\n{text}" if isinstance(text, str) else [{"type": "text", "text": note}, *text]
    return result.model_copy(update={"content": content})


def own_name(name: str) -> str:
    """Return a name that no other middleware has: with a number from the second use on.

    LangChain wants each middleware of an agent to have its own. Only for middleware without nodes of its own:
    those are named in checkpoints, which outlive the process.
    """
    _made[name] += 1
    return name if _made[name] == 1 else f"{name} {_made[name]}"


def run_plain_middleware_in_threads() -> None:
    """Let middleware of plain functions alone (`wrap_model_call`, `wrap_tool_call`) work in served graphs.

    Served graphs are awaited, and for those LangChain's own `awrap_…` only raise. A graph that was made, and
    every agent that its tools run, holds these methods where nobody can exchange them: so their code is
    replaced. For a graph that is not served they raise as before. A version of LangChain that has other
    methods is left as it is.
    """
    for plain, replacement in (("wrap_model_call", _awrap_model_call), ("wrap_tool_call", _awrap_tool_call)):
        method = vars(AgentMiddleware).get(f"a{plain}")
        if not isinstance(method, FunctionType) or _form_of(method) != _form_of(replacement):
            continue
        if method.__code__ is not replacement.__code__:
            _replaced[plain] = FunctionType(method.__code__, method.__globals__)
            method.__code__ = replacement.__code__


def _form_of(function: Any) -> tuple[object, ...]:
    """Return what the code of a function must share with the code that takes its place."""
    code = function.__code__
    is_async = inspect.iscoroutinefunction(function)
    return code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, is_async, code.co_freevars


_replaced: dict[str, Callable[..., Awaitable[Any]]] = {}
"""LangChain's methods that only raise, by the names of the plain ones."""


# The next two run in the place of LangChain's own, without the names of this module.
async def _awrap_model_call(self: Any, request: Any, handler: Any) -> Any:
    from coupler.langchain.middleware import wrap_in_thread

    return await wrap_in_thread(self, "wrap_model_call", request, handler)


async def _awrap_tool_call(self: Any, request: Any, handler: Any) -> Any:
    from coupler.langchain.middleware import wrap_in_thread

    return await wrap_in_thread(self, "wrap_tool_call", request, handler)


async def wrap_in_thread(
    middleware: Any, method: str, request: Any, handler: Callable[[Any], Awaitable[Any]]
) -> Any:
    """Call a plain method of middleware in a thread; what it handles is awaited on the event loop."""
    if current() is None:
        return await _replaced[method](middleware, request, handler)
    loop = asyncio.get_running_loop()
    begun: list[Future[Any]] = []
    is_over = False

    async def handled(request: Any) -> Any:
        return await handler(request)

    def handle(request: Any) -> Any:
        if is_over:
            raise CancelledError("the turn is over")
        begun.append(asyncio.run_coroutine_threadsafe(handled(request), loop))
        return begun[-1].result()

    try:
        return await asyncio.to_thread(getattr(middleware, method), request, handle)
    finally:
        is_over = True
        for each in begun:
            each.cancel()


class DeclaringMiddleware(Protocol):
    """Middleware that declares modes or options for the sessions of its graph."""

    @property
    def declared(self) -> DeclaredSettings: ...


class DeclaredSettings(NamedTuple):
    """The modes and options of an agent's sessions, which begin in the first of the modes."""

    modes: tuple[Mode, ...] = ()
    options: tuple[Option, ...] = ()


class SchemaMark:
    """Marks the schema of a graph's state with the middleware that declares something."""

    def __init__(self, middleware: DeclaringMiddleware) -> None:
        self.middleware = middleware


def marked_schema(what: str, middleware: DeclaringMiddleware) -> type[Any]:
    """Return a schema of the state with nothing in it but the mark of this middleware."""
    key = f"{MARK_PREFIX}{what}"
    annotation = NotRequired[Annotated[Any, SchemaMark(middleware), PrivateStateAttr]]
    make: Any = TypedDict  # by its name, which type checkers do not know before
    schema: type[Any] = make(f"Declares_{what}", {key: annotation})
    return schema


def declared_in(graph: Pregel[Any, Any, Any, Any]) -> DeclaredSettings:
    """Return the modes and options that the middleware of a finished graph declares.

    A compiled graph does not keep what it was made of, but for the schema of its state. So middleware that
    declares something marks the schema: the mark is no part of the state, and costs nothing when the graph
    runs.
    """
    schema = getattr(getattr(graph, "builder", None), "state_schema", None)
    modes: list[Mode] = []
    options: list[Option] = []
    for key, annotation in getattr(schema, "__annotations__", {}).items():
        mark = _mark(annotation) if key.startswith(MARK_PREFIX) else None
        if mark is not None:
            declared = mark.middleware.declared
            modes += declared.modes
            options += declared.options
    return DeclaredSettings(tuple(modes), tuple(options))


def _mark(annotation: Any) -> SchemaMark | None:
    """Return the mark in an annotation, which may be wrapped."""
    for part in getattr(annotation, "__metadata__", ()):
        if isinstance(part, SchemaMark):
            return part
    return next((found for part in get_args(annotation) if (found := _mark(part)) is not None), None)


def with_text(message: M, text: str) -> M:
    """Return the message with a paragraph added: its content is one text, or a list of blocks."""
    content: Any = message.content
    if isinstance(content, str):
        more: Any = f"{content}\n\n{text}" if content else text
    else:
        more = [*content, {"type": "text", "text": text}]
    return message.model_copy(update={"content": more})


def with_prompt(message: SystemMessage | None, prompt: str) -> SystemMessage:
    """Return the system message with a text added."""
    return SystemMessage(prompt) if message is None else with_text(message, prompt)
