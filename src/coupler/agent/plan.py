"""The plan of a turn: entries that are started, completed and added; each change sends the whole plan."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Literal, get_args

import msgspec

from coupler import events
from coupler.agent.text import chosen, plain_text
from coupler.schema.v1 import PlanEntry, PlanEntryPriority

Status = Literal["pending", "in_progress", "completed"]
PRIORITIES: tuple[str, ...] = get_args(PlanEntryPriority)


class Plan:
    """What the agent means to do, entry by entry. An entry is named by its index or its text."""

    def __init__(self, report: Callable[[events.Plan], Awaitable[None]], contents: tuple[str, ...]) -> None:
        self._report = report
        self._entries = [_entry(content, "medium") for content in contents]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[PlanEntry]:
        return iter(self._entries)

    async def add(self, content: str, *, priority: PlanEntryPriority = "medium") -> None:
        """Append an entry."""
        self._entries.append(_entry(content, priority))
        await self.send()

    async def start(self, entry: int | str) -> None:
        """Mark an entry as the one being worked on."""
        await self._change(entry, status="in_progress")

    async def complete(self, entry: int | str) -> None:
        """Mark an entry as done."""
        await self._change(entry, status="completed")

    async def prioritize(self, entry: int | str, priority: PlanEntryPriority) -> None:
        """Give an entry another priority."""
        await self._change(entry, priority=chosen(priority, PRIORITIES, "a priority"))

    async def send(self) -> None:
        """Report the plan as it stands."""
        await self._report(events.Plan(tuple(self._entries)))

    async def _change(self, entry: int | str, **fields: str) -> None:
        index = entry if isinstance(entry, int) else self._index_of(entry)
        self._entries[index] = msgspec.structs.replace(self._entries[index], **fields)
        await self.send()

    def _index_of(self, content: str) -> int:
        for index, entry in enumerate(self._entries):
            if entry.content == content:
                return index
        known = ", ".join(repr(entry.content) for entry in self._entries)
        raise ValueError(f"the plan has no entry {content!r}; it has {known or 'none'}")


def _entry(content: object, priority: object) -> PlanEntry:
    priority_word: Any = chosen(priority, PRIORITIES, "a priority")
    return PlanEntry(plain_text(content, "a plan's entry"), priority_word, "pending")
