"""Words that a newer agent may use, as an editor of today knows them."""

from __future__ import annotations

import logging
from typing import get_args

import msgspec

from coupler.events import Compaction, CompactionSummary, Content, Event, Plan
from coupler.schema.base import Unknown
from coupler.schema.v1 import PlanEntry, PlanEntryPriority, PlanEntryStatus

log = logging.getLogger("coupler.relay")

PRIORITIES: tuple[str, ...] = get_args(PlanEntryPriority)
STATUSES: tuple[str, ...] = get_args(PlanEntryStatus)


def in_known_words(event: Event) -> Event | None:
    """The event with nothing in it that the protocol does not know; None if nothing is left of it."""
    match event:
        case Content(block=Unknown()) | CompactionSummary(block=Unknown()):
            log.info("content of a kind that this version does not know is not passed on")
            return None
        case Plan(entries):
            return Plan(tuple(map(_known_entry, entries)))
        case Compaction(summary=tuple() as summary):
            known = tuple(block for block in summary if not isinstance(block, Unknown))
            return msgspec.structs.replace(event, summary=known)
    return event


def _known_entry(entry: PlanEntry) -> PlanEntry:
    if entry.priority in PRIORITIES and entry.status in STATUSES:
        return entry
    priority = entry.priority if entry.priority in PRIORITIES else "medium"
    status = entry.status if entry.status in STATUSES else "pending"
    return msgspec.structs.replace(entry, priority=priority, status=status)
