"""Entries as they hold in a directory: those that are known, changed and joined by `coupler.toml`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from coupler.catalogue.entry import Entry
from coupler.catalogue.known import coder_command, known

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.config.agent_tables import AgentTable


def entries(cwd: str | os.PathLike[str] | None = None) -> dict[str, Entry]:
    """Every agent by its name. Raises ConfigError if a file is wrong; untrusted projects add none."""
    return joined(configuration(cwd))


def joined(config: Config) -> dict[str, Entry]:
    """The known agents, with what a configuration says about them and others."""
    from coupler.config.keys import AGENTS

    found = {entry.name: entry for entry in known()}
    tables = {table.name: table for table in config[AGENTS]}
    return {**found, **{name: _standing(name, tables, found) for name in tables}}


def _standing(
    name: str, tables: Mapping[str, AgentTable], known: Mapping[str, Entry], above: tuple[str, ...] = ()
) -> Entry:
    """The entry of a table, on top of the one that it stands on."""
    table = tables[name]
    if table.agent is None:
        return _configured(table, known.get(name))
    base, _, form = table.agent.partition(":")
    if base in above or (base not in tables and base not in known):
        wrong = "in the end stands on itself" if base in above else "is unknown"
        missing = Entry(name=name, title=name, install=f"Its `agent`, {base}, {wrong}: see {table.origin}.")
        return _configured(table, missing)
    below = _standing(base, tables, known, (*above, name)) if base in tables else known[base]
    entry = _of_form(below, form, name)
    if is_coder(below):
        # It is started with the table itself, which says the rest.
        entry = structs.replace(entry, programs=(coder_command(name),))
    return _configured(table, entry)


def is_coder(entry: Entry) -> bool:
    """Whether this is Coupler's own coding agent, or one of its profiles."""
    return entry.programs == (coder_command(entry.name),)


def _of_form(entry: Entry, form: str, name: str) -> Entry:
    """The same agent under another name, in one of its forms if that is wanted."""
    if form == "native":
        return structs.replace(entry, name=name, programs=(), package=None)
    return structs.replace(entry, name=name, native=None if form == "acp" else entry.native)


def configuration(cwd: str | os.PathLike[str] | None) -> Config:
    """What holds in a directory; without one, what the user has set."""
    # Imported on use: whoever names a command line needs no configuration.
    from coupler.agent.session import KeptTrust
    from coupler.config import load

    directory = None if cwd is None else os.path.abspath(cwd)  # noqa: PTH100 - links stay as they are
    return load(directory, environ=os.environ, trust=KeptTrust())


def find(name: str, cwd: str | os.PathLike[str] | None = None) -> Entry | None:
    """The entry of this name; None if there is none."""
    return entries(cwd).get(name)


def _configured(table: AgentTable, before: Entry | None) -> Entry:
    entry = before or Entry(name=table.name, title=table.title or table.name)
    changes: dict[str, object] = {"origin": table.origin, "env": _joined_env(entry.env, table.env)}
    if table.title is not None:
        changes["title"] = table.title
    if table.files is not None:
        changes["files"] = table.files
    if table.command is not None:
        # Somebody's own command is what is meant, whatever else is installed.
        changes |= {
            "programs": (table.command,),
            "package": None,
            "native": None,
            "install": f"Its command is set in {table.origin}.",
        }
    return structs.replace(entry, **changes)


def _joined_env(known: Mapping[str, str], own: Mapping[str, str]) -> dict[str, str]:
    return {**known, **own}
