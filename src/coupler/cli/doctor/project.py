"""The project that the directory is in: what it is, and what of it is trusted."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import short_directory

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section


def examine(section: Section, circumstances: Circumstances) -> None:
    """Where it begins, and whether its coupler.toml counts."""
    from coupler.config import ConfigError
    from coupler.config.lookup import is_repository, project_directory

    directory = circumstances.directory
    if directory is None:
        section.problem("directory", "the directory that you are in was deleted", "go to another one")
        return
    try:
        root = project_directory(directory, os.environ)
    except ConfigError:
        root = directory  # what is wrong is told of the settings
    kind = "a git repository" if is_repository(root) else "no git repository"
    section.facts["directory"] = root
    section.ok("directory", f"{short_directory(root)}, {kind}")
    _look_at_trust(section, circumstances)


def _look_at_trust(section: Section, circumstances: Circumstances) -> None:
    config = circumstances.config
    if circumstances.config_error is not None:
        section.note("trust", "a coupler.toml is wrong, so it cannot be told what of the project counts")
        return
    if config.project is None:
        section.ok("trust", "there is no coupler.toml here that would need it")
        section.facts["is_trusted"] = None
        return
    shown = short_directory(config.project.path)
    if config.untrusted:
        names = ", ".join(f"`{name}`" for name in dict.fromkeys(each.key.name for each in config.untrusted))
        section.facts["is_trusted"] = False
        section.note(
            "trust",
            f"{shown} is not trusted as it is now, so that {names} in it will not count",
            "read the file, then run `coupler trust`",
        )
        return
    needs = any(
        each.origin.layer == "project" and each.key.setter == "trusted project"
        for each in config.settings.values()
    )
    section.facts["is_trusted"] = True if needs else None
    section.ok("trust", f"{shown} {'is trusted as it is now' if needs else 'sets nothing that needs it'}")
