"""What a person is asked about a tool call: the agent's words for it, and what it really is about.

A title is a claim. So the command, the paths and the addresses that rules judge stand below it, and that
there is more of them is told: nobody may agree to what is hidden.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING

from coupler.client.rules import UNREADABLE, action_of
from coupler.workflow.engine.titles import visible

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest
    from coupler.permission.action import Action

LONGEST_DETAIL = 1000
"""Characters of a title, a path, an address or a command that are shown."""

MOST_DETAILS = 20
"""Paths and addresses that are shown."""


def question_about(request: PermissionRequest) -> str:
    """The question, and a line for each thing that the call is about."""
    call = request.tool_call
    title = _shown(call.title or call.name or call.kind)
    details = [detail for detail in _details(action_of(request)) if detail != title]
    if not details and call.raw_input and title != call.raw_input:
        details = [_shown(json.dumps(call.raw_input, ensure_ascii=False, default=str))]
    left = len(details) - MOST_DETAILS
    lines = [f"May the agent do this? {title}", *details[:MOST_DETAILS]]
    return "\n".join([*lines, f"… and {left} more"] if left > 0 else lines)


def _details(action: Action) -> Iterator[str]:
    if action.command is not None:
        # A script keeps its lines: as one they would read like another command.
        command = action.command if isinstance(action.command, str) else shlex.join(action.command)
        yield _bounded(command)
    for each in (*action.paths, *action.urls):
        if each != UNREADABLE:
            yield _shown(each)


def _shown(text: str) -> str:
    return _bounded(" ".join(text.split()))


def _bounded(text: str) -> str:
    left = len(text) - LONGEST_DETAIL
    text = visible(text[:LONGEST_DETAIL])
    return f"{text}… ({left} characters more)" if left > 0 else text
