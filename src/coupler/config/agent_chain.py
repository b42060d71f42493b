"""An agent's table together with those that it stands on: what it leaves open is as the one below has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeVar

from msgspec import structs

from coupler.config.agent_tables import AgentTable

T = TypeVar("T")


def whole_table(name: str, tables: Mapping[str, AgentTable]) -> AgentTable | None:
    """What holds for the agent of this name, by all tables below it; None if it has none itself.

    Of texts the nearest counts. Lists are added up, those from below first, and so are tables, in which the
    nearest entry of a name counts.
    """
    chain = [*_chain(name, tables)]
    if not chain:
        return None
    below_first = chain[::-1]
    return structs.replace(
        chain[0],
        title=_first(table.title for table in chain),
        system=_first(table.system for table in chain),
        model=_first(table.model for table in chain),
        base_url=_first(table.base_url for table in chain),
        mode=_first(table.mode for table in chain),
        mcp=_first(table.mcp for table in chain),
        allow=_added_up(table.allow for table in below_first),
        deny=_added_up(table.deny for table in below_first),
        context=_added_up(table.context for table in below_first),
        skills=_added_up(table.skills for table in below_first),
        options={option: value for table in below_first for option, value in table.options.items()},
        hooks={event: lines for table in below_first for event, lines in table.hooks.items()},
        env={variable: value for table in below_first for variable, value in table.env.items()},
    )


def _chain(name: str, tables: Mapping[str, AgentTable]) -> Iterator[AgentTable]:
    """The table of this name, the one that it stands on, and so on; a circle ends where it began."""
    seen: set[str] = set()
    while name in tables and name not in seen:
        seen.add(name)
        yield tables[name]
        name = (tables[name].agent or "").partition(":")[0]


def _first(values: Iterable[T | None]) -> T | None:
    return next((value for value in values if value is not None), None)


def _added_up(lists: Iterable[tuple[str, ...]]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(each for some in lists for each in some))
