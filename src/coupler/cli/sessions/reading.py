"""`coupler sessions show`: a conversation to be read in a terminal.

Whatever somebody said is indented, so that no text can pass for a heading of this page.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import IO, TYPE_CHECKING

from coupler.agent.history import Outcome, Told, TranscriptTurn, Unreadable
from coupler.cli.sessions import passages
from coupler.cli.sessions.passages import Passage
from coupler.cli.sessions.wording import (
    ago,
    clean,
    count,
    local_time,
    one_line,
    short_agent,
    short_directory,
)
from coupler.events import Compaction, Content, Notice, Plan, Text, Thought, ToolCall

if TYPE_CHECKING:
    from coupler.store.sessions import SessionRecord

HEAD, TAIL = 6, 4
"""Lines of a tool's output that are shown at its beginning and its end."""

LONGEST_LINE = 200
"""Characters of a line of it, and of what the tool was given."""

MARKS = {"completed": "[x]", "in_progress": "[>]", "pending": "[ ]"}

STATUS_STYLES = {"failed": "red", "interrupted": "red", "cancelled": "yellow", "completed": "green"}

Line = tuple[str, str]
"""Text, and the style that a terminal shows it in."""


def writer(stream: IO[str]) -> Callable[[Line], None]:
    """Writes lines: with their styles to a terminal, as they are to everything else."""
    if not stream.isatty():
        return lambda line: _write_plain(stream, line)
    from rich.console import Console
    from rich.text import Text as RichText

    console = Console(file=stream, highlight=False)
    return lambda line: console.print(RichText(line[0], line[1]), soft_wrap=True)


def _write_plain(stream: IO[str], line: Line) -> None:
    stream.write(f"{line[0]}\n")


def lines_of(
    record: SessionRecord, turns: Iterable[TranscriptTurn], pid: int | None, *, is_full: bool
) -> Iterator[Line]:
    """The whole page."""
    yield from _heading(record, pid)
    is_empty = True
    for turn in turns:
        is_empty = False
        yield from _turn(turn, pid, is_full=is_full)
    if is_empty:
        yield "", ""
        yield "Nothing was said yet.", "dim"


def _heading(record: SessionRecord, pid: int | None) -> Iterator[Line]:
    yield one_line(record.title or "") or "(no title)", "bold"
    yield f"{one_line(record.id)}", "cyan"
    yield f"{short_agent(record.agent)} in {short_directory(record.cwd)}", "dim"
    for root in record.roots:
        yield f"and in {short_directory(root)}", "dim"
    changed = f"{local_time(record.updated_at)} ({ago(record.updated_at)})"
    yield f"{count(record.turns, 'turn')}, begun {local_time(record.created_at)}, changed {changed}", "dim"
    if pid is not None:
        yield f"open in the process {pid}", "yellow"


def _turn(turn: TranscriptTurn, pid: int | None, *, is_full: bool) -> Iterator[Line]:
    outcome = turn.outcome(is_held=pid is not None)
    yield "", ""
    yield f"--- Turn {turn.number}, {local_time(turn.started_at)} ---", "dim"
    if turn.prompt:
        yield from _said("You", "bold blue", passages.of_prompt(turn.prompt))
    for event in passages.events_to_read(turn):
        yield from _told(event, outcome, is_full=is_full)
    end = passages.spoken_end(turn, outcome, pid)
    if end:
        yield "", ""
        yield end, "yellow" if outcome in ("cancelled", "open") else "red"


def _told(event: Told, outcome: Outcome, *, is_full: bool) -> Iterator[Line]:
    match event:
        case Text(text):
            yield from _said("Agent", "bold green", [Passage(text=clean(text))])
        case Thought(text):
            yield from _said("Thought", "dim", [Passage(text=clean(text))], "dim")
        case Content(block, role):
            names = {"user": "You", "thought": "Thought"}
            yield from _said(names.get(role, "Agent"), "bold green", [passages.of_block(block)])
        case Plan(entries):
            yield "", ""
            yield "Plan", "bold"
            for entry in entries:
                yield f"  {MARKS.get(entry.status, '[ ]')} {one_line(entry.content)}", ""
        case Notice() as notice:
            yield from _said("Notice", "bold", [Passage(text=passages.spoken_notice(notice))])
        case Compaction() as compaction:
            yield from _said("Notice", "bold", [Passage(text=passages.spoken_compaction(compaction))])
        case ToolCall() as call:
            yield from _call(call, passages.status_of(call, outcome), is_full=is_full)
        case Unreadable(kind):
            yield "", ""
            yield f"(an entry of the kind {one_line(str(kind))} cannot be read)", "yellow"


def _said(name: str, name_style: str, said: Iterable[Passage], style: str = "") -> Iterator[Line]:
    yield "", ""
    yield name, name_style
    for passage in said:
        if passage.note:
            yield f"  [{passage.note}]", "dim"
        for line in (passage.text or passage.code).rstrip("\n").split("\n"):
            if line or passage.text or passage.code:
                yield f"  {line}".rstrip(), style


def _call(call: ToolCall, status: str, *, is_full: bool) -> Iterator[Line]:
    yield "", ""
    yield f"Tool: {passages.title_of(call)} ({status})", STATUS_STYLES.get(status, "bold")
    given = passages.input_of(call)
    if given:
        yield f"  input: {given if is_full else _cut(given)}", "dim"
    for passage in passages.of_output(call):
        if passage.note:
            yield f"  [{passage.note}]", "dim"
        lines = (passage.code or passage.text).rstrip("\n").split("\n")
        if lines != [""]:
            yield from _output(lines, is_full=is_full)


def _output(lines: list[str], *, is_full: bool) -> Iterator[Line]:
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
    return line if len(line) <= LONGEST_LINE else f"{line[: LONGEST_LINE - 1]}…"
