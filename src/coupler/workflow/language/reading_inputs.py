"""Inputs as they are declared, and what does not fit together in a declaration."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from coupler.fields.bounded_regex import Pattern
from coupler.workflow.errors import InputError
from coupler.workflow.language.definition import Input, Json
from coupler.workflow.language.inputs import check_value
from coupler.workflow.language.notes import Notes, listed
from coupler.workflow.language.source import Node
from coupler.workflow.language.table import Record

_KEYS = ("type", "description", "required", "default", "enum", "pattern", "min", "max", "secret", "rest")
_TYPE_WORDS = {
    "string": "a text",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "list": "a list",
    "object": "a mapping",
    "file": "the path of a file",
}


def input_of(name: str, record: Record, notes: Notes) -> Input:
    """An input, or the answer to an `ask` step."""
    declared = Input(name=name, position=record.node.position, **record.only(*_KEYS))
    for key, message in _unfit_keys(declared):
        notes.wrong(record.node.values[key], message)
    return declared


def check_rest(inputs: Mapping[str, Input], nodes: Mapping[str, Node], notes: Notes) -> None:
    """Only one input can take what is left."""
    takers = [each.name for each in inputs.values() if each.rest]
    for name in takers[1:]:
        notes.wrong(nodes[name], f"only one input can have `rest`: it is {listed(takers)}")


def _unfit_keys(declared: Input) -> Iterator[tuple[str, str]]:
    if problem := _pattern_problem(declared):
        yield "pattern", problem
        return
    if declared.secret and declared.type in ("integer", "number", "boolean"):
        yield "secret", f"only texts can be hidden: `secret` does not go with `type: {declared.type}`"
        return
    bounded = [key for key in ("min", "max") if getattr(declared, key) is not None]
    if bounded and declared.type == "boolean":
        yield bounded[0], f"`{bounded[0]}` does not go with `type: boolean`"
    elif declared.min is not None and declared.max is not None and declared.min > declared.max:
        yield "max", "`max` must not be less than `min`"
    # The choices of a list are those of its items.
    elif declared.type != "list" and not all(_is_of(declared.type, value) for value in declared.enum):
        yield "enum", f"`enum` must have values of the type: {_TYPE_WORDS[declared.type]}"
    elif problem := _default_problem(declared):
        yield "default", problem


def _default_problem(declared: Input) -> str | None:
    if declared.default is msgspec.UNSET:
        return None
    if declared.required:
        return "`default` is never used, as the input is `required`: leave one of them out"
    if declared.default is None:
        return None
    if not _is_of(declared.type, declared.default):
        return f"`default` must be {_TYPE_WORDS[declared.type]}, as the `type` is `{declared.type}`"
    try:
        check_value(declared, declared.default)
    except InputError as error:
        return f"`default` does not fit: {error}"
    return None


def _pattern_problem(declared: Input) -> str | None:
    if declared.pattern is None:
        return None
    if declared.type not in ("string", "file", "list"):
        return f"`pattern` is for texts: it does not go with `type: {declared.type}`"
    try:
        # By itself first, so that a position in the message is one in what was written.
        Pattern(declared.pattern)
        Pattern(f"^(?:{declared.pattern})$")
    except ValueError as error:
        return f"`pattern` cannot be used: {error}"
    return None


def _is_of(type: str, value: Json) -> bool:
    match type:
        case "integer":
            return isinstance(value, int) and not isinstance(value, bool)
        case "number":
            return isinstance(value, (int, float)) and not isinstance(value, bool)
        case "boolean":
            return isinstance(value, bool)
        case "list":
            return isinstance(value, list)
        case "object":
            return isinstance(value, dict)
        case _:
            return isinstance(value, str)
