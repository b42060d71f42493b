"""How runs of workflows are put into words."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from coupler.store.runs import RunRecord

STYLES = {
    "running": "cyan",
    "success": "green",
    "failed": "red",
    "cancelled": "yellow",
    "parked": "yellow",
    "interrupted": "red",
    "skipped": "dim",
    "denied": "yellow",
    "waiting": "yellow",
}


def status_of(record: RunRecord) -> str:
    """How a run stands; one whose process died is interrupted."""
    return "interrupted" if record.is_interrupted else record.status


def seconds_of(record: RunRecord) -> float:
    """How long it has been on its way, pauses included."""
    end = time.time() * 1000 if status_of(record) == "running" else record.updated_at
    return max(0.0, (end - record.created_at) / 1000)


def spoken_duration(seconds: float) -> str:
    """A duration for people: 0.3 s, 42 s, 3 min 5 s, 2 h 10 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    minutes, whole = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {whole} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours:,} h {minutes} min"
