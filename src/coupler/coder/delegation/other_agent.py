"""Another agent that a task can be given to: one of the catalogue, or a profile that stands on such a one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.config.agent_tables import whole_table
from coupler.workflow.agents.agent_start import instructed

if TYPE_CHECKING:
    from coupler.config.agent_tables import AgentTable

LONGEST_FILE = 100_000
"""Characters of a file that an agent is told before its task."""


class OtherAgent(Struct, frozen=True, kw_only=True):
    """How one is set up; what is None or empty is as the agent itself has it."""

    name: str
    title: str
    system: str | None = None
    model: str | None = None
    mode: str | None = None
    options: Mapping[str, str | int | float | bool] = {}
    deny: tuple[str, ...] = ()
    context: tuple[str, ...] = ()
    skills: tuple[str, ...] = ()
    mcp: tuple[str, ...] = ()

    @classmethod
    def of(cls, name: str, title: str, tables: Mapping[str, AgentTable]) -> OtherAgent:
        """The agent of this name, with what its table and those below it say."""
        table = whole_table(name.partition(":")[0], tables)
        if table is None:
            return cls(name=name, title=title)
        return cls(
            name=name,
            title=title,
            system=table.system,
            model=table.model,
            mode=table.mode,
            options=table.options,
            deny=table.deny,
            context=table.context,
            skills=table.skills,
            mcp=table.mcp or (),
        )

    def prompt(self, task: str) -> str:
        """The task, after what the agent has to be told before it. Reads files; may raise OSError."""
        system = "\n\n".join(filter(None, [self.system, *map(_text_of, self.skills)]))
        files = [f"[The file {path}:]\n\n{_text_of(path)}\n\n[End of {path}.]" for path in self.context]
        whole = "\n\n".join([*files, task])
        return instructed(system, whole) if system else whole


def _text_of(path: str) -> str:
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST_FILE).strip()
