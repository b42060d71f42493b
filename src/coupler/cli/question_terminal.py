"""The terminal that a command was started from, for questions beside an answer that may go to a pipe."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator, Iterator

TERMINAL = "/dev/tty"

LONGEST_LINE = 4096
"""Bytes of an answer; a terminal holds no more in a line."""


class QuestionTerminal:
    """Asks on the terminal, whatever stdin and stdout are."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._turn = asyncio.Lock()

    @classmethod
    def opened(cls) -> QuestionTerminal | None:
        """The terminal; None if there is none."""
        if sys.platform == "win32":
            return None
        try:
            return cls(os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY))
        except OSError:
            return None

    @contextlib.asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Have it alone, for as many lines as a question takes."""
        async with self._turn:
            self._forget_what_was_typed()
            yield

    def write(self, text: str) -> None:
        """Show something."""
        os.write(self._descriptor, text.encode(errors="replace"))

    async def ask(self, question: str) -> str:
        """The line that is typed, with its end; empty if the person has left, by Ctrl-D or for good.

        The loop goes on meanwhile, so Ctrl-C is heard.
        """
        self.write(question)
        loop = asyncio.get_running_loop()
        ready = asyncio.Event()
        loop.add_reader(self._descriptor, ready.set)
        try:
            await ready.wait()
        except asyncio.CancelledError:
            # Whatever is shown next begins a line.
            with contextlib.suppress(OSError):
                self.write("\n")
            raise
        finally:
            loop.remove_reader(self._descriptor)
        try:
            return os.read(self._descriptor, LONGEST_LINE).decode(errors="replace")
        except OSError:
            return ""

    async def ask_hidden(self, question: str) -> str:
        """The same for what nobody may read over a shoulder."""
        with self._without_echo():
            line = await self.ask(question)
        self.write("\n")
        return line

    def close(self) -> None:
        """Let go of it."""
        os.close(self._descriptor)

    @contextlib.contextmanager
    def _without_echo(self) -> Iterator[None]:
        if sys.platform == "win32":
            yield
            return
        import termios

        before = termios.tcgetattr(self._descriptor)
        hidden = [*before]
        hidden[3] &= ~termios.ECHO
        termios.tcsetattr(self._descriptor, termios.TCSANOW, hidden)
        try:
            yield
        finally:
            termios.tcsetattr(self._descriptor, termios.TCSANOW, before)

    def _forget_what_was_typed(self) -> None:
        """What was typed before a question was seen is no answer to it."""
        if sys.platform != "win32":
            import termios

            with contextlib.suppress(termios.error):
                termios.tcflush(self._descriptor, termios.TCIFLUSH)
