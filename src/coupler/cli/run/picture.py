"""A picture of a run in the lines that there is room for: the step tree, with what runs in the foreground.

What agents and programs wrote is stripped of all that a terminal would obey, and is never taken for markup.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.text import Text

from coupler.cli.run.tree import CallView, StepView
from coupler.cli.runs.wording import STYLES, spoken_duration
from coupler.cli.sessions.wording import clean, count, one_line

TAIL_LINES = 3
"""Lines of what a running step said last."""

MOST_CALLS = 4
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
    yield from (_call_line(call, indent, frame) for call in [*step.calls.values()][-MOST_CALLS:])
    lines = [line for line in clean(step.tail).expandtabs(4).split("\n") if line.strip()]
    yield from (_fitted(f"{indent}| {line}", "dim", frame) for line in lines[-TAIL_LINES:])


def _call_line(call: CallView, indent: str, frame: Frame) -> Text:
    return _fitted(f"{indent}{frame.mark(call.status)} {one_line(call.title)}", "dim", frame)


def _fitted(text: str, style: str, frame: Frame) -> Text:
    line = Text(text, style, no_wrap=True)
    line.truncate(frame.width - 1, overflow="ellipsis")
    return line
