"""The arguments of a tool call as a form, for a user who wants to change them before the tool runs.

Fields come from the tool's own schema, filled in with what the model wrote. What a form cannot show is
written as JSON; what looks like a secret is not shown, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.agent.elicitation import Form
from coupler.bridges.langchain.tool_calls.arguments import Arguments
from coupler.fields import readable
from coupler.fields.form_fields import MOST_FIELDS, Field, FormError, TextField
from coupler.fields.schema_forms import outline

if TYPE_CHECKING:
    from langchain_core.tools import BaseTool

LONGEST_PROBLEM = 300
"""Characters of what a tool finds wrong with its arguments."""


def arguments_form(tool: BaseTool | None, args: Arguments) -> Form[dict[str, Any]] | None:
    """The form; None if there is nothing in it that a user could change."""
    schema = _schema(tool, args)
    properties = schema.get("properties")
    if not isinstance(properties, Mapping):
        return None
    required = schema.get("required") or ()
    fields = [_field(name, part, schema, args, name in required) for name, part in properties.items()]
    shown = [field for field in fields if field is not None and _is_showable(field)][:MOST_FIELDS]
    if not shown:
        return None

    def build(values: dict[str, Any]) -> dict[str, Any]:
        changed = {**args, **values}
        _check(tool, changed)
        return changed

    return Form(shown, build)


def _schema(tool: BaseTool | None, args: Arguments) -> Mapping[str, Any]:
    schema: Any = tool.tool_call_schema if tool is not None else None
    if isinstance(schema, Mapping):
        return schema
    if hasattr(schema, "model_json_schema"):
        found: Mapping[str, Any] = schema.model_json_schema()
        return found
    return {"properties": {name: _schema_of(value) for name, value in args.items()}}


def _schema_of(value: object) -> dict[str, Any]:
    """The schema of a value of a tool that has none, or is not known."""
    match value:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer"}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
    return {}


def _field(name: str, part: Any, schema: Mapping[str, Any], args: Arguments, required: bool) -> Field | None:
    """One argument as a field, filled in if what the model wrote fits it."""
    definitions = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
    alone = {
        "type": "object",
        "properties": {name: part},
        "required": [name] if required else [],
        **definitions,
    }
    try:
        [field] = outline(alone).fields
    except ValueError:
        return _json_field(name, args, required)
    if args.get(name) is None:
        return field
    try:
        filled = field.with_default(args[name])
        return filled if field.required else msgspec.structs.replace(filled, absent=args[name])
    except (ValueError, TypeError):
        return field


def _json_field(name: str, args: Arguments, required: bool) -> TextField:
    given = name in args
    return TextField(
        name=name,
        keyword=name,
        title=readable(name),
        description="Written as JSON.",
        required=required,
        default=msgspec.json.encode(args[name]).decode() if given else msgspec.UNSET,
        absent=args[name] if given else msgspec.UNSET,
        make=lambda text: _parsed(text, name),
    )


def _parsed(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (ValueError, RecursionError):
        raise FormError("expected JSON", name) from None


def _is_showable(field: Field) -> bool:
    try:
        Form([field], dict)
    except ValueError:
        return False
    return True


def _check(tool: BaseTool | None, args: dict[str, Any]) -> None:
    """Raise if the tool would refuse the arguments, so that the user is asked again."""
    schema: Any = tool.tool_call_schema if tool is not None else None
    if not hasattr(schema, "model_validate"):
        return
    try:
        schema.model_validate(args)
    except ValueError as error:
        errors = getattr(error, "errors", None)
        first = next(iter(errors()), None) if callable(errors) else None
        told = f"{first['loc'][0] if first['loc'] else 'it'}: {first['msg']}" if first else str(error)
        raise FormError(told[:LONGEST_PROBLEM]) from None
