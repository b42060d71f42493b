"""Coupler couples any editor to any agent over the Agent Client Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coupler.__about__ import __version__

if TYPE_CHECKING:
    from coupler.agent.agent import Agent, Choice, Command, Group, Mode, Select, Toggle
    from coupler.agent.auth import Login
    from coupler.agent.blocking import BlockingTurn
    from coupler.agent.errors import AuthRequiredError, EditorError, NotPermittedError
    from coupler.agent.session import Session, SettingError
    from coupler.agent.startup.serve import serve, serve_async
    from coupler.agent.terminal import Finished
    from coupler.agent.turn import Turn, TurnEndedError
    from coupler.client.elicitation import FormRequest, UrlRequest
    from coupler.client.errors import AgentError, EndTurn
    from coupler.client.limits import Limits
    from coupler.client.policy import PermissionRequest, Policy
    from coupler.client.reply import Budget, Reply
    from coupler.client.tools import ToolContext
    from coupler.client_api import Pool, ask, connect
    from coupler.mcp.tools import McpError
    from coupler.runtime.environment import Environment, SpawnError
    from coupler.runtime.files import FileChangedError, OutsideRootsError, UnsuitableFileError
    from coupler.wire.messages import RpcError

__all__ = [
    "Agent",
    "AgentError",
    "AuthRequiredError",
    "BlockingTurn",
    "Budget",
    "Choice",
    "Command",
    "EditorError",
    "EndTurn",
    "Environment",
    "FileChangedError",
    "Finished",
    "FormRequest",
    "Group",
    "Limits",
    "Login",
    "McpError",
    "Mode",
    "NotPermittedError",
    "OutsideRootsError",
    "PermissionRequest",
    "Policy",
    "Pool",
    "Reply",
    "RpcError",
    "Select",
    "Session",
    "SettingError",
    "SpawnError",
    "Toggle",
    "ToolContext",
    "Turn",
    "TurnEndedError",
    "UnsuitableFileError",
    "UrlRequest",
    "__version__",
    "ask",
    "connect",
    "serve",
    "serve_async",
]

_HOMES = {
    "Agent": "coupler.agent.agent",
    "AgentError": "coupler.client.errors",
    "AuthRequiredError": "coupler.agent.errors",
    "BlockingTurn": "coupler.agent.blocking",
    "Budget": "coupler.client.reply",
    "Choice": "coupler.agent.agent",
    "Command": "coupler.agent.agent",
    "EditorError": "coupler.agent.errors",
    "EndTurn": "coupler.client.errors",
    "Environment": "coupler.runtime.environment",
    "FileChangedError": "coupler.runtime.files",
    "Finished": "coupler.agent.terminal",
    "FormRequest": "coupler.client.elicitation",
    "Group": "coupler.agent.agent",
    "Limits": "coupler.client.limits",
    "Login": "coupler.agent.auth",
    "McpError": "coupler.mcp.tools",
    "Mode": "coupler.agent.agent",
    "NotPermittedError": "coupler.agent.errors",
    "OutsideRootsError": "coupler.runtime.files",
    "PermissionRequest": "coupler.client.policy",
    "Policy": "coupler.client.policy",
    "Pool": "coupler.client_api",
    "Reply": "coupler.client.reply",
    "RpcError": "coupler.wire.messages",
    "Select": "coupler.agent.agent",
    "Session": "coupler.agent.session",
    "SettingError": "coupler.agent.session",
    "SpawnError": "coupler.runtime.environment",
    "Toggle": "coupler.agent.agent",
    "ToolContext": "coupler.client.tools",
    "Turn": "coupler.agent.turn",
    "TurnEndedError": "coupler.agent.turn",
    "UnsuitableFileError": "coupler.runtime.files",
    "UrlRequest": "coupler.client.elicitation",
    "ask": "coupler.client_api",
    "connect": "coupler.client_api",
    "serve": "coupler.agent.startup.serve",
    "serve_async": "coupler.agent.startup.serve",
}

_SUBMODULES = frozenset({"acp", "events", "providers", "schema"})
"""Public modules that `import coupler` alone gives access to."""


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import coupler` costs next to nothing."""
    from importlib import import_module

    if name in _SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
