"""Permission questions on the terminal: what the agent wants to do, and its options by number."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.cli.sessions.wording import one_line
from coupler.client.rules import action_of

if TYPE_CHECKING:
    from coupler.cli.question_terminal import QuestionTerminal
    from coupler.client.policy import PermissionRequest, Verdict

LONGEST_DETAIL = 400
"""Characters of a title, a path or a command that are shown."""

MOST_PATHS = 20
"""Paths that are shown."""


async def ask_permission(request: PermissionRequest, terminal: QuestionTerminal) -> Verdict:
    """Show what the agent wants, and let the person choose one of its options."""
    async with terminal.turn():
        question = _question(request)
        while True:
            answer = (await terminal.ask(question)).strip()
            if answer.isdigit() and 1 <= int(answer) <= len(request.options):
                return request.options[int(answer) - 1].option_id
            if not answer:
                return False
            question = f"A number from 1 to {len(request.options)}, or nothing to deny it: "


def _question(request: PermissionRequest) -> str:
    call = request.tool_call
    lines = ["", f"The agent asks: {_shown(call.title or call.kind)} ({_shown(call.kind)})"]
    lines += _listed([location.path for location in call.locations])
    command = action_of(request).command
    if command is not None:
        lines.append(f"  {_shown(command if isinstance(command, str) else shlex.join(command))}")
    lines += [f"  {number}. {_shown(option.name)}" for number, option in enumerate(request.options, 1)]
    return "\n".join(lines) + "\nNumber (nothing denies it): "


def _listed(paths: Sequence[str]) -> list[str]:
    left = len(paths) - MOST_PATHS
    lines = [f"  {_shown(path)}" for path in paths[:MOST_PATHS]]
    return [*lines, f"  … and {left} more"] if left > 0 else lines


def _shown(text: str) -> str:
    """The text in a line; that there is more of it is told, for nobody may agree to what is hidden."""
    line = one_line(text)
    left = len(line) - LONGEST_DETAIL
    return f"{line[:LONGEST_DETAIL]}… ({left} characters more)" if left > 0 else line
