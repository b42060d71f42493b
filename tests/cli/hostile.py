"""Values that try to steer a terminal, in every field that holds text.

Fields are not listed here: structs are walked by their types, and messages by the schema of the protocol. A
field that is added tomorrow is hostile tomorrow.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

HOSTILE = (
    "evil\x1b]52;c;b3duZWQ=\x07\x1b]0;owned\x1b\\\x1b[2J\x1b[31m\x1bc\x9b2J\x9d0;owned\x9c\x1bP1$r\x1b\\\x90q\x9c"
    "\x1b]8;;http://evil\x1b\\a\x1b\x1b[[31m\x08\x07\x0b\x0c\x0e\x7f\x85\r\u2028\u2029\n"
    "[/no] [link=http://evil]style[/link] :skull: "
    "forged\u202eesrever\u2066isolated\u2069\u061c\u200b\u200e\u2060\ufeff\u00ad\U000e0041\U000e007f \x1b"
)
"""Writes to the clipboard, names the window, clears the screen, turns text around, forges a line."""

_STYLES = re.compile("\x1b\\[[0-9;]*m")
_DRAWING = re.compile("\r?\x1b\\[[0-9]+A\x1b\\[J|\x1b\\[\\?25[lh]|\x1b\\[[0-9]*[AK]|\x1b\\[2K|\r(?!\n)")
_OBEYED = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
    "\U000e0000-\U000e007f]"
)
"""Written here once more, for who tests with the pattern of the code finds nothing that it lacks."""

DEEPEST = 40
MOST_ALTERNATIVES = 40


def obeyed_in(output: str, *, is_terminal: bool = False, is_drawn: bool = False) -> list[str]:
    """What a terminal would obey, or not show, with a few characters around each; our styles do not count."""
    if is_terminal:
        output = _STYLES.sub("", output.replace("\r\n", "\n"))
    if is_drawn:
        output = _DRAWING.sub("", output)
    return [output[max(each.start() - 20, 0) : each.end() + 20] for each in _OBEYED.finditer(output)]


def filled(kind: Any) -> list[Any]:
    """Values of a type with all their fields set, one for each alternative, and every text hostile."""
    return [msgspec.convert(each, kind) for each in _of_type(msgspec.inspect.type_info(kind), 0)]


def _of_type(info: Any, depth: int) -> list[Any]:
    inspect = msgspec.inspect
    match info:
        case inspect.StrType():
            return [HOSTILE]
        case inspect.LiteralType(values):
            return [*values]
        case inspect.UnionType(types):
            given = [
                each
                for kind in types
                if not isinstance(kind, inspect.NoneType)
                for each in _of_type(kind, depth)
            ]
            return given or [None]
        case inspect.ListType(item) | inspect.VarTupleType(item) | inspect.CollectionType(item):
            return [_of_type(item, depth + 1)[:MOST_ALTERNATIVES] if depth < DEEPEST else []]
        case inspect.DictType():
            return [{HOSTILE: value} for value in _of_type(info.value_type, depth + 1)[:1]]
        case inspect.StructType():
            return _of_struct(info, depth)
        case inspect.IntType():
            return [1]
        case inspect.FloatType():
            return [0.5]
        case inspect.BoolType():
            return [True]
        case inspect.AnyType():
            return [{HOSTILE: [HOSTILE, 1]}]
        case inspect.NoneType():
            return [None]
        case inspect.CustomType() | inspect.RawType():
            return []
    raise NotImplementedError(info)


def _of_struct(info: Any, depth: int) -> list[Any]:
    if depth > DEEPEST:
        return []
    chosen: dict[str, list[Any]] = {}
    for field in info.fields:
        values = _of_type(field.type, depth + 1)
        if values:
            chosen[field.encode_name] = values
        elif field.required:
            return []
    tag = {} if info.tag is None else {info.tag_field: info.tag}
    return [{**tag, **each} for each in _each_alternative(chosen)]


def _each_alternative(chosen: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """As many objects as the field with most alternatives has of them, not all combinations."""
    number = min(max(map(len, chosen.values()), default=1), MOST_ALTERNATIVES)
    return [{name: values[at % len(values)] for name, values in chosen.items()} for at in range(number)]


@cache
def _definitions() -> dict[str, Any]:
    text = files("coupler.schema").joinpath("acp-v1.json").read_text(encoding="utf-8")
    definitions: dict[str, Any] = json.loads(text)["$defs"]
    return definitions


def messages(name: str) -> list[Any]:
    """Values of a definition of the protocol's schema, with all their fields, and every text hostile."""
    return [*_of_schema({"$ref": f"#/$defs/{name}"}, 0)]


def _of_schema(schema: dict[str, Any], depth: int) -> list[Any]:
    if "$ref" in schema:
        return _of_schema(_definitions()[schema["$ref"].rpartition("/")[2]], depth + 1)
    if "const" in schema or "enum" in schema:
        return [schema["const"]] if "const" in schema else [*schema["enum"]]
    if depth > DEEPEST:
        return []
    alternatives = [
        each
        for keyword in ("oneOf", "anyOf")
        for branch in schema.get(keyword, ())
        for each in _of_schema(branch, depth + 1)
        if each is not None
    ]
    whole = [each for part in schema.get("allOf", ()) for each in _of_schema(part, depth + 1)]
    own = [*_of_own_type(schema, depth)]
    return [*_merged([*_merged(own, whole)], alternatives)]


def _merged(some: list[Any], others: list[Any]) -> Iterator[Any]:
    """Objects of both put together; of what are no objects, all that there are."""
    objects = [each for each in others if isinstance(each, dict)]
    if not some or not others or not all(isinstance(each, dict) for each in some) or not objects:
        yield from some or others
        return
    for number in range(min(max(len(some), len(objects)), MOST_ALTERNATIVES)):
        yield {**some[number % len(some)], **objects[number % len(objects)]}


def _of_own_type(schema: dict[str, Any], depth: int) -> Iterator[Any]:
    kinds = schema.get("type", [])
    match next((kind for kind in ([kinds] if isinstance(kinds, str) else kinds) if kind != "null"), None):
        case "string":
            yield HOSTILE
        case "integer" | "number":
            yield 1
        case "boolean":
            yield True
        case "array":
            yield _of_schema(schema.get("items", {}), depth + 1)[:MOST_ALTERNATIVES]
        case "object":
            properties = {
                name: _of_schema(each, depth + 1) for name, each in schema.get("properties", {}).items()
            }
            more = schema.get("additionalProperties")
            extra = {HOSTILE: HOSTILE} if more is True else {}
            if isinstance(more, dict):
                # Each alternative of the values has a key of its own.
                extra = {f"{HOSTILE}{at}": each for at, each in enumerate(_of_schema(more, depth + 1))}
            for each in _each_alternative({name: values for name, values in properties.items() if values}):
                yield {**each, **extra}
