"""Versions, and which of the packages are there that parts of Coupler need."""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import sys
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from coupler.__about__ import __version__
from coupler.cli.doctor.packages import Extra, extras
from coupler.cli.sessions.wording import short_directory

if TYPE_CHECKING:
    from coupler.cli.doctor.circumstances import Circumstances
    from coupler.cli.doctor.section import Section

PURPOSES = {
    "chat": "`coupler chat` in a terminal",
    "coder": "the coding agent",
    "langchain": "LangChain agents",
    "local": "models on this machine",
    "mcp": "MCP servers, and tools for agents",
    "otel": "spans for OpenTelemetry",
    "shell": "rules for command lines with pipes and lists",
    "workflows": "workflows",
}
MOST_NAMED = 3
"""Packages that are named."""


def examine(section: Section, circumstances: Circumstances) -> None:
    """What is installed."""
    import coupler

    place = Path(coupler.__file__).parent
    section.ok("coupler", f"{__version__}, in {short_directory(str(place))}")
    python = f"{platform.python_version()} ({platform.python_implementation()})"
    section.ok("python", f"{python}, {short_directory(sys.executable)}")
    section.facts |= {"coupler": __version__, "place": str(place), "python": platform.python_version()}
    _look_for_command(section)
    _look_at_extras(section)


def _look_for_command(section: Section) -> None:
    """Editors and scripts start `coupler` by its name, or by a path that this command may know."""
    found = shutil.which("coupler")
    own = Path(sys.executable).parent
    section.facts["command"] = found
    if found is None:
        section.note(
            "command",
            "`coupler` is not on the PATH of this shell",
            f"name it whole, as in {own / 'coupler'}, or add {own} to the PATH",
        )
    elif Path(found).resolve().parent != own.resolve() and Path(found).parent.resolve() != own.resolve():
        section.note(
            "command",
            f"`coupler` on the PATH is {short_directory(found)}, which may be another installation than this",
            f"see which is meant: `{shlex.quote(found)} --version`",
        )


def _look_at_extras(section: Section) -> None:
    known = extras()
    section.facts["extras"] = {each.name: each.as_object() for each in known}
    if not known:
        section.note("extras", "which packages are optional is not known: this is no installation of a wheel")
        return
    there = [each.name for each in known if each.is_usable]
    if there:
        section.ok("extras", f"{', '.join(there)} {'is' if len(there) == 1 else 'are'} installed")
    for each in known:
        if not each.is_usable:
            _tell_missing(section, each)


def _tell_missing(section: Section, extra: Extra) -> None:
    purpose = PURPOSES.get(extra.name, f"`coupler[{extra.name}]`")
    remedy = f"run `{install_command(extra.name)}`"
    if extra.unusable:
        section.problem(extra.name, f"{purpose} cannot be used: {', '.join(extra.unusable)}", remedy)
        return
    more = len(extra.missing) - MOST_NAMED
    names = ", ".join(extra.missing[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
    verb = "is" if len(extra.missing) == 1 else "are"
    section.note(extra.name, f"for {purpose}: {names} {verb} not installed", remedy)


def install_command(extra: str) -> str:
    """What installs an extra into just this installation."""
    place = _source()
    wanted = f"{place or 'coupler'}[{extra}]"
    return python_command(*(["-e"] if place is not None and _is_editable() else []), wanted)


def python_command(*words: str) -> str:
    """What installs something else there."""
    if find_spec("pip") is None and shutil.which("uv") is not None:
        return shlex.join(["uv", "pip", "install", "--python", sys.executable, *words])
    return shlex.join([sys.executable, "-m", "pip", "install", *words])


def _source() -> str | None:
    """The directory that Coupler was installed from, if it was one that is there."""
    from urllib.parse import unquote, urlsplit

    address = str(_direct_url().get("url", ""))
    if not address.startswith("file://"):
        return None
    path = unquote(urlsplit(address).path)
    return path if os.path.isdir(path) else None  # noqa: PTH112


def _is_editable() -> bool:
    return bool(_direct_url().get("dir_info", {}).get("editable"))


def _direct_url() -> dict[str, Any]:
    import json

    try:
        text = metadata.distribution("coupler").read_text("direct_url.json")
        read = json.loads(text or "{}")
    except (metadata.PackageNotFoundError, OSError, ValueError):
        return {}
    return read if isinstance(read, dict) else {}
