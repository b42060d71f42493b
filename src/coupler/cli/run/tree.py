"""The steps of a run as somebody looks at them: how each stands, and what it said last."""

from __future__ import annotations

from dataclasses import dataclass, field

from coupler.cli.runs.steps import name_around, name_inside
from coupler.workflow.journal import run_events as h

LONGEST_TAIL = 4_000
"""Characters of what a step said last that are kept."""

MOST_CALLS = 50
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
    if len(calls) >= MOST_CALLS:
        over = (name for name, call in calls.items() if call.status != "running")
        calls.pop(next(over, next(iter(calls))))
