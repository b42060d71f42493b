"""`coupler runs list`: a table for people, lines with tabs for programs, or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING, Any

import msgspec

from coupler.cli.runs.wording import STYLES, seconds_of, spoken_duration, status_of
from coupler.cli.sessions.wording import ago, one_line, quiet_json, timestamp

if TYPE_CHECKING:
    from coupler.store.runs import RunRecord

HEADINGS = ("RUN", "WORKFLOW", "STATUS", "STARTED", "DURATION")
GAP = "  "

LONGEST_NAME = 40
"""Columns of a workflow's name."""


def write_table(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """One run a line, under headings."""
    from rich.cells import cell_len, set_cell_size
    from rich.console import Console
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    rows = [HEADINGS, *(_row(record) for record in records)]
    widths = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    for number, row in enumerate(rows):
        styles = ("cyan", "", STYLES.get(row[2], ""), "dim", "") if number else ("bold",) * len(row)
        cells = [set_cell_size(cell, width) for cell, width in zip(row, widths, strict=True)]
        line = Text(GAP).join(Text(cell, style) for cell, style in zip(cells, styles, strict=True))
        line.rstrip()
        console.print(line, soft_wrap=True)


def _row(record: RunRecord) -> tuple[str, ...]:
    name = one_line(record.workflow)
    return (
        one_line(record.id),
        name if len(name) <= LONGEST_NAME else f"{name[: LONGEST_NAME - 1]}…",
        status_of(record),
        ago(record.created_at),
        spoken_duration(seconds_of(record)),
    )


def write_lines(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """One run a line: id, start, status, seconds, workflow, directory."""
    for record in records:
        fields = (
            one_line(record.id),
            timestamp(record.created_at) or "-",
            status_of(record),
            f"{seconds_of(record):.3f}",
            one_line(record.workflow),
            one_line(record.cwd),
        )
        stream.write("\t".join(fields) + "\n")


def write_json(records: Sequence[RunRecord], stream: IO[str]) -> None:
    """One array."""
    encoded = msgspec.json.encode([_summary(record) for record in records])
    stream.write(quiet_json(msgspec.json.format(encoded, indent=2).decode()) + "\n")


def _summary(record: RunRecord) -> dict[str, Any]:
    return {
        "id": record.id,
        "workflow": record.workflow,
        "status": status_of(record),
        "exit_code": record.exit_code,
        "message": record.message,
        "file": _text(record.file),
        "cwd": _text(record.cwd),
        "session_id": record.session_id,
        "pid": record.pid,
        "created_at": timestamp(record.created_at),
        "updated_at": timestamp(record.updated_at),
    }


def _text(path: str) -> str:
    """A path as text, whatever its bytes are."""
    return path.encode("utf-8", "replace").decode()
