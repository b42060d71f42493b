"""How the coder of one session is set up: its profile, its model, and what the configuration says besides.

Read again before every prompt, so that a model that was set meanwhile is used. Two that are equal make the
same agent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from coupler.agent.session import configuration_of
from coupler.coder.offered_modes import first_mode
from coupler.coder.profile import Profile, profile_of
from coupler.config import keys

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.coder.model.choice import ModelChoice
    from coupler.config import Config


class Setup(Struct, frozen=True, kw_only=True):
    """What an agent is assembled from."""

    profile: Profile
    choice: ModelChoice | None
    """The model that it begins with; None if none is set."""
    others: tuple[ModelChoice, ...] = ()
    """Models that the user can choose instead; none whose key is missing."""
    mode: str
    """The mode that sessions begin in."""
    sandbox: Literal["off", "auto", "on"] = "off"
    profiles: tuple[Profile, ...] = ()
    """Profiles that are offered as modes."""

    @property
    def models(self) -> dict[str, ModelChoice]:
        """All models that can be chosen, by their names; the first one is in use at first."""
        return {choice.name: choice for choice in (self.choice, *self.others) if choice is not None}


def setup_of(session: Session, profile: str, model: str | None) -> Setup:
    """What holds in a session's directory now. Raises `ProfileError`, `ModelError`, or what is wrong.

    `profile` is the one that is served; a profile that is the session's mode goes before it.
    """
    config = configuration_of(session.cwd, session.env)
    offered = [entry.text for entry in config[keys.CODER_PROFILES]]
    chosen = session.mode if session.mode in offered else profile
    return _setup(config, profile_of(chosen or profile, config), model)


def _setup(config: Config, profile: Profile, model: str | None) -> Setup:
    # Imported on use: a session of workflows alone needs none of it.
    from coupler.coder.model.choice import chosen, named
    from coupler.coder.model.keyring import Keyring

    profiles = tuple(profile_of(entry.text, config) for entry in config[keys.CODER_PROFILES])
    for offered in profiles:
        first_mode(offered)
    others = (named(entry.text, config, profile, model) for entry in config[keys.CODER_MODELS])
    return Setup(
        profile=profile,
        choice=chosen(config, profile, model),
        others=tuple(filter(Keyring().has_what_is_needed, others)),
        mode=first_mode(profile) or config[keys.CODER_MODE],
        sandbox=config[keys.CODER_SANDBOX],
        profiles=profiles,
    )
