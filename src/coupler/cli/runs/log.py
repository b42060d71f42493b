"""`coupler runs logs`: what happened in a run, as text for people or as lines of JSON.

Whatever a step put out is indented behind its name, so that no text can pass for something that Coupler says.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING

import msgspec

from coupler.cli.refusal import complain
from coupler.cli.runs.wording import spoken_duration
from coupler.cli.sessions.wording import clean, count, one_line, quiet_json
from coupler.cli.unshown import masker_for
from coupler.workflow.journal import run_events
from coupler.workflow.journal.run_events import as_line, logged_in
from coupler.workflow.journal.run_secrets import masked_texts

if TYPE_CHECKING:
    from coupler.store.runs import BlockingRuns, RunEntry
    from coupler.workflow.journal.run_events import AnyHappening, Logged, Place

POLL_EVERY = 0.1
"""Seconds between two looks at the store."""


def told_by(
    runs: BlockingRuns,
    id: str,
    *,
    is_followed: bool = False,
    step: str | None = None,
    kinds: Sequence[str] = (),
) -> Iterator[Logged]:
    """What happened in a run; if it is followed, until it is over or its process is gone."""
    seq = 0
    while True:
        # Before its entries: what ended it is then among them.
        record = runs.find(id)
        is_over = record is None or record.status != "running" or record.pid is None
        entries = runs.entries(id, seq, kinds)
        for entry in entries:
            seq = entry.seq
            if step is None or _is_inside(entry, step):
                logged = _readable(entry)
                if logged is not None:
                    yield logged
        if not entries:
            if is_over or not is_followed:
                return
            time.sleep(POLL_EVERY)


def _is_inside(entry: RunEntry, step: str) -> bool:
    path = entry.path if entry.visit <= 1 else f"{entry.path}#{entry.visit}"
    return bool(path) and (path == step or (path.startswith(step) and path[len(step)] in ".[/#~"))


def _readable(entry: RunEntry) -> Logged | None:
    try:
        return logged_in(entry)
    except (msgspec.MsgspecError, ValueError):
        complain(f"an entry of the kind {one_line(entry.kind)} cannot be read", "coupler runs")
        return None


class Telling:
    """Writes what happened, in the order in which it is told."""

    def __init__(self, stream: IO[str], directory: str, *, is_json: bool) -> None:
        self._stream = stream
        self._masker = masker_for(directory)
        self._is_json = is_json
        self._open: tuple[Place | None, str] | None = None

    def tell(self, logged: Logged) -> None:
        happening = masked_texts(logged.happening, self._masker)
        if self._is_json:
            shown = msgspec.structs.replace(logged, happening=happening)
            self._stream.write(quiet_json(as_line(shown)) + "\n")
        else:
            self._tell_text(logged.at, happening)
        self._stream.flush()

    def end(self) -> None:
        """Nothing more comes."""
        if self._open is not None:
            self._stream.write("\n")
            self._open = None
        self._stream.flush()

    def _tell_text(self, at: float, happening: AnyHappening) -> None:
        match happening:
            case run_events.Wrote(place=place, stream=stream, text=text):
                self._tell_piece(place, "" if stream == "stdout" else "!", text)
            case run_events.Said(place=place, text=text):
                self._tell_piece(place, ">", text)
            case run_events.Thought(place=place, text=text):
                self._tell_piece(place, "~", text)
            case _:
                words = words_for(happening)
                if words:
                    self.end()
                    name = f"{one_line(str(happening.place))}: " if happening.place is not None else ""
                    self._stream.write(f"{_clock(at)} {name}{one_line(words)}\n")

    def _tell_piece(self, place: Place | None, mark: str, text: str) -> None:
        """A piece of text, which may begin and end in the midst of a line."""
        if self._open is not None and self._open != (place, mark):
            self.end()
        for line in clean(text).splitlines(keepends=True):
            if self._open is None:
                self._stream.write(f"  {one_line(str(place or ''))} {mark or '|'} ")
            self._stream.write(line)
            self._open = None if line.endswith("\n") else (place, mark)


def words_for(happening: AnyHappening) -> str:
    """What happened, in one line; empty if it is for programs only."""
    match happening:
        case run_events.RunStarted():
            return f"the run {happening.run} of {happening.workflow} started"
        case run_events.RunResumed():
            return f"the run was resumed: {happening.reason}" if happening.reason else "the run was resumed"
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
            after = "" if result.status == "skipped" else f" after {spoken_duration(result.duration)}"
            return f"{result.status}{after}{reason}"
        case run_events.RetryPlanned():
            wait = spoken_duration(happening.delay)
            return f"failed: {happening.error.message}; attempt {happening.attempt} in {wait}"
        case run_events.Noted(text=text):
            return text
    return _words_for_talk(happening)


def _words_for_talk(happening: AnyHappening) -> str:
    match happening:
        case run_events.ToolStarted():
            return f"tool: {happening.title}"
        case run_events.ToolEnded(status="failed"):
            return f"tool failed: {happening.text or happening.call}"
        case run_events.ApprovalAsked(question=question) | run_events.AnswerAsked(question=question):
            return f"asked: {question}"
        case run_events.ApprovalGiven():
            return f"{'allowed' if happening.approved else 'denied'} by {happening.by}"
        case run_events.AnswerGiven():
            return f"answered by {happening.by}: {happening.text}"
        case run_events.Planned(entries=entries):
            return "plan: " + "; ".join(entry.get("content", "") for entry in entries)
        case run_events.Used(usage=usage):
            return f"used {count(usage.total_tokens, 'token')}"
    return ""


def _clock(at: float) -> str:
    return datetime.fromtimestamp(at).strftime("%H:%M:%S")
