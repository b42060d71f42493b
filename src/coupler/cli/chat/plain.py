"""A conversation without a terminal: lines come from stdin, text goes to stdout, and nobody is asked."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator

from coupler.cli.chat.front import Left
from coupler.cli.chat.parts import Answer, Numbered, Part, Remark
from coupler.cli.chat.plain_text import plain, plain_error, plain_whole
from coupler.cli.chat.transcript import Transcript
from coupler.cli.exec.output import silence_stdout
from coupler.cli.refusal import complain


class PlainFront:
    """Writes each part as it is done, and reads a prompt a line."""

    can_ask = False

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.is_unread = False
        """Whether nobody reads any more what is written."""
        self._last: Part | None = None
        self._interrupt: Callable[[], None] | None = None
        self._reader = threading.Thread(
            target=_read_lines, args=(asyncio.get_running_loop(), self._lines), daemon=True
        )

    async def read(self) -> str:
        self.refresh()
        if self._reader.ident is None:
            self._reader.start()
        line = None if self.is_unread else await self._lines.get()
        if line is None:
            self._lines.put_nowait(None)
            raise Left
        return line

    async def ask(self, question: str) -> str:
        raise Left

    def show(self, part: Part) -> None:
        self.transcript.remark(part)
        self.refresh()

    def show_whole(self, part: Numbered) -> None:
        self.refresh()
        self._write(plain_whole(part))

    def refresh(self) -> None:
        for part in self.transcript.take():
            if isinstance(part, Remark) and part.severity == "error":
                complain(plain_error(part), "coupler chat")
                continue
            if isinstance(part, Answer) and isinstance(self._last, Answer):
                self._write("")  # blocks of Markdown are set apart by an empty line
            self._write(plain(part))
            self._last = part

    @contextlib.contextmanager
    def working(self, interrupt: Callable[[], None]) -> Iterator[None]:
        self._interrupt = interrupt
        try:
            yield
        finally:
            self._interrupt = None
            self.refresh()

    def signalled(self) -> None:
        """SIGINT: cancel the turn; when there is none, leave."""
        if self._interrupt is not None:
            self._interrupt()
        else:
            self._lines.put_nowait(None)

    def _write(self, text: str) -> None:
        try:
            sys.stdout.write(f"{text}\n")
            sys.stdout.flush()
        except BrokenPipeError:
            self.is_unread = True
            silence_stdout()
            self.signalled()


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    """In a thread of its own: a file, a pipe and a terminal are read alike, and none can be waited for.

    The descriptor is read itself: a thread inside of `sys.stdin` would be in the way when the program ends.
    """
    with contextlib.suppress(RuntimeError):  # the conversation is over
        for line in _lines(sys.stdin.fileno()):
            loop.call_soon_threadsafe(lines.put_nowait, line.decode("utf-8", "replace").rstrip("\r"))
        loop.call_soon_threadsafe(lines.put_nowait, None)


def _lines(descriptor: int) -> Iterator[bytes]:
    begun = b""
    with contextlib.suppress(OSError):
        while piece := os.read(descriptor, 65_536):
            *whole, begun = (begun + piece).split(b"\n")
            yield from whole
    if begun:
        yield begun
