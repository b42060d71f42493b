"""Inputs of workflows and answers to their questions as forms, for editors that show them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from coupler.workflow.editor.arguments import is_needed
from coupler.workflow.errors import InputError
from coupler.workflow.language.definition import Input, Json, Workflow
from coupler.workflow.language.inputs import as_input

if TYPE_CHECKING:
    from coupler.agent.turn import Turn

FORMS = "elicitation.form"
"""What an editor offers that shows forms."""

_TYPES = {"integer": "integer", "number": "number", "boolean": "boolean"}


def wanted(workflow: Workflow, given: Mapping[str, str], cwd: str) -> list[Input]:
    """The inputs that have to be asked for: those that are missing, and those that do not fit."""
    return [
        declared
        for name, declared in workflow.inputs.items()
        if (name in given and not _fits(declared, given[name], cwd))
        or (name not in given and is_needed(declared))
    ]


async def asked_for(turn: Turn, message: str, inputs: Iterable[Input]) -> dict[str, Json] | None:
    """What the user has filled in; None if the editor shows no forms, or the user wants none.

    Secrets are not asked for: forms are no place for them.
    """
    inputs = list(inputs)
    is_secret = any(declared.secret for declared in inputs)
    if not inputs or is_secret or not turn.editor.offers(FORMS):
        return None
    try:
        answer = await turn.ask(message, _schema(inputs))
    except ValueError:
        return None  # it looks like a secret, or like no form at all
    if not answer.accepted or not isinstance(answer.value, dict):
        return None
    return {name: value for name, value in answer.value.items() if value is not None}


def _fits(declared: Input, text: str, cwd: str) -> bool:
    try:
        as_input(declared, text, cwd)
    except InputError:
        return False
    return True


def _schema(inputs: list[Input]) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {declared.name: _field(declared) for declared in inputs},
        "required": [declared.name for declared in inputs if declared.default in (msgspec.UNSET, None)],
    }


def _field(declared: Input) -> dict[str, Any]:
    """A field that looks like its input; what is too much for a form is text, which is read as everywhere."""
    field: dict[str, Any] = {"type": _TYPES.get(declared.type, "string"), "title": declared.name}
    if declared.description:
        field["description"] = declared.description
    if declared.enum:
        field |= {"type": "string", "enum": [spoken(choice) for choice in declared.enum]}
    default = declared.default
    if default not in (msgspec.UNSET, None):
        field["default"] = default if field["type"] != "string" else spoken(default)
    return field


def spoken(value: Json) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()
