"""Fronts of plain lines, for pipes and for terminals that can do no more.

`PlainFront` is a whole conversation without a terminal: lines come from stdin, text goes to stdout, and
nobody is asked. `LineDialogFront` asks the questions of an agent on the terminal beside `coupler exec` and
`coupler run`.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from coupler.agent.session_export import input_of, passages_of_output, title_of
from coupler.cli.chat.dialogs import UserLeft
from coupler.cli.chat.transcript import (
    AgentMarkdown,
    AgentText,
    CommandText,
    ContentNote,
    Listing,
    NumberedPart,
    Part,
    PermissionPart,
    PlanPart,
    Remark,
    ThoughtPart,
    ToolCallPart,
    Transcript,
    UserText,
)
from coupler.cli.exit_codes import print_error
from coupler.cli.output import say, silence_stdout
from coupler.runtime.terminal_text import one_line

if TYPE_CHECKING:
    from coupler.cli.chat.menu import Choose
    from coupler.cli.terminal import QuestionTerminal


PLAN_MARKS = {"completed": "x", "in_progress": ">"}

ASKS = "The agent asks"
"""The beginning of a question, so that it is not taken for another program's."""


class PlainFront:
    """Writes each part as it is done, and reads a prompt a line."""

    can_ask = False
    choose: Choose | None = None

    def __init__(self, transcript: Transcript) -> None:
        self.transcript = transcript
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self.write_error: OSError | None = None
        """Why nothing can be written any more: nobody reads it, or the disk is full."""
        self._last: Part | None = None
        self._interrupt: Callable[[], None] | None = None
        self._reader = threading.Thread(
            target=_read_lines, args=(asyncio.get_running_loop(), self._lines), daemon=True
        )

    async def read(self) -> str:
        self.refresh()
        if self._reader.ident is None:
            self._reader.start()
        line = await self._lines.get() if self.write_error is None else None
        if line is None:
            self._lines.put_nowait(None)
            raise UserLeft
        return line

    async def ask(self, question: str) -> str:
        raise UserLeft

    def show(self, part: Part) -> None:
        self.transcript.remark(part)
        self.refresh()

    def show_whole(self, part: NumberedPart) -> None:
        self.refresh()
        self._write(plain_full_text(part))

    def clear(self) -> None:
        self.refresh()

    def refresh(self) -> None:
        for part in self.transcript.take():
            if isinstance(part, Remark) and part.severity == "error":
                print_error(plain_error(part), "coupler chat")
                continue
            if isinstance(part, AgentMarkdown) and isinstance(self._last, AgentMarkdown):
                self._write("")  # blocks of Markdown are set apart by an empty line
            self._write(plain_text(part))
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
        """Handles SIGINT: cancels the turn; when there is none, leaves."""
        if self._interrupt is not None:
            self._interrupt()
        else:
            self._lines.put_nowait(None)

    def _write(self, text: str) -> None:
        try:
            say(text)
        except OSError as error:
            self.write_error = error
            silence_stdout()
            self.signalled()


def _read_lines(loop: asyncio.AbstractEventLoop, lines: asyncio.Queue[str | None]) -> None:
    """Reads stdin in a thread: a file, a pipe and a terminal are read alike, and none can be waited for.

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


class LineDialogFront:
    """Shows a question and reads a line for an answer. Ctrl-C is the run's, and cancels the turn."""

    def __init__(self, terminal: QuestionTerminal, mask: Callable[[str], str] = str) -> None:
        """`mask` redacts what the agent wrote; a caller that has done so needs none."""
        self._terminal = terminal
        self._mask = mask

    def show(self, part: Part) -> None:
        self._terminal.write(f"{self._mask(_dialog_text(part))}\n")

    async def ask(self, question: str) -> str:
        line = await self._terminal.ask(self._mask(question))
        if not line:
            self._terminal.write("\n")
            raise UserLeft
        return line


def _dialog_text(part: Part) -> str:
    match part:
        case Remark(title, detail, "question"):
            asked = title if title.startswith(ASKS) else f"{ASKS}: {title}"
            return f"\n{asked}\n{detail}"  # the answer so far may have no line end
        case Remark(title):
            return f"  {title}"
    return plain_text(part)


def plain_text(part: Part) -> str:
    """The part as it is written when it is done."""
    match part:
        case UserText(text):
            return f"> {text}"
        case AgentMarkdown(text) | AgentText(text) | CommandText(text):
            return text.strip("\n") if isinstance(part, AgentMarkdown) else text.removesuffix("\n")
        case ThoughtPart(number):
            return f"[thought #{number}]"
        case ToolCallPart(number, call):
            status = "failed" if part.has_failed else one_line(call.status)
            how = f", {part.ending}" if part.ending else ""
            return f"[{status}] {title_of(call)} ({one_line(call.kind)}{how}) #{number}"
        case PlanPart(entries):
            marks = ((PLAN_MARKS.get(entry.status, " "), one_line(entry.content)) for entry in entries)
            return "\n".join(f"[{mark}] {content}" for mark, content in marks)
        case ContentNote(note):
            return f"[{note}]"
        case Remark(title, detail):
            return f"[{title}]" if not detail else f"[{title}{'' if title.endswith('.') else ':'} {detail}]"
        case PermissionPart(call):
            return f"[wanted] {title_of(call)} ({one_line(call.kind)})"
        case Listing():
            return _listing(part)


def plain_error(remark: Remark) -> str:
    """An error for stderr: what the agent's process left stands on lines of its own."""
    return "\n".join(filter(None, [remark.title, remark.detail]))


def plain_full_text(part: NumberedPart) -> str:
    """A thought or a tool call in full."""
    if isinstance(part, ThoughtPart):
        return part.text
    lines = [plain_text(part), input_of(part.call)]
    for passage in passages_of_output(part.call):
        lines.extend([passage.note, (passage.code or passage.text).rstrip("\n")])
    return "\n".join(filter(None, lines))


def _listing(listing: Listing) -> str:
    lines = [listing.title]
    for choice in listing.choices:
        mark = "*" if choice.is_current else " "
        lines.append(f"{mark} {choice.word}{f'  {choice.meaning}' if choice.meaning else ''}")
    return "\n".join([*lines, *filter(None, [listing.hint])])
