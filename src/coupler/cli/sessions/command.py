"""`coupler sessions`: the sessions that agents have kept, to be listed, read, exported and deleted."""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import click

from coupler.cli.exit_codes import DONE, FAILED
from coupler.cli.refusal import complain, refuse
from coupler.cli.sessions.choice import (
    PROGRAM,
    Filter,
    all_sessions,
    by_age,
    by_agent,
    by_directory,
    describe,
    find,
    find_or_complaint,
    never_prompted,
    opened,
    seconds_of,
)
from coupler.cli.sessions.wording import count

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import BlockingStore

USUAL_LIMIT = 20
MOST_NAMED = 10
"""Sessions that are named before they are deleted."""

STDOUT = "-"

Command = TypeVar("Command", bound=Callable[..., Any])


def _store_option(command: Command) -> Command:
    return click.option(
        "--store", metavar="FILE", help="The file that keeps them, if it is not the user's own."
    )(command)


def _age(context: click.Context, parameter: click.Parameter, value: str | None) -> int | None:
    if value is None:
        return None
    try:
        return seconds_of(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from None


@click.group(
    short_help="List, read, export and delete the sessions that were kept.",
    context_settings={"max_content_width": 80},
)
def sessions() -> None:
    """List, read, export and delete the sessions that agents have kept.

    ID is a session's id or the beginning of one, at least 4 characters, with
    or without "sess_".

    \b
    Examples:
      coupler sessions list
      coupler sessions show 3f9a1c2b

    Exit codes: 0 if all went well, 1 if something could not be done, 2 for
    wrong usage.
    """


@sessions.command("list", short_help="List sessions, the newest first.")
@click.option("--agent", metavar="TEXT", help="Only those of agents with this in their name.")
@click.option("--cwd", metavar="PATH", help="Only those of this directory.")
@click.option("--all", "is_all", is_flag=True, help="Also those that were never prompted.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=USUAL_LIMIT,
    show_default=True,
    metavar="N",
    help="How many to show at most.",
)
@click.option("--json", "is_json", is_flag=True, help="Write one JSON array.")
@_store_option
def list_sessions(
    agent: str | None, cwd: str | None, is_all: bool, limit: int, is_json: bool, store: str | None
) -> None:
    """List sessions, the newest first.

    On a terminal it is a table. To a pipe it writes one session a line, with
    tabs between id, time of the last change, turns, agent, directory and
    title.

    \b
    Examples:
      coupler sessions list --cwd .
      coupler sessions list --agent coder --json
    """
    from coupler.cli.sessions.table import note_rest, write_json, write_lines, write_table
    from coupler.cli.unshown import shown_record

    filters = [by_agent(agent)] if agent is not None else []
    filters += [by_directory(cwd)] if cwd is not None else []
    with opened(store) as kept:
        chosen = [] if kept is None else _matching(kept, filters, include_empty=is_all)
    output = _forgiving(sys.stdout)
    shown = [shown_record(record) for record in chosen[:limit]]
    if is_json:
        write_json(shown, output)
    elif not output.isatty():
        write_lines(shown, output)
    elif shown:
        write_table(shown, output)
    output.flush()
    if not chosen:
        sys.stderr.write(f"{_nothing(bool(filters), is_all)}\n")
    note_rest(len(chosen) - limit, f"--limit {len(chosen)}")


def _nothing(is_filtered: bool, is_all: bool) -> str:
    if is_filtered:
        return "No session fits: leave out --agent and --cwd to see the others."
    return "No sessions are kept yet: an agent that `coupler serve` serves to an editor makes them." + (
        "" if is_all else " Those never prompted are shown with --all."
    )


@sessions.command(short_help="Read a session in the terminal.")
@click.argument("id", metavar="ID")
@click.option("--full", is_flag=True, help="Do not shorten what tools have put out.")
@_store_option
def show(id: str, full: bool, store: str | None) -> None:
    """Read a session in the terminal.

    \b
    Examples:
      coupler sessions show 3f9a1c2b
      coupler sessions show 3f9a1c2b --full
    """
    from coupler.agent.history import read_turns
    from coupler.cli.sessions.reading import lines_of, writer
    from coupler.cli.unshown import shown_record, shown_turns

    with opened(store) as kept:
        record = find(kept, id)
        assert kept is not None
        output = _forgiving(sys.stdout)
        write = writer(output)
        turns = shown_turns(record, read_turns(lambda after: kept.entries(record.id, after)))
        for line in lines_of(shown_record(record), turns, kept.held_by(record.id), is_full=full):
            write(line)
        output.flush()


@sessions.command(short_help="Write a session as Markdown or JSON.")
@click.argument("id", metavar="ID")
@click.option(
    "--format",
    type=click.Choice(["markdown", "json"]),
    default="markdown",
    show_default=True,
    help="A document for people, or everything for programs.",
)
@click.option("--output", metavar="FILE", default=STDOUT, help="Write to this file instead of stdout.")
@_store_option
def export(id: str, format: str, output: str, store: str | None) -> None:
    """Write a session as Markdown, to be kept, or as JSON with everything.

    The file is complete or not there: it gets its name when all is written.

    \b
    Examples:
      coupler sessions export 3f9a1c2b --output review.md
      coupler sessions export 3f9a1c2b --format json
    """
    from coupler.agent.history import read_turns
    from coupler.cli.sessions.json import to_json
    from coupler.cli.sessions.markdown import to_markdown
    from coupler.cli.unshown import shown_record, shown_turns

    with opened(store) as kept:
        record = find(kept, id)
        assert kept is not None
        pid = kept.held_by(record.id)
        turns = shown_turns(record, read_turns(lambda after: kept.entries(record.id, after)))
        if format == "json":
            _write(to_json(shown_record(record), turns, is_held=pid is not None), output)
        else:
            _write(to_markdown(shown_record(record), turns, pid), output)


@sessions.command(short_help="Delete sessions for good.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@click.option(
    "--older-than",
    callback=_age,
    metavar="AGE",
    help="Delete those in which nothing has happened for so long: 12h, 30d, 8w.",
)
@click.option("--empty", is_flag=True, help="Delete those that were never prompted.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@_store_option
def delete(ids: tuple[str, ...], older_than: int | None, empty: bool, yes: bool, store: str | None) -> None:
    """Delete sessions for good, by their ids or by what they are.

    With --older-than and --empty both must hold. A session that is open in a
    running agent is not deleted.

    \b
    Examples:
      coupler sessions delete 3f9a1c2b
      coupler sessions delete --older-than 30d --yes
    """
    filters = [by_age(older_than)] if older_than is not None else []
    filters += [never_prompted] if empty else []
    if bool(ids) == bool(filters):
        refuse("say what to delete: either ids, or --older-than and --empty", PROGRAM)
    with opened(store) as kept:
        if ids:
            chosen, problems = _named(kept, ids)
        else:
            chosen, problems = _matching(kept, filters, include_empty=True) if kept is not None else [], 0
        if chosen:
            _confirm(chosen, is_sure=yes)
            assert kept is not None
            problems += _delete(kept, chosen, filters)
        elif not ids:
            sys.stdout.write("No session fits: nothing was deleted.\n")
    sys.exit(FAILED if problems else DONE)


def _named(store: BlockingStore | None, ids: Sequence[str]) -> tuple[list[SessionRecord], int]:
    """The sessions that the ids mean, each once, and how many mean none."""
    chosen: dict[str, SessionRecord] = {}
    problems = 0
    for given in ids:
        found = find_or_complaint(store, given)
        if isinstance(found, str):
            complain(found, PROGRAM)
            problems += 1
        else:
            chosen[found.id] = found
    return [*chosen.values()], problems


def _confirm(chosen: Sequence[SessionRecord], *, is_sure: bool) -> None:
    if is_sure:
        return
    if not sys.stdin.isatty():
        refuse("there is no terminal to ask on: add --yes to delete without a question", PROGRAM)
    _forgiving(sys.stderr)
    for record in chosen[:MOST_NAMED]:
        click.echo(f"  {describe(record)}", err=True)
    if len(chosen) > MOST_NAMED:
        click.echo(f"  and {len(chosen) - MOST_NAMED:,} more", err=True)
    if not click.confirm(f"Delete {count(len(chosen), 'session')} for good?", err=True):
        refuse("nothing was deleted", PROGRAM, FAILED)


def _delete(store: BlockingStore, chosen: Sequence[SessionRecord], filters: Sequence[Filter]) -> int:
    """Delete those that still fit, for a question may have stood for hours; returns how many could not be."""
    from coupler.store.errors import HeldError

    deleted = problems = 0
    try:
        for record in chosen:
            now = store.find(record.id)
            if now is None or not all(fits(now) for fits in filters):
                continue
            try:
                deleted += store.delete(record.id)
            except HeldError as error:
                complain(str(error), PROGRAM)
                problems += 1
    finally:
        # Also when the store fails on the way.
        sys.stdout.write(f"{count(deleted, 'session')} deleted.\n")
    return problems


def _matching(store: BlockingStore, filters: Sequence[Filter], *, include_empty: bool) -> list[SessionRecord]:
    records = all_sessions(store, include_empty=include_empty)
    return [record for record in records if all(fits(record) for fits in filters)]


def _write(pieces: Iterable[str], file: str) -> None:
    if file == STDOUT:
        output = _forgiving(sys.stdout)
        output.writelines(pieces)
        output.flush()
        return
    if Path(file).is_dir():
        refuse(f"{file} is a directory: name a file in it", PROGRAM)
    try:
        _write_file(pieces, Path(file))
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", PROGRAM, FAILED)


def _write_file(pieces: Iterable[str], path: Path) -> None:
    is_file = path.is_file()
    if path.exists() and not is_file:
        # A device or a pipe must not be replaced.
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            stream.writelines(pieces)
        return
    path = path.resolve()
    draft = path.with_name(f".coupler-export-{os.getpid()}")
    try:
        with draft.open("x", encoding="utf-8", newline="\n") as stream:
            if is_file:
                shutil.copymode(path, draft)
            stream.writelines(pieces)
        draft.replace(path)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink()


def _forgiving(stream: IO[str]) -> IO[str]:
    """A character that the stream cannot show is escaped, instead of ending the program."""
    if hasattr(stream, "reconfigure"):
        stream.reconfigure(errors="backslashreplace")
    return stream
