"""One agent of the catalogue: what is known about it without starting anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

from msgspec import Struct

from coupler.client.files import FileAccess
from coupler.client.quirks import Quirks
from coupler.config.files import Origin

Launcher: TypeAlias = Literal["npx", "uvx"]
"""A program that downloads an agent, if it is not there yet, and starts it."""


class Package(Struct, frozen=True):
    """An agent that a launcher can fetch."""

    launcher: Launcher
    words: tuple[str, ...]
    """What follows the launcher's name."""

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command line."""
        return (self.launcher, *self.words)


class Entry(Struct, frozen=True, kw_only=True):
    """An agent by its name. What cannot be started any of these ways has to be installed."""

    name: str
    title: str
    programs: tuple[tuple[str, ...], ...] = ()
    """Command lines of its ACP form; the first whose program is installed is used."""
    package: Package | None = None
    """How the ACP form is fetched if none of them is."""
    native: str | None = None
    """The provider that drives the same agent without ACP."""
    install: str = ""
    """What to do if it is missing, as a sentence."""
    login: str | None = None
    """The command with which people log in, where the agent itself offers no better way."""
    env: Mapping[str, str] = {}
    """What its environment needs besides ours."""
    files: FileAccess | None = None
    """What its ACP form is offered of files unless somebody says so; None is what every agent is offered."""
    quirks: Quirks | None = None
    origin: Origin | None = None
    """Where it was configured; None if it is only known to the catalogue."""

    @property
    def command(self) -> tuple[str, ...] | None:
        """The usual command line of its ACP form, installed or not."""
        if self.programs:
            return self.programs[0]
        return None if self.package is None else self.package.command
