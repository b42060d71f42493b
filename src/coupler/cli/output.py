"""Prints for all commands, and cleans what it prints: the only way to stdout and stderr.

What is printed may come from anybody, so no command holds a stream. It holds an `Output`, which has no way
to print a text as it is: each of its methods cleans what it is given (`coupler.runtime.terminal_text`), and
adds the styles itself. Imports little, because `coupler serve` and `coupler record` report errors with it.
"""

from __future__ import annotations

import os
import sys
from functools import cache
from typing import IO, TYPE_CHECKING, Any

from coupler.runtime.terminal_text import clean, clean_sentence, one_line, terminal_safe_json

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType

    from rich.console import Console as Console
    from rich.text import Text

StyledText = tuple[str, str]
"""Text, and the style that a terminal shows it in: "", "dim", "bold red"."""

CELL_GAP = "  "
"""Stands between two cells of a table."""

EFFECTS = frozenset({"bold", "dim", "italic", "underline"})
"""Words of a style that are no colours."""


class Output:
    """A stream for people and programs; nothing gets to it that a terminal would obey, but our own styles."""

    def __init__(self, stream: IO[str], *, errors: str = "backslashreplace") -> None:
        """Takes a stream; `errors` says what becomes of characters that it cannot encode."""
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:
            reconfigure(errors=errors)
        self._stream = stream
        self.is_terminal = stream.isatty()
        self._has_styles = (
            self.is_terminal
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") not in ("dumb", "unknown")
        )

    def line(self, text: str = "", style: str = "") -> None:
        """Prints exactly one line: line ends in the text become spaces."""
        self.pieces((text, style))

    def pieces(self, *pieces: StyledText) -> None:
        """Prints exactly one line of texts that have styles of their own."""
        self._write(
            "".join(self._styled(clean_sentence(text).replace("\n", " "), style) for text, style in pieces)
        )
        self._write("\n")

    def cells(self, cells: Iterable[str], styles: Iterable[str]) -> None:
        """Prints a row of a table, whose cells have the widths of their columns."""
        gap, pieces = "", []
        for cell, style in zip(cells, styles, strict=True):
            pieces += [(gap, ""), (cell, style)]
            gap = CELL_GAP
        while pieces and not pieces[-1][0].rstrip():
            pieces.pop()
        if pieces:
            pieces[-1] = (pieces[-1][0].rstrip(), pieces[-1][1])
        self.pieces(*pieces)

    def fields(self, *values: str) -> None:
        """Prints a line for programs, with tabs between values that have none."""
        self._write("\t".join(map(one_line, values)) + "\n")

    def text(self, text: str) -> None:
        """Prints lines, the last of them whole."""
        shown = clean_sentence(text)
        self._write(shown if shown.endswith("\n") else f"{shown}\n")

    def json(self, text: str) -> None:
        """Prints JSON, with what a terminal would obey escaped: it means the same."""
        self._write(clean(terminal_safe_json(text)) + "\n")

    def data(self, text: str) -> None:
        """Writes an answer or an output: unchanged for a program, and clean to a terminal."""
        self._write(clean(text) if self.is_terminal else text)

    def redraw(self, lines: Iterable[Text], console: Console, *, over: int) -> None:
        """Prints lines over the last ones of the terminal, in one piece, so that nothing flickers."""
        with console.capture() as captured:
            for line in lines:
                console.print(line, soft_wrap=True)
        self._write((f"\r\x1b[{over}A\x1b[J" if over else "") + captured.get())
        self.flush()

    def console(self, **options: Any) -> Console:
        """Makes a console of rich that prints here, cleans what it prints, and takes no text for markup."""
        return _safe_console()(file=self._stream, highlight=False, markup=False, emoji=False, **options)

    @property
    def width(self) -> int:
        """The columns of the terminal."""
        return self.console().width

    def flush(self) -> None:
        """Writes out what is buffered."""
        self._stream.flush()

    def _write(self, text: str) -> None:
        self._stream.write(text)

    def _styled(self, text: str, style: str) -> str:
        if not style or not text or not self._has_styles:
            return text
        import click

        words = style.split()
        colour = next((word for word in words if word not in EFFECTS), None)
        effects: dict[str, Any] = {word: True for word in words if word in EFFECTS}
        return click.style(text, fg=colour, **effects)


def stdout(*, errors: str = "backslashreplace") -> Output:
    """The output of this program."""
    return Output(sys.stdout, errors=errors)


def stderr() -> Output:
    """The stream for errors, and for what is told beside the output."""
    return Output(sys.stderr)


def say(text: str) -> None:
    """Prints lines to stdout at once."""
    output = stdout()
    output.text(text)
    output.flush()


def tell(text: str) -> None:
    """Prints lines to stderr at once."""
    output = stderr()
    output.text(text)
    output.flush()


def confirm(question: str, *, default: bool = False) -> bool:
    """Asks for yes or no on the terminal."""
    import click

    return click.confirm(clean_sentence(question), default=default, err=True)


def prompt(question: str, *, default: str = "", is_hidden: bool = False) -> str:
    """Asks for a line on the terminal; a default is shown, unless the answer is hidden."""
    import click

    suggested = f" [{one_line(default)}]" if default and not is_hidden else ""
    answer = click.prompt(
        clean_sentence(question) + suggested,
        default=default,
        show_default=False,
        hide_input=is_hidden,
        err=True,
    )
    return str(answer).strip()


def prompt_number(question: str, most: int) -> int:
    """Asks for a number from 1 to `most` on the terminal."""
    import click

    number: int = click.prompt(clean_sentence(question), type=click.IntRange(1, most), err=True)
    return number


@cache
def _safe_console() -> type[Console]:
    """Makes rich's console clean, on use: rich is imported only where a terminal is drawn on."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        """Cleans all text that is rendered; styles and moves of the cursor are rich's own."""

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                if style is not None and style.link is not None:
                    # A terminal shows the text of a link and not where it leads.
                    yield Segment(clean_sentence(text), style.update_link(None))
                elif control or text.isprintable():
                    yield segment
                else:
                    yield Segment(clean_sentence(text), style)

    return SafeConsole


def open_closed_streams(*, is_output_needed: bool = True) -> None:
    """Opens the standard streams that are closed, so that no command finds None there.

    A closed stdin is empty, and what goes to a closed stderr is lost. Writing to a closed stdout is an error,
    unless the output is not needed.
    """
    if sys.stdin is None:
        sys.stdin = open(os.devnull)  # noqa: PTH123
    if sys.stdout is None:
        mode = os.O_RDONLY if is_output_needed else os.O_WRONLY
        sys.stdout = os.fdopen(os.open(os.devnull, mode), "w")
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123


def has_stdout() -> bool:
    """True unless stdout was closed when the program was started."""
    return sys.stdout is not None


def silence_stdout() -> None:
    """Sends stdout to nowhere once nobody reads it, so that the last flush raises nothing."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, sys.stdout.fileno())
    os.close(null)


def clean_reports_of_python() -> None:
    """Cleans what Python itself prints: errors that nobody caught, and logs that no handler takes."""
    import logging

    from coupler.runtime.logs import clean_formatter

    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _show_uncaught
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(clean_formatter("%(message)s"))


def _show_uncaught(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    import traceback

    tell("".join(traceback.format_exception(kind, error, trace)))
