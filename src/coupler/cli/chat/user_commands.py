"""Runs the commands that the user types behind a `!`, and makes blocks for the next prompt of their output.

A command runs in the session's directory, with the environment of chat and nothing to read from. What it
writes is redacted before anybody sees it: it is shown as it comes, and of long output the beginning and the
end are kept for the agent.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import shutil
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from msgspec import Struct

from coupler.agent.content import fenced
from coupler.cli.chat.transcript import overwritten
from coupler.runtime.commands import Capture, RunningCommand
from coupler.runtime.formatting import shortened, size
from coupler.runtime.terminal_text import clean, one_line
from coupler.schema.v1 import TextContent

if TYPE_CHECKING:
    from coupler.redaction.masker import StreamMasker

MOST_SHARED = 8_192
"""Bytes of the beginning of an output that the agent gets, and as many of its end."""

MOST_WAITING = 5
"""Commands whose output waits for the next prompt, at most: the last ones."""

LONGEST_NAME = 40
"""Characters of a command that a remark names."""

INTERRUPT_GRACE = 2.0
"""Seconds that a command has to end by itself after Ctrl-C."""

END_GRACE = 1.0
"""Seconds that it has after the SIGTERM that follows."""


class CommandOutput(Struct, frozen=True):
    """The end of a command, and the part of its output that the agent may see."""

    line: str
    output: str
    ending: str
    """The failure in words, such as "exit code 3"; empty if there was none."""

    @property
    def told(self) -> str:
        """A sentence for the user, once it goes along with a prompt."""
        line = one_line(self.line)
        name = shortened(line, LONGEST_NAME)
        return f"The output of {name} is attached ({size(len(self.output.encode()))})."

    def block(self, cwd: str) -> TextContent:
        """The block of a prompt that tells the agent of it."""
        ending = self.ending or "exit code 0"
        shown = fenced(f"$ {self.line}\n{self.output}".rstrip("\n"))
        return TextContent(f"\n\nI have run a command in {cwd}, before this prompt ({ending}):\n\n{shown}")


class UserCommand:
    """A command of the user's own."""

    def __init__(
        self,
        line: str,
        cwd: str,
        show: Callable[[str], None],
        mask: Callable[[str], str],
        output: StreamMasker,
    ) -> None:
        """`show` gets what it writes, as it comes, redacted by `output`; `mask` redacts the line itself."""
        self._line = line
        self._cwd = cwd
        self._show = show
        self._mask = mask
        self._output = output
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._capture = Capture(MOST_SHARED, MOST_SHARED)
        self._job: RunningCommand | None = None
        self._time: asyncio.Timeout | None = None
        self._is_interrupted = False

    def interrupt(self) -> None:
        """Sends SIGINT as Ctrl-C does; what goes on after a moment, or is told again, is ended."""
        if self._job is None or self._time is None:
            return
        if not self._is_interrupted:
            self._job.interrupt()
        patience = 0.0 if self._is_interrupted else INTERRUPT_GRACE
        self._time.reschedule(asyncio.get_running_loop().time() + patience)
        self._is_interrupted = True

    async def run(self) -> CommandOutput:
        """Runs the command to its end; raises `SpawnError`. Cancelled, it leaves nothing running."""
        job = self._job = RunningCommand.start(_shell(self._line), cwd=self._cwd)
        try:
            try:
                async with asyncio.timeout(None) as self._time:
                    await job.hear(self._heard)
                    await job.wait()
            except TimeoutError:
                await job.end(END_GRACE, self._heard)
            self._written(self._output.feed(self._decoder.decode(b"", final=True)) + self._output.end())
        finally:
            self._job = self._time = None
            await job.end(0)
            job.close()
        exit_code, signal = job.ending
        ending = f"ended by {signal}" if signal else f"exit code {exit_code}" if exit_code else ""
        text = clean(overwritten(self._capture.content().decode("utf-8", "replace")))
        return CommandOutput(self._mask(self._line), text, ending)

    async def _heard(self, chunk: bytes) -> None:
        self._written(self._output.feed(self._decoder.decode(chunk)))

    def _written(self, text: str) -> None:
        self._capture.append(text.encode("utf-8", "replace"))
        self._show(text)


def _shell(line: str) -> list[str]:
    """The user's shell, told to run a line."""
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/c", line]
    shell = os.environ.get("SHELL", "")
    return [shell if shutil.which(shell) else "/bin/sh", "-c", line]
