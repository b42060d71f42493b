"""Python functions as tools of a model: described by their signatures, called with checked arguments."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, get_type_hints

import msgspec


class Function(NamedTuple):
    """A function that a model may call."""

    name: str
    description: str
    schema: dict[str, Any]
    """The JSON Schema of its arguments."""
    arguments: type[msgspec.Struct]
    call: Callable[..., Any]

    async def use(self, given: Any) -> Any:
        """Call it; raises `msgspec.ValidationError` if the arguments do not fit."""
        checked = msgspec.convert(given, self.arguments, strict=False)
        fields = {name: getattr(checked, name) for name in self.arguments.__struct_fields__}
        if inspect.iscoroutinefunction(self.call):
            return await self.call(**fields)
        return await asyncio.to_thread(self.call, **fields)


def as_functions(functions: Sequence[Callable[..., Any]]) -> dict[str, Function]:
    """The functions by name, or an error that says what is missing in one."""
    found: dict[str, Function] = {}
    for function in functions:
        described = _described(function)
        if described.name in found:
            raise ValueError(f"two tools are called {described.name!r}: names tell them apart")
        found[described.name] = described
    return found


def _described(function: Callable[..., Any]) -> Function:
    if not callable(function):
        raise TypeError(f"a tool is a function, not {function!r:.100}")
    name = getattr(function, "__name__", type(function).__name__)
    hints = get_type_hints(function)
    fields: list[Any] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD, parameter.POSITIONAL_ONLY):
            raise TypeError(f"the tool {name!r} takes its arguments by name; {parameter} has none")
        kind = hints.get(parameter.name, Any)
        has_default = parameter.default is not parameter.empty
        fields.append((parameter.name, kind, parameter.default) if has_default else (parameter.name, kind))
    arguments = msgspec.defstruct(name, fields, kw_only=True, forbid_unknown_fields=True)
    return Function(name, inspect.getdoc(function) or "", _schema_of(arguments), arguments, function)


def _schema_of(arguments: type[msgspec.Struct]) -> dict[str, Any]:
    (reference,), components = msgspec.json.schema_components([arguments])
    schema = dict(components.pop(str(reference["$ref"]).rpartition("/")[2]))
    return {**schema, "$defs": components} if components else schema
