"""Builds the JSON Schema of workflow files, for completion and checks in editors.

It says what the reader accepts. Only the reader knows which ids are taken, whether a default fits its input
or a default agent is there, and whether a rule or a regular expression is right in itself.
"""

from __future__ import annotations

from typing import Any

from coupler.fields.shapes import Schema
from coupler.workflow.language.model import all_tables, step_tables


def workflow_schema() -> dict[str, Any]:
    """Return the schema, of draft 2020-12."""
    steps: Schema = {"type": "array", "minItems": 1, "items": {"$ref": "#/$defs/step"}}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "A workflow of Coupler",
        "$ref": "#/$defs/workflow",
        "$defs": {
            "steps": {"description": "Steps, from top to bottom.", **steps},
            "step": {
                "description": "One step: it has one of the keys that say what it does.",
                "anyOf": [table.schema() for table in step_tables().values()],
            },
            **{table.name: table.own_schema() for table in all_tables()},
        },
    }
