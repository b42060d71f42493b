"""Converts events to and from the session updates of protocol version 1.

`to_update` is what an agent sends, `from_update` what a client reads. v1 announces a tool call with one kind
of update and changes it with another, so both directions are told which calls are known.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar, cast

import msgspec
from msgspec import UNSET, UnsetType

from coupler.events.events import (
    UPDATABLE_FIELDS,
    Commands,
    Compaction,
    CompactionSummary,
    Content,
    Event,
    Info,
    Mode,
    Notice,
    Options,
    Other,
    Plan,
    Role,
    Text,
    Thought,
    ToolCall,
    ToolUpdate,
    Usage,
)
from coupler.schema import v1
from coupler.schema.base import Extensible, Unknown

if TYPE_CHECKING:
    from coupler.schema.v1 import SessionUpdate

EmittedEvent: TypeAlias = (
    Text
    | Thought
    | Content
    | Plan
    | ToolUpdate
    | Usage
    | Commands
    | Mode
    | Options
    | Info
    | Notice
    | Compaction
    | CompactionSummary
)
"""The events that an agent emits."""

T = TypeVar("T")

_CHUNKS: dict[Role, type[v1.ContentChunk]] = {
    "agent": v1.AgentMessageChunk,
    "thought": v1.AgentThoughtChunk,
    "user": v1.UserMessageChunk,
}
_ROLES: dict[type, Role] = {chunk: role for role, chunk in _CHUNKS.items()}
_TEXTS: dict[type, type[Text | Thought]] = {v1.AgentMessageChunk: Text, v1.AgentThoughtChunk: Thought}


def to_update(event: EmittedEvent, announced: Container[str]) -> SessionUpdate:
    """The update that an agent sends for an event."""
    # Nearly all of a stream is text, so that is looked at before everything else.
    if isinstance(event, Text):
        content = v1.TextContent(event.text)
        return v1.AgentMessageChunk(content, event.message_id or UNSET, meta=event.meta or UNSET)
    match event:
        case Thought(text, message_id, meta):
            return v1.AgentThoughtChunk(v1.TextContent(text), message_id or UNSET, meta=meta or UNSET)
        case Content(block, role, message_id, meta):
            return cast("SessionUpdate", _CHUNKS[role](block, message_id or UNSET, meta=meta or UNSET))
        case Plan(entries, meta):
            return v1.Plan(entries, meta=meta or UNSET)
        case ToolUpdate(id=id):
            kind = v1.ToolCallUpdate if id in announced else v1.ToolCall
            return cast("SessionUpdate", kind(tool_call_id=id, **_changes(event)))
        case _:
            return _to_rarer_update(event)


def _to_rarer_update(event: EmittedEvent) -> SessionUpdate:
    match event:
        case Usage(used, size, cost, meta):
            return v1.UsageUpdate(used, size, cost or UNSET, meta=meta or UNSET)
        case Commands(commands):
            return v1.AvailableCommandsUpdate(commands)
        case Mode(id):
            return v1.CurrentModeUpdate(id)
        case Options(options):
            return v1.ConfigOptionUpdate(options)
        case Info(title, updated_at):
            return v1.SessionInfoUpdate(title, updated_at)
        case Notice(severity, title, description, meta):
            return v1.Notice(severity, title, description or UNSET, meta=meta or UNSET)
        case Compaction(id, status, summary, error, meta):
            return v1.CompactionUpdate(id, status, summary, error, meta=meta or UNSET)
        case CompactionSummary(id, block, meta):
            return v1.CompactionSummaryChunk(id, block, meta=meta or UNSET)
        case _:
            raise TypeError(f"no update says {type(event).__name__}")


def from_update(update: SessionUpdate, calls: Mapping[str, ToolCall]) -> Event:
    """The event that a client reads from an update; `calls` are the tool calls as they stood before."""
    # Nearly all of a stream is text, so that is looked at before everything else.
    if isinstance(update, v1.ContentChunk):
        return _piece_of_message(update)
    match update:
        case v1.ToolCall(id):
            return ToolCall(id=id).updated(tool_update_of(update))
        case v1.ToolCallUpdate(id):
            return calls.get(id, ToolCall(id=id)).updated(tool_update_of(update))
        case v1.Plan(entries):
            return Plan(tuple(entries), _meta(update))
        case v1.UsageUpdate(used, size, cost):
            return Usage(used, size, _known(cost), _meta(update))
        case _:
            return _rarer_event(update)


def _piece_of_message(chunk: v1.ContentChunk) -> Event:
    block, kind = chunk.content, _TEXTS.get(type(chunk))
    meta = _meta(chunk)
    if kind is not None and isinstance(block, v1.TextContent):
        return kind(block.text, chunk.message_id or None, meta)
    return Content(block, _ROLES[type(chunk)], chunk.message_id or None, meta)


def _rarer_event(update: SessionUpdate) -> Event:
    match update:
        case v1.AvailableCommandsUpdate(commands):
            return Commands(tuple(commands))
        case v1.CurrentModeUpdate(mode_id):
            return Mode(mode_id)
        case v1.ConfigOptionUpdate(options):
            return Options(tuple(options))
        case v1.SessionInfoUpdate(title, updated_at):
            return Info(title, updated_at)
        case v1.Notice(severity, title, description):
            return Notice(severity, title, _known(description), _meta(update))
        case v1.CompactionUpdate(id, status, summary, error):
            known = tuple(summary) if summary else _cleared(summary)
            return Compaction(id, status, known, error, _meta(update))
        case v1.CompactionSummaryChunk(id, block):
            return CompactionSummary(id, block, _meta(update))
        case Unknown():
            return Other(update.tag, dict(update))
        case _:
            # A kind of the schema that has no event yet is kept like one that nobody knows.
            raw = msgspec.to_builtins(update)
            return Other(raw.get("sessionUpdate", ""), raw)


def tool_update_of(update: v1.ToolCall | v1.ToolCallUpdate | v1.PermissionToolCall) -> ToolUpdate:
    """The changes of a tool call in an update or in a permission request."""
    changes: dict[str, Any] = {}
    for name in UPDATABLE_FIELDS:
        value = getattr(update, name)
        # v1 has no way to clear a field: null leaves it as it was.
        if value is not UNSET and value is not None:
            changes[name] = tuple(value) if name in ("content", "locations") else value
    return ToolUpdate(id=update.tool_call_id, **changes)


def _changes(update: ToolUpdate) -> dict[str, Any]:
    return {name: value for name in UPDATABLE_FIELDS if (value := getattr(update, name)) is not UNSET}


def _meta(update: Extensible) -> dict[str, Any] | None:
    return dict(update.meta) if update.meta else None


def _known(value: T | UnsetType | None) -> T | None:
    return None if isinstance(value, UnsetType) else value


def _cleared(value: object) -> UnsetType | None:
    """Convert a field that can be cleared: omitted leaves it unchanged; null and an empty list clear it."""
    return UNSET if value is UNSET else None
