"""Reads and tells the log of a run.

Whatever a step put out is indented behind its name, so that no text can pass for a line of Coupler's.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from coupler.cli.exit_codes import print_error
from coupler.cli.output import Output
from coupler.cli.terminal import format_duration
from coupler.events.events import (
    Plan,
    Text,
    Thought,
    ToolCall,
    ToolOutput,
    ToolUpdate,
    TurnEnded,
    TurnUsage,
    plain_text_of,
)
from coupler.events.fold import ToolCalls
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import clean, one_line
from coupler.workflow.journal import run_events
from coupler.workflow.journal.run_events import (
    AgentEvent,
    Place,
    as_line,
    logged_in,
)
from coupler.workflow.journal.run_secrets import masked_texts

if TYPE_CHECKING:
    from coupler.redaction.masker import Masker
    from coupler.schema.v1 import ToolCallContent
    from coupler.store.runs import BlockingRuns, RunEntry
    from coupler.workflow.journal.run_events import AnyHappening, Logged


STATUSES = ("running", "success", "failed", "cancelled", "parked", "interrupted")

LOG_POLL = 0.1
"""Seconds between two reads of the store."""


def read_log(
    runs: BlockingRuns,
    id: str,
    *,
    is_followed: bool = False,
    step: str | None = None,
    kinds: Sequence[str] = (),
) -> Iterator[Logged]:
    """Reads the log of a run; if it is followed, until it is over or its process is gone."""
    seq = 0
    while True:
        # Before its entries: what ended it is then among them.
        record = runs.find(id)
        is_over = record is None or record.status != "running" or record.pid is None
        entries = runs.entries(id, seq, kinds)
        for entry in entries:
            seq = entry.seq
            if step is None or _is_inside(entry, step):
                yield from _readable(entry)
        if not entries:
            if is_over or not is_followed:
                return
            time.sleep(LOG_POLL)


def _is_inside(entry: RunEntry, step: str) -> bool:
    path = entry.path if entry.visit <= 1 else f"{entry.path}#{entry.visit}"
    return bool(path) and (path == step or (path.startswith(step) and path[len(step)] in ".[/#~"))


def _readable(entry: RunEntry) -> Iterator[Logged]:
    try:
        yield from logged_in(entry)
    except (msgspec.MsgspecError, ValueError):
        print_error(f"an entry of the kind {one_line(entry.kind)} cannot be read", "coupler runs")


class _LastText:
    """Keeps the last text that a tool call has shown."""

    def __init__(self) -> None:
        self.text = ""

    def add(self, item: ToolCallContent, *, apart: bool = False) -> None:
        self.text = plain_text_of(item) or self.text

    def clear(self) -> None:
        self.text = ""

    def content(self) -> tuple[ToolCallContent, ...]:
        return ()


class RunLogWriter:
    """Writes the events of a run as text for people or as lines of JSON."""

    def __init__(self, output: Output, masker: Masker | None, *, is_json: bool) -> None:
        """`masker` is for what was stored before its secrets were known."""
        self._output = output
        self._masker = masker
        self._is_json = is_json
        self._open: dict[tuple[Place | None, str], list[str]] = {}
        """The pieces of each line that is not complete: steps that work beside each other tear no lines."""
        self._calls = ToolCalls(_LastText)
        """The open tool calls that have shown something."""

    def tell(self, logged: Logged) -> None:
        happening = logged.happening
        if self._masker is not None:
            happening = masked_texts(happening, self._masker)
        if self._is_json:
            shown = msgspec.structs.replace(logged, happening=happening)
            self._output.json(as_line(shown))
        else:
            self._tell_text(logged.at, happening)
        self._output.flush()

    def end(self) -> None:
        """Writes the lines that are not complete."""
        for open_line in [*self._open]:
            self._end_line(*open_line)
        self._output.flush()

    def _tell_text(self, at: float, happening: AnyHappening) -> None:
        match happening:
            case run_events.Wrote(place=place, stream=stream, text=text):
                self._tell_piece(place, "" if stream == "stdout" else "!", text)
            case AgentEvent(place=place, event=Text(text)):
                self._tell_piece(place, ">", text)
            case AgentEvent(place=place, event=Thought(text)):
                self._tell_piece(place, "~", text)
            case _:
                words = self._describe(happening)
                if words:
                    self._end_lines_of(happening.place)
                    name = f"{one_line(str(happening.place))}: " if happening.place is not None else ""
                    self._output.line(f"{_clock(at)} {name}{one_line(words)}")

    def _describe(self, happening: AnyHappening) -> str:
        match happening:
            case AgentEvent(event=ToolCall() as call):
                return f"tool: {call.title}"
            case AgentEvent(event=ToolUpdate() | ToolOutput() as event):
                folded = self._calls.take(event)
                if folded.is_open:
                    return ""
                self._calls.drop(event.id)
                has_failed = folded.call.status == "failed"
                return f"tool failed: {folded.shown.text or event.id}" if has_failed else ""
        return describe_event(happening)

    def _tell_piece(self, place: Place | None, mark: str, text: str) -> None:
        """Writes the lines that a piece of text completes; it may begin and end in the midst of one."""
        for other in [each for each in self._open if each[0] == place and each[1] != mark]:
            self._end_line(*other)
        *whole, rest = clean(text).split("\n")
        if whole:
            begun = self._open.pop((place, mark), [])
            whole[0] = "".join([*begun, whole[0]])
            # In one piece: a command may write millions of lines, and a call for each takes minutes.
            head = _line_head(place, mark)
            self._output.text("\n".join([head + line for line in whole]))
        if rest:
            self._open.setdefault((place, mark), []).append(rest)

    def _end_lines_of(self, place: Place | None) -> None:
        """Writes what is open of a step before its next event; before one of the run, all that is open."""
        for open_line in [each for each in self._open if place in (None, each[0])]:
            self._end_line(*open_line)

    def _end_line(self, place: Place | None, mark: str) -> None:
        self._output.line(_line_head(place, mark) + "".join(self._open.pop((place, mark))))


def _line_head(place: Place | None, mark: str) -> str:
    """Return the prefix of a line that a step wrote."""
    return f"  {one_line(str(place or ''))} {mark or '|'} "


def describe_event(happening: AnyHappening) -> str:
    """Describes an event in one line; empty if it is for programs only."""
    match happening:
        case run_events.RunStarted():
            return f"the run {happening.run} of {happening.workflow} started"
        case run_events.RunResumed():
            return _describe_resuming(happening.reason)
        case run_events.RunFinished():
            message = f": {happening.message}" if happening.message else ""
            return f"the run is over, {happening.status}{message}"
        case run_events.StepStarted():
            attempt = (
                f" (attempt {happening.attempt} of {happening.attempts})" if happening.attempt > 1 else ""
            )
            return f"started{attempt}: {happening.title}"
        case run_events.StepFinished(result=result):
            reason = f": {result.error.message}" if result.error is not None else ""
            after = "" if result.status == "skipped" else f" after {format_duration(result.duration)}"
            marked = ", marked as done" if result.marked_done else ""
            return f"{result.status}{after}{marked}{reason}"
        case run_events.RetryPlanned():
            wait = format_duration(happening.delay)
            return f"failed: {happening.error.message}; attempt {happening.attempt} in {wait}"
        case run_events.Noted(text=text):
            return text
    return _describe_agent_event(happening)


def _describe_resuming(reason: str) -> str:
    """Describes that a run goes on; the reason is the status that it had, or a sentence's end."""
    if reason in STATUSES:
        reason = "it had failed" if reason == "failed" else f"it was {reason}"
    return f"the run was resumed: {reason}" if reason else "the run was resumed"


def _describe_agent_event(happening: AnyHappening) -> str:
    match happening:
        case run_events.ApprovalAsked(question=question) | run_events.AnswerAsked(question=question):
            return f"asked: {question}"
        case run_events.ApprovalGiven(by="nobody"):
            return "not approved: nobody could be asked"
        case run_events.ApprovalGiven():
            verdict = "allowed" if happening.approved else "denied"
            return f"{'marked as done' if happening.marked_done else verdict} by {happening.by}"
        case run_events.AnswerGiven():
            return f"answered by {happening.by}: {happening.text}"
        case AgentEvent(event=Plan(entries)):
            return "plan: " + "; ".join(entry.content for entry in entries)
        case AgentEvent(event=TurnEnded(usage=usage)):
            return f"used {usage_words(usage)}"
    return ""


def usage_words(usage: TurnUsage) -> str:
    """Says how many tokens were used, whether that is an estimate, and what they cost."""
    # Imported on use: most lines of runs tell of other things.
    from coupler.client.reply import BY_ESTIMATE

    cost = "" if usage.cost is None else f", {usage.cost:.4f} {one_line(usage.currency or '')}".rstrip()
    return f"{count(usage.total, 'token')}{BY_ESTIMATE if usage.is_estimated else ''}{cost}"


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
