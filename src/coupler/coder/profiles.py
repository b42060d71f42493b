"""Profiles and modes of the coder.

A profile is an agent of `coupler.toml` that stands on `coder`, directly or by others; what it leaves open is
as the one below has it, and in the end as `[coder]` says. `coder` itself is the profile without a table. The
modes are here as users see them; what each allows is in `modes`, which imports LangChain.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.agent.agent import Mode
from coupler.coder.model.settings import ModelSettings
from coupler.config.agent_tables import whole_table
from coupler.mcp.servers import server_name
from coupler.providers.catalogue import is_coder, merged_entries
from coupler.runtime.formatting import did_you_mean

if TYPE_CHECKING:
    from coupler.coder.setup import CoderSetup
    from coupler.config import Config
    from coupler.config.agent_tables import HookEvent

CODER = "coder"
"""The name of the built-in coding agent."""

INTERACTIVE, ACCEPT_EDITS, READ_ONLY = "interactive", "accept-edits", "read-only"
PLANNING, AGENTIC = "planning", "agentic"

READ_ONLY_MODES = frozenset({READ_ONLY, PLANNING})
"""Modes in which nothing is changed."""

MODES = (
    Mode(INTERACTIVE, "Asks before it changes anything or runs a command", name="Ask"),
    Mode(
        ACCEPT_EDITS, "Edits files of the project without asking, and asks for the rest", name="Accept edits"
    ),
    Mode(READ_ONLY, "Reads and searches, and changes nothing", name="Read only"),
    Mode(PLANNING, "Makes a plan, and carries it out when you approve it", name="Plan"),
    Mode(AGENTIC, "Works on its own, and asks only where it has to", name="Auto"),
)
"""The coder's modes, in the order of lists."""


class CoderProfile(Struct, frozen=True, kw_only=True):
    """The setup of a coder by its profile; what is None or empty is as usual."""

    name: str = CODER
    title: str | None = None
    system: str | None = None
    model: str | None = None
    base_url: str | None = None
    max_model_calls: int | None = None
    settings: ModelSettings = ModelSettings()
    mode: str | None = None
    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    mcp: tuple[str, ...] | None = None
    """The configured MCP servers that it uses; None for all of them."""
    hooks: Mapping[HookEvent, tuple[str, ...]] = {}
    env: Mapping[str, str] = {}


DEFAULT_PROFILE = CoderProfile()
"""The coder without a profile."""


class ProfileError(Exception):
    """There is no such profile; the message says what there is instead."""


def profile_of(name: str, config: Config) -> CoderProfile:
    """Return the profile of this name; raises `ProfileError` if it is not based on the coder."""
    if name not in profile_names(config):
        raise ProfileError(_no_profile(name, config))
    table = whole_table(name, {table.name: table for table in config.agents})
    if table is None:
        return CoderProfile(name=name)
    _check_servers(name, table.mcp or (), config)
    return CoderProfile(
        name=name,
        title=table.title,
        system=table.system,
        model=table.model,
        base_url=table.base_url,
        max_model_calls=table.max_model_calls,
        settings=ModelSettings(
            effort=table.effort,
            temperature=table.temperature,
            max_output_tokens=table.max_output_tokens,
        ),
        mode=table.mode,
        allow=table.allow,
        deny=table.deny,
        context=table.context,
        skills=table.skills,
        mcp=table.mcp,
        hooks=table.hooks,
        env=table.env,
    )


def profile_names(config: Config) -> list[str]:
    """All profiles that there are, the coder itself first."""
    return [name for name, entry in merged_entries(config).items() if is_coder(entry)]


def _check_servers(name: str, servers: Iterable[str], config: Config) -> None:
    known = [server_name(server) for server in config.mcp]
    for server in servers:
        if server not in known:
            hint = did_you_mean(server, known, f"write [mcp.{server}], or leave it out")
            raise ProfileError(f"the agent {name} uses the MCP server {server!r}, which is not set: {hint}")


def _no_profile(name: str, config: Config) -> str:
    known = profile_names(config)
    hint = did_you_mean(name, known, f"there are {', '.join(known)}")
    if any(table.name == name for table in config.agents):
        return f"the agent {name} is not based on `coder`, so it is no profile of it: {hint}"
    return f'there is no profile {name!r}: write [agents.{name}] with agent = "coder", or {hint}'


def modes_of(setup: CoderSetup) -> tuple[Mode, ...]:
    """Return the modes that a session can be in, with profiles that are modes; it begins in the first."""
    return (
        *sorted(MODES, key=lambda mode: mode.id != setup.mode),
        *(mode_of_profile(profile) for profile in setup.profiles),
    )


def first_mode(profile: CoderProfile) -> str | None:
    """The mode that a profile begins in, if it says so; raises `ProfileError` if there is no such mode."""
    known = [mode.id for mode in MODES]
    if profile.mode is None or profile.mode in known:
        return profile.mode
    hint = did_you_mean(profile.mode, known, f"there are {', '.join(known)}")
    raise ProfileError(
        f"the profile {profile.name} begins in a mode {profile.mode!r} that there is not: {hint}"
    )


def mode_of_profile(profile: CoderProfile) -> Mode:
    """Make the mode of a profile that is offered as one."""
    return Mode(profile.name, f"The profile {profile.name}", name=profile.title)
