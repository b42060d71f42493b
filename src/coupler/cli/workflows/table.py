"""`coupler workflows list`: a table for people, lines with tabs for programs, or JSON."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO, TYPE_CHECKING, Literal, NamedTuple

import msgspec

from coupler.cli.sessions.wording import one_line, quiet_json

if TYPE_CHECKING:
    from coupler.config.config import TrustedFiles
    from coupler.workflow.language.library import Broken, Found, Library

HEADINGS = ("NAME", "ORIGIN", "STATE", "DESCRIPTION")
STYLES = {"ready": "green", "not trusted": "yellow", "broken": "red"}
GAP = "  "


class Row(NamedTuple):
    """A workflow, as it is listed."""

    name: str
    origin: str
    state: Literal["ready", "not trusted", "broken"]
    file: str
    description: str
    """What it does, or the first thing that is wrong with it."""


def rows_of(library: Library, trust: TrustedFiles | None) -> list[Row]:
    """All that there are, by names."""
    return [_row(found, library, trust) for found in library.all()]


def _row(found: Found | Broken, library: Library, trust: TrustedFiles | None) -> Row:
    from coupler.cli.workflows.check import seen_from
    from coupler.workflow.language.library import Broken, untrusted_of

    name, file = one_line(found.name), one_line(found.file)
    if isinstance(found, Broken):
        first = found.problems[0]
        place = f"{seen_from(library.directory, first.position.file)}:{first.position.line}"
        return Row(name, found.origin, "broken", file, one_line(f"{place}: {first.message}"))
    is_trusted = found.origin == "user" or not untrusted_of(found, library, trust)
    state: Literal["ready", "not trusted"] = "ready" if is_trusted else "not trusted"
    return Row(name, found.origin, state, file, one_line(found.workflow.description))


def remarks_on(rows: Sequence[Row], hidden: Sequence[str]) -> Iterator[str]:
    """What is to be said about them besides; `hidden` names the user's own ones that are not used here."""
    from coupler.workflow.language.library import no_command

    if not rows:
        yield "There is no workflow yet: `coupler workflows new NAME` begins one."
    if any(row.state == "not trusted" for row in rows):
        yield "Some are not trusted yet: read them, then run `coupler trust`."
    yield from (f"`{one_line(name)}` is the project's: your own one is not used here." for name in hidden)
    for row in rows:
        if row.state != "broken" and (reason := no_command(row.name)):
            yield f"`{row.name}`: {reason}."


def write_table(rows: Sequence[Row], stream: IO[str]) -> None:
    """One workflow a line, under headings; a description that is too long goes on below itself."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, padding=(0, len(GAP), 0, 0), header_style="bold")
    for heading in HEADINGS[:-1]:
        table.add_column(heading, no_wrap=True)
    table.add_column(HEADINGS[-1], overflow="fold")
    for row in rows:
        cells = (Text(row.name, "cyan"), Text(row.origin), Text(row.state, STYLES[row.state]))
        table.add_row(*cells, Text(row.description))
    Console(file=stream, highlight=False).print(table)


def write_lines(rows: Sequence[Row], stream: IO[str]) -> None:
    """One workflow a line: name, origin, state, file, description."""
    for row in rows:
        stream.write("\t".join(row) + "\n")


def write_json(rows: Sequence[Row], stream: IO[str]) -> None:
    """One array."""
    encoded = msgspec.json.encode([_as_json(row) for row in rows])
    stream.write(quiet_json(msgspec.json.format(encoded, indent=2).decode()) + "\n")


def _as_json(row: Row) -> dict[str, str | None]:
    is_broken = row.state == "broken"
    return {
        "name": row.name,
        "origin": row.origin,
        "state": row.state,
        "file": row.file,
        "description": None if is_broken else row.description,
        "problem": row.description if is_broken else None,
    }
