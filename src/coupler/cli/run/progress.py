"""Shows a run on a terminal while it goes on: a step tree that is redrawn, and at the end one that stays.

`ProgressScreen` follows the log and writes in a thread. So neither a terminal that was stopped nor a pipe
that nobody reads holds up the run, which goes on also when nothing can be written any more. `LiveDisplay`
draws the tree in the lines that there is room for, with what runs in the foreground. What agents and
programs wrote is stripped of all that a terminal would obey, and is never taken for markup.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Protocol

from rich.text import Text

from coupler.cli.output import Output
from coupler.cli.run.run import output_lines, report_failure, result_line
from coupler.cli.run.run_page import STYLES, enclosing_name, name_below
from coupler.cli.terminal import format_duration
from coupler.events import events
from coupler.events.fold import NoContent, ToolCalls
from coupler.runtime.formatting import count
from coupler.runtime.terminal_text import clean, one_line
from coupler.runtime.threads import in_thread
from coupler.workflow.journal import run_events as h
from coupler.workflow.journal.run_events import RunResumed, RunStarted

if TYPE_CHECKING:
    from coupler.workflow.journal.log import RunLog
    from coupler.workflow.journal.run_events import Logged, RunFinished


log = logging.getLogger("coupler.cli")

LEAST_LINES = 4

TAIL_LINES = 3
"""Lines of a running step's latest output."""

MOST_SHOWN_CALLS = 4
"""Tool calls of a running step that are shown."""

MOST_STEPS = 20
"""Steps of one list that are shown; those that run or have failed always are."""

FEW_STEPS = 3
"""Steps of one list that are shown where there is little room."""

LEAST_WIDTH = 20
"""Characters of a line that its name and title need before there is anything on the right."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
FRAMES_PER_SECOND = 10
"""Frames of the spinner a second."""

MOST_PENDING = 1_000
"""Events that wait to be shown, before no more are read from the log."""

LONGEST_TAIL = 4_000
"""Characters of a step's latest output that are kept."""

MOST_KEPT_CALLS = 50
"""Tool calls of a step that are kept; the oldest that are over go first."""

_MARKS = {
    "success": "✓",
    "completed": "✓",
    "failed": "✗",
    "denied": "✗",
    "skipped": "-",
    "waiting": "?",
    "cancelled": "○",
    "interrupted": "○",
}
_PLAIN_MARKS = {
    "success": "+",
    "completed": "+",
    "failed": "x",
    "denied": "x",
    "skipped": "-",
    "waiting": "?",
}


class Display(Protocol):
    """A way of showing a run; it is called in threads, one call at a time, and may raise OSError."""

    pace: float | None
    """Seconds between two drawings; None: events are shown when they happen."""
    shows_texts: bool
    """True if what agents say can be read in it."""
    shows_history: bool
    """True if it also shows what happened before the run was resumed."""

    def show(self, happened: Sequence[Logged]) -> None:
        """Shows events, or redraws."""

    def clear(self) -> None:
        """Makes room for a question."""

    def tell(self, hint: str) -> None:
        """Tells the person who looks on something; called on the event loop, so it must not wait."""

    def finish(self, run: str, finished: RunFinished) -> None:
        """Shows the end of the run of this id."""


class ProgressScreen:
    """Keeps a display up to date, and lends the terminal to questions."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display
        self.shows_texts = display.shows_texts
        self.mask: Callable[[str], str] = str
        """Hides the run's secrets from whoever is asked something."""
        self._pace = display.pace
        self._shows_history = display.shows_history
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._pending: list[Logged] = []
        self._log: RunLog | None = None
        self._shown = 0
        self._is_over = False
        self.failure: OSError | None = None
        """The error of writing the display, as on a full disk."""

    async def follow(self, log: RunLog, start: int) -> None:
        """Shows what happens, until the run is over; `start` is the log's last entry when it began."""
        self._log = log
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            try:
                async for logged in log.follow():
                    if self._shows_history or _is_new(logged, start):
                        await self._add(logged)
            finally:
                # Whatever ended it, nobody may wait for what will not be shown.
                async with self._changed:
                    self._is_over = True
                    self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def suspended(self) -> AsyncIterator[None]:
        """Lends the terminal to a question, once all is shown that led to it."""
        if self._log is not None:
            until = self._log.seq
            async with self._changed:
                await self._changed.wait_for(lambda: self._shown >= until or self._is_over)
        async with self._turn:
            await self._draw(lambda display: display.clear())
            yield

    async def finish(self, run: str, finished: RunFinished) -> None:
        """Shows how the run ended."""
        async with self._turn:
            await self._draw(lambda display: display.finish(run, finished))

    async def _add(self, logged: Logged) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._pending) < MOST_PENDING)
            self._pending.append(logged)
            self._changed.notify_all()

    async def _write(self) -> None:
        while not self._is_over or self._pending:
            await self._next_drawing()
            async with self._turn:
                happened, self._pending = self._pending, []
                await self._draw(partial(_show, happened))
            async with self._changed:
                self._shown = happened[-1].seq if happened else self._shown
                self._changed.notify_all()

    async def _next_drawing(self) -> None:
        async with self._changed:
            if self._pace is None:
                await self._changed.wait_for(lambda: self._pending or self._is_over)
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pace):
                    await self._changed.wait_for(lambda: self._is_over)

    async def _draw(self, draw: Callable[[Display], None]) -> None:
        display = self._display
        if display is None:
            return
        try:
            await in_thread(lambda: draw(display))
        except BrokenPipeError:
            # Nobody looks any more: the run has its own reasons to go on.
            self._display = None
        except OSError as error:
            self._display, self.failure = None, error
        except Exception:
            log.exception("the run is not shown any more, and goes on")
            self._display = None


def _show(happened: Sequence[Logged], display: Display) -> None:
    display.show(happened)


def _is_new(logged: Logged, start: int) -> bool:
    """True if it happened since the run was started or resumed; the resumption itself counts."""
    return logged.seq > start or (logged.seq > start - 2 and isinstance(logged.happening, RunResumed))


class LiveDisplay:
    """Draws the step tree over the last drawing; what stands above it is never touched."""

    pace: float | None = 0.1
    shows_history = True
    shows_texts = False

    def __init__(self, output: Output, program: str) -> None:
        self._hint = "Ctrl-C cancels"
        self._output = output
        self._program = program
        self._console = output.console()
        self._is_plain = not (self._console.encoding or "").lower().startswith("utf")
        self._tree = StepTree()
        self._run = ""
        self._began = time.time()
        self._told = 0
        self._drawn: list[int] = []
        """Width of each line of the present drawing."""

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._tree.learn(logged)
            if isinstance(logged.happening, RunStarted):
                self._run = one_line(logged.happening.run)
        area = self._area()
        room = max(self._console.height - 2 - len(self._news()), LEAST_LINES)
        lines = [*tree_in_room(self._tree.roots, area, room), self._footer(area)]
        self._write([*self._news(), *lines], lasting=len(self._news()))
        self._told = len(self._tree.notes)

    def clear(self) -> None:
        self._write([], lasting=0)

    def tell(self, hint: str) -> None:
        self._hint = hint

    def finish(self, run: str, finished: RunFinished) -> None:
        area = self._area()
        style = STYLES.get(finished.status, "")
        lines = [*self._news(), *tree_lines(self._tree.roots, area), Text()]
        lines.append(Text(f"{area.mark(finished.status)} {result_line(run, finished)}", style))
        if finished.status == "success" and finished.message:
            lines.append(Text(f"  {one_line(finished.message)}"))
        lines += [Text(line) for line in output_lines(finished.outputs)]
        if finished.status == "success" and not finished.outputs and not finished.message:
            lines.append(Text(f"  What its steps wrote: coupler runs logs {run}", "dim"))
        self._write(lines, lasting=len(lines))
        report_failure(self._program, run, finished, self._tree.last_output_of(finished.failed_step))

    def _area(self) -> DrawingArea:
        return DrawingArea(self._console.width, time.time(), self._is_plain)

    def _news(self) -> list[Text]:
        """Notes that were not shown yet."""
        return [Text(f"  {one_line(note)}", "yellow") for note in self._tree.notes[self._told :]]

    def _footer(self, area: DrawingArea) -> Text:
        parts = [self._run, format_duration(area.now - self._began), self._hint]
        line = Text(f"{area.mark('running')} {' · '.join(filter(None, parts))}", "dim", no_wrap=True)
        line.truncate(area.width - 1, overflow="ellipsis")
        return line

    def _write(self, lines: Sequence[Text], *, lasting: int) -> None:
        """Writes lines over the drawing; the first stay, the others are redrawn."""
        self._output.redraw(lines, self._console, over=self._height())
        self._drawn = [line.cell_len for line in lines[lasting:]]

    def _height(self) -> int:
        """The lines of the drawing, which are more when the window has become narrower."""
        width = max(self._console.width, 1)
        return sum(max(-(-each // width), 1) for each in self._drawn)


@dataclass(frozen=True)
class DrawingArea:
    """The size of the drawing, its time, and how much of the tree is shown."""

    width: int
    now: float
    is_plain: bool = False
    """True if there are only the characters of ASCII."""
    most: int = MOST_STEPS
    is_folded: bool = False
    """True if steps that are over hide what is inside of them."""

    def mark(self, status: str) -> str:
        if status == "running":
            return "*" if self.is_plain else FRAMES[int(self.now * FRAMES_PER_SECOND) % len(FRAMES)]
        return (_PLAIN_MARKS if self.is_plain else _MARKS).get(status, "o" if self.is_plain else "○")


def tree_in_room(steps: Sequence[StepView], area: DrawingArea, room: int) -> list[Text]:
    """The tree in so many lines.

    First without what is inside of steps that are over, then cut off above.
    """
    lines = [*tree_lines(steps, area)]
    if len(lines) > room:
        folded = DrawingArea(area.width, area.now, area.is_plain, FEW_STEPS, is_folded=True)
        lines = [*tree_lines(steps, folded)]
    if len(lines) > room:
        above = len(lines) - room + 1
        lines = [_fitted(f"… {count(above, 'line')} above", "dim", area), *lines[above:]]
    return lines


def tree_lines(steps: Sequence[StepView], area: DrawingArea) -> Iterator[Text]:
    """All lines of the tree."""
    shown = _steps_to_show(steps, area.most)
    left_out = len(steps) - len(shown)
    if left_out:
        indent = "  " * steps[0].depth
        yield _fitted(f"{indent}… {count(left_out, 'step')} more, see `coupler runs show`", "dim", area)
    for step in shown:
        yield _line(step, area)
        if step.is_open:
            yield from _activity(step, area)
        if step.is_open or step.status == "failed" or not area.is_folded:
            yield from tree_lines(step.inside, area)


def _steps_to_show(steps: Sequence[StepView], most: int) -> list[StepView]:
    """The last steps, those that run and those that failed."""
    start = len(steps) - most
    return [
        step
        for number, step in enumerate(steps)
        if number >= start or step.is_open or step.status == "failed"
    ]


def _line(step: StepView, area: DrawingArea) -> Text:
    """A step's mark, name and title; on the right its duration and the attempt."""
    right = _right(step, area)
    is_over = step.status in ("skipped", "cancelled", "interrupted")
    words = step.note if step.status in ("failed", "waiting") and step.note else step.title
    line = Text("  " * step.depth, no_wrap=True)
    style = STYLES.get(step.status, "")
    line.append(f"{area.mark(step.status)} ", style)
    line.append(one_line(step.name), "dim" if is_over else "bold")
    line.append(f"  {one_line(words)}", style if step.status in ("failed", "waiting") else "dim")
    left = area.width - len(right) - 3
    if left < LEAST_WIDTH:
        line.truncate(area.width - 1, overflow="ellipsis")
        return line
    line.truncate(left, overflow="ellipsis", pad=True)
    return line.append(f"  {right}", "dim")


def _right(step: StepView, area: DrawingArea) -> str:
    parts = []
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}" + (f"/{step.attempts}" if step.attempts > 1 else ""))
    if step.is_marked_done:
        parts.append("marked as done")
    if step.is_open:
        parts.append(format_duration(max(area.now - step.began, 0.0)))
    elif step.status in ("skipped", "cancelled", "denied", "interrupted"):
        parts.append(step.status)
    else:
        parts.append(format_duration(step.duration))
    return ", ".join(parts)


def _activity(step: StepView, area: DrawingArea) -> Iterator[Text]:
    """The tool calls of a running step, a line each, and the end of what it says."""
    indent = "  " * (step.depth + 1)
    yield from (_call_line(folded.call, indent, area) for folded in [*step.calls][-MOST_SHOWN_CALLS:])
    lines = [line for line in clean(step.tail).expandtabs(4).split("\n") if line.strip()]
    yield from (_fitted(f"{indent}| {line}", "dim", area) for line in lines[-TAIL_LINES:])


def _call_line(call: events.ToolCall, indent: str, area: DrawingArea) -> Text:
    status = "running" if call.is_open else call.status
    return _fitted(f"{indent}{area.mark(status)} {one_line(call.title)}", "dim", area)


def _fitted(text: str, style: str, area: DrawingArea) -> Text:
    line = Text(text, style, no_wrap=True)
    line.truncate(area.width - 1, overflow="ellipsis")
    return line


@dataclass
class StepView:
    """One visit to a step, as it is shown."""

    place: h.Place
    name: str
    depth: int = 0
    kind: str = ""
    title: str = ""
    status: str = "running"
    note: str = ""
    """The question that it waits for, or the error that it failed with."""
    began: float = 0.0
    duration: float = 0.0
    attempt: int = 1
    attempts: int = 1
    is_marked_done: bool = False
    """True if somebody said that it was done, and it did not run again."""
    errors: str = ""
    """The end of its stderr; `tail` is the end of all its readable output."""
    tail: str = ""
    calls: ToolCalls[NoContent] = field(default_factory=lambda: ToolCalls(NoContent))
    inside: list[StepView] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.status in ("running", "waiting")


class StepTree:
    """Builds the tree of steps from the events of a run."""

    def __init__(self) -> None:
        self.roots: list[StepView] = []
        self.notes: list[str] = []
        self._steps: dict[str, StepView] = {}

    def learn(self, logged: h.Logged) -> StepView | None:
        """Handles an event; returns the step that it is about, if any."""
        happening = logged.happening
        if isinstance(happening, h.RunResumed):
            self._go_back(happening)
            return None
        if isinstance(happening, h.Noted):
            self.notes.append(happening.text)
        if happening.place is None:
            return None
        step = self._step(happening.place)
        match happening:
            case h.StepStarted():
                _start(step, happening, logged.at)
            case h.StepFinished():
                _end(step, happening)
            case _:
                _update(step, happening)
        return step

    def last_output_of(self, name: str | None) -> str:
        """The last output of a step that failed: of stderr, else of stdout."""
        step = None if name is None else self._steps.get(name)
        return "" if step is None else step.errors or step.tail

    def _step(self, place: h.Place) -> StepView:
        known = self._steps.get(str(place))
        if known is not None:
            return known
        around = self._steps.get(enclosing_name(place))
        step = StepView(place, name_below(place, around.place if around is not None else None))
        if around is not None:
            step.depth = around.depth + 1
            around.inside.append(step)
        else:
            self.roots.append(step)
        self._steps[str(place)] = step
        return step

    def _go_back(self, resumed: h.RunResumed) -> None:
        """Handles a resumed run: open steps were interrupted, and what is done over is dropped."""
        for step in self._steps.values():
            # Single steps are also forgotten while others run.
            if step.place in resumed.forgets if resumed.forgets else step.is_open:
                step.status = "interrupted"
        if resumed.place is None or str(resumed.place) not in self._steps:
            return
        names = [*self._steps]
        kept = names[: names.index(str(resumed.place))]
        steps = [self._steps[name] for name in kept]
        self._steps, self.roots = {}, []
        for step in steps:
            step.inside = []
            around = self._steps.get(enclosing_name(step.place))
            (self.roots if around is None else around.inside).append(step)
            self._steps[str(step.place)] = step


def _start(step: StepView, started: h.StepStarted, at: float) -> None:
    step.kind, step.title, step.status, step.note = started.kind, started.title, "running", ""
    step.attempt, step.attempts = started.attempt, started.attempts
    step.is_marked_done = False
    step.began = at if started.attempt == 1 or not step.began else step.began
    step.tail = step.errors = ""
    step.calls.clear()


def _end(step: StepView, finished: h.StepFinished) -> None:
    result = finished.result
    step.kind, step.status, step.duration = finished.kind, result.status, result.duration
    step.note = result.error.message if result.error is not None else ""
    step.attempt = result.attempts
    step.is_marked_done = result.marked_done
    step.calls.clear()
    if result.status != "failed":
        step.tail = step.errors = ""


def _update(step: StepView, happening: h.AnyHappening) -> None:
    match happening:
        case h.Wrote(stream="stderr", text=text):
            step.errors = _tail_of(step.errors, text)
            step.tail = _tail_of(step.tail, text)
        case h.Wrote(text=text) | h.AgentEvent(event=events.Text(text)):
            step.tail = _tail_of(step.tail, text)
        case h.RetryPlanned():
            step.status, step.note = "waiting", f"attempt {happening.attempt} in {happening.delay:.1f} s"
        case h.ApprovalAsked() | h.AnswerAsked():
            step.status, step.note = "waiting", ""
        case h.ApprovalGiven() | h.AnswerGiven():
            step.status, step.note = "running", ""
        case h.AgentEvent(event=events.ToolCall() as call):
            _drop_oldest(step.calls)
            step.calls.take(call)
        case h.AgentEvent(event=events.ToolUpdate() as update) if update.id in step.calls:
            step.calls.take(update)


def _tail_of(tail: str, text: str) -> str:
    return (tail + text)[-LONGEST_TAIL:]


def _drop_oldest(calls: ToolCalls[NoContent]) -> None:
    if len(calls) >= MOST_KEPT_CALLS:
        over = (folded for folded in calls if not folded.is_open)
        calls.drop(next(over, next(iter(calls))).call.id)
