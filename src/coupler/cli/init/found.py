"""What is on this machine that a new project can use: agents, keys by their names, a model, editors."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.providers.catalogue import Entry

CODER = "coder"


class Found(NamedTuple):
    """All of it; nothing of it was started, and no value of a key was looked at."""

    agents: tuple[str, ...]
    """Those that are installed, by their names in the catalogue."""
    keys: tuple[str, ...]
    """Variables that hold a provider's key."""
    model: str | None
    """The coder's model, if somebody has set one."""
    suggested: str | None
    """A model for which there is a key, or one of this machine, if none is set."""
    editors: tuple[tuple[str, str], ...]
    """Name and title of those that have been used here."""

    def ready(self, model: str | None) -> tuple[str, ...]:
        """Agents that could work now; the coder with this model, or with the one that is set."""
        has_model = self.model is not None or model not in (None, "none")
        return (*((CODER,) if has_model else ()), *self.agents)


def look_around(config: Config) -> Found:
    """Raises `ModelError` if what was stored of the coder's login cannot be read."""
    from coupler.coder.model.choice import chosen
    from coupler.coder.model.credentials import PROVIDERS
    from coupler.coder.profile import Profile

    keys = [name for each in PROVIDERS.values() for name in each.variables if os.environ.get(name)]
    model = chosen(config, Profile())
    with_key = [
        f"{each.name}:{each.example}"
        for each in PROVIDERS.values()
        if each.example and any(os.environ.get(name) for name in each.variables)
    ]
    return Found(
        agents=tuple(_installed(config)),
        keys=tuple(keys),
        model=None if model is None else model.name,
        suggested=next(iter((*with_key, *_local_models())), None) if model is None else None,
        editors=tuple(_editors()),
    )


def _local_models() -> Sequence[str]:
    """Those that `coupler models` has installed."""
    from coupler.coder.model.local import installed_files
    from coupler.runtime.directories import NoHomeError

    try:
        return [f"local:{file.stem}" for file in installed_files()]
    except NoHomeError:
        return []


def _installed(config: Config) -> Sequence[str]:
    """Not those that `npx` would fetch: that is everything, and takes its time."""
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose, is_coder, joined

    names = []
    for entry in joined(config).values():
        if is_coder(entry):
            continue
        try:
            chosen = choose(entry)
        except AgentError:
            continue
        if not chosen.is_fetched and (chosen.form == "acp" or _has_program(entry)):
            names.append(entry.name)
    return names


def _has_program(entry: Entry) -> bool:
    """Whether a native form is a program, and no part of Coupler that is always there."""
    from coupler.providers.catalogue import ENTRIES as PROVIDERS

    return entry.native is not None and PROVIDERS[entry.native].program is not None


def _editors() -> Sequence[tuple[str, str]]:
    from coupler.cli.editor.editors import EDITORS
    from coupler.cli.editor.places import NoPlaceError, Surroundings

    try:
        around = Surroundings.of_this_user()
    except NoPlaceError:
        return []
    # One that is made of another is called by its own name.
    return [
        (place.variant or editor.name, place.title)
        for editor in EDITORS
        for place in editor.places(around)
        if place.is_there
    ]
