"""What LangChain agents need to be at home in an editor: `from coupler import acp`.

    create_agent(model, tools, middleware=[acp.permissions({"write_*": "ask"}), acp.modes(), acp.plan()])

Nothing of LangChain is loaded before a name is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from coupler.bridges.langchain.asking.tool_rules import Rule
    from coupler.bridges.langchain.current import Current, current
    from coupler.bridges.langchain.editor.tools import editor_tools
    from coupler.bridges.langchain.mcp.loaded_tools import load_mcp_tools
    from coupler.bridges.langchain.mcp.tools import mcp_tools
    from coupler.bridges.langchain.middleware.mode import Mode
    from coupler.bridges.langchain.middleware.models import ModelsMiddleware
    from coupler.bridges.langchain.middleware.modes import ModesMiddleware
    from coupler.bridges.langchain.middleware.permissions import PermissionsMiddleware
    from coupler.bridges.langchain.middleware.plan import PlanMiddleware, emit_plan
    from coupler.bridges.langchain.middleware.session import SessionMiddleware, kept
    from coupler.bridges.langchain.middleware.tools import ToolsMiddleware

    models = ModelsMiddleware
    modes = ModesMiddleware
    permissions = PermissionsMiddleware
    plan = PlanMiddleware
    session = SessionMiddleware
    tools = ToolsMiddleware

__all__ = [
    "Current",
    "Mode",
    "Rule",
    "current",
    "editor_tools",
    "emit_plan",
    "kept",
    "load_mcp_tools",
    "mcp_tools",
    "models",
    "modes",
    "permissions",
    "plan",
    "session",
    "tools",
]

_BRIDGE = "coupler.bridges.langchain"
_HOMES = {
    "Current": ("current", "Current"),
    "Mode": ("middleware.mode", "Mode"),
    "Rule": ("asking.tool_rules", "Rule"),
    "current": ("current", "current"),
    "editor_tools": ("editor.tools", "editor_tools"),
    "emit_plan": ("middleware.plan", "emit_plan"),
    "kept": ("middleware.session", "kept"),
    "load_mcp_tools": ("mcp.loaded_tools", "load_mcp_tools"),
    "mcp_tools": ("mcp.tools", "mcp_tools"),
    "models": ("middleware.models", "ModelsMiddleware"),
    "modes": ("middleware.modes", "ModesMiddleware"),
    "permissions": ("middleware.permissions", "PermissionsMiddleware"),
    "plan": ("middleware.plan", "PlanMiddleware"),
    "session": ("middleware.session", "SessionMiddleware"),
    "tools": ("middleware.tools", "ToolsMiddleware"),
}


def __getattr__(name: str) -> Any:
    """Load a name when it is first used; without LangChain this says what to install."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    from coupler.runtime.extras import need

    need("langchain", extra="langchain", feature=f"`acp.{name}`")
    module, attribute = _HOMES[name]
    value = globals()[name] = getattr(import_module(f"{_BRIDGE}.{module}"), attribute)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
