"""The JSON Schema of what commands write as JSON: events of sessions and runs, results, exported sessions.

It is made from the structs and from `FORMS`; `generate_protocol_docs.py` writes it to the manual.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import UNSET

from coupler.agent.history import TurnOutcome
from coupler.agent.session_export import FORMAT
from coupler.client.limits import Cut
from coupler.client.observation import DECIDED, OBSERVED_FORMS
from coupler.client.reply import OutputWay
from coupler.events.events import ToolCall, ToolOutput, ToolUpdate, TurnUsage
from coupler.events.json_form import FORMS, Form, JsonObject
from coupler.schema import v1
from coupler.workflow.journal.run_events import AGENT_KINDS, Place, RunHappening

TEXT: JsonObject = {"type": "string"}
WHOLE: JsonObject = {"type": "integer"}
NUMBER: JsonObject = {"type": "number"}
FLAG: JsonObject = {"type": "boolean"}
TIME: JsonObject = {"type": ["string", "null"], "format": "date-time"}
TEXT_OR_NULL: JsonObject = {"type": ["string", "null"]}

RUN_ONLY = {form.event for form in FORMS if form.kind in (ToolUpdate, ToolOutput)}
EXPORTED = ("text", "thought", "content", "tool_call", "plan", "notice", "compaction")


def schema_text() -> str:
    """The schema as the file has it."""
    return json.dumps(schema(), indent=2) + "\n"


def schema() -> JsonObject:
    """The schema: a definition for what each command writes, and all that they refer to."""
    forms, definitions = form_schemas((*FORMS, *OBSERVED_FORMS))
    happenings = get_args(RunHappening)
    parts, more = schemas_of(
        [*happenings, Place, list[v1.ContentBlock], list[v1.PlanEntry], Cut, OutputWay, TurnOutcome]
    )
    place, blocks, entries, cut, way, outcome = parts[len(happenings) :]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "What Coupler's commands write as JSON",
        "$defs": {
            "exec_event": _exec_event(forms),
            "exec_result": _exec_result(forms, blocks=blocks, entries=entries, cut=cut, way=way),
            "run_event": _run_event(parts[: len(happenings)], place),
            "session_export": _session_export(blocks, outcome),
            **{f"event.{name}": each for name, each in forms.items()},
            **dict(sorted({**definitions, **more}.items())),
        },
    }


def _exec_event(forms: Mapping[str, JsonObject]) -> JsonObject:
    """A line of `coupler exec --format ndjson`."""
    named = [{"$ref": f"#/$defs/event.{name}"} for name in forms if name not in RUN_ONLY]
    result = _all_of({"$ref": "#/$defs/exec_result"}, event={"const": "result"})
    late = {"properties": {"late": FLAG, "bridged": FLAG}}
    return {"anyOf": [*({"allOf": [each, late]} for each in named), result]}


def _exec_result(
    forms: Mapping[str, JsonObject],
    *,
    blocks: JsonObject,
    entries: JsonObject,
    cut: JsonObject,
    way: JsonObject,
) -> JsonObject:
    """The object of `coupler exec --format json`."""
    call = _without_event(next(forms[form.event] for form in FORMS if form.kind is ToolCall))
    permission = _without_event(forms[DECIDED.event])
    denied = _all_of(permission, remedy=TEXT_OR_NULL)
    keys: JsonObject = {
        "text": TEXT,
        "stop_reason": TEXT_OR_NULL,
        "output": {},
        "output_way": _or_null(way),
        "thoughts": TEXT,
        "tool_calls": {"type": "array", "items": call},
        "permissions": {"type": "array", "items": permission},
        "denied": {"type": "array", "items": denied},
        "files": {"type": "array", "items": TEXT},
        "plan": entries,
        "content": blocks,
        "usage": _or_null(forms["turn"]["properties"]["usage"]),
        "rounds": WHOLE,
        "cut": _or_null(cut),
        "session_id": TEXT_OR_NULL,
        "session_reason": TEXT_OR_NULL,
        "error": _or_null(_object({"kind": TEXT, "message": TEXT}, data={}, **_error_keys())),
        "exit_code": WHOLE,
    }
    return _object(keys)


def _error_keys() -> JsonObject:
    return {"code": WHOLE, "agent_exit_code": WHOLE, "agent_stderr": TEXT}


def _run_event(happenings: Iterable[JsonObject], place: JsonObject) -> JsonObject:
    """A line of `coupler run --json` and `coupler runs logs --json`."""
    agents = ({"$ref": f"#/$defs/event.{name}"} for name in sorted(AGENT_KINDS))
    keys = {"seq": WHOLE, "at": NUMBER, "place": place, "typed": FLAG}
    common = {"type": "object", "properties": keys, "required": ["seq", "at", "event"]}
    return {"allOf": [common, {"anyOf": [*happenings, *agents]}]}


def _session_export(blocks: JsonObject, outcome: JsonObject) -> JsonObject:
    """The document that `coupler sessions export --format json` writes."""
    named = [{"$ref": f"#/$defs/event.{name}"} for name in EXPORTED]
    broken = {"event": {"const": "unreadable"}, "kind": TEXT, "key": TEXT}
    unreadable = _object(broken, text=TEXT, base64=TEXT)
    event = {"allOf": [_object({"at": TIME}), {"anyOf": [*named, unreadable]}]}
    end = _object({"outcome": outcome, "reason": TEXT_OR_NULL, "error": TEXT_OR_NULL, "at": TIME})
    turn = {
        "number": WHOLE,
        "started_at": TIME,
        "prompt": blocks,
        "events": {"type": "array", "items": event},
        "end": end,
    }
    session = {
        "id": TEXT,
        "title": TEXT_OR_NULL,
        "agent": TEXT,
        "cwd": TEXT,
        "additional_directories": {"type": "array", "items": TEXT},
        "turns": WHOLE,
        "created_at": TIME,
        "updated_at": TIME,
        "settings": {},
        "usage": {},
        "state": {"type": ["object", "null"]},
    }
    turns = {"type": "array", "items": _object(turn)}
    return _object({"format": {"const": FORMAT}, "session": _object(session), "turns": turns})


def _object(required: JsonObject, **optional: Any) -> JsonObject:
    return {"type": "object", "properties": {**required, **optional}, "required": [*required]}


def _all_of(schema: JsonObject, **keys: JsonObject) -> JsonObject:
    return {"allOf": [schema, _object(keys)]}


def _without_event(form: JsonObject) -> JsonObject:
    keys = {name: each for name, each in form["properties"].items() if name != "event"}
    return {**form, "properties": keys, "required": [name for name in form["required"] if name != "event"]}


def _or_null(schema: JsonObject) -> JsonObject:
    return {"anyOf": [schema, {"type": "null"}]}


def form_schemas(forms: Iterable[Form]) -> tuple[dict[str, JsonObject], JsonObject]:
    """Return the JSON Schema of each form by its event, and the definitions that they refer to."""
    types: dict[tuple[str, str], Any] = {}
    for form in forms:
        hints = get_type_hints(form.kind, localns={"TokenUsage": Any})
        types |= {(form.event, key.name): hints[key.field] for key in form.keys}
    found, definitions = schemas_of([*types.values()])
    schemas = dict(zip(types, found, strict=True))
    schemas |= {place: _usage_schema() for place, kind in types.items() if kind is TurnUsage}
    return {form.event: _form_schema(form, schemas) for form in forms}, definitions


def _form_schema(form: Form, schemas: Mapping[tuple[str, str], JsonObject]) -> JsonObject:
    required = [key.name for key in form.keys if not (key.is_optional or key.default is UNSET)]
    keys = {key.name: schemas[form.event, key.name] for key in form.keys}
    return {
        "type": "object",
        "properties": {"event": {"const": form.event}, **keys},
        "required": ["event", *required],
    }


def _usage_schema() -> JsonObject:
    hints = get_type_hints(TurnUsage)
    found, _ = schemas_of([*hints.values()])
    return {
        "type": "object",
        "properties": dict(zip(hints, found, strict=True)),
        "required": [*hints],
    }


def schemas_of(types: Sequence[Any]) -> tuple[tuple[JsonObject, ...], JsonObject]:
    """Return the JSON Schemas of types, and the definitions that they refer to."""
    return msgspec.json.schema_components(
        types, schema_hook=lambda kind: {"type": "object"}, ref_template="#/$defs/{name}"
    )
