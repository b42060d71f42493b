"""The front of a terminal: a line to type on, and a tail that is redrawn while the agent works.

What is done is printed once and scrolls away like any output; only the few lines below it are redrawn. What
was typed is stored for each directory, for this user's eyes only; a line that begins with a space is not,
as shells have it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from prompt_toolkit import PromptSession
from prompt_toolkit.application import get_app, get_app_or_none, run_in_terminal
from prompt_toolkit.application.current import get_app_session
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.history import History as TypedHistory
from prompt_toolkit.input.typeahead import clear_typeahead, get_typeahead
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.key_binding.key_processor import KeyPress
from prompt_toolkit.keys import Keys
from prompt_toolkit.shortcuts import clear as clear_screen
from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from coupler.cli.chat.dialogs import InputInterrupted, UserLeft
from coupler.cli.chat.input_line import Suggestion
from coupler.cli.chat.menu import Menu, run_menu
from coupler.cli.chat.rendering import TailView, TrimmedLines, render_expanded, render_parts
from coupler.cli.chat.transcript import NumberedPart, Part, Remark, Transcript, UserText, thoughts_sentence
from coupler.cli.output import stdout
from coupler.runtime.directories import NoHomeError, data_directory
from coupler.runtime.terminal_text import clean, one_line

FRAME = 1 / 12
"""Seconds between two drawings of the tail."""

PROMPT = "> "

_IFLAG, _LFLAG = 0, 3
"""Places of the flags for input and for what a terminal does itself, in what `termios` returns."""

MOST_ENTRIES = 1_000
MOST_BYTES = 4 * 1024 * 1024
"""Bytes of the history file above which it is rewritten with its last entries."""


class TerminalFront:
    """Shows a transcript as it grows, and reads what is typed."""

    can_ask = True

    def __init__(
        self,
        transcript: Transcript,
        *,
        cwd: str,
        status: Callable[[int], str],
        work_status: Callable[[int], str],
        suggest: Callable[[str], Iterable[Suggestion]],
        history: InputHistory,
    ) -> None:
        self.transcript = transcript
        self._cwd = cwd
        self._console = stdout().console()
        self._last: Part | None = None
        self._line: PromptSession[str] = PromptSession(
            completer=_SuggestionCompleter(suggest),
            complete_while_typing=True,
            history=_StoredHistory(history),
            multiline=True,
            key_bindings=self._keys(),
            bottom_toolbar=lambda: one_line(status(get_app().output.get_size().columns)),
            reserve_space_for_menu=6,
            erase_when_done=False,
        )
        self._answer: PromptSession[str] = PromptSession()
        self._work_status = work_status
        self._typing = asyncio.Lock()
        self._is_reading = False
        self._questions = 0
        self._typed = ""
        self._interrupt: Callable[[], None] | None = None
        self._work: contextlib.ExitStack | None = None

    async def read(self) -> str:
        async with self._typing:
            self._print_done()
            if self._last is not None:
                self._console.print()
            self._last = UserText("")
            default, self._typed = self._typed, ""
            self._is_reading = True
            try:
                return await self._prompted(self._line, PROMPT, default=default, prompt_continuation="  ")
            finally:
                self._is_reading = False

    async def ask(self, question: str) -> str:
        async with self._asking():
            return await self._prompted(self._answer, clean(self.transcript.masked(question)))

    async def choose(self, menu: Menu) -> tuple[int, ...]:
        """Shows a menu; Enter alone takes nothing if something was being typed when it came."""
        labels = tuple(one_line(self.transcript.masked(choice)) for choice in menu.choices)
        menu = msgspec.structs.replace(menu, choices=labels)
        async with self._asking():
            with _as_front_exceptions():
                chosen = await run_menu(menu.not_preselected() if self._typed else menu)
            names = ", ".join(labels[number] for number in chosen) or "(nothing)"
            self._console.print(Text(f"  → {names}", "dim"))
            return chosen

    @contextlib.asynccontextmanager
    async def _asking(self) -> AsyncIterator[None]:
        """Makes room for a question, once nobody types; what was typed before it does not answer it."""
        self._questions += 1
        self._pause()
        try:
            if self._is_reading:
                self.show(Remark("The agent asks while you type: press Enter on an empty line to answer."))
            async with self._typing:
                self._print_done()
                self._last = UserText("")
                _discard_typed_keys()
                yield
        finally:
            self._questions -= 1
            self._go_on()

    def show(self, part: Part) -> None:
        self.transcript.remark(part)
        self.refresh()

    def show_whole(self, part: NumberedPart) -> None:
        self._above(lambda: self._print(render_expanded(part, self._cwd)))

    def clear(self) -> None:
        self._print_done()
        clear_screen()
        self._last = None

    def refresh(self) -> None:
        if self._work is None:
            self._above(self._print_done)

    @contextlib.contextmanager
    def working(self, interrupt: Callable[[], None]) -> Iterator[None]:
        self._interrupt = interrupt
        self._go_on()
        try:
            yield
        finally:
            self._interrupt = None
            self._pause()

    @contextlib.contextmanager
    def keys_as_typed(self) -> Iterator[None]:
        """Keeps the terminal from changing or showing keys while nobody reads them or something is printed.

        A terminal as programs find it makes a Ctrl-J of Enter as soon as the key is pressed, and that begins
        another line. prompt_toolkit goes back to such a terminal for each print above the line.
        """
        typed = get_app_session().input
        typed.cooked_mode = contextlib.nullcontext  # type: ignore[method-assign]
        with _changes_no_keys(typed.fileno()):
            yield

    def signalled(self) -> None:
        """Handles SIGINT from elsewhere; the key itself is read like any other."""
        application = get_app_or_none()
        if application is not None and application.is_running:
            application.exit(exception=KeyboardInterrupt())
        elif self._interrupt is not None:
            self._interrupt()

    async def _prompted(self, session: PromptSession[str], message: str, **options: Any) -> str:
        with _as_front_exceptions():
            # The signal is ours at all times: what would install it here would take it away afterwards.
            return await session.prompt_async(message, handle_sigint=False, **options)

    def _go_on(self) -> None:
        """Draws the tail and reads keys, unless a question is open or nothing goes on."""
        if self._work is not None or self._interrupt is None or self._questions:
            return
        tail = TailView(
            lambda: self.transcript.tail(),
            lambda: self._typed,
            self._cwd,
            time.monotonic(),
            self._work_status,
        )
        live = Live(
            tail,
            console=self._console,
            auto_refresh=False,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
            vertical_overflow="crop",
        )
        typed = get_app_session().input
        self._keys_pressed(get_typeahead(typed))
        with contextlib.ExitStack() as work:
            work.enter_context(typed.raw_mode())
            work.enter_context(typed.attach(lambda: self._keys_pressed(typed.read_keys())))
            live.start()
            work.callback(live.stop)
            drawing = asyncio.get_running_loop().create_task(self._draw(live))
            work.callback(drawing.cancel)
            self._work = work.pop_all()

    def _pause(self) -> None:
        if self._work is not None:
            work, self._work = self._work, None
            work.close()
            self._print_done()

    async def _draw(self, live: Live) -> None:
        while True:
            if not self._print_done():
                live.refresh()
            await asyncio.sleep(FRAME)

    def _keys_pressed(self, keys: Iterable[KeyPress]) -> None:
        """Handles keys while the agent works.

        What is typed stands on the next line, and is not sent by itself.
        """
        for press in keys:
            match press.key:
                case Keys.ControlC if self._interrupt is not None:
                    self._interrupt()
                case Keys.ControlO:
                    self._show_last()
                case Keys.ControlT:
                    self._toggle_thoughts()
                case Keys.ControlH:
                    self._typed = self._typed[:-1]
                case Keys.ControlU:
                    self._typed = ""
                case Keys.ControlM | Keys.ControlJ:
                    self._typed = f"{self._typed}\n".lstrip("\n")
                case Keys.BracketedPaste:
                    self._typed += press.data.replace("\r\n", "\n").replace("\r", "\n")
                case str() if not isinstance(press.key, Keys):
                    self._typed += press.key

    def _show_last(self) -> None:
        part = self.transcript.numbered()
        if part is not None:
            self.show_whole(part)

    def _toggle_thoughts(self) -> None:
        self.transcript.shows_thoughts = not self.transcript.shows_thoughts
        self.show(Remark(thoughts_sentence(self.transcript)))

    def _print_done(self) -> bool:
        parts = self.transcript.take()
        if parts:
            self._print(render_parts(parts, self._last, self._cwd))
            self._last = parts[-1]
        return bool(parts)

    def _print(self, renderable: RenderableType) -> None:
        self._console.print(TrimmedLines(renderable))

    def _above(self, print_it: Callable[[], object]) -> None:
        """Prints something above the line on which somebody types, if somebody does."""
        application = get_app_or_none()
        if application is not None and application.is_running:
            run_in_terminal(lambda: print_it() and None)
        else:
            print_it()

    def _keys(self) -> KeyBindings:
        keys = KeyBindings()

        @keys.add("enter")
        def send(event: KeyPressEvent) -> None:
            event.current_buffer.validate_and_handle()

        @keys.add("escape", "enter")
        @keys.add("c-j")
        def begin_line(event: KeyPressEvent) -> None:
            event.current_buffer.insert_text("\n")

        @keys.add("c-c")
        def clear_or_interrupt(event: KeyPressEvent) -> None:
            if event.current_buffer.text:
                event.current_buffer.reset()
            else:
                event.app.exit(exception=KeyboardInterrupt())

        @keys.add("c-o")
        def show_last(event: KeyPressEvent) -> None:
            self._show_last()

        @keys.add("c-t")
        def toggle_thoughts(event: KeyPressEvent) -> None:
            self._toggle_thoughts()

        return keys


class _SuggestionCompleter(Completer):
    """Adapts suggestions to prompt_toolkit's completer."""

    def __init__(self, suggest: Callable[[str], Iterable[Suggestion]]) -> None:
        self._suggest = suggest

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        for suggestion in self._suggest(document.text_before_cursor):
            yield Completion(
                suggestion.text,
                start_position=-suggestion.replaces,
                display=one_line(suggestion.text),
                display_meta=one_line(suggestion.meaning) or None,
            )


class _StoredHistory(TypedHistory):
    """Adapts the stored history to prompt_toolkit's."""

    def __init__(self, history: InputHistory) -> None:
        super().__init__()
        self._history = history

    def load_history_strings(self) -> Iterable[str]:
        return reversed(self._history.entries())

    def store_string(self, string: str) -> None:
        self._history.add(string)


@contextlib.contextmanager
def _as_front_exceptions() -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise InputInterrupted from None
    except EOFError:
        raise UserLeft from None


@contextlib.contextmanager
def _changes_no_keys(terminal: int) -> Iterator[None]:
    """Has the terminal hand on keys as they are, but for Ctrl-C, which is a signal while nobody reads."""
    try:
        import termios
    except ImportError:  # Windows
        yield
        return
    before, changed = termios.tcgetattr(terminal), termios.tcgetattr(terminal)
    changed[_IFLAG] &= ~termios.ICRNL
    changed[_LFLAG] &= ~(termios.ICANON | termios.ECHO)
    termios.tcsetattr(terminal, termios.TCSANOW, changed)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSANOW, before)


def _discard_typed_keys() -> None:
    """Drops keys that were pressed before a question was there to be answered."""
    clear_typeahead(get_app_session().input)
    with contextlib.suppress(ImportError, OSError):
        import termios

        termios.tcflush(0, termios.TCIFLUSH)


class InputHistory:
    """The lines typed in one directory. What cannot be read or written costs nobody the conversation."""

    def __init__(self, file: Path | None) -> None:
        """Prepares a history; without a file nothing is stored."""
        self._file = file

    @classmethod
    def of(cls, directory: str) -> InputHistory:
        """The history of a directory, in the user's own data."""
        try:
            place = data_directory()
        except NoHomeError:
            return cls(None)
        name = hashlib.sha256(os.path.realpath(directory).encode(errors="surrogateescape")).hexdigest()[:32]
        return cls(Path(place, "chat", f"{name}.jsonl"))

    def entries(self) -> list[str]:
        """The typed lines, the oldest first."""
        if self._file is None:
            return []
        try:
            lines = self._file.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError:
            return []
        return [entry for line in lines[-MOST_ENTRIES:] if (entry := _entry(line))]

    def add(self, entry: str) -> None:
        """Stores a typed line."""
        if self._file is None or not entry.strip() or entry.startswith(" "):
            return
        with contextlib.suppress(OSError):
            self._file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write(self._file, [entry], os.O_APPEND)
            if self._file.stat().st_size > MOST_BYTES:
                _write(self._file, self.entries()[-MOST_ENTRIES // 2 :], os.O_TRUNC)


def _write(file: Path, entries: list[str], how: int) -> None:
    descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | how, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
        opened.write("".join(f"{json.dumps(entry)}\n" for entry in entries))


def _entry(line: str) -> str | None:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return entry if isinstance(entry, str) else None
