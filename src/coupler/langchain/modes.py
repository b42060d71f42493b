"""`acp.modes(…)` and `acp.models(…)`: modes and models that the user switches in a session.

A mode says what the agent is told, which tools it has, which model answers, and what is asked about. A switch
holds from the next call on. The ready-made modes have the ids that all of Coupler's agents use for the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from langchain.agents.middleware.types import ModelRequest, ToolCallRequest
from langchain.chat_models import init_chat_model
from langchain_core.messages import ToolMessage
from langchain_core.tools import BaseTool

from coupler.agent import agent as agent_mode
from coupler.agent.agent import Select, declared_modes
from coupler.langchain.current import current
from coupler.langchain.middleware import (
    DeclaredSettings,
    PreparingMiddleware,
    RuledMiddleware,
    marked_schema,
    permit_options,
    requested_tool,
    with_prompt,
)
from coupler.langchain.permission import (
    KIND_PREFIX,
    RuleLike,
    ToolRules,
    checked_pattern,
    matches_pattern,
    refusal_message,
)
from coupler.langchain.plan import PLANNING
from coupler.langchain.presentation import KINDS, tool_metadata
from coupler.langchain.usage import context_size
from coupler.permission.action import READING_KINDS
from coupler.runtime.formatting import did_you_mean

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

    from coupler.langchain.current import Current

AGENTIC, INTERACTIVE, READ_ONLY = "agentic", "interactive", "read-only"

"""Kinds of tools that run unasked in `interactive`: a fetch is none of them, because it sends data out."""

ModelLike: TypeAlias = "str | BaseChatModel"
"""A model, or its name as `init_chat_model` takes it."""

MODEL_OPTION = "model"
"""Id of the option for the model, which editors know."""


class Mode(agent_mode.Mode):
    """A mode of an agent: its prompt, its tools, its model and its rules.

    `prompt` is added to the system prompt. `tools` are the patterns of the tools that it offers: names with
    `*`, or `kind:read`; without them it offers all. `permissions` are rules as for `acp.permissions`.
    """

    def __init__(
        self,
        id: str,
        description: str | None = None,
        *,
        name: str | None = None,
        prompt: str | None = None,
        tools: Iterable[str] | None = None,
        model: ModelLike | None = None,
        permissions: Mapping[str, RuleLike] | None = None,
    ) -> None:
        super().__init__(id, description, name=name)
        where = f"the mode {self.id!r}"
        if isinstance(tools, str):
            raise TypeError(f"{where}: `tools` is a list of patterns, not {tools!r:.100}")
        self.prompt: Final = prompt
        self.model: Final = model
        self.rules: Final = ToolRules(permissions, where) if permissions is not None else None
        self._tools = None if tools is None else tuple(checked_pattern(each, where) for each in tools)

    believes_servers = True
    """True if the kind of an MCP tool is taken from its name and its server's claims."""

    def offers(self, name: str, kind: str) -> bool:
        """True if the mode has a tool of this name and kind."""
        return self._tools is None or any(matches_pattern(pattern, name, kind) for pattern in self._tools)

    @property
    def offers_all(self) -> bool:
        """True if it has all tools."""
        return self._tools is None


PRESETS: Mapping[str, Mode] = {
    mode.id: mode
    for mode in (
        Mode(AGENTIC, "Works on its own, and asks only where it has to"),
        Mode(
            INTERACTIVE,
            "Asks before everything but reading, searching and thinking",
            permissions={f"{KIND_PREFIX}{kind}": "ask" for kind in KINDS if kind not in READING_KINDS},
        ),
        Mode(
            READ_ONLY,
            "Reads and searches, and changes nothing",
            tools=[f"{KIND_PREFIX}read", f"{KIND_PREFIX}search"],
            prompt="You are in read-only mode: you can read and search, and nothing else. Answer with what "
            "you find; if something has to be changed, say what and how, and leave it to the user.",
        ),
        Mode(
            PLANNING,
            "Makes a plan, and carries nothing out",
            tools=[f"{KIND_PREFIX}{kind}" for kind in ("read", "search", "fetch", "think")],
            prompt="You are in planning mode: look at whatever you need, and carry nothing out. Answer with "
            "a plan as a numbered list, one step a line, that can be followed without further questions.",
        ),
    )
}
"""The ready-made modes by id."""


def modes_of(modes: Iterable[str | agent_mode.Mode]) -> tuple[Mode, ...]:
    """The modes, of which the ready-made ones may be named by their ids."""
    return tuple(_mode(each) for each in modes)


def _mode(given: object) -> Mode:
    if isinstance(given, Mode):
        return given
    if isinstance(given, agent_mode.Mode):  # `coupler.Mode`, which changes nothing by itself
        return Mode(given.id, given.description, name=given.name)
    return _preset(given)


def _preset(id: object) -> Mode:
    if isinstance(id, str) and id in PRESETS:
        return PRESETS[id]
    hint = did_you_mean(str(id), PRESETS, f"there are {', '.join(PRESETS)}")
    raise ValueError(f"there is no ready-made mode {id!r:.100}: {hint}, or make your own with acp.Mode(…)")


class ModesMiddleware(RuledMiddleware):
    """Offers these modes, or the ready-made ones: agentic, interactive, read-only, planning.

    A session begins in the `default`, or in the first. The system prompt, the tools and the model of the
    mode that the session is in count for each model call, its tools and rules for each tool call.
    """

    def __init__(
        self,
        *modes: str | agent_mode.Mode | Iterable[str | agent_mode.Mode],
        default: str | None = None,
    ) -> None:
        super().__init__()
        listed = modes_of(_flat(modes) or PRESETS)
        declared_modes(listed)
        self._modes = {mode.id: mode for mode in listed}
        self._default = _checked_default(default, self._modes)
        self.state_schema = marked_schema("modes", self)

    @property
    def declared(self) -> DeclaredSettings:
        """The modes as sessions have them."""
        others = (mode for mode in self._modes.values() if mode is not self._default)
        return DeclaredSettings(modes=(self._default, *others))

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return the request with the mode's prompt, tools and model."""
        served = current()
        return request if served is None else self._in_mode(served, request)

    def _wishes(self, served: Current, request: ToolCallRequest) -> dict[str, Any] | ToolMessage | None:
        """Return what the mode's rules want, or the message for a tool that the mode does not have."""
        mode = self._mode(served)
        if (missing := _missing(mode, served, request)) is not None:
            return missing
        return permit_options(mode.rules, served, request, f"the mode {mode.id}") if mode.rules else None

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
    """Return the message for a call of a tool that the mode does not have; None if it has the tool."""
    call = request.tool_call
    if _offers(mode, served, call["name"], requested_tool(served, request), call["args"]):
        return None
    parent = served.call_id
    key = served.calls.key(call["id"] or "", parent)
    served.call_on_loop(partial(served.calls.announce, key, call["name"], dict(call["args"]), parent=parent))
    return refusal_message(
        call, f"there is no such tool in the mode {mode.name!r}, which the user has chosen"
    )


def _has(mode: Mode, served: Current, tool: BaseTool | dict[str, Any]) -> bool:
    if isinstance(tool, BaseTool):
        return _offers(mode, served, tool.name, tool, {})
    return _offers(mode, served, str(tool.get("name") or tool.get("type") or ""), None, {})


def _offers(mode: Mode, served: Current, name: str, tool: BaseTool | None, args: Mapping[str, Any]) -> bool:
    is_believed = mode.believes_servers or "server" not in tool_metadata(tool)
    return mode.offers(name, served.presentation.kind(name, tool, args) if is_believed else "other")


def _flat(
    modes: Iterable[str | agent_mode.Mode | Iterable[str | agent_mode.Mode]],
) -> list[str | agent_mode.Mode]:
    flat: list[str | agent_mode.Mode] = []
    for each in modes:
        flat += [each] if isinstance(each, str | agent_mode.Mode) else each
    return flat


def _checked_default(default: str | None, modes: dict[str, Mode]) -> Mode:
    if default is None:
        return next(iter(modes.values()))
    if default in modes:
        return modes[default]
    hint = did_you_mean(str(default), modes, f"there are {', '.join(modes)}")
    raise ValueError(f"acp.modes has no mode {default!r:.100} that could be the default: {hint}")


class ModelsMiddleware(PreparingMiddleware):
    """Offers models, by their names as `init_chat_model` knows them or under names of your own.

    A session begins with the `default`, or with the first. What the user chooses holds from the next model
    call on; the model of a mode goes before it if `acp.modes` comes after this in the list.
    """

    def __init__(
        self, models: Mapping[str, ModelLike] | Iterable[str], *, default: str | None = None
    ) -> None:
        super().__init__()
        self._models: dict[str, ModelLike] = (
            dict(models) if isinstance(models, Mapping) else {name: name for name in models}
        )
        self._select = Select(MODEL_OPTION, [*self._models], default=default, name="Model", category="model")
        self.state_schema = marked_schema("models", self)

    @property
    def declared(self) -> DeclaredSettings:
        """The option as sessions have it."""
        return DeclaredSettings(options=(self._select,))

    def _prepared(self, request: ModelRequest[Any]) -> ModelRequest[Any]:
        """Return the request for the model that was chosen."""
        served = current()
        if served is None:
            return request
        model = self._models.get(str(served.session.options.get(MODEL_OPTION, self._select.default)))
        return request if model is None else request.override(model=chosen_model(served, model))


def chosen_model(served: Current, model: Any) -> BaseChatModel:
    """Return the model of this name, as `init_chat_model` knows them, or the model itself.

    By its name it is made once: that loads its provider's package and opens connections.
    """
    made: BaseChatModel = _named(model) if isinstance(model, str) else model
    served.sizes |= context_size(made)
    return made


@lru_cache(maxsize=32)
def _named(name: str) -> Any:
    return init_chat_model(name)
