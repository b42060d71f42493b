"""Middleware and tools for LangChain agents in an editor: `from coupler import acp`.

    create_agent(model, tools, middleware=[acp.permissions({"write_*": "ask"}), acp.modes(), acp.plan()])

Nothing of LangChain is loaded before a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.langchain.current import Current, current
    from coupler.langchain.editor_tools.tools import editor_tools
    from coupler.langchain.mcp_tools import load_mcp_tools, mcp_tools
    from coupler.langchain.middleware import (
        PermissionsMiddleware,
        PlanMiddleware,
        ToolsMiddleware,
        emit_plan,
    )
    from coupler.langchain.modes import Mode, ModelsMiddleware, ModesMiddleware
    from coupler.langchain.permission import Rule

    models = ModelsMiddleware
    modes = ModesMiddleware
    permissions = PermissionsMiddleware
    plan = PlanMiddleware
    tools = ToolsMiddleware

__all__ = [
    "Current",
    "Mode",
    "Rule",
    "current",
    "editor_tools",
    "emit_plan",
    "load_mcp_tools",
    "mcp_tools",
    "models",
    "modes",
    "permissions",
    "plan",
    "tools",
]

_BRIDGE = "coupler.langchain"
_HOMES = {
    "Current": ("current", "Current"),
    "Mode": ("modes", "Mode"),
    "Rule": ("permission", "Rule"),
    "current": ("current", "current"),
    "editor_tools": ("editor_tools.tools", "editor_tools"),
    "emit_plan": ("middleware", "emit_plan"),
    "load_mcp_tools": ("mcp_tools", "load_mcp_tools"),
    "mcp_tools": ("mcp_tools", "mcp_tools"),
    "models": ("modes", "ModelsMiddleware"),
    "modes": ("modes", "ModesMiddleware"),
    "permissions": ("middleware", "PermissionsMiddleware"),
    "plan": ("middleware", "PlanMiddleware"),
    "tools": ("middleware", "ToolsMiddleware"),
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used; without LangChain this says what to install."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from coupler.runtime.extras import import_extra

    import_extra("langchain", extra="langchain", feature=f"`acp.{name}`")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(import_module(f"{_BRIDGE}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
