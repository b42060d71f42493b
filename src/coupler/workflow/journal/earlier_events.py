"""Reads the events of agents as versions before 0.2 stored them in the logs of runs.

Such a log tells of a tool call by `tool_started`, `tool_progressed` and `tool_ended`, and of what a turn has
used by `usage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import UNSET

from coupler.events.events import CANCELLED_META, ToolCall, ToolOutput, ToolUpdate, TurnEnded, TurnUsage
from coupler.events.fold import text_content
from coupler.schema.v1 import Diff, ToolCallLocation

EarlierEvent: TypeAlias = ToolCall | ToolUpdate | ToolOutput | TurnEnded

EARLIER_KINDS = frozenset({"tool_started", "tool_progressed", "tool_ended", "usage"})
"""The kinds of such entries."""


def events_of_earlier(told: Mapping[str, Any]) -> tuple[EarlierEvent, ...]:
    """Return the events that an entry stands for; raises KeyError or TypeError for what is none."""
    match told["event"]:
        case "usage":
            return (TurnEnded(None, msgspec.convert(told["usage"], TurnUsage)),)
        case "tool_started":
            return (_started(told),)
        case "tool_progressed":
            return (*_shown(told), *_changed(told))
    cancelled = {"meta": CANCELLED_META} if told.get("cancelled") else {}
    output = told.get("output")
    return (*_shown(told), _update(told, raw_output=UNSET if output is None else output, **cancelled))


def _started(told: Mapping[str, Any]) -> ToolCall:
    return ToolCall(
        id=told["call"],
        title=told["title"],
        kind=told.get("kind", "other"),
        status=told.get("status", "in_progress"),
        name=told.get("name"),
        content=tuple(map(_diff, told.get("changes", ()))),
        locations=tuple(map(ToolCallLocation, told.get("locations", ()))),
        raw_input=told.get("input"),
    )


def _shown(told: Mapping[str, Any]) -> Iterator[ToolOutput]:
    for change in told.get("changes", ()):
        yield ToolOutput(told["call"], _diff(change))
    if text := told.get("text"):
        yield ToolOutput(told["call"], text_content(text))


def _changed(told: Mapping[str, Any]) -> Iterator[ToolUpdate]:
    if told.get("status") is not None or told.get("title") is not None:
        yield _update(told)


def _update(told: Mapping[str, Any], **fields: Any) -> ToolUpdate:
    known = {name: told[name] for name in ("status", "title") if told.get(name) is not None}
    return ToolUpdate(id=told["call"], **known, **fields)


def _diff(change: Mapping[str, Any]) -> Diff:
    return Diff(change["path"], change["new"], change.get("old") or UNSET)
