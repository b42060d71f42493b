"""The answer to `initialize`: computed from what an agent is, never written by hand."""

from __future__ import annotations

import sys
from functools import cache

from coupler.agent.agent import Agent, FunctionAgent, accepted_blocks
from coupler.agent.memory import is_installed
from coupler.schema.methods import PROTOCOL_VERSION
from coupler.schema.v1 import (
    AgentCapabilities,
    Implementation,
    InitializeResponse,
    PromptCapabilities,
)

UNKNOWN_VERSION = "0.0.0"


def introduce(
    agent: Agent | type[Agent],
    *,
    name: str | None = None,
    title: str | None = None,
    version: str | None = None,
) -> InitializeResponse:
    """What the agent tells a client about itself; arguments win over what the agent says."""
    accepts = accepted_blocks(agent)
    prompt = PromptCapabilities(
        image="image" in accepts, audio="audio" in accepts, embedded_context="resource" in accepts
    )
    name = name or agent.name or _own_name(agent)
    info = Implementation(
        name=name,
        title=title or agent.title or name,
        version=version or agent.version or distribution_version(_module_of(agent)),
    )
    return InitializeResponse(
        PROTOCOL_VERSION,
        agent_capabilities=AgentCapabilities(prompt_capabilities=prompt),
        agent_info=info,
    )


def _own_name(agent: Agent | type[Agent]) -> str:
    if isinstance(agent, FunctionAgent):
        return agent.function.__name__
    return agent.__name__ if isinstance(agent, type) else type(agent).__name__


def _module_of(agent: Agent | type[Agent]) -> str:
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
