"""What is known of a JSON object that is still being written."""

from __future__ import annotations

from typing import Any

from langchain_core.utils.json import parse_partial_json


def partial_object(text: str) -> dict[str, Any]:
    """The object as far as it was written; empty if there is none yet, or something else."""
    try:
        value = parse_partial_json(text)
    except (ValueError, RecursionError, IndexError):
        return {}
    return value if isinstance(value, dict) else {}
