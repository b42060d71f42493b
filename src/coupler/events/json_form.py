"""The JSON form of events: one object each, with the event's name and its keys, as every command writes them.

The names of events and the parts of messages, tool calls and plans are ACP's. `FORMS` says of each event
which key has which of its fields; `json_object`, `event_in` and the JSON Schema in the manual follow from it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import msgspec
from msgspec import UNSET, Struct

from coupler.events.events import (
    Commands,
    Compaction,
    CompactionSummary,
    Content,
    Info,
    Mode,
    Notice,
    Options,
    Other,
    Plan,
    Stop,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
    TurnEnded,
    TurnUsage,
    Usage,
)
from coupler.schema.v1 import PlanEntry

JsonObject: TypeAlias = dict[str, Any]


class Key(NamedTuple):
    """A key of a form, and the field that it has."""

    name: str
    field: str
    is_optional: bool
    """True if it is left out where the field is None, or what it is by default."""
    default: Any


class Form(NamedTuple):
    """The JSON form of one kind of event."""

    event: str
    kind: type[Struct]
    keys: tuple[Key, ...]


def form_of(kind: type[Struct], event: str, keys: str) -> Form:
    """Make a form from its keys: `key`, `key?` if it is optional, `key=field` if the names differ."""
    defaults = dict(zip(reversed(kind.__struct_fields__), reversed(kind.__struct_defaults__), strict=False))
    return Form(event, kind, tuple(_key(word, defaults) for word in keys.split()))


def _key(word: str, defaults: Mapping[str, Any]) -> Key:
    name, _, field = word.partition("=")
    is_optional, name = name.endswith("?"), name.removesuffix("?")
    return Key(name, field or name, is_optional, defaults.get(field or name))


FORMS: Sequence[Form] = (
    form_of(Text, "text", "text message_id?"),
    form_of(Thought, "thought", "text message_id?"),
    form_of(Content, "content", "role content=block message_id?"),
    form_of(
        ToolCall,
        "tool_call",
        "id title kind status name? locations? content? input?=raw_input output?=raw_output meta?",
    ),
    form_of(
        ToolUpdate,
        "tool_call_update",
        "id title kind status name locations content input=raw_input output=raw_output meta",
    ),
    form_of(ToolOutput, "tool_output", "id content=item apart?"),
    form_of(Plan, "plan", "entries"),
    form_of(Usage, "usage", "used size cost?"),
    form_of(Commands, "commands", "commands"),
    form_of(Mode, "mode", "mode=id"),
    form_of(Options, "options", "options"),
    form_of(Info, "info", "title updated_at"),
    form_of(Notice, "notice", "severity title description?"),
    form_of(Compaction, "compaction", "id status summary? error?"),
    form_of(CompactionSummary, "compaction_summary", "id content=block"),
    form_of(Other, "other", "kind update=raw"),
    form_of(Stop, "stop", "stop_reason=reason"),
    form_of(TurnEnded, "turn", "stop_reason? usage"),
)

_OF_KINDS = {form.kind: form for form in FORMS}
_OF_EVENTS = {form.event: form for form in FORMS}


def json_object(event: Struct) -> JsonObject:
    """Return an event's JSON form: `event`, and its keys."""
    return formed(event, _OF_KINDS[type(event)])


def formed(value: Struct, form: Form) -> JsonObject:
    """Return a value in its form."""
    return fill_form({"event": form.event}, value, form)


def fill_form(told: JsonObject, value: Struct, form: Form) -> JsonObject:
    """Add the keys of a form to an object."""
    for name, field, is_optional, default in form.keys:
        value_of_key = getattr(value, field)
        if value_of_key is UNSET or (is_optional and (value_of_key is None or value_of_key == default)):
            continue
        told[name] = usage_object(value_of_key) if isinstance(value_of_key, TurnUsage) else value_of_key
    return told


def tool_call_object(call: ToolCall) -> JsonObject:
    """Return a tool call as JSON."""
    told = json_object(call)
    del told["event"]
    return told


def usage_object(usage: TurnUsage) -> JsonObject:
    """Return the tokens and the cost of a turn as JSON."""
    return {name: getattr(usage, name) for name in usage.__struct_fields__}


def event_form(kind: type[Struct]) -> Form:
    """Return the form of a kind of events."""
    return _OF_KINDS[kind]


def event_name(event: Struct) -> str:
    """Return the name that an event has in JSON."""
    return _OF_KINDS[type(event)].event


def event_in(told: Mapping[str, Any]) -> Any:
    """Return the event of a JSON form; raises msgspec.ValidationError or KeyError for anything else."""
    form = _OF_EVENTS[told["event"]]
    fields = {key.field: told[key.name] for key in form.keys if key.name in told}
    if form.kind is TurnEnded:
        return TurnEnded(fields.get("stop_reason"), TurnUsage(**fields["usage"]))
    if form.kind is Plan:
        # Statuses and priorities of a newer agent are kept as they came.
        return Plan(tuple(PlanEntry(**entry) for entry in fields["entries"]))
    return msgspec.convert(fields, form.kind)
