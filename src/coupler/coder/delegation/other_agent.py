"""Another agent that a task can be given to: one of the catalogue, or a profile that stands on such a one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from msgspec import Struct

from coupler.workflow.agents.briefing import instructed

if TYPE_CHECKING:
    from collections.abc import Iterable

    from coupler.config.agent_tables import AgentTable

T = TypeVar("T")

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
        chain = [*_chain(name.partition(":")[0], tables)]
        weakest = chain[::-1]
        return cls(
            name=name,
            title=title,
            system=_first(table.system for table in chain),
            model=_first(table.model for table in chain),
            mode=_first(table.mode for table in chain),
            options={option: value for table in weakest for option, value in table.options.items()},
            deny=tuple(dict.fromkeys(rule for table in weakest for rule in table.deny)),
            context=tuple(dict.fromkeys(path for table in weakest for path in table.context)),
            skills=tuple(dict.fromkeys(path for table in weakest for path in table.skills)),
            mcp=_first(table.mcp for table in chain) or (),
        )

    def prompt(self, task: str) -> str:
        """The task, after what the agent has to be told before it. Reads files; may raise OSError."""
        system = "\n\n".join(filter(None, [self.system, *map(_text_of, self.skills)]))
        files = [f"[The file {path}:]\n\n{_text_of(path)}\n\n[End of {path}.]" for path in self.context]
        whole = "\n\n".join([*files, task])
        return instructed(system, whole) if system else whole


def _chain(name: str, tables: Mapping[str, AgentTable]) -> Iterable[AgentTable]:
    """The table of this name, the one that it stands on, and so on."""
    seen: set[str] = set()
    while name in tables and name not in seen:
        seen.add(name)
        yield tables[name]
        name = (tables[name].agent or "").partition(":")[0]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _text_of(path: str) -> str:
    with Path(path).open(encoding="utf-8", errors="replace") as file:
        return file.read(LONGEST_FILE).strip()
