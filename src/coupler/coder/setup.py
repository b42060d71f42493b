"""How the coder of one session is set up: its profile, its model, and what the configuration says besides.

Read again before every prompt, so that a model that was set meanwhile is used. Two that are equal make the
same agent.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from coupler.agent.session import configuration_of
from coupler.agent.turn import NOTICES
from coupler.coder.profiles import Profile, first_mode, profile_of
from coupler.config import keys

if TYPE_CHECKING:
    from coupler.agent.session import Session
    from coupler.agent.turn import Turn
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
    from coupler.coder.model.credentials import Keyring

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


# What the coder keeps in a session's state, which is stored with every turn, each under a name of its own.
#
# Others keep theirs there as well, and what is stored may be anybody's: so entries are replaced one at a
# time, and whoever recalls one looks at what it is.


def recalled(session: Session, name: str) -> Any:
    """What was kept under this name; None if nothing was."""
    return _kept(session).get(name)


def keep(session: Session, name: str, value: Any) -> None:
    """Keep what JSON can hold, in the place of what was there."""
    session.state = {**_kept(session), name: value}


def forget(session: Session, name: str) -> None:
    """Keep nothing under this name any more."""
    session.state = {each: value for each, value in _kept(session).items() if each != name}


def _kept(session: Session) -> Mapping[str, Any]:
    return session.state if isinstance(session.state, Mapping) else {}


# Tells the user what is not part of an answer: as a notice, else as a thought.
#
# Not as a message: what the agent answers may be read by a program.


log = logging.getLogger("coupler.coder")


async def tell_note(turn: Turn, title: str, description: str) -> None:
    """Tell and log it."""
    log.warning("%s: %s", title, description)
    if turn.editor.offers(NOTICES):
        await turn.notice(title, description, severity="warning")
    else:
        turn.begin_new_message()
        await turn.think(f"{title}: {description}")
        turn.begin_new_message()
