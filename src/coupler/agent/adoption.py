"""Objects of other frameworks that can be served: who makes agents of them.

Bridges stand above this layer, so they are named here and imported when such an object is met.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Any, Protocol, cast

from coupler.agent.agent import AdoptedAgent, Agent
from coupler.agent.serve_options import NO_OPTIONS, OptionError, ServeOptions
from coupler.runtime.extras import MissingExtraError

if TYPE_CHECKING:
    from types import ModuleType

_LANGCHAIN = "coupler.bridges.langchain.adoption"
_BRIDGES = {"langgraph": _LANGCHAIN, "langchain": _LANGCHAIN, "langchain_core": _LANGCHAIN}
"""Bridges, by the package that the types of their objects come from."""
_GRAPHS = frozenset({"langgraph"})
"""Those whose objects can be served as they are."""


class Bridge(Protocol):
    """What a bridge offers."""

    def adopt(self, target: Any, options: ServeOptions) -> AdoptedAgent | None:
        """The object as an agent; None if it is none that can be served."""

    def is_adoptable(self, value: Any) -> bool:
        """Whether the object could be served, without looking closely."""

    async def forget(self, session_id: str, state: Any, options: ServeOptions) -> None:
        """A session was deleted whose agent is not here: delete what the framework keeps of it."""


def adopt(target: Any, options: ServeOptions = NO_OPTIONS) -> AdoptedAgent | None:
    """The object of a framework as an agent; None if no framework knows it."""
    with _naming_what_is_missing():
        bridge = _bridge_to(target)
        agent = bridge.adopt(target, options) if bridge is not None else None
    if agent is None:
        refuse_graph_options(options)
    return agent


def is_adoptable(value: Any) -> bool:
    """Whether an object in a module is something that the module might want to have served."""
    # Modules are full of things of a framework; what is none of its graphs must not load the bridge.
    bridge = _bridge_to(value) if _package_of(value) in _GRAPHS else None
    return bridge is not None and bridge.is_adoptable(value)


def made_by_factories() -> type[Agent]:
    """What a factory's agents are before there is one: a module that has loaded a framework makes its."""
    return AdoptedAgent if any(package in sys.modules for package in _GRAPHS) else Agent


def refuse_graph_options(options: ServeOptions) -> None:
    """Raise if something was said that only graphs understand."""
    for name in ("text", "thoughts", "blocks"):
        if getattr(options, name) is not None:
            raise OptionError(
                f"serve(…, {name}=…) is for graphs of LangGraph: leave it out, or serve a graph"
            )


async def forget(session_id: str, state: Any, options: ServeOptions) -> None:
    """Delete what frameworks keep of a deleted session, by what its state says of them."""
    if isinstance(state, dict) and "thread" in state and "checkpoint" in state:
        bridge = cast(Bridge, import_module(_LANGCHAIN))
        await bridge.forget(session_id, state, options)


def origin_of(target: object) -> tuple[str, str] | None:
    """The module of the user's that has the object, and its name there."""
    for module_name, module in [*sys.modules.items()]:
        if not _is_users(module_name, module):
            continue
        for name, value in [*vars(module).items()]:
            if value is target and not name.startswith("_"):
                return module_name, name
    return None


@contextmanager
def _naming_what_is_missing() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        if (error.name or "").partition(".")[0] in _BRIDGES:
            extra = 'serving graphs of LangGraph needs more packages: pip install "coupler[langchain]"'
            raise MissingExtraError(extra) from None
        raise


def _package_of(value: object) -> str:
    return type(value).__module__.partition(".")[0]


def _bridge_to(target: object) -> Bridge | None:
    module = _BRIDGES.get(_package_of(target))
    return cast(Bridge, import_module(module)) if module is not None else None


def _is_users(name: str, module: ModuleType) -> bool:
    from coupler.agent.memory import is_installed

    file = getattr(module, "__dict__", {}).get("__file__")
    is_own = name.partition(".")[0] == "coupler"
    return isinstance(file, str) and not is_own and not is_installed(file) and not _is_standard(file)


def _is_standard(file: str) -> bool:
    return file.startswith(_STANDARD_LIBRARY)


_STANDARD_LIBRARY = str(import_module("os").__file__).removesuffix("os.py")
