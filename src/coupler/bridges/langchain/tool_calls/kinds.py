"""What kind of tool a tool is: by what its author says, else by its MCP server's claims, else by its name.

The kind decides how an editor shows a call, which modes offer the tool, and how its arguments are judged. A
server's claim earns its tool nothing but the look of it: the permission engine asks about it all the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import TYPE_CHECKING, Any, cast, get_args

from coupler.schema.v1 import ToolKind

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

KINDS: tuple[str, ...] = get_args(ToolKind)

HARMLESS: frozenset[str] = frozenset({"read", "search", "fetch", "think"})
"""Kinds that leave everything as it is."""

CHANGING: frozenset[str] = frozenset({"edit", "delete", "move", "execute"})
"""Kinds that change something."""

BY_NAME: tuple[tuple[ToolKind, tuple[str, ...]], ...] = (
    ("fetch", ("fetch*", "download*", "get*url*")),
    ("delete", ("delete*", "remove*")),
    ("move", ("move*", "rename*")),
    ("edit", ("write*", "create*", "update*", "edit*")),
    ("execute", ("run*", "exec*", "execute*", "command*")),
    ("think", ("think*", "reason*", "analyze*")),
    ("search", ("search*", "find*", "grep*", "glob*")),
    ("read", ("read*", "get*", "list*")),
)
"""The first pattern that fits counts; a name that fits none is of the kind `other`."""

READY_MADE: Mapping[str, ToolKind] = {
    "write_todos": "think",
    "ls": "read",
    "shell": "execute",
    "terminal": "execute",
}
"""Tools that LangChain and deepagents bring along, and whose names say something else than they do."""


def kind_of(name: str, tool: BaseTool | None) -> ToolKind:
    """The kind of a tool of which its author has said nothing here."""
    about = about_tool(tool)
    if (explicit := about.get("kind")) in KINDS:
        return cast(ToolKind, explicit)
    by_name = kind_by_name(str(about.get("tool") or name))
    annotations = about.get("annotations")
    return _claimed(annotations, by_name) if isinstance(annotations, Mapping) else by_name


def about_tool(tool: BaseTool | None) -> Mapping[str, Any]:
    """What Coupler's own tools say of themselves, and what MCP servers said of theirs."""
    about = (tool.metadata or {}).get("coupler") if tool is not None else None
    return about if isinstance(about, Mapping) else {}


@lru_cache(maxsize=1024)
def kind_by_name(name: str) -> ToolKind:
    """The kind that the name stands for."""
    known = READY_MADE.get(name)
    if known is not None:
        return known
    lowered = name.lower()
    for kind, patterns in BY_NAME:
        if any(fnmatchcase(lowered, pattern) for pattern in patterns):
            return kind
    return "other"


def _claimed(annotations: Mapping[str, Any], by_name: ToolKind) -> ToolKind:
    """A claim goes before the name, which then only says more exactly what is meant by it."""
    if annotations.get("read_only") is True:
        return by_name if by_name in HARMLESS else "read"
    if annotations.get("destructive") is True:
        return by_name if by_name in CHANGING else "edit"
    return by_name
