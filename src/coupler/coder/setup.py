"""Reads the setup of a session's coder: its profile, its model, and the configuration.

Read again before every prompt, so that a model that was set meanwhile is used. Two setups that are equal make
the same agent. Besides, what every part of the coder uses: values in the session's state, and notices.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from coupler.agent.session import configuration_of
from coupler.agent.turn import NOTICES
from coupler.coder.model.settings import ModelSettings
from coupler.coder.profiles import CoderProfile, first_mode, profile_of
from coupler.coder.search_providers import SearchSettings
from coupler.config.keys import Coder

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
    from coupler.coder.model.choice import ModelChoice
    from coupler.config import Config

log = logging.getLogger("coupler.coder")


async def notify_user(turn: Turn, title: str, description: str) -> None:
    """Tell the user, and log, what is not part of an answer: as a notice, else as a thought.

    Not as a message: what the agent answers may be read by a program.
    """
    log.warning("%s: %s", title, description)
    if turn.editor.offers(NOTICES):
        await turn.notice(title, description, severity="warning")
    else:
        turn.begin_new_message()
        await turn.think(f"{title}: {description}")
        turn.begin_new_message()


_USUAL = Coder()


class CoderSetup(Struct, frozen=True, kw_only=True):
    """The setup that an agent is assembled from."""

    profile: CoderProfile
    choice: ModelChoice | None
    """The model that it begins with; None if none is set."""
    others: tuple[ModelChoice, ...] = ()
    """Models that the user can choose instead; none whose key is missing."""
    mode: str
    """The mode that sessions begin in."""
    settings: ModelSettings = ModelSettings()
    """The settings of its models."""
    max_model_calls: int = _USUAL.max_model_calls
    """Model calls of one prompt at most, if the profile does not say."""
    retry_seconds: int = _USUAL.retry_seconds
    """Seconds for which a model is asked again that fails for a moment."""
    mcp_wait_seconds: int = _USUAL.mcp_wait_seconds
    """Seconds from an MCP server's start on that the model is not asked without its tools."""
    sandbox: Literal["off", "auto", "on"] = "off"
    is_sandbox_set: bool = True
    """True if the user has said whether commands run in a sandbox."""
    has_memory: bool = True
    """True if the memory of the project is read, and can be written."""
    environment: tuple[str, ...] = ()
    """Variables that hold secrets and that commands get all the same."""
    profiles: tuple[CoderProfile, ...] = ()
    """Profiles that are offered as modes."""
    search: SearchSettings | None = None
    """The web search, if one is configured."""

    @property
    def models(self) -> dict[str, ModelChoice]:
        """All models that can be chosen, by their names; the first one is in use at first."""
        return {choice.name: choice for choice in (self.choice, *self.others) if choice is not None}


def setup_of(session: Session, profile: str, model: str | None) -> CoderSetup:
    """Read the setup of a session's directory. Raises `ProfileError`, `ModelError` or a config's error.

    `profile` is the one that is served; a profile that is the session's mode goes before it.
    """
    config = configuration_of(session.cwd, session.env)
    offered = [entry.text for entry in config.coder.profiles]
    chosen = session.mode if session.mode in offered else profile
    return _setup(config, profile_of(chosen or profile, config), model)


def _setup(config: Config, profile: CoderProfile, model: str | None) -> CoderSetup:
    # Imported on use: a session of workflows alone needs none of it.
    from coupler.coder.model.choice import chosen_model, named_model
    from coupler.coder.model.credentials import Keyring

    profiles = tuple(profile_of(entry.text, config) for entry in config.coder.profiles)
    for offered in profiles:
        first_mode(offered)
    others = (named_model(entry.text, config, profile, model) for entry in config.coder.models)
    return CoderSetup(
        profile=profile,
        choice=chosen_model(config, profile, model),
        others=tuple(filter(Keyring().has_what_is_needed, others)),
        mode=first_mode(profile) or config.coder.mode,
        settings=profile.settings.or_else(
            ModelSettings(
                effort=config.coder.effort,
                temperature=config.coder.temperature,
                max_output_tokens=config.coder.max_output_tokens,
            )
        ),
        max_model_calls=config.coder.max_model_calls,
        retry_seconds=config.coder.retry_seconds,
        mcp_wait_seconds=config.coder.mcp_wait_seconds,
        sandbox=config.coder.sandbox,
        is_sandbox_set="coder.sandbox" in config.settings,
        has_memory=config.coder.memory,
        environment=tuple(entry.text for entry in config.coder.environment),
        profiles=profiles,
        search=SearchSettings.of(config),
    )


def state_value(session: Session, name: str) -> Any:
    """Return what the coder has stored in the session's state under this name; None if nothing.

    The state is stored with every turn. Others keep theirs there as well, and what is stored may be
    anybody's: so entries are replaced one at a time, and whoever reads one looks at what it is.
    """
    return _state(session).get(name)


def set_state_value(session: Session, name: str, value: Any) -> None:
    """Store what JSON can hold under this name, in the place of what was there."""
    session.state = {**_state(session), name: value}


def remove_state_value(session: Session, name: str) -> None:
    """Store nothing under this name any more."""
    session.state = {each: value for each, value in _state(session).items() if each != name}


def _state(session: Session) -> Mapping[str, Any]:
    return session.state if isinstance(session.state, Mapping) else {}
