"""Makes JSON Schemas of types for models, and checks what models give against them.

Types are those that `msgspec` knows (dataclasses, Structs, TypedDicts, lists, Literals …), anything with
pydantic models in it where pydantic is in use, or a JSON Schema itself.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import msgspec

from coupler.runtime.extras import import_extra

LONGEST_PROBLEM = 1000
"""Characters of what is wrong with a value; values themselves may be quoted in it."""

MAX_DEPTH = 20
"""References and alternatives of a JSON Schema that are followed within each other."""

_ROOT = "#/$defs/"


class JsonTypeError(ValueError):
    """A value does not fit its type. `path` says where, in JSONPath's words."""

    def __init__(self, path: str, problem: str) -> None:
        self.path = path
        self.problem = problem if len(problem) <= LONGEST_PROBLEM else f"{problem[: LONGEST_PROBLEM - 1]}…"
        super().__init__(f"at `{path}`: {self.problem}")


class JsonType(Protocol):
    """A type with its JSON Schema."""

    @property
    def schema(self) -> dict[str, Any]:
        """Its JSON Schema; that of an object says so at its root."""

    def read(self, value: Any) -> Any:
        """Convert decoded JSON to the type; raises JsonTypeError."""


class Parameter(NamedTuple):
    """One named value of an object; what may be missing has a default, which is only shown."""

    name: str
    type: Any
    is_required: bool
    default: Any = None


def json_type_of(wanted: Any) -> JsonType:
    """The shape of a type or of a JSON Schema; raises TypeError for what cannot be written as JSON."""
    if isinstance(wanted, Mapping):
        return _SchemaType(wanted)
    try:
        return _MsgspecType(wanted)
    except TypeError as error:
        return _with_pydantic(wanted, error)


def json_type_of_object(name: str, fields: Sequence[Parameter]) -> JsonType:
    """An object of these fields and no others; what is read has them as attributes."""
    shown = [
        (field.name, field.type)
        if field.is_required
        else (field.name, field.type, msgspec.field(default_factory=lambda: None))
        if not _is_plain(field.default)
        else (field.name, field.type, field.default)
        for field in fields
    ]
    try:
        return _MsgspecType(msgspec.defstruct(name, shown, forbid_unknown_fields=True, kw_only=True))
    except TypeError as error:
        return _with_pydantic(fields, error, name)


def _with_pydantic(wanted: Any, error: TypeError, name: str | None = None) -> JsonType:
    """Make the shape with pydantic, if the program uses it: else no type can be one of its."""
    reason = str(error).strip().splitlines()[-1]
    if "pydantic" in sys.modules:
        try:
            return _PydanticType(wanted if name is None else _model(name, wanted))
        except Exception as other:  # its errors have no common class but this
            reason = f"{reason}; {str(other).strip().splitlines()[0]}"
    raise TypeError(f"this cannot be written as JSON: {reason}") from None


class _MsgspecType:
    def __init__(self, wanted: Any) -> None:
        self._wanted = wanted
        self.schema = _rooted(msgspec.json.schema(wanted))

    def read(self, value: Any) -> Any:
        try:
            return msgspec.convert(value, self._wanted, strict=True, str_keys=True)
        except msgspec.ValidationError as error:
            problem, _, place = str(error).partition(" - at `")
            raise JsonTypeError(place.removesuffix("`") or "$", problem) from None
        except RecursionError:
            raise JsonTypeError("$", "this is nested too deeply") from None


class _PydanticType:
    def __init__(self, wanted: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter = TypeAdapter[Any](wanted)
        self.schema = _rooted(self._adapter.json_schema())

    def read(self, value: Any) -> Any:
        from pydantic import ValidationError

        try:
            return self._adapter.validate_json(msgspec.json.encode(value), strict=True)
        except ValidationError as error:
            first, *others = error.errors(include_url=False, include_input=False, include_context=False)
            more = f" (and {len(others)} more)" if others else ""
            raise JsonTypeError(_json_path(first["loc"]), f"{first['msg']}{more}") from None
        except RecursionError:
            raise JsonTypeError("$", "this is nested too deeply") from None


class _SchemaType:
    def __init__(self, schema: Mapping[str, Any]) -> None:
        jsonschema: Any = import_extra("jsonschema", extra="mcp", feature="A JSON Schema")
        referencing: Any = import_extra("referencing", extra="mcp", feature="A JSON Schema")
        self._best_match = jsonschema.exceptions.best_match
        self._unresolvable = referencing.exceptions.Unresolvable
        self.schema = copy.deepcopy(dict(schema))
        kind = jsonschema.validators.validator_for(self.schema)
        try:
            kind.check_schema(self.schema)
        except jsonschema.SchemaError as error:
            problem = f"at `{error.json_path}`: {error.message[:300]}"
            raise TypeError(f"this is no JSON Schema: {problem}") from None
        # With a registry of its own, no reference is looked up in the network.
        self._validator = kind(self.schema, registry=referencing.Registry())

    def read(self, value: Any) -> Any:
        try:
            error = self._best_match(self._validator.iter_errors(value))
        except RecursionError:
            raise JsonTypeError("$", "this is nested too deeply") from None
        except self._unresolvable as unresolved:
            raise JsonTypeError("$", f"the schema refers to what is not in it: {unresolved}") from None
        if error is not None:
            raise JsonTypeError(error.json_path, error.message)
        return value


def _model(name: str, fields: Sequence[Parameter]) -> Any:
    from pydantic import ConfigDict, create_model

    members: dict[str, Any] = {
        field.name: (field.type, ... if field.is_required else field.default) for field in fields
    }
    return create_model(name, __config__=ConfigDict(extra="forbid"), **members)


def _rooted(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with an object's members at its root, where MCP wants them, and not behind a reference."""
    reference = schema.get("$ref", "")
    if not reference.startswith(_ROOT):
        return schema
    definitions: dict[str, Any] = schema["$defs"]
    name = reference.removeprefix(_ROOT)
    rooted = {**definitions[name]}
    others = {other: it for other, it in definitions.items() if other != name}
    if _mentions(definitions, reference):  # of itself: then it has to stay where it was, too
        others = definitions
    return {**rooted, "$defs": others} if others else rooted


def _mentions(node: Any, reference: str) -> bool:
    if isinstance(node, dict):
        return node.get("$ref") == reference or any(_mentions(part, reference) for part in node.values())
    return isinstance(node, list | tuple) and any(_mentions(part, reference) for part in node)


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _json_path(places: Sequence[int | str]) -> str:
    return "$" + "".join(f"[{place}]" if isinstance(place, int) else f".{place}" for place in places)


def without_nulls(value: Any, schema: Any) -> Any:
    """Return what a model gave without null for what may be left out and may not be null.

    Some models spell out every argument. Null is kept where the JSON Schema allows it, or says nothing.
    """
    return _without_nulls(value, schema, schema)


def _without_nulls(value: Any, schema: Any, root: Any) -> Any:
    schema = _resolved(schema, root)
    if isinstance(value, list):
        return [_without_nulls(each, schema.get("items"), root) for each in value]
    properties = schema.get("properties")
    if not isinstance(value, dict) or not isinstance(properties, Mapping):
        return value
    required = schema.get("required") or ()
    return {
        name: _without_nulls(each, properties.get(name), root)
        for name, each in value.items()
        if each is not None
        or name not in properties
        or name in required
        or _allows_null(properties[name], root)
    }


def _allows_null(schema: Any, root: Any, depth: int = 0) -> bool:
    schema = _resolved(schema, root)
    if depth > MAX_DEPTH or schema.get("nullable") is True:
        return True
    kinds = schema.get("type", "null")
    some = [each for key in ("anyOf", "oneOf") if isinstance(each := schema.get(key), list)]
    whole = schema.get("allOf")
    return (
        "null" in (kinds if isinstance(kinds, list) else [kinds])
        and None in schema.get("enum", [None])
        and schema.get("const") is None
        and all(any(_allows_null(each, root, depth + 1) for each in choices) for choices in some)
        and all(_allows_null(each, root, depth + 1) for each in (whole if isinstance(whole, list) else ()))
    )


def _resolved(schema: Any, root: Any) -> Mapping[str, Any]:
    """Return the schema that a reference leads to, within the same document; an empty one for no schema."""
    for _ in range(MAX_DEPTH):
        reference = schema.get("$ref") if isinstance(schema, Mapping) else None
        if not isinstance(reference, str) or not reference.startswith("#/"):
            break
        schema = root
        for part in reference[2:].split("/"):
            schema = schema.get(part) if isinstance(schema, Mapping) else None
    return schema if isinstance(schema, Mapping) else {}
