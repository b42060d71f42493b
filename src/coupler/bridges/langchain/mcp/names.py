"""What a session's MCP tools are called before a model: unlike each other, and as providers allow it.

A name that was given stays for as long as the session does: the model has it in its history.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Collection, Iterable
from typing import Literal, get_args

from coupler.mcp.tools import Tool

Prefix = Literal["collision", "always", "never"]
"""When a tool is called `server_tool` rather than `tool`."""

LONGEST = 64
"""Characters of a tool's name that all providers take."""

_UNFIT = re.compile(r"[^A-Za-z0-9_-]")


def checked(prefix: str) -> Prefix:
    """The word, if it is one of those."""
    if prefix not in get_args(Prefix):
        raise ValueError(f"prefix is one of {', '.join(map(repr, get_args(Prefix)))}, not {prefix!r}")
    return prefix  # type: ignore[return-value]  # it was looked at


class Names:
    """The names of one session's tools."""

    def __init__(self, prefix: Prefix) -> None:
        self._prefix = prefix
        self._given: dict[tuple[str, str], str] = {}

    def of(self, tools: Iterable[Tool], taken: Collection[str] = ()) -> dict[str, Tool]:
        """The tools by their names. `taken` are others' names, which win over those of servers.

        Without a prefix, one of several tools with the same name is left out: the later one.
        """
        tools = [*tools]
        own = Counter(_fit(tool.name) for tool in tools)
        named: dict[str, Tool] = {}
        for tool in tools:
            name = self._given.get((tool.server, tool.name))
            if name is None or name in taken:
                name = self._new(tool, own, {*taken, *named, *self._given.values()})
            if name not in named and name not in taken:
                self._given[tool.server, tool.name] = name
                named[name] = tool
        return named

    def _new(self, tool: Tool, own: Counter[str], taken: Collection[str]) -> str:
        plain = _fit(tool.name)
        if self._prefix == "never":
            return plain
        if self._prefix == "collision" and own[plain] == 1 and plain not in taken:
            return plain
        name = _fit(f"{tool.server}_{tool.name}")
        return name if name not in taken else _shortened(f"{name}_", f"{tool.server}\0{tool.name}")


def _fit(name: str) -> str:
    fit = _UNFIT.sub("_", name) or "_"
    return fit if len(fit) <= LONGEST else _shortened(fit, name)


def _shortened(beginning: str, whole: str) -> str:
    """Cut, with a mark that tells it from others that begin in the same way."""
    mark = hashlib.sha256(whole.encode()).hexdigest()[:8]
    return f"{beginning[: LONGEST - len(mark)]}{mark}"
