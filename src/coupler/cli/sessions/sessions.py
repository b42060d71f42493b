"""`coupler sessions`: lists, shows, exports and deletes the sessions that agents have kept.

On the page of `coupler sessions show`, whatever somebody said is indented, so that no text can pass for a
heading.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from coupler.agent import session_export
from coupler.agent.history import TranscriptEvent, TranscriptTurn, TurnOutcome, UnreadableEntry, read_turns
from coupler.agent.session_export import (
    TranscriptPassage,
    redacted_record,
    redacted_title,
    redacted_turns,
    summary,
    to_json,
    to_markdown,
    write_export,
)
from coupler.cli.deletion import (
    confirm_deletion,
    delete_each,
    find_each,
    older_than_option,
    shrink_store,
    yes_option,
)
from coupler.cli.exit_codes import DONE, FAILED, print_error, refuse
from coupler.cli.listing import Column, Listing, json_option, limit_option, note_rest
from coupler.cli.output import StyledText, say, stdout, tell
from coupler.cli.store_access import blocking_store, store_option
from coupler.cli.terminal import SESSION_PREFIX, ago, local_time, short_agent, short_directory, short_id
from coupler.events import Compaction, Content, Notice, Plan, Text, Thought, ToolCall
from coupler.runtime.formatting import count, shortened, timestamp
from coupler.runtime.terminal_text import clean, one_line

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import BlockingStore


PROGRAM = "coupler sessions"

STDOUT = "-"

SHORTEST_PREFIX = 4
"""Characters of an id, without its beginning, that are taken as one."""

PAGE = 500
MOST_CANDIDATES = 5

HEAD, TAIL = 6, 4
"""Lines of a tool's output that are shown at its beginning and its end."""

LONGEST_LINE = 200
"""Characters of a line of a tool's output or input."""

MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}

STATUS_STYLES = {"failed": "red", "interrupted": "red", "cancelled": "yellow", "completed": "green"}

SessionFilter = Callable[["SessionRecord"], bool]


@click.group(
    short_help="List, read, export and delete stored sessions.",
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
@click.option("--agent", metavar="TEXT", help="Only sessions of agents with this in their name.")
@click.option("--cwd", metavar="PATH", help="Only those of this directory.")
@click.option("--all", "is_all", is_flag=True, help="Also sessions that were never prompted.")
@limit_option
@json_option
@store_option
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
    filters = [by_agent(agent)] if agent is not None else []
    filters += [by_directory(cwd)] if cwd is not None else []
    with blocking_store(store, PROGRAM) as kept:
        chosen = [] if kept is None else _matching(kept, filters, include_empty=is_all)
    LISTING.show([redacted_record(record) for record in chosen[:limit]], is_json=is_json)
    if not chosen:
        tell(_nothing(bool(filters), is_all))
    note_rest(len(chosen) - limit, "session", f"--limit {len(chosen)}")


def _nothing(is_filtered: bool, is_all: bool) -> str:
    if is_filtered:
        return "No session fits: leave out --agent and --cwd to see the others."
    return "No sessions are kept yet: an agent that `coupler serve` serves to an editor makes them." + (
        "" if is_all else " Those never prompted are shown with --all."
    )


def _matching(
    store: BlockingStore, filters: Sequence[SessionFilter], *, include_empty: bool
) -> list[SessionRecord]:
    records = all_sessions(store, include_empty=include_empty)
    return [record for record in records if all(fits(record) for fits in filters)]


@sessions.command(short_help="Read a session in the terminal.")
@click.argument("id", metavar="ID")
@click.option("--full", is_flag=True, help="Do not shorten the output of tools.")
@store_option
def show(id: str, full: bool, store: str | None) -> None:
    """Read a session in the terminal.

    \b
    Examples:
      coupler sessions show 3f9a1c2b
      coupler sessions show 3f9a1c2b --full
    """
    with blocking_store(store, PROGRAM) as kept:
        record = find(kept, id)
        assert kept is not None
        output = stdout()
        turns = redacted_turns(record, read_turns(lambda after: kept.entries(record.id, after)))
        for line in session_lines(redacted_record(record), turns, kept.held_by(record.id), is_full=full):
            output.line(*line)
        output.flush()


def session_lines(
    record: SessionRecord, turns: Iterable[TranscriptTurn], pid: int | None, *, is_full: bool
) -> Iterator[StyledText]:
    """The page of a session."""
    yield from _heading_lines(record, pid)
    is_empty = True
    for turn in turns:
        is_empty = False
        yield from _turn_lines(turn, pid, is_full=is_full)
    if is_empty:
        yield "", ""
        yield "Nothing was said yet.", "dim"


def _heading_lines(record: SessionRecord, pid: int | None) -> Iterator[StyledText]:
    yield one_line(record.title or "") or "(no title)", "bold"
    yield f"{one_line(record.id)}", "cyan"
    yield f"{short_agent(record.agent)} in {short_directory(record.cwd)}", "dim"
    for root in record.roots:
        yield f"and in {short_directory(root)}", "dim"
    changed = f"{local_time(record.updated_at)} ({ago(record.updated_at)})"
    yield f"{count(record.turns, 'turn')}, begun {local_time(record.created_at)}, changed {changed}", "dim"
    if pid is not None:
        yield f"open in the process {pid}", "yellow"


def _turn_lines(turn: TranscriptTurn, pid: int | None, *, is_full: bool) -> Iterator[StyledText]:
    outcome = turn.outcome(is_held=pid is not None)
    yield "", ""
    yield f"--- Turn {turn.number}, {local_time(turn.started_at)} ---", "dim"
    if turn.prompt:
        yield from _message_lines("You", "bold blue", session_export.passages_of_prompt(turn.prompt))
    for event in session_export.events_to_read(turn):
        yield from _event_lines(event, outcome, is_full=is_full)
    end = session_export.describe_end(turn, outcome, pid)
    if end:
        yield "", ""
        yield end, "yellow" if outcome in ("cancelled", "open") else "red"


def _event_lines(event: TranscriptEvent, outcome: TurnOutcome, *, is_full: bool) -> Iterator[StyledText]:
    match event:
        case Text(text):
            yield from _message_lines("Agent", "bold green", [TranscriptPassage(text=clean(text))])
        case Thought(text):
            yield from _message_lines("Thought", "dim", [TranscriptPassage(text=clean(text))], "dim")
        case Content(block, role):
            names = {"user": "You", "thought": "Thought"}
            yield from _message_lines(
                names.get(role, "Agent"), "bold green", [session_export.passage_of_block(block)]
            )
        case Plan(entries):
            yield "", ""
            yield "Plan", "bold"
            for entry in entries:
                yield f"  {MARKS.get(entry.status, '[ ]')} {one_line(entry.content)}", ""
        case Notice() as notice:
            yield from _message_lines(
                "Notice", "bold", [TranscriptPassage(text=session_export.describe_notice(notice))]
            )
        case Compaction() as compaction:
            yield from _message_lines(
                "Notice", "bold", [TranscriptPassage(text=session_export.describe_compaction(compaction))]
            )
        case ToolCall() as call:
            yield from _call_lines(call, session_export.status_of(call, outcome), is_full=is_full)
        case UnreadableEntry(kind):
            yield "", ""
            yield f"(an entry of the kind {one_line(str(kind))} cannot be read)", "yellow"


def _message_lines(
    name: str, name_style: str, said: Iterable[TranscriptPassage], style: str = ""
) -> Iterator[StyledText]:
    yield "", ""
    yield name, name_style
    for passage in said:
        if passage.note:
            yield f"  [{passage.note}]", "dim"
        for line in (passage.text or passage.code).rstrip("\n").split("\n"):
            if line or passage.text or passage.code:
                yield f"  {line}".rstrip(), style


def _call_lines(call: ToolCall, status: str, *, is_full: bool) -> Iterator[StyledText]:
    yield "", ""
    yield f"Tool: {session_export.title_of(call)} ({status})", STATUS_STYLES.get(status, "bold")
    given = session_export.input_of(call)
    if given:
        yield f"  input: {given if is_full else _cut(given)}", "dim"
    for passage in session_export.passages_of_output(call):
        if passage.note:
            yield f"  [{passage.note}]", "dim"
        lines = (passage.code or passage.text).rstrip("\n").split("\n")
        if lines != [""]:
            yield from _output_lines(lines, is_full=is_full)


def _output_lines(lines: list[str], *, is_full: bool) -> Iterator[StyledText]:
    if is_full:
        yield from ((f"  | {line}".rstrip(), "dim") for line in lines)
        return
    left_out = len(lines) - HEAD - TAIL
    shown = lines if left_out <= 1 else [*lines[:HEAD], "", *lines[-TAIL:]]
    for number, line in enumerate(shown):
        if left_out > 1 and number == HEAD:
            yield f"  … {left_out:,} lines left out: --full shows them …", "dim italic"
        else:
            yield f"  | {_cut(line)}".rstrip(), "dim"


def _cut(line: str) -> str:
    return shortened(line, LONGEST_LINE)


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
@store_option
def export(id: str, format: str, output: str, store: str | None) -> None:
    """Write a session as Markdown, to be kept, or as JSON with everything.

    The file is complete or not there: it gets its name when all is written.

    \b
    Examples:
      coupler sessions export 3f9a1c2b --output review.md
      coupler sessions export 3f9a1c2b --format json
    """
    with blocking_store(store, PROGRAM) as kept:
        record = find(kept, id)
        assert kept is not None
        pid = kept.held_by(record.id)
        turns = redacted_turns(record, read_turns(lambda after: kept.entries(record.id, after)))
        if format == "json":
            _write(to_json(redacted_record(record), turns, is_held=pid is not None), output)
        else:
            _write(to_markdown(redacted_record(record), turns, pid), output)


def _write(pieces: Iterable[str], file: str) -> None:
    if file == STDOUT:
        output = stdout()
        for piece in pieces:
            output.data(piece)
        output.flush()
        return
    if Path(file).is_dir():
        refuse(f"{file} is a directory: name a file in it", PROGRAM)
    try:
        write_export(pieces, Path(file))
    except OSError as error:
        refuse(f"{file} cannot be written: {error.strerror}", PROGRAM, FAILED)


@sessions.command(short_help="Delete sessions for good.")
@click.argument("ids", nargs=-1, metavar="[ID]...")
@older_than_option
@click.option("--empty", is_flag=True, help="Delete those that were never prompted.")
@yes_option
@store_option
def delete(ids: tuple[str, ...], older_than: int | None, empty: bool, yes: bool, store: str | None) -> None:
    """Delete sessions for good, by their ids or by what they are.

    With --older-than and --empty both must hold. A session that is open in a
    running agent is not deleted. The store's file gets smaller by what was
    deleted.

    \b
    Examples:
      coupler sessions delete 3f9a1c2b
      coupler sessions delete --older-than 30d --yes
    """
    filters = [by_age(older_than)] if older_than is not None else []
    filters += [never_prompted] if empty else []
    if bool(ids) == bool(filters):
        refuse("say what to delete: either ids, or --older-than and --empty", PROGRAM)
    with blocking_store(store, PROGRAM) as kept:
        if ids:
            chosen, problems = find_each(ids, partial(find_or_problem, kept), PROGRAM)
        else:
            chosen, problems = _matching(kept, filters, include_empty=True) if kept is not None else [], 0
        if chosen:
            confirm_deletion("session", [describe(each) for each in chosen], PROGRAM, is_sure=yes)
            assert kept is not None
            delete = partial(_delete_if_it_fits, kept, filters)
            problems += delete_each("session", [each.id for each in chosen], delete, PROGRAM)
        elif not ids:
            say("No session fits: nothing was deleted.")
        if kept is not None:
            shrink_store(kept, PROGRAM)
    sys.exit(FAILED if problems else DONE)


def _delete_if_it_fits(store: BlockingStore, filters: Sequence[SessionFilter], id: str) -> bool:
    # Imported on use: few commands delete.
    from coupler.coder.tools.outputs import delete_outputs

    record = store.find(id)
    is_deleted = record is not None and all(fits(record) for fits in filters) and store.delete(id)
    if is_deleted:
        delete_outputs(id)
    return is_deleted


def all_sessions(store: BlockingStore, *, include_empty: bool) -> Iterator[SessionRecord]:
    """Every session, the newest first; a broken row is told of and left out."""
    cursor: str | None = None
    while True:
        page = store.page(None, cursor=cursor, limit=PAGE, include_empty=include_empty)
        for record in page.records:
            if _is_intact(record):
                yield record
            else:
                name = one_line(str(record.id))
                print_error(f"the row of the session {name} is broken, and left out", PROGRAM)
        cursor = page.next_cursor
        if cursor is None:
            return


def _is_intact(record: SessionRecord) -> bool:
    try:
        msgspec.convert(msgspec.structs.asdict(record), type(record))
    except msgspec.ValidationError:
        return False
    return True


def find(store: BlockingStore | None, given: str) -> SessionRecord:
    """Finds a session by its id or the beginning of one; ends the command if there is not exactly one."""
    found = find_or_problem(store, given)
    if isinstance(found, str):
        refuse(found, PROGRAM, FAILED)
    return found


def find_or_problem(store: BlockingStore | None, given: str) -> SessionRecord | str:
    """The session, or what is wrong with its id."""
    # What is no text, as a command line may have it, is no id either.
    given = given.encode("utf-8", "replace").decode()
    exact = store.find(given) if store is not None else None
    if exact is not None:
        return exact if _is_intact(exact) else f"the row of the session {given} is broken: it cannot be read"
    beginning = given.removeprefix(SESSION_PREFIX)
    if len(beginning) < SHORTEST_PREFIX or SESSION_PREFIX.startswith(given):
        refuse(
            f"{given!r} is too short for a session's id: give at least {SHORTEST_PREFIX} characters of it",
            PROGRAM,
        )
    candidates = [] if store is None else _candidates(store, given)
    if len(candidates) > 1:
        return _ambiguous(given, candidates)
    # Once more, because a list leaves out the agents' states.
    found = store.find(candidates[0].id) if store is not None and candidates else None
    return found or f"there is no session {given}: `coupler sessions list --all` shows those there are"


def _candidates(store: BlockingStore, given: str) -> list[SessionRecord]:
    beginnings = (given, f"{SESSION_PREFIX}{given.lower()}")
    return [record for record in all_sessions(store, include_empty=True) if record.id.startswith(beginnings)]


def _ambiguous(given: str, candidates: Sequence[SessionRecord]) -> str:
    named = [
        f"{each.id} ({one_line(redacted_title(each))})" if each.title else each.id
        for each in candidates[:MOST_CANDIDATES]
    ]
    rest = len(candidates) - len(named)
    more = f" and {rest:,} more" if rest else ""
    return f"{given} is the beginning of {count(len(candidates), 'session')}: {', '.join(named)}{more}"


def by_agent(text: str) -> SessionFilter:
    """Selects sessions of an agent by its whole identity, or by a part of its short name."""
    wanted = text.casefold()
    return lambda record: text == record.agent or wanted in short_agent(record.agent).casefold()


def by_directory(path: str) -> SessionFilter:
    """Selects sessions of a directory, whichever way a link leads to it."""

    @cache
    def real(directory: str) -> str:
        try:
            return os.path.realpath(directory)
        except (OSError, ValueError):
            return directory

    return lambda record: real(record.cwd) == real(str(Path(path).expanduser()))


def by_age(seconds: int) -> SessionFilter:
    """Selects sessions in which nothing has happened for so long."""
    limit = (time.time() - seconds) * 1000
    return lambda record: record.updated_at < limit


def never_prompted(record: SessionRecord) -> bool:
    """Selects sessions that a client opened and left."""
    return record.turns == 0


def describe(record: SessionRecord) -> str:
    """Describes a session in a line."""
    title = one_line(redacted_title(record)) or "(no title)"
    return f"{short_id(record.id)}  {title}  ({count(record.turns, 'turn')}, {short_agent(record.agent)})"


NO_TITLE = "(no title)"


def _cells(record: SessionRecord) -> tuple[str, ...]:
    return (
        short_id(record.id),
        one_line(record.title or "") or NO_TITLE,
        short_agent(record.agent),
        short_directory(record.cwd),
        f"{record.turns:,}",
        ago(record.updated_at),
    )


def _fields(record: SessionRecord) -> tuple[str, ...]:
    changed = timestamp(record.updated_at) or "-"
    return record.id, changed, str(record.turns), record.agent, record.cwd, record.title or ""


LISTING: Listing[SessionRecord] = Listing(
    (
        Column("ID", "cyan"),
        Column("TITLE", share=1),
        Column("AGENT", share=4),
        Column("DIRECTORY", share=3, overflow="cut left"),
        Column("TURNS"),
        Column("CHANGED", "dim"),
    ),
    _cells,
    _fields,
    summary,
)
