"""Coupler couples any editor to any agent over the Agent Client Protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from coupler.__about__ import __version__

if TYPE_CHECKING:
    from coupler.agent.agent import Agent
    from coupler.agent.blocking import BlockingTurn
    from coupler.agent.command import Command
    from coupler.agent.errors import AuthRequiredError, EditorError
    from coupler.agent.file_errors import FileChangedError, OutsideRootsError, UnsuitableFileError
    from coupler.agent.login import Login
    from coupler.agent.mode import Mode
    from coupler.agent.option import Choice, Group, Select, Toggle
    from coupler.agent.serving import serve, serve_async
    from coupler.agent.session import Session
    from coupler.agent.settings import SettingError
    from coupler.agent.terminal import Finished
    from coupler.agent.turn import Turn, TurnEndedError
    from coupler.client.errors import AgentError
    from coupler.client.policy import PermissionRequest, Policy
    from coupler.client.reply import Reply
    from coupler.coupling import connect
    from coupler.process.environment import Environment
    from coupler.wire.errors import RpcError

__all__ = [
    "Agent",
    "AgentError",
    "AuthRequiredError",
    "BlockingTurn",
    "Choice",
    "Command",
    "EditorError",
    "Environment",
    "FileChangedError",
    "Finished",
    "Group",
    "Login",
    "Mode",
    "OutsideRootsError",
    "PermissionRequest",
    "Policy",
    "Reply",
    "RpcError",
    "Select",
    "Session",
    "SettingError",
    "Toggle",
    "Turn",
    "TurnEndedError",
    "UnsuitableFileError",
    "__version__",
    "connect",
    "serve",
    "serve_async",
]

_HOMES = {
    "Agent": "coupler.agent.agent",
    "AgentError": "coupler.client.errors",
    "AuthRequiredError": "coupler.agent.errors",
    "BlockingTurn": "coupler.agent.blocking",
    "Choice": "coupler.agent.option",
    "Command": "coupler.agent.command",
    "EditorError": "coupler.agent.errors",
    "Environment": "coupler.process.environment",
    "FileChangedError": "coupler.agent.file_errors",
    "Finished": "coupler.agent.terminal",
    "Group": "coupler.agent.option",
    "Login": "coupler.agent.login",
    "Mode": "coupler.agent.mode",
    "OutsideRootsError": "coupler.agent.file_errors",
    "PermissionRequest": "coupler.client.policy",
    "Policy": "coupler.client.policy",
    "Reply": "coupler.client.reply",
    "RpcError": "coupler.wire.errors",
    "Select": "coupler.agent.option",
    "Session": "coupler.agent.session",
    "SettingError": "coupler.agent.settings",
    "Toggle": "coupler.agent.option",
    "Turn": "coupler.agent.turn",
    "TurnEndedError": "coupler.agent.turn",
    "UnsuitableFileError": "coupler.agent.file_errors",
    "connect": "coupler.coupling",
    "serve": "coupler.agent.serving",
    "serve_async": "coupler.agent.serving",
}


def __getattr__(name: str) -> Any:
    """Load a public name when it is first used, so that `import coupler` costs next to nothing."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
