"""Permission questions on the terminal, beside an answer that may go to a pipe.

They are asked on the terminal that the program was started from, whatever stdin and stdout are.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from coupler.cli.sessions_wording import one_line
from coupler.client.action import action_of

if TYPE_CHECKING:
    from coupler.client.policy import PermissionRequest, Verdict

TERMINAL = "/dev/tty"

LONGEST_DETAIL = 400
"""Characters of a title, a path or a command that are shown."""

MOST_PATHS = 20
"""Paths that are shown."""


class Asker:
    """Asks one question after another; what cannot be asked is denied."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()

    @classmethod
    def at_terminal(cls) -> Asker | None:
        """Who asks at the terminal; None if there is none."""
        if sys.platform == "win32":
            return None
        try:
            return cls(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return None

    async def decide(self, request: PermissionRequest) -> Verdict:
        """Show what the agent wants, and let the person choose one of its options."""
        async with self._turn:
            self._forget_what_was_typed()
            self._write(_question(request))
            while True:
                answer = (await self._line()).strip()
                if answer.isdigit() and 1 <= int(answer) <= len(request.options):
                    return request.options[int(answer) - 1].option_id
                if not answer:
                    return False
                self._write(f"A number from 1 to {len(request.options)}, or nothing to deny it: ")

    async def _line(self) -> str:
        """A line of the terminal; empty at its end. The loop goes on meanwhile, so Ctrl-C is heard."""
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        finally:
            loop.remove_reader(self._descriptor)
        try:
            return os.read(self._descriptor, 4096).decode(errors="replace")
        except OSError:
            return ""

    def _forget_what_was_typed(self) -> None:
        """What was typed before a question was seen is no answer to it."""
        if sys.platform != "win32":
            import termios

            with contextlib.suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)

    def _write(self, text: str) -> None:
        os.write(self._descriptor, text.encode(errors="replace"))

    def close(self) -> None:
        os.close(self._descriptor)


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
