"""What a tool call would change in files, as lines that a person reads before agreeing to it."""

from __future__ import annotations

from collections.abc import Iterator
from difflib import unified_diff
from itertools import islice
from typing import TYPE_CHECKING

from coupler.schema.v1 import Diff

if TYPE_CHECKING:
    from coupler.events import ToolCall

MOST_LINES = 200
"""Lines of all changes that are shown."""

LONGEST_TEXT = 1024 * 1024
"""Characters of a file, old and new, that are compared: it takes time."""


def changes_in(call: ToolCall) -> str:
    """All of them, as unified diffs; that there is more is told, for nobody may agree to what is hidden."""
    lines = [line for item in call.content if isinstance(item, Diff) for line in _compared(item)]
    left = len(lines) - MOST_LINES
    return "\n".join([*lines[:MOST_LINES], f"… and {left} lines more"] if left > 0 else lines)


def _compared(change: Diff) -> Iterator[str]:
    old = change.old_text if isinstance(change.old_text, str) else ""
    if len(old) + len(change.new_text) > LONGEST_TEXT:
        yield f"{change.path}: the change is too long to show"
        return
    yield f"{'changes' if isinstance(change.old_text, str) else 'creates'} {change.path}"
    compared = unified_diff(old.splitlines(), change.new_text.splitlines(), lineterm="", n=2)
    yield from islice(compared, 2, None)
