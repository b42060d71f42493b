"""The agents that can be called by name, and which of them can be started here."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import one_line

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section
    from coupler.providers.catalogue import Entry


def examine(section: Section, circumstances: Circumstances) -> None:
    """All of the catalogue, and those of a coupler.toml. None is started, as `coupler agents doctor` does."""
    from coupler.providers.catalogue import joined

    found: dict[str, list[str]] = {"installed": [], "fetched": [], "native": [], "missing": []}
    configured: list[str] = []
    for entry in joined(circumstances.config).values():
        state = _state(entry)
        found[state].append(entry.name)
        if state == "missing" and entry.origin is not None:
            _tell_missing(section, entry)
            configured.append(entry.name)
    section.facts |= found
    native = [f"{name} (without ACP)" for name in found["native"]]
    there = ", ".join((*found["installed"], *native))
    section.ok("installed", there or "none")
    if found["fetched"]:
        section.ok("fetched", f"{', '.join(found['fetched'])}, when they are first used")
    others = [name for name in found["missing"] if name not in configured]
    if others:
        section.ok("others", f"{', '.join(others)}: `coupler agents` says how to install them")


def _state(entry: Entry) -> str:
    from coupler.client.errors import AgentError
    from coupler.providers.catalogue import choose, is_installed

    try:
        chosen = choose(entry)
    except AgentError:
        return "missing"
    if chosen.form == "native":
        return "native"
    if chosen.is_fetched:
        return "fetched"
    return "installed" if chosen.command and is_installed(chosen.command[0]) else "missing"


def _tell_missing(section: Section, entry: Entry) -> None:
    program = entry.programs[0][0] if entry.programs else None
    sentence = entry.install if program is None else f"its program {one_line(program)} is not found"
    section.problem(
        one_line(entry.name), sentence, f"install it, or correct the command: it is set in {entry.origin}"
    )
