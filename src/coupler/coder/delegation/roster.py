"""Who a task can be given to: the coder in a context of its own, its profiles, and the agents installed here.

Only names count that the user or a trusted project has set, or that the catalogue knows: a model can start no
command line. Nothing is started for the list, and agents that would have to be fetched first are not in it.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from msgspec import structs

from coupler.coder.delegation.other_agent import OtherAgent
from coupler.coder.profile import CODER, Profile, profile_names, profile_of
from coupler.coder.shortening import one_line
from coupler.config import keys
from coupler.config.agent_tables import HookEvent
from coupler.providers.catalogue import has_native, is_coder, is_installed, joined

if TYPE_CHECKING:
    from coupler.config import Config
    from coupler.config.agent_tables import AgentTable
    from coupler.providers.catalogue import Entry

EXPLORE = "explore"
"""The sub-agent that only reads."""

TOOL_EVENTS: tuple[HookEvent, ...] = ("before_tool", "after_tool")
"""The events of sub-agents that hooks hear of: sessions and turns are those of who talks to the user."""

FORMS = ("", "acp", "native")

LONGEST_LINE = 150
"""Characters of what is told of one agent."""

MOST_LINES = 40
"""Agents that the model is told of; others it can name all the same."""

_OWN = {
    CODER: "works as you do, with the same tools and permissions, and knows only the task that you write",
    EXPLORE: "the same, but it only reads and searches: for questions about the code that take many looks",
}


class Roster:
    """The agents of one session."""

    def __init__(self, config: Config, own: Profile) -> None:
        """`own` is the profile of whoever gives the tasks."""
        self._config = config
        self._own = own
        self._tables: Mapping[str, AgentTable] = {table.name: table for table in config[keys.AGENTS]}
        self._entries = joined(config)
        self._profiles = profile_names(config)

    def lines(self) -> Iterator[str]:
        """Each agent that can be had at once, with what it is for."""
        for name in self.names()[:MOST_LINES]:
            yield one_line(f"- {name}: {self._described(name)}", LONGEST_LINE)

    def names(self) -> list[str]:
        """Their names: first ours, then profiles, then other programs."""
        others = [
            name for name, entry in self._entries.items() if not self._is_ours(name) and _is_here(entry)
        ]
        return [*dict.fromkeys([CODER, EXPLORE, *self._profiles, *others])]

    def find(self, name: str) -> Profile | OtherAgent:
        """The agent of a name; ValueError tells the model which ones there are."""
        base, _, form = name.partition(":")
        if name == CODER or self.is_explorer(name):
            return as_sub_agent(self._own, self._own)
        if name in self._profiles:
            return as_sub_agent(profile_of(name, self._config), self._own)
        if base in self._entries and not self._is_ours(base) and form in FORMS:
            return OtherAgent.of(name, self._entries[base].title, self._tables)
        raise ValueError(self._unknown(name))

    def is_explorer(self, name: str) -> bool:
        """Whether this is the sub-agent that only reads, and not something else that is called so."""
        return name == EXPLORE and name not in self._entries

    def _is_ours(self, name: str) -> bool:
        return name in self._profiles or is_coder(self._entries[name])

    def _described(self, name: str) -> str:
        if name in _OWN and (name == CODER or self.is_explorer(name)):
            return _OWN[name]
        entry = self._entries[name]
        table = self._tables.get(name)
        what = (table.system or "").strip() if table is not None else ""
        kind = "a profile of coder" if name in self._profiles else "another program"
        title = entry.title if entry.title != name and not is_coder(entry) else ""
        return ", ".join(filter(None, [title, kind])) + (f": {what}" if what else "")

    def _unknown(self, name: str) -> str:
        names = [*dict.fromkeys([*self.names(), *self._entries])]
        near = difflib.get_close_matches(name, names, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(self.names())}"
        return f"there is no agent {name[:100]!r}: {hint}"


def as_sub_agent(profile: Profile, giver: Profile) -> Profile:
    """A profile as one who works for another: what the giver denies and checks holds there as well."""
    hooks = {
        event: tuple(dict.fromkeys((*giver.hooks.get(event, ()), *profile.hooks.get(event, ()))))
        for event in TOOL_EVENTS
    }
    deny = tuple(dict.fromkeys((*giver.deny, *profile.deny)))
    return structs.replace(
        profile, hooks={event: lines for event, lines in hooks.items() if lines}, deny=deny
    )


def _is_here(entry: Entry) -> bool:
    return any(is_installed(command[0]) for command in entry.programs) or has_native(entry)
