"""The lines at the bottom while the agent works: what is not done yet, and how long it has been going on."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.text import Text

from coupler.cli.chat.parts import Called
from coupler.cli.chat.rendering import Bottom, Harmless, call_line, markdown, plan
from coupler.cli.chat.transcript import Tail
from coupler.cli.sessions.wording import clean
from coupler.schema.v1 import PlanEntry

THOUGHT_LINES = 3
MOST_CALLS = 6
MOST_ENTRIES = 6
FRAMES = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"
PACE = 10
"""Frames of the sign of life a second."""


class TailView:
    """Draws the tail as it is at that moment, never higher than the screen."""

    def __init__(self, tail: Callable[[], Tail], typed: Callable[[], str], cwd: str, started: float) -> None:
        self._tail = tail
        self._typed = typed
        self._cwd = cwd
        self._started = started

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        elapsed = time.monotonic() - self._started
        foot = footer(elapsed, self._typed())
        room = max(console.height - 3 - len(foot), 3)
        yield Harmless(Group(Text(), Bottom(body(self._tail(), self._cwd), room), *foot))


def body(tail: Tail, cwd: str = "") -> RenderableType:
    """What is not done yet."""
    lines: list[RenderableType] = []
    if tail.thought.strip():
        thought = Text(f"∴ {tail.thought.strip()}", "dim italic")
        lines.append(Bottom(thought, THOUGHT_LINES))
    if tail.answer.strip():
        lines.append(markdown(tail.answer))
    lines.extend(_calls(tail.calls, cwd))
    if tail.plan:
        lines.append(plan(_window(tail.plan)))
    return Group(*lines)


def footer(elapsed: float, typed: str) -> list[RenderableType]:
    """A sign of life, and what is being typed meanwhile."""
    frame = FRAMES[int(elapsed * PACE) % len(FRAMES)]
    lines = [Text(f"{frame} {int(elapsed)} s · Ctrl-C cancels", "dim", no_wrap=True, overflow="ellipsis")]
    if typed:
        last = clean(typed).splitlines()[-1:] or [""]
        lines.append(Text(f"> {last[0]}", no_wrap=True, overflow="ellipsis"))
    return [*lines]


def _calls(calls: tuple[Called, ...], cwd: str) -> Iterable[RenderableType]:
    yield from (call_line(called, cwd) for called in calls[-MOST_CALLS:])
    if len(calls) > MOST_CALLS:
        yield Text(f"… and {len(calls) - MOST_CALLS} more", "dim")


def _window(entries: tuple[PlanEntry, ...]) -> tuple[PlanEntry, ...]:
    """The entries around the first that is not done."""
    done = sum(entry.status == "completed" for entry in entries)
    begin = max(min(done - 1, len(entries) - MOST_ENTRIES), 0)
    return entries[begin : begin + MOST_ENTRIES]
