"""Which form of an agent is used: an ACP form that is installed or can be fetched, else the native one."""

from __future__ import annotations

import os
import re
import shutil
from difflib import get_close_matches
from typing import Literal, NamedTuple, TypeAlias

from coupler.catalogue.entry import Entry
from coupler.catalogue.lookup import entries
from coupler.client.errors import AgentError
from coupler.config.lookup import ConfigError
from coupler.providers.registry import ENTRIES as PROVIDERS

Form: TypeAlias = Literal["acp", "native"]

_NAME = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]*)(?::(acp|native))?")


class Chosen(NamedTuple):
    """An entry, and the form of it that can be started here."""

    entry: Entry
    form: Form
    command: tuple[str, ...] = ()
    """The command line of the ACP form."""
    is_fetched: bool = False
    """Whether the command may download the agent first."""


def chosen_for(agent: str, cwd: str | os.PathLike[str] | None = None) -> Chosen | None:
    """What a name means here; None if it is no name of the catalogue, and so a command line.

    Raises AgentError if the agent is known and cannot be started, with what to install.
    """
    match = _NAME.fullmatch(agent)
    if match is None:
        return None
    name, form = match[1], match[2]
    known = _entries(cwd)
    if name in known:
        return choose(known[name], form)
    if form is not None or shutil.which(name) is None:
        _refuse_unknown(agent, name, [*known], has_form=form is not None)
    return None


def choose(entry: Entry, form: str | None = None) -> Chosen:
    """The way to start an agent here, of a form if that is wanted."""
    if form != "native":
        for command in entry.programs:
            if is_installed(command[0]):
                return Chosen(entry, "acp", command)
        if entry.package is not None and is_installed(entry.package.launcher):
            return Chosen(entry, "acp", entry.package.command, is_fetched=True)
        if entry.origin is not None and entry.programs and entry.native is None:
            return Chosen(entry, "acp", entry.programs[0])  # the start itself will say what is wrong
    if form != "acp" and entry.native is not None and has_native(entry):
        return Chosen(entry, "native")
    raise AgentError("spawn", missing(entry, form))


def has_native(entry: Entry) -> bool:
    """Whether the native form can be started here."""
    if entry.native is None:
        return False
    program = PROVIDERS[entry.native].program
    return program is None or is_installed(program)


def is_installed(program: str) -> bool:
    """Whether a program can be started by this name; we ourselves always can."""
    return program == "coupler" or shutil.which(os.path.expanduser(program)) is not None  # noqa: PTH111


def missing(entry: Entry, form: str | None) -> str:
    """Why an agent cannot be started, and what to do about it."""
    if form == "native" and entry.native is None:
        return f"{entry.title} has no native form: use {entry.name!r}, which is its ACP form"
    if form == "acp" and entry.command is None:
        return f"{entry.title} has no ACP form: use {entry.name!r}, which is its native form"
    if form == "native" and entry.native is not None:
        return f"{entry.title} is not installed. {PROVIDERS[entry.native].install}"
    fetched = ""
    if entry.package is not None:
        fetched = f" With `{entry.package.launcher}` on the PATH it is fetched when it is needed."
    return f"{entry.title} is not installed. {entry.install}{fetched}"


def _entries(cwd: str | os.PathLike[str] | None) -> dict[str, Entry]:
    try:
        return entries(cwd)
    except ConfigError as error:
        raise AgentError("spawn", str(error)) from None


def _refuse_unknown(agent: str, name: str, known: list[str], *, has_form: bool) -> None:
    near = get_close_matches(name.lower(), known, 1)
    if near or has_form:
        meant = f", did you mean {near[0]!r}?" if near else ":"
        listed = "`coupler agents` lists those there are"
        raise AgentError("spawn", f"there is no agent {agent!r} in the catalogue{meant} {listed}")
