"""`coupler sessions list`: a table for people, lines with tabs for programs, or JSON."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec

from coupler.cli.sessions.json import as_json, summary
from coupler.cli.sessions.wording import (
    ago,
    count,
    one_line,
    short_agent,
    short_directory,
    short_id,
    timestamp,
)

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord

NO_TITLE = "(no title)"

HEADINGS = ("ID", "TITLE", "AGENT", "DIRECTORY", "TURNS", "CHANGED")
STYLES = ("cyan", "", "", "", "", "dim")
CUT_LEFT = (False, False, False, True, False, False)

GAP = "  "

NARROWEST = 36
"""Columns that title, agent and directory get together even if the terminal has fewer."""


def write_table(records: Sequence[SessionRecord], stream: IO[str]) -> None:
    """A table as wide as the terminal, unless that is too narrow for any."""
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    rows = [HEADINGS, *(_row(record) for record in records)]
    widths = _widths(rows, console.width)
    for number, row in enumerate(rows):
        cells = [_fitted(*cell) for cell in zip(row, widths, CUT_LEFT, strict=True)]
        styles = STYLES if number else ("bold",) * len(cells)
        line = Text(GAP).join(Text(cell, style) for cell, style in zip(cells, styles, strict=True))
        line.rstrip()
        console.print(line, soft_wrap=True)


def _row(record: SessionRecord) -> tuple[str, ...]:
    return (
        short_id(record.id),
        one_line(record.title or "") or NO_TITLE,
        short_agent(record.agent),
        short_directory(record.cwd),
        f"{record.turns:,}",
        ago(record.updated_at),
    )


def _widths(rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """Agents and directories get what they need up to their share, titles what is left."""
    from rich.cells import cell_len

    needed = (max(map(cell_len, column)) for column in zip(*rows, strict=True))
    own_id, title, agent, directory, turns, changed = needed
    room = max(width - own_id - turns - changed - len(GAP) * 5, NARROWEST)
    agent, directory = min(agent, room // 4), min(directory, room // 3)
    return [own_id, min(title, room - agent - directory), agent, directory, turns, changed]


def _fitted(text: str, width: int, cut_left: bool) -> str:
    """The text in exactly so many columns; of a path the end says more than the beginning."""
    from rich.cells import cell_len, set_cell_size

    if cell_len(text) <= width:
        return set_cell_size(text, width)
    if not cut_left:
        return set_cell_size(text, width - 1) + "…"
    while cell_len(text) > width - 1:
        text = text[1:]
    return set_cell_size(f"…{text}", width)


def write_lines(records: Sequence[SessionRecord], stream: IO[str]) -> None:
    """One session a line: id, time of the last change, turns, agent, directory, title."""
    for record in records:
        fields = (
            one_line(record.id),
            timestamp(record.updated_at) or "-",
            str(record.turns),
            one_line(record.agent),
            one_line(record.cwd),
            one_line(record.title or ""),
        )
        stream.write("\t".join(fields) + "\n")


def write_json(records: Sequence[SessionRecord], stream: IO[str]) -> None:
    """One array."""
    sessions: list[dict[str, Any]] = [summary(record) for record in records]
    stream.write(as_json(msgspec.json.encode(sessions)) + "\n")


def note_rest(rest: int, flags: str) -> None:
    """Say how many more there are, beside the list."""
    if rest > 0:
        sys.stderr.write(f"{count(rest, 'more session')} not shown: add {flags}\n")
