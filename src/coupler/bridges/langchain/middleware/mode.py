"""Modes of an agent: what it is told, which tools it has, which model answers, and what is asked about.

The ready-made ones have the ids that all of Coupler's agents use for the same.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final, TypeAlias

from coupler.agent import agent as agent_mode
from coupler.bridges.langchain.asking.tool_rules import KIND, RuleLike, ToolRules, checked_pattern, fits
from coupler.bridges.langchain.tool_calls.kinds import CHANGING

if TYPE_CHECKING:
    from langchain_core.language_models import BaseChatModel

AGENTIC, INTERACTIVE, READ_ONLY, PLANNING = "agentic", "interactive", "read-only", "planning"

Model: TypeAlias = "str | BaseChatModel"
"""A model, or its name as `init_chat_model` takes it."""


class Mode(agent_mode.Mode):
    """One mode.

    `prompt` is added to the system prompt. `tools` are the patterns of the tools that it offers: names with
    `*`, or `kind:read`; without them it offers all. `permissions` are rules as for `acp.permissions`.
    """

    def __init__(
        self,
        id: str,
        description: str | None = None,
        *,
        name: str | None = None,
        prompt: str | None = None,
        tools: Iterable[str] | None = None,
        model: Model | None = None,
        permissions: Mapping[str, RuleLike] | None = None,
    ) -> None:
        super().__init__(id, description, name=name)
        where = f"the mode {self.id!r}"
        if isinstance(tools, str):
            raise TypeError(f"{where}: `tools` is a list of patterns, not {tools!r:.100}")
        self.prompt: Final = prompt
        self.model: Final = model
        self.rules: Final = ToolRules(permissions, where) if permissions is not None else None
        self._tools = None if tools is None else tuple(checked_pattern(each, where) for each in tools)

    believes_servers = True
    """Whether tools of MCP servers are of the kind that their names and servers claim."""

    def offers(self, name: str, kind: str) -> bool:
        """Whether the mode has a tool of this name and kind."""
        return self._tools is None or any(fits(pattern, name, kind) for pattern in self._tools)

    @property
    def offers_all(self) -> bool:
        """Whether it has all tools."""
        return self._tools is None


PRESETS: Mapping[str, Mode] = {
    mode.id: mode
    for mode in (
        Mode(AGENTIC, "Works on its own, and asks only where it has to"),
        Mode(
            INTERACTIVE,
            "Asks before it changes anything or runs a command",
            permissions={f"{KIND}{kind}": "ask" for kind in sorted(CHANGING)},
        ),
        Mode(
            READ_ONLY,
            "Reads and searches, and changes nothing",
            tools=[f"{KIND}read", f"{KIND}search"],
            prompt="You are in read-only mode: you can read and search, and nothing else. Answer with what "
            "you find; if something has to be changed, say what and how, and leave it to the user.",
        ),
        Mode(
            PLANNING,
            "Makes a plan, and carries nothing out",
            tools=[f"{KIND}{kind}" for kind in ("read", "search", "fetch", "think")],
            prompt="You are in planning mode: look at whatever you need, and carry nothing out. Answer with "
            "a plan as a numbered list, one step a line, that can be followed without further questions.",
        ),
    )
}
"""The ready-made modes by id."""


def modes_of(modes: Iterable[str | Mode]) -> tuple[Mode, ...]:
    """The modes, of which the ready-made ones may be named by their ids."""
    return tuple(each if isinstance(each, Mode) else _preset(each) for each in modes)


def _preset(id: object) -> Mode:
    if isinstance(id, str) and id in PRESETS:
        return PRESETS[id]
    nearest = difflib.get_close_matches(str(id), [*PRESETS], n=1, cutoff=0.5)
    hint = f"did you mean {nearest[0]!r}?" if nearest else f"there are {', '.join(PRESETS)}"
    raise ValueError(f"there is no ready-made mode {id!r:.100}: {hint}, or make your own with acp.Mode(…)")
