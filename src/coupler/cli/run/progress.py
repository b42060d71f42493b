"""A run on a terminal: a picture that is drawn over the one before, and at the end one that stays."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import IO, TYPE_CHECKING, Protocol

from rich.console import Console
from rich.text import Text

from coupler.cli.run.run import output_lines, result_line, tell_trouble
from coupler.cli.runs import STYLES, name_around, name_inside, spoken_duration
from coupler.cli.terminal import clean, count, one_line
from coupler.runtime.threads import in_thread
from coupler.workflow.journal import run_events as h
from coupler.workflow.journal.run_events import RunResumed, RunStarted

if TYPE_CHECKING:
    from coupler.workflow.journal.log import Log
    from coupler.workflow.journal.run_events import Logged, RunFinished


LEAST_LINES = 4


class LiveDisplay:
    """Draws by itself: what stands above the picture is never touched."""

    pace: float | None = 0.1
    recalls = True
    tells_texts = False

    def __init__(self, stream: IO[str], program: str) -> None:
        self._hint = "Ctrl-C cancels"
        self._stream = stream
        self._program = program
        self._console = Console(file=stream, highlight=False, emoji=False, markup=False)
        self._is_plain = not (self._console.encoding or "").lower().startswith("utf")
        self._tree = StepTree()
        self._run = ""
        self._began = time.time()
        self._told = 0
        self._drawn: list[int] = []
        """How wide each line of the picture is that stands there now."""

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._tree.learn(logged)
            if isinstance(logged.happening, RunStarted):
                self._run = one_line(logged.happening.run)
        frame = self._frame()
        room = max(self._console.height - 2 - len(self._news()), LEAST_LINES)
        lines = [*picture(self._tree.roots, frame, room), self._footer(frame)]
        self._write([*self._news(), *lines], lasting=len(self._news()))
        self._told = len(self._tree.notes)

    def clear(self) -> None:
        self._write([], lasting=0)

    def tell(self, hint: str) -> None:
        self._hint = hint

    def finish(self, run: str, finished: RunFinished) -> None:
        frame = self._frame()
        style = STYLES.get(finished.status, "")
        lines = [*self._news(), *tree(self._tree.roots, frame), Text()]
        lines.append(Text(f"{frame.mark(finished.status)} {result_line(run, finished)}", style))
        if finished.status == "success" and finished.message:
            lines.append(Text(f"  {one_line(finished.message)}"))
        lines += [Text(line) for line in output_lines(finished.outputs)]
        if finished.status == "success" and not finished.outputs and not finished.message:
            lines.append(Text(f"  What its steps wrote: coupler runs logs {run}", "dim"))
        self._write(lines, lasting=len(lines))
        tell_trouble(self._program, run, finished, self._tree.last_words_of(finished.failed_step))

    def _frame(self) -> Frame:
        return Frame(self._console.width, time.time(), self._is_plain)

    def _news(self) -> list[Text]:
        """What is worth knowing and was not told yet."""
        return [Text(f"  {one_line(note)}", "yellow") for note in self._tree.notes[self._told :]]

    def _footer(self, frame: Frame) -> Text:
        parts = [self._run, spoken_duration(frame.now - self._began), self._hint]
        line = Text(f"{frame.mark('running')} {' · '.join(filter(None, parts))}", "dim", no_wrap=True)
        line.truncate(frame.width - 1, overflow="ellipsis")
        return line

    def _write(self, lines: Sequence[Text], *, lasting: int) -> None:
        """In one piece, so that nothing flickers; the first lines stay, and the others are the picture."""
        with self._console.capture() as captured:
            for line in lines:
                self._console.print(line, soft_wrap=True)
        self._stream.write(self._erasure() + captured.get())
        self._stream.flush()
        self._drawn = [line.cell_len for line in lines[lasting:]]

    def _erasure(self) -> str:
        """Goes up to where the picture begins; lines are more when the window has become narrower."""
        width = max(self._console.width, 1)
        height = sum(max(-(-each // width), 1) for each in self._drawn)
        return f"\r\x1b[{height}A\x1b[J" if height else ""


# A picture of a run in the lines that there is room for: the step tree, with what runs in the foreground.
#
# What agents and programs wrote is stripped of all that a terminal would obey, and is never taken for markup.


TAIL_LINES = 3
"""Lines of what a running step said last."""

MOST_SHOWN_CALLS = 4
"""Tool calls of a running step that are shown."""

MOST_STEPS = 20
"""Steps of one list that are shown; those that run or have failed always are."""

FEW_STEPS = 3
"""The same where there is little room."""

LEAST_WIDTH = 20
"""Characters of a line that its name and title need before there is anything on the right."""

FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PACE = 10
"""Frames of the sign of life a second."""

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


@dataclass(frozen=True)
class Frame:
    """What a picture is drawn into."""

    width: int
    now: float
    is_plain: bool = False
    """Whether there are only the characters of ASCII."""
    most: int = MOST_STEPS
    is_folded: bool = False
    """Whether steps that are over hide what is inside of them."""

    def mark(self, status: str) -> str:
        if status == "running":
            return "*" if self.is_plain else FRAMES[int(self.now * PACE) % len(FRAMES)]
        return (_PLAIN_MARKS if self.is_plain else _MARKS).get(status, "o" if self.is_plain else "○")


def picture(steps: Sequence[StepView], frame: Frame, room: int) -> list[Text]:
    """The tree in so many lines: first without what is inside of steps that are over, then cut off above."""
    lines = [*tree(steps, frame)]
    if len(lines) > room:
        folded = Frame(frame.width, frame.now, frame.is_plain, FEW_STEPS, is_folded=True)
        lines = [*tree(steps, folded)]
    if len(lines) > room:
        above = len(lines) - room + 1
        lines = [_fitted(f"… {count(above, 'line')} above", "dim", frame), *lines[above:]]
    return lines


def tree(steps: Sequence[StepView], frame: Frame) -> Iterator[Text]:
    """All lines of it."""
    shown = _most_telling(steps, frame.most)
    left_out = len(steps) - len(shown)
    if left_out:
        indent = "  " * steps[0].depth
        yield _fitted(f"{indent}… {count(left_out, 'step')} more, see `coupler runs show`", "dim", frame)
    for step in shown:
        yield _line(step, frame)
        if step.is_open:
            yield from _foreground(step, frame)
        if step.is_open or step.status == "failed" or not frame.is_folded:
            yield from tree(step.inside, frame)


def _most_telling(steps: Sequence[StepView], most: int) -> list[StepView]:
    """The last ones, those that run and those that failed."""
    start = len(steps) - most
    return [
        step
        for number, step in enumerate(steps)
        if number >= start or step.is_open or step.status == "failed"
    ]


def _line(step: StepView, frame: Frame) -> Text:
    """Its mark, its name and what it does; on the right how long, and the attempt."""
    right = _right(step, frame)
    is_over = step.status in ("skipped", "cancelled", "interrupted")
    words = step.note if step.status in ("failed", "waiting") and step.note else step.title
    line = Text("  " * step.depth, no_wrap=True)
    style = STYLES.get(step.status, "")
    line.append(f"{frame.mark(step.status)} ", style)
    line.append(one_line(step.name), "dim" if is_over else "bold")
    line.append(f"  {one_line(words)}", style if step.status in ("failed", "waiting") else "dim")
    left = frame.width - len(right) - 3
    if left < LEAST_WIDTH:
        line.truncate(frame.width - 1, overflow="ellipsis")
        return line
    line.truncate(left, overflow="ellipsis", pad=True)
    return line.append(f"  {right}", "dim")


def _right(step: StepView, frame: Frame) -> str:
    parts = []
    if step.attempt > 1:
        parts.append(f"attempt {step.attempt}" + (f"/{step.attempts}" if step.attempts > 1 else ""))
    if step.is_open:
        parts.append(spoken_duration(max(frame.now - step.began, 0.0)))
    elif step.status in ("skipped", "cancelled", "denied", "interrupted"):
        parts.append(step.status)
    else:
        parts.append(spoken_duration(step.duration))
    return ", ".join(parts)


def _foreground(step: StepView, frame: Frame) -> Iterator[Text]:
    """What a running step does: its tool calls, a line each, and the end of what it says."""
    indent = "  " * (step.depth + 1)
    yield from (_call_line(call, indent, frame) for call in [*step.calls.values()][-MOST_SHOWN_CALLS:])
    lines = [line for line in clean(step.tail).expandtabs(4).split("\n") if line.strip()]
    yield from (_fitted(f"{indent}| {line}", "dim", frame) for line in lines[-TAIL_LINES:])


def _call_line(call: CallView, indent: str, frame: Frame) -> Text:
    return _fitted(f"{indent}{frame.mark(call.status)} {one_line(call.title)}", "dim", frame)


def _fitted(text: str, style: str, frame: Frame) -> Text:
    line = Text(text, style, no_wrap=True)
    line.truncate(frame.width - 1, overflow="ellipsis")
    return line


# What shows a run while it goes on: it follows the log, and writes in a thread.
#
# So neither a terminal that was stopped nor a pipe that nobody reads holds up the run, which goes on also
# when nothing can be written any more.


log = logging.getLogger("coupler.cli")

MOST_PENDING = 1_000
"""What happened and is not shown yet, before no more of it is read from the log."""


class Display(Protocol):
    """One way of showing; all of it runs in threads, one call at a time. May raise OSError."""

    pace: float | None
    """Seconds between two pictures; None: what happens is shown when it happens."""
    tells_texts: bool
    """Whether what agents say can be read in it."""
    recalls: bool
    """Whether it also shows what happened before the run was resumed."""

    def show(self, happened: Sequence[Logged]) -> None:
        """Something has happened, or it is time for another picture."""

    def clear(self) -> None:
        """Somebody is asked now."""

    def tell(self, hint: str) -> None:
        """Something for the person who looks on; called on the event loop, so it must not wait."""

    def finish(self, run: str, finished: RunFinished) -> None:
        """The run of this id is over, and all of it was shown."""


class Screen:
    """Keeps a display up to date, and lends the terminal to questions."""

    def __init__(self, display: Display) -> None:
        self._display: Display | None = display
        self.tells_texts = display.tells_texts
        self.mask: Callable[[str], str] = str
        """Hides the run's secrets from whoever is asked something."""
        self._pace = display.pace
        self._recalls = display.recalls
        self._turn = asyncio.Lock()
        self._changed = asyncio.Condition()
        self._pending: list[Logged] = []
        self._log: Log | None = None
        self._shown = 0
        self._is_over = False
        self.failure: OSError | None = None
        """Why what was shown could not be written, as on a full disk."""

    async def follow(self, log: Log, start: int) -> None:
        """Show what happens, until the run is over; `start` is the log's last entry when it began."""
        self._log = log
        async with asyncio.TaskGroup() as group:
            group.create_task(self._write())
            try:
                async for logged in log.follow():
                    if self._recalls or _is_new(logged, start):
                        await self._add(logged)
            finally:
                # Whatever ended it, nobody may wait for what will not be shown.
                async with self._changed:
                    self._is_over = True
                    self._changed.notify_all()

    @contextlib.asynccontextmanager
    async def aside(self) -> AsyncIterator[None]:
        """Have the terminal for a question, once all is shown that led to it."""
        if self._log is not None:
            until = self._log.seq
            async with self._changed:
                await self._changed.wait_for(lambda: self._shown >= until or self._is_over)
        async with self._turn:
            await self._draw(lambda display: display.clear())
            yield

    async def finish(self, run: str, finished: RunFinished) -> None:
        """Show how it ended."""
        async with self._turn:
            await self._draw(lambda display: display.finish(run, finished))

    async def _add(self, logged: Logged) -> None:
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._pending) < MOST_PENDING)
            self._pending.append(logged)
            self._changed.notify_all()

    async def _write(self) -> None:
        while not self._is_over or self._pending:
            await self._next_picture()
            async with self._turn:
                happened, self._pending = self._pending, []
                await self._draw(partial(_show, happened))
            async with self._changed:
                self._shown = happened[-1].seq if happened else self._shown
                self._changed.notify_all()

    async def _next_picture(self) -> None:
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
    """Whether it happened since the run was started or resumed, which is told just before it goes on."""
    return logged.seq > start or (logged.seq > start - 2 and isinstance(logged.happening, RunResumed))


# The steps of a run as somebody looks at them: how each stands, and what it said last.


LONGEST_TAIL = 4_000
"""Characters of what a step said last that are kept."""

MOST_KEPT_CALLS = 50
"""Tool calls of a step that are kept; the oldest that are over go first."""


@dataclass
class CallView:
    """A tool call of an agent."""

    title: str
    status: str = "running"


@dataclass
class StepView:
    """One visit to a step."""

    place: h.Place
    name: str
    depth: int = 0
    kind: str = ""
    title: str = ""
    status: str = "running"
    note: str = ""
    """What it waits for, or why it failed."""
    began: float = 0.0
    duration: float = 0.0
    attempt: int = 1
    attempts: int = 1
    errors: str = ""
    """The end of what it wrote to stderr, and below of everything that can be read."""
    tail: str = ""
    calls: dict[str, CallView] = field(default_factory=dict)
    inside: list[StepView] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        return self.status in ("running", "waiting")


class StepTree:
    """Learns what happens, in its order."""

    def __init__(self) -> None:
        self.roots: list[StepView] = []
        self.notes: list[str] = []
        self._steps: dict[str, StepView] = {}

    def learn(self, logged: h.Logged) -> StepView | None:
        """The step that it is about, if it is about one."""
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
                _go_on(step, happening)
        return step

    def last_words_of(self, name: str | None) -> str:
        """What a step that failed wrote last: to stderr, else to stdout."""
        step = None if name is None else self._steps.get(name)
        return "" if step is None else step.errors or step.tail

    def _step(self, place: h.Place) -> StepView:
        known = self._steps.get(str(place))
        if known is not None:
            return known
        around = self._steps.get(name_around(place))
        step = StepView(place, name_inside(place, around.place if around is not None else None))
        if around is not None:
            step.depth = around.depth + 1
            around.inside.append(step)
        else:
            self.roots.append(step)
        self._steps[str(place)] = step
        return step

    def _go_back(self, resumed: h.RunResumed) -> None:
        """What ran when its process died runs no more, and what is done over is not there yet."""
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
            around = self._steps.get(name_around(step.place))
            (self.roots if around is None else around.inside).append(step)
            self._steps[str(step.place)] = step


def _start(step: StepView, started: h.StepStarted, at: float) -> None:
    step.kind, step.title, step.status, step.note = started.kind, started.title, "running", ""
    step.attempt, step.attempts = started.attempt, started.attempts
    step.began = at if started.attempt == 1 or not step.began else step.began
    step.tail = step.errors = ""
    step.calls.clear()


def _end(step: StepView, finished: h.StepFinished) -> None:
    result = finished.result
    step.kind, step.status, step.duration = finished.kind, result.status, result.duration
    step.note = result.error.message if result.error is not None else ""
    step.attempt = result.attempts
    step.calls.clear()
    if result.status != "failed":
        step.tail = step.errors = ""


def _go_on(step: StepView, happening: h.AnyHappening) -> None:
    match happening:
        case h.Wrote(stream="stderr", text=text):
            step.errors = _ended(step.errors, text)
            step.tail = _ended(step.tail, text)
        case h.Wrote(text=text) | h.Said(text=text):
            step.tail = _ended(step.tail, text)
        case h.RetryPlanned():
            step.status, step.note = "waiting", f"attempt {happening.attempt} in {happening.delay:.1f} s"
        case h.ApprovalAsked() | h.AnswerAsked():
            step.status, step.note = "waiting", ""
        case h.ApprovalGiven() | h.AnswerGiven():
            step.status, step.note = "running", ""
        case h.ToolStarted():
            _forget_old(step.calls)
            step.calls[happening.call] = CallView(happening.title)
        case h.ToolProgressed() if happening.call in step.calls:
            call = step.calls[happening.call]
            call.title = happening.title or call.title
        case h.ToolEnded() if happening.call in step.calls:
            step.calls[happening.call].status = happening.status


def _ended(tail: str, text: str) -> str:
    return (tail + text)[-LONGEST_TAIL:]


def _forget_old(calls: dict[str, CallView]) -> None:
    if len(calls) >= MOST_KEPT_CALLS:
        over = (name for name, call in calls.items() if call.status != "running")
        calls.pop(next(over, next(iter(calls))))
