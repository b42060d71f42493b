"""Lists things: as a table on a terminal, as lines with tabs to a pipe, or as one JSON array.

What is listed declares a `Listing`: its columns, and how one thing becomes cells, fields and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeVar

import click

from coupler.cli.output import CELL_GAP, Output, stdout, tell
from coupler.runtime.formatting import count

if TYPE_CHECKING:
    from coupler.cli.output import Console

NARROWEST = 36
"""Columns that the cells which can be shortened get together, even if the terminal has fewer."""

USUAL_LIMIT = 20

T = TypeVar("T")
CommandT = TypeVar("CommandT", bound=Callable[..., Any])


class Column(NamedTuple):
    """A column of a table; its style is one for all cells, or one for each text."""

    heading: str
    style: str | Mapping[str, str] = ""
    share: int = 0
    """0 gives the column all it needs, 3 at most a third of the room, and 1 what others leave of it."""
    overflow: Literal["cut", "cut left", "wrap"] = "cut"
    """Of a path the end says more than the beginning. Only the last column can be wrapped."""


@dataclass(frozen=True)
class Listing(Generic[T]):
    """A kind of list: how each thing of it is shown to people, and to programs."""

    columns: Sequence[Column]
    cells: Callable[[T], Sequence[str]]
    """A row of the table. Lines of its last cell stand below each other."""
    fields: Callable[[T], Sequence[str]]
    """Values for programs, which a pipe gets with tabs between them."""
    as_json: Callable[[T], Any]

    def show(self, things: Sequence[T], *, is_json: bool, output: Output | None = None) -> None:
        """Writes a list as whoever reads it wants it."""
        output = output or stdout()
        if is_json:
            self.write_json(things, output)
        elif output.is_terminal:
            self.write_table(things, output)
        else:
            for thing in things:
                output.fields(*self.fields(thing))
        output.flush()

    def write_json(self, things: Sequence[T], output: Output) -> None:
        """Writes one JSON array."""
        import msgspec

        encoded = msgspec.json.encode([self.as_json(thing) for thing in things])
        output.json(msgspec.json.format(encoded, indent=2).decode())

    def write_table(self, things: Sequence[T], output: Output) -> None:
        """Writes a table with headings, as wide as the terminal unless that is too narrow for any."""
        if not things:
            return
        headings = tuple(column.heading for column in self.columns)
        rows = [headings, *(tuple(self.cells(thing)) for thing in things)]
        console = output.console()
        widths = self._widths(rows, console.width)
        for number, row in enumerate(rows):
            styles = [_style(*each) for each in zip(self.columns, row, strict=True)]
            for cells in self._lines(row, widths, console):
                output.cells(cells, styles if number else ["bold"] * len(cells))

    def _widths(self, rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
        from rich.cells import cell_len

        widths = [
            max(cell_len(line) for cell in column for line in cell.split("\n"))
            for column in zip(*rows, strict=True)
        ]
        is_fixed = [not column.share for column in self.columns]
        gaps = len(CELL_GAP) * (len(widths) - 1)
        room = width - gaps - sum(each for each, fixed in zip(widths, is_fixed, strict=True) if fixed)
        room = left = max(room, NARROWEST)
        for number, column in sorted(enumerate(self.columns), key=lambda each: -each[1].share):
            if column.share:
                most = left if column.share == 1 else room // column.share
                widths[number] = min(widths[number], most)
                left -= widths[number]
        return widths

    def _lines(self, row: Sequence[str], widths: Sequence[int], console: Console) -> list[list[str]]:
        """The cells of each line that a row takes."""
        from rich.text import Text

        if self.columns[-1].overflow != "wrap":
            return [[*map(_fitted, row, widths, [column.overflow for column in self.columns])]]
        wrapped = [line.plain for line in Text(row[-1]).wrap(console, widths[-1], overflow="fold")] or [""]
        return [
            [*map(_fitted, ["" if number else cell for cell in row[:-1]], widths[:-1]), line.rstrip()]
            for number, line in enumerate(wrapped)
        ]


def _style(column: Column, cell: str) -> str:
    return column.style if isinstance(column.style, str) else column.style.get(cell, "")


def _fitted(text: str, width: int, overflow: str = "cut") -> str:
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if overflow == "cut":
        return set_cell_size(text, width - 1) + "…"
    while cell_len(text) > width - 1:
        text = text[1:]
    return set_cell_size(f"…{text}", width)


def json_option(command: CommandT) -> CommandT:
    """Adds --json."""
    return click.option("--json", "is_json", is_flag=True, help="Writes one JSON array.")(command)


def limit_option(command: CommandT) -> CommandT:
    """Adds --limit."""
    return click.option(
        "--limit",
        type=click.IntRange(min=1),
        default=USUAL_LIMIT,
        show_default=True,
        metavar="N",
        help="How many to show at most.",
    )(command)


def note_rest(rest: int, noun: str, flags: str) -> None:
    """Tells how many more there are, beside the list."""
    if rest > 0:
        tell(f"{count(rest, f'more {noun}')} not shown: add {flags}")
