"""Computes the answer to `initialize` from what an agent is and how it is served."""

from __future__ import annotations

import os.path
import sys
from functools import cache
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from coupler.agent.agent import Agent, FrameworkAgent, FunctionAgent, accepted_blocks
from coupler.agent.startup.early_answer import TERMINAL_LOGIN, is_installed
from coupler.agent.startup.serve_options import FORK, NO_OPTIONS, NO_STORE, ServeOptions
from coupler.schema.decoding import decode
from coupler.schema.methods import PROTOCOL_VERSION
from coupler.schema.v1 import (
    AgentAuthCapabilities,
    AgentCapabilities,
    AuthMethod,
    AuthMethodAgent,
    AuthMethodTerminal,
    ClientCapabilities,
    Implementation,
    InitializeResponse,
    LogoutCapabilities,
    McpCapabilities,
    PromptCapabilities,
    SessionAdditionalDirectoriesCapabilities,
    SessionCapabilities,
    SessionCloseCapabilities,
    SessionDeleteCapabilities,
    SessionListCapabilities,
    SessionResumeCapabilities,
)

UNKNOWN_VERSION = "0.0.0"

TERMINAL_COMMAND = "terminal-auth"
"""The key of `_meta` by which Zed asks for a login's whole command, and is told it; older than the type."""


def initialize_response(agent: Agent | type[Agent], options: ServeOptions = NO_OPTIONS) -> InitializeResponse:
    """Compute the result of `initialize`; options take precedence over the agent's attributes."""
    name = options.name or agent.name or _own_name(agent)
    info = Implementation(
        name=name,
        title=options.title or agent.title or name,
        version=options.version or agent.version or distribution_version(_module_of(agent)),
    )
    return InitializeResponse(
        PROTOCOL_VERSION,
        agent_capabilities=_capabilities(agent, options),
        agent_info=info,
        auth_methods=tuple(login.as_method() for login in agent.logins),
    )


def response_for_client(
    introduction: InitializeResponse | Raw, client: ClientCapabilities
) -> InitializeResponse | Raw:
    """Leave out authentication methods that this client cannot use.

    A method for terminals is for clients that run it. One of another type with the same id takes its place
    for all others; `_meta` of that may have a command, for clients that asked for it there.
    """
    if not offers_terminal_login(introduction):
        return introduction
    if isinstance(introduction, Raw):
        introduction = decode(InitializeResponse, introduction, "agent")
    methods = introduction.auth_methods or ()
    if client.auth.terminal is True:
        in_terminal = {method.id for method in methods if isinstance(method, AuthMethodTerminal)}
        offered = [
            method
            for method in methods
            if isinstance(method, AuthMethodTerminal) or getattr(method, "id", None) not in in_terminal
        ]
    else:
        others = [method for method in methods if not isinstance(method, AuthMethodTerminal)]
        is_told_command = (client.meta or {}).get(TERMINAL_COMMAND) is True
        offered = others if is_told_command else [_without_command(method) for method in others]
    return msgspec.structs.replace(introduction, auth_methods=tuple(offered))


def _without_command(method: AuthMethod) -> AuthMethod:
    """Return a method without the command in its `_meta`."""
    if not isinstance(method, AuthMethodAgent) or not method.meta:
        return method
    left = {name: value for name, value in method.meta.items() if name != TERMINAL_COMMAND}
    return msgspec.structs.replace(method, meta=left or UNSET)


def offers_terminal_login(introduction: InitializeResponse | Raw) -> bool:
    """Return whether a method for terminals is named, so that the answer depends on the client."""
    if isinstance(introduction, Raw):
        return TERMINAL_LOGIN.encode() in bytes(introduction)
    return any(isinstance(method, AuthMethodTerminal) for method in introduction.auth_methods or ())


def _capabilities(agent: Agent | type[Agent], options: ServeOptions) -> AgentCapabilities:
    accepts = accepted_blocks(agent)
    prompt = PromptCapabilities(
        image="image" in accepts, audio="audio" in accepts, embedded_context="resource" in accepts
    )
    keeps = options.store != NO_STORE
    return AgentCapabilities(
        load_session=keeps,
        prompt_capabilities=prompt,
        mcp_capabilities=_mcp_capabilities(),
        session_capabilities=_session_capabilities(keeps=keeps, forks=keeps and options.offers(FORK)),
        auth=_login_capabilities(agent),
    )


def _mcp_capabilities() -> McpCapabilities:
    """Return the MCP capabilities: HTTP and SSE need a package, stdio every agent has to support."""
    from coupler.mcp.package import is_installed as has_package

    return McpCapabilities(http=has_package(), sse=has_package())


def _login_capabilities(agent: Agent | type[Agent]) -> AgentAuthCapabilities:
    can_log_out = any(login.logout is not None for login in agent.logins)
    return AgentAuthCapabilities(logout=LogoutCapabilities() if can_log_out else UNSET)


def _session_capabilities(*, keeps: bool, forks: bool) -> SessionCapabilities:
    always: dict[str, Any] = {
        "close": SessionCloseCapabilities(),
        "additional_directories": SessionAdditionalDirectoriesCapabilities(),
    }
    if not keeps:
        return SessionCapabilities(**always)
    kept: dict[str, Any] = {
        "list": SessionListCapabilities(),
        "resume": SessionResumeCapabilities(),
        "delete": SessionDeleteCapabilities(),
    }
    if not forks:
        return SessionCapabilities(**always, **kept)
    # Imported on use: hardly anybody asks for drafts.
    from coupler.schema import unstable

    return unstable.SessionCapabilities(**always, **kept, fork=unstable.SessionForkCapabilities())


def identity_of(agent: Agent | type[Agent]) -> str:
    """Return the identity that the stored sessions of this agent are found by."""
    if isinstance(agent, FunctionAgent):
        return identity(agent.function.__module__, agent.function.__qualname__)
    if isinstance(agent, FrameworkAgent):
        return identity(*agent.origin)
    kind = agent if isinstance(agent, type) else type(agent)
    return identity(kind.__module__, kind.__qualname__)


def identity(module: str, name: str) -> str:
    """Return a unique name that is the same under `python app.py` and `coupler serve app.py`."""
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if module == "__main__":
        # Under `python -m package`; every program would be called alike.
        module = getattr(getattr(loaded, "__spec__", None), "name", None) or module
    if not isinstance(file, str) or (is_installed(file) and module != "__main__"):
        return f"{module}:{name}"
    return f"{os.path.abspath(file)}:{name}"


def _own_name(agent: Agent | type[Agent]) -> str:
    if isinstance(agent, FunctionAgent):
        return agent.function.__name__
    if isinstance(agent, FrameworkAgent):
        return agent.called
    return agent.__name__ if isinstance(agent, type) else type(agent).__name__


def _module_of(agent: Agent | type[Agent]) -> str:
    if isinstance(agent, FrameworkAgent):
        return agent.origin[0]
    return agent.function.__module__ if isinstance(agent, FunctionAgent) else agent.__module__


def distribution_version(module: str) -> str:
    """The version of the installed package that the agent comes from."""
    package = module.partition(".")[0]
    loaded = sys.modules.get(package)
    installed = is_installed(getattr(loaded, "__file__", None) or "")
    # A package elsewhere may be installed as well, in editable form; a single file there is not.
    if installed or hasattr(loaded, "__path__"):
        version = _installed_version(package, search=installed)
        if version is not None:
            return version
    return str(getattr(loaded, "__version__", UNKNOWN_VERSION))


@cache
def _installed_version(package: str, *, search: bool) -> str | None:
    # Imported on use: reading metadata costs more than the rest of the start.
    from importlib import metadata

    # Most packages are called like their distribution; to find out about the others all have to be read.
    names = metadata.packages_distributions().get(package, []) if search else [package]
    for name in names:
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return None
