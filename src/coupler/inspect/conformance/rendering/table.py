"""A report for people at a terminal: what fails comes first, with the frames that show it.

Frames are a stranger's text: they are made legible, cut to what one reads, and never taken as markup.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.text import Text

from coupler.inspect.conformance.assertion import Assertion, Level
from coupler.inspect.conformance.rendering.wording import (
    LEVEL_WORDS,
    Standing,
    legible,
    one_line,
    section_address,
    standing,
)
from coupler.inspect.conformance.report import Frame, Report, Result

FRAMES_BEFORE = 4
FRAMES_AFTER = 1
"""How many frames are shown around those that a failure is about, unless all are wanted."""

CAUSES = 3
"""How many of the frames that a failure is about are shown, at least."""

MESSAGE_LINES = 6
CAUSE_LINES = 5
STDERR_LINES = 5
"""How many lines a message may take, a cause, and the agent's stderr; another frame takes one."""

NARROWEST = 20
"""Columns that text is given even if the terminal has fewer."""

SIGNS: dict[Standing, tuple[str, str]] = {"failed": ("FAIL", "bold red"), "warned": ("WARN", "bold yellow")}


def print_report(report: Report, console: Console, *, is_verbose: bool = False) -> None:
    """Print all of it, the verdict last, where the eye is when the command ends."""
    for name, title in (("failed", "Failed"), ("warned", "Warnings")):
        _print_failures(console, title, _with(report, name), is_verbose)
    _print_notes(console, report)
    _print_skipped(console, _with(report, "skipped"))
    _print_passed(console, _with(report, "passed"), is_verbose)
    _print_verdict(console, report)


def print_assertions(assertions: Iterable[Assertion], console: Console) -> None:
    """Print a catalogue: id, level, sentence and section."""
    for assertion in assertions:
        sentence = Text.assemble(assertion.sentence, (f" ({assertion.section})", "dim"))
        _print_row(console, _head(assertion.id, assertion.level), sentence)


def _with(report: Report, name: str) -> list[Result]:
    return [result for result in report.results if standing(result) == name]


def _print_failures(console: Console, title: str, results: Sequence[Result], is_verbose: bool) -> None:
    if results:
        _print_title(console, title, len(results))
    for number, result in enumerate(results):
        if number:
            console.print()
        _print_failure(console, result, is_verbose)


def _print_failure(console: Console, result: Result, is_verbose: bool) -> None:
    sign, style = SIGNS[standing(result)]
    head = Text.assemble((f"{sign} ", style), _head(result.assertion.id, result.level))
    _print_row(console, head, Text(result.assertion.sentence, "bold"))
    message = legible(result.message)
    if not is_verbose:
        message = _cut(message, _room(console, head) * MESSAGE_LINES)
    _print_row(console, _blank(head), Text(message, style.removeprefix("bold ")))
    _print_section(console, result.assertion.section)
    _print_frames(console, result.frames, is_verbose)
    _print_stderr(console, result.stderr, is_verbose)


def _print_section(console: Console, section: str) -> None:
    """On one line, however long: a terminal opens an address only if it is whole."""
    console.print(Text(f"     {section_address(section) or section}", "dim"), soft_wrap=True)


def _print_frames(console: Console, frames: Sequence[Frame], is_verbose: bool) -> None:
    expected = 0
    for index in range(len(frames)) if is_verbose else _chosen(frames):
        _print_gap(console, index - expected)
        _print_frame(console, frames[index], is_verbose)
        expected = index + 1
    _print_gap(console, len(frames) - expected)


def _chosen(frames: Sequence[Frame]) -> list[int]:
    """The frames that a failure is about, and some around the last of them."""
    causes = [index for index, frame in enumerate(frames) if frame.is_cause]
    last = causes[-1] if causes else len(frames) - 1
    around = range(max(last - FRAMES_BEFORE, 0), min(last + FRAMES_AFTER + 1, len(frames)))
    return sorted({*causes[:CAUSES], *around})


def _print_frame(console: Console, frame: Frame, is_verbose: bool) -> None:
    to_agent, to_client, mark = ("→", "←", "▶") if _speaks_unicode(console) else ("->", "<-", ">")
    head = Text.assemble(
        (f"  {mark if frame.is_cause else ' '}", "bold red"),
        (f"{frame.at:8.3f} ", "dim"),
        (f"{to_agent if frame.sender == 'client' else to_client} ", "cyan"),
    )
    text = one_line(frame.text)
    if not is_verbose:
        text = _cut(text, _room(console, head) * (CAUSE_LINES if frame.is_cause else 1))
    _print_row(console, head, Text(text, "" if frame.is_cause else "dim"))


def _print_gap(console: Console, count: int) -> None:
    if count:
        console.print(Text(f"{'':14}({count} more, -v shows all)", "dim"), soft_wrap=True)


def _print_stderr(console: Console, stderr: str, is_verbose: bool) -> None:
    head = Text("    stderr: ", "dim")
    lines = legible(stderr).rstrip().splitlines()
    for line in lines if is_verbose else lines[-STDERR_LINES:]:
        _print_row(console, head, Text(line if is_verbose else _cut(line, _room(console, head)), "dim"))


def _print_notes(console: Console, report: Report) -> None:
    notes = [(result.assertion, note) for result in report.results for note in result.notes]
    if notes:
        _print_title(console, "Notes", len(notes))
    for assertion, note in notes:
        _print_row(console, Text(f"  {assertion.id:4} ", "bold"), Text(one_line(note)))


def _print_skipped(console: Console, results: Sequence[Result]) -> None:
    """By reason: a capability that is missing skips many."""
    if results:
        _print_title(console, "Skipped", len(results))
    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(one_line(result.message), []).append(result.assertion.id)
    for reason, ids in reasons.items():
        _print_row(console, Text("  "), Text(f"{' '.join(ids)}: {reason}", "dim"))


def _print_passed(console: Console, results: Sequence[Result], is_verbose: bool) -> None:
    if not results:
        return
    _print_title(console, "Passed", len(results))
    if not is_verbose:
        _print_row(console, Text("  "), Text(" ".join(result.assertion.id for result in results), "green"))
        return
    for result in results:
        sentence = Text.assemble(result.assertion.sentence, (f" ({result.seconds:.2f} s)", "dim"))
        _print_row(console, Text.assemble("  ", _head(result.assertion.id, result.level)), sentence)


def _print_verdict(console: Console, report: Report) -> None:
    sign, style = ("✔", "bold white on green") if report.passes else ("✘", "bold white on red")
    if not _speaks_unicode(console):
        sign = "ok:" if report.passes else "failed:"
    verdict = f"{sign} {report.verdict()}"
    console.print()
    _print_row(console, Text(), Text(f"{one_line(report.subject)} ({report.seconds:.1f} s)", "dim"))
    badge = Text(verdict) if console.color_system is None else Text(f" {verdict} ", style)
    console.print(badge, soft_wrap=True)


def _print_title(console: Console, title: str, count: int) -> None:
    console.print()
    console.print(Text(f"{title} ({count})", "bold underline"), soft_wrap=True)


def _head(id: str, level: Level) -> Text:
    return Text.assemble((f"{id:4} ", "bold"), f"{LEVEL_WORDS[level]:6} ")


def _blank(head: Text) -> Text:
    return Text(" " * head.cell_len)


def _print_row(console: Console, head: Text, body: Text) -> None:
    """The body beside the head, on as many lines as it needs."""
    lines = body.wrap(console, _room(console, head), overflow="fold")
    for number, line in enumerate(lines):
        row = Text.assemble(_blank(head) if number else head, line)
        row.rstrip()
        console.print(row, soft_wrap=True)


def _room(console: Console, head: Text) -> int:
    return max(console.width - head.cell_len, NARROWEST)


def _cut(text: str, room: int) -> str:
    if len(text) <= room:
        return text
    ending = f"… +{len(text) - room}"
    return text[: room - len(ending)] + ending


def _speaks_unicode(console: Console) -> bool:
    return console.encoding.lower().startswith("utf")
