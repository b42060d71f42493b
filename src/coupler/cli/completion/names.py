"""The names of what there is, as quickly as they can be had.

Nothing is parsed or checked that a command is going to check anyway; what cannot be read has no names.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

Name: TypeAlias = tuple[str, str | None]
"""A name, and what is said about it if that is wanted."""

MOST = 100
"""Runs and sessions, the newest ones."""

BEGINNING = 8192
"""Bytes of a workflow in which its name is looked for."""

_NAME = re.compile(rb"^name:[ \t]*[\"']?([A-Za-z0-9][\w.-]*)", re.MULTILINE)


def agents(has_help: bool) -> Iterator[Name]:
    """Those of the catalogue, and those of a coupler.toml that counts here."""
    from coupler.config import ConfigError
    from coupler.providers.catalogue import entries, known

    try:
        found = [*entries(".").values()]
    except ConfigError:
        found = [*known()]
    yield from ((entry.name, entry.title if has_help else None) for entry in found)


def workflows(has_help: bool) -> Iterator[Name]:
    """Those of the project, and the user's own."""
    from coupler.config.lookup import project_workflows, workflows_directory

    own = workflows_directory(os.environ)
    project = project_workflows(str(Path.cwd()), os.environ)
    origins = {own: "yours", None if project is None else project.path: "of this project"}
    found = {
        _name_in(file): origin
        for directory, origin in origins.items()
        if directory is not None
        for file in sorted(Path(directory).glob("*.y*ml"))
    }
    yield from ((name, origin if has_help else None) for name, origin in sorted(found.items()))


def _name_in(file: Path) -> str:
    try:
        if not file.is_file():
            return file.stem
        with file.open("rb") as stream:
            named = _NAME.search(stream.read(BEGINNING))
    except OSError:
        return file.stem
    return file.stem if named is None else named[1].decode()


def runs(has_help: bool) -> Iterator[Name]:
    """Of all workflows, the newest first."""
    query = "SELECT id, workflow, status FROM runs ORDER BY number DESC LIMIT ?"
    for run, workflow, status in _rows(query):
        yield run, f"{workflow}, {status}" if has_help else None


def sessions(has_help: bool) -> Iterator[Name]:
    """Those that were prompted, the newest first, by as much of their ids as people type."""
    from coupler.cli.sessions.wording import ago, one_line, short_agent, short_id

    query = (
        "SELECT id, agent, title, cwd, updated_at FROM sessions WHERE deleted = 0 AND turns > 0 "
        "ORDER BY updated_at DESC LIMIT ?"
    )
    for session, agent, title, cwd, updated_at in _rows(query):
        about = None
        if has_help:
            about = f"{one_line(_shown(title, cwd)) or short_agent(agent)}, {ago(updated_at)}"
        yield short_id(session), about


def _shown(title: str | None, directory: str) -> str:
    """A title without what is secret in it."""
    if not title:
        return ""
    from coupler.cli.unshown import masker_for

    return masker_for(directory).mask(title)


def _rows(query: str) -> list[Any]:
    import sqlite3
    from contextlib import closing

    from coupler.cli.doctor.database import opened
    from coupler.config import load
    from coupler.config.keys import STORE
    from coupler.runtime.directories import store_file

    path = Path(load(None, environ=os.environ)[STORE] or store_file())
    if not path.is_file():
        return []
    with closing(opened(path, 0.5)) as connection:
        try:
            return connection.execute(query, [MOST]).fetchall()
        except sqlite3.Error:
            return []


def editors(has_help: bool) -> Iterator[Name]:
    """Those that agents can be put into."""
    from coupler.cli.editor.editors import EDITORS

    yield from ((editor.name, editor.title if has_help else None) for editor in EDITORS)


def known_models(has_help: bool) -> Iterator[Name]:
    """Models that can be installed by their names."""
    from coupler.coder.model.local import KNOWN

    yield from ((model.name, model.about if has_help else None) for model in KNOWN.values())


def installed_models(has_help: bool) -> Iterator[Name]:
    """Those that are there."""
    from coupler.coder.model.local import installed_files

    yield from ((file.stem, None) for file in installed_files())
