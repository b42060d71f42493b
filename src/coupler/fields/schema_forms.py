"""Reads the fields of a form from a JSON Schema.

A schema may come from anywhere, an MCP server for one. What a form cannot express is refused and never
dropped: the answer must not fit less than was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from msgspec import json
from msgspec.structs import replace

from coupler.fields import readable
from coupler.fields.form_fields import (
    ChoiceField,
    ChoicesField,
    Field,
    NumberField,
    Option,
    SwitchField,
    TextField,
    distinct,
    pattern_of,
)
from coupler.fields.type_forms import SINGLE

MOST_REFERENCES = 10
"""References that may lead to one another."""

REMARKS = frozenset(
    {
        *("title", "description", "default", "examples", "deprecated", "readOnly", "writeOnly"),
        *("$comment", "$schema", "$id", "$defs", "definitions", "_meta", "type"),
    }
)
"""Keywords that every part of a schema may have: the type, and those that constrain nothing."""

OBJECT_KEYWORDS = REMARKS | {"properties", "required", "additionalProperties"}

Schema = Mapping[str, Any]


class Outline(NamedTuple):
    """A form's labels and fields as a schema has them; `is_single` if the form is one value."""

    title: str | None
    description: str | None
    fields: list[Field]
    is_single: bool


def outline(schema: Schema) -> Outline:
    """Read the fields of a flat schema; raises ValueError for what a form cannot express."""
    top = _resolved(schema, schema, "the form")
    if top.get("type", "object") != "object":
        return Outline(None, None, [_field(SINGLE, top, schema, is_required=True)], True)
    properties = top.get("properties")
    if not isinstance(properties, Mapping):
        raise ValueError("the form has no `properties`: write one for each field")
    _refuse_others(top, OBJECT_KEYWORDS, "the form")
    required = _names(top.get("required", ()), properties)
    fields = [_field(name, part, schema, is_required=name in required) for name, part in properties.items()]
    return Outline(_text_or_none(top, "title"), _text_or_none(top, "description"), fields, False)


def _names(required: object, properties: Schema) -> Sequence[str]:
    if not isinstance(required, list | tuple) or any(not isinstance(name, str) for name in required):
        raise ValueError("`required` of the form is a list of names")
    for name in required:
        if name not in properties:
            raise ValueError(f"the form requires the field {name!r:.100}, which it does not have")
    return required


def _field(name: object, part: object, root: Schema, *, is_required: bool) -> Field:
    if not isinstance(name, str) or not name.strip():
        raise ValueError(f"the name of a field is text that is not blank, not {name!r:.100}")
    where = f"the field {name!r:.100}"
    schema, is_optional = _without_null(_resolved(part, root, where), root, where)
    common: dict[str, Any] = {
        "name": name,
        "keyword": name,
        "title": _text_or_none(schema, "title") or readable(name),
        "description": _text_or_none(schema, "description"),
        "required": is_required and not is_optional,
    }
    field = _kind_of_field(schema, common, root, where)
    default = schema.get("default")
    return field if default is None else _with_default(field, default)


def _with_default(field: Field, default: Any) -> Field:
    """Fill in the default, and use it when the field is left out, as types do."""
    filled = field.with_default(default)
    return filled if field.required else replace(filled, absent=filled.read(filled.default))


def _resolved(part: object, root: Schema, where: str) -> Schema:
    """Resolve the references of a part; its own keywords take precedence."""
    for _ in range(MOST_REFERENCES):
        if not isinstance(part, Mapping):
            raise ValueError(f"{where} is a schema, that is an object, not {type(part).__name__}")
        if "$ref" in part:
            part = {**_referred(part["$ref"], root, where), **_without(part, "$ref")}
        elif isinstance(all_of := part.get("allOf"), list) and len(all_of) == 1:
            (only,) = all_of
            part = {**_resolved_once(only, where), **_without(part, "allOf")}
        else:
            return part
    raise ValueError(f"{where} refers to itself or too far: write it out")


def _resolved_once(part: object, where: str) -> Schema:
    if not isinstance(part, Mapping):
        raise ValueError(f"{where} is a schema, that is an object, not {type(part).__name__}")
    return part


def _referred(reference: object, root: Schema, where: str) -> Schema:
    place, _, name = reference.rpartition("/") if isinstance(reference, str) else ("", "", "")
    if place in ("#/$defs", "#/definitions"):
        definitions = root.get(place[2:])
        if isinstance(definitions, Mapping) and isinstance(found := definitions.get(name), Mapping):
            # Its title is its own: all fields that refer to it would be called the same.
            return _without(found, "title")
    raise ValueError(f"{where} refers to {reference!r:.100}, which is not in the schema's $defs")


def _without_null(schema: Schema, root: Schema, where: str) -> tuple[Schema, bool]:
    """Return the schema of the value without null, and whether null is allowed."""
    if isinstance(kinds := schema.get("type"), list):
        rest = [kind for kind in kinds if kind != "null"]
        if len(rest) != 1:
            raise ValueError(f"{where} is of several types: a form has one for each field")
        return {**schema, "type": rest[0]}, len(rest) < len(kinds)
    alternatives = schema.get("anyOf")
    if not isinstance(alternatives, list) or {"type": "null"} not in alternatives:
        return schema, False
    others = [each for each in alternatives if each != {"type": "null"}]
    if len(others) != 1:
        raise ValueError(f"{where} is of several types: a form has one for each field")
    return {**_resolved(others[0], root, where), **_without(schema, "anyOf")}, True


def _kind_of_field(schema: Schema, common: dict[str, Any], root: Schema, where: str) -> Field:
    if (options := _options(schema, common["name"], where)) is not None:
        _refuse_others(schema, REMARKS | {"enum", "const", "oneOf", "anyOf"}, where)
        return ChoiceField(**common, options=options)
    match schema.get("type"):
        case "string":
            return _text(schema, common, where)
        case "integer" | "number":
            return _number(schema, common, where)
        case "boolean":
            _refuse_others(schema, REMARKS, where)
            return SwitchField(**common)
        case "array":
            return _choices(schema, common, root, where)
        case "object":
            raise ValueError(f"{where} is an object itself: a form is flat, so ask for its parts")
        case None:
            raise ValueError(f"{where} has no `type`: say which")
        case other:
            raise ValueError(
                f"{where} is of the type {other!r:.100}: a form knows string, number, integer, boolean, array"
            )


def _text(schema: Schema, common: dict[str, Any], where: str) -> TextField:
    _refuse_others(schema, REMARKS | {"minLength", "maxLength", "pattern", "format"}, where)
    if not isinstance(pattern := schema.get("pattern"), str | None):
        raise ValueError(f"{where}: `pattern` is text")
    return TextField(
        **common,
        shortest=_count(schema, "minLength", where),
        longest=_count(schema, "maxLength", where),
        pattern=pattern_of(pattern, common["name"]),
        format=_text_or_none(schema, "format"),
    )


def _number(schema: Schema, common: dict[str, Any], where: str) -> NumberField:
    limits = {"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"}
    _refuse_others(schema, REMARKS | limits, where)
    minimum, maximum = _limit(schema, "minimum", where), _limit(schema, "maximum", where)
    above, below = _limit(schema, "exclusiveMinimum", where), _limit(schema, "exclusiveMaximum", where)
    if schema["type"] == "number":
        return NumberField(**common, whole=False, minimum=minimum, maximum=maximum, above=above, below=below)
    # Of whole numbers every limit can be said as one that is included.
    least = [math.ceil(minimum)] if minimum is not None else []
    least += [math.floor(above) + 1] if above is not None else []
    most = [math.floor(maximum)] if maximum is not None else []
    most += [math.ceil(below) - 1] if below is not None else []
    return NumberField(
        **common, whole=True, minimum=max(least, default=None), maximum=min(most, default=None)
    )


def _choices(schema: Schema, common: dict[str, Any], root: Schema, where: str) -> ChoicesField:
    _refuse_others(schema, REMARKS | {"items", "minItems", "maxItems", "uniqueItems"}, where)
    items = _resolved(schema.get("items", {}), root, where)
    options = _options(items, common["name"], where)
    if options is None:
        raise ValueError(f"{where} is a list of anything: a form has lists of given choices (`enum`) only")
    _refuse_others(items, REMARKS | {"enum", "const", "oneOf", "anyOf"}, where)
    fewest, most = _count(schema, "minItems", where), _count(schema, "maxItems", where)
    return ChoicesField(**common, options=options, fewest=fewest, most=most)


def _options(schema: Schema, name: str, where: str) -> tuple[Option, ...] | None:
    """Return the options of a choice, or None if the schema is none."""
    if "const" in schema:
        return (_option(schema["const"], where),)
    if "enum" in schema:
        if not isinstance(schema["enum"], list | tuple):
            raise ValueError(f"{where}: `enum` is a list")
        return distinct((_option(value, where) for value in schema["enum"] if value is not None), name)
    for key in ("oneOf", "anyOf"):
        if key in schema:
            if not isinstance(schema[key], list | tuple):
                raise ValueError(f"{where}: `{key}` is a list")
            return distinct((_titled_option(each, where) for each in schema[key]), name)
    return None


def _titled_option(part: object, where: str) -> Option:
    if not isinstance(part, Mapping) or "const" not in part:
        raise ValueError(f"{where} is of several types or kinds: a form has one for each field")
    _refuse_others(part, REMARKS | {"const"}, where)
    plain = _option(part["const"], where)
    title, description = _text_or_none(part, "title"), _text_or_none(part, "description")
    return Option(plain.const, title or plain.title, plain.value, description)


def _option(value: object, where: str) -> Option:
    if isinstance(value, str):
        return Option(value, value, value)
    if not isinstance(value, bool | int | float) or not math.isfinite(value):
        raise ValueError(f"{where} has a choice that is neither text nor a number")
    text = json.encode(value).decode()
    return Option(text, text, value)


def _count(schema: Schema, key: str, where: str) -> int | None:
    value = schema.get(key)
    if value is None or (type(value) is int and 0 <= value < 2**32):
        return value
    raise ValueError(f"{where}: `{key}` is a whole number from 0 on")


def _limit(schema: Schema, key: str, where: str) -> float | None:
    value = schema.get(key)
    if value is None or (type(value) in (int, float) and -(2**63) < value < 2**63):
        return value
    raise ValueError(f"{where}: `{key}` is a number")


def _text_or_none(schema: Schema, key: str) -> str | None:
    value = schema.get(key)
    return value if isinstance(value, str) and value else None


def _without(schema: Schema, key: str) -> dict[str, Any]:
    return {name: value for name, value in schema.items() if name != key}


def _refuse_others(schema: Schema, known: frozenset[str] | set[str], where: str) -> None:
    for key in schema:
        if key not in known and not str(key).startswith("x-"):
            raise ValueError(
                f"{where}: a form cannot express `{key!s:.50}`: take it out and check it yourself"
            )
