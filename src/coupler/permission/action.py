"""Describes what a tool wants to do, for the permission engine."""

from __future__ import annotations

from typing import get_args

from msgspec import Struct

from coupler.schema.v1 import ToolKind

KINDS: tuple[str, ...] = get_args(ToolKind)
"""ACP's kinds of tools; a kind that is not among them counts as `other`."""

PATH_KINDS = frozenset({"read", "edit", "delete", "move", "search"})
"""The kinds whose paths are judged as such; any other kind's paths are judged as edits."""


class Action(Struct, frozen=True, kw_only=True):
    """One use of a tool, complete: what is not named here is not judged, and must not be done."""

    kind: str
    name: str | None = None
    """The tool's programmatic name."""
    server: str | None = None
    """The MCP server whose tool it is; such a tool's kind is its server's claim, and earns it nothing."""
    paths: tuple[str, ...] = ()
    """Absolute, as they would be touched; of a move both ends."""
    command: str | tuple[str, ...] | None = None
    """A text for a shell, or the words of a program that is started without one."""
    urls: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """The names of the variables that the command is given, or that are taken from it."""
    cwd: str | None = None
    """Where the command would run."""
    roots: tuple[str, ...] = ()
    """The directories of the session: its own, and the additional ones."""
    is_gated: bool = False
    """Whether it is asked about even where nobody would need an allowance, because its provider wants so."""
