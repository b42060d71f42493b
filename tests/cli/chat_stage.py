"""What the tests of `coupler chat` share: a person in front of it, who reads in order."""

from __future__ import annotations

import fcntl
import os
import re
import shlex
import struct
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from cli.typing_at import Typist
from client.stage import PATIENCE, Scripted
from coupler.runtime.terminal_text import clean

COUPLER = [sys.executable, "-m", "coupler"]
REFERENCE = [sys.executable, str(Path(__file__).parent.parent.parent / "examples" / "reference.py")]

CTRL_C, CTRL_D, CTRL_O = "\x03", "\x04", "\x0f"
ENTER, ALT_ENTER, TAB, UP, DOWN = "\r", "\x1b\r", "\t", "\x1b[A", "\x1b[B"

READY = "/help"
"""The end of the line about the agent, below the line to type on."""

MENU = "Enter chooses, "
"""What stands below a menu in which something is preselected."""

WORKING = "Ctrl-C cancels"
"""What stands below everything while the agent works."""

LONGEST_SEQUENCE = 40
WHERE_IS_THE_CURSOR = "\x1b[6n"


class Chatter(Typist):
    """Somebody who talks to an agent. What is shown is read without escape sequences, in order, once."""

    def __init__(
        self,
        agent: Scripted | Sequence[str],
        *options: str,
        cwd: Path,
        env: Mapping[str, str] | None = None,
        columns: int = 100,
        rows: int = 40,
    ) -> None:
        command = agent.command if isinstance(agent, Scripted) else agent
        unset = ("NO_COLOR", "COLUMNS", "LINES")
        inherited = {name: value for name, value in os.environ.items() if name not in unset}
        terminal = {"TERM": "xterm-256color", **(env or {})}
        super().__init__(
            *COUPLER, "chat", *options, shlex.join(command), cwd=cwd, env={**inherited, **terminal}
        )
        fcntl.ioctl(self._own, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self._read_up_to = 0
        self._answered = 0

    @property
    def text(self) -> str:
        """All that was shown, up to an escape sequence that has not come to its end."""
        begun = self.shown.rfind("\x1b", max(len(self.shown) - LONGEST_SEQUENCE, 0))
        return re.sub(" +(?=\n)", "", clean(self.shown[: begun if begun >= 0 else None]))

    def reads(self, pattern: str) -> str:
        """Wait until this is shown, after all that was read before; what stood between."""
        deadline = time.monotonic() + PATIENCE
        while (found := re.compile(pattern).search(self.text, self._read_up_to)) is None:
            more = self._read(deadline)
            assert more, f"no {pattern!r} in: {self.text[self._read_up_to :]}"
        between = self.text[self._read_up_to : found.end()]
        self._read_up_to = found.end()
        return between

    def says(self, line: str) -> None:
        """Type a line, once there is one to type on."""
        self.reads(READY)
        self.types(line + ENTER)

    def _read(self, deadline: float) -> bool:
        """Read as a terminal does: it tells where its cursor is when it is asked."""
        more = super()._read(deadline)
        for _ in range(self.shown.count(WHERE_IS_THE_CURSOR) - self._answered):
            self._answered += 1
            self.types("\x1b[10;1R")
        return more
