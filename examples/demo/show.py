"""What is seen of a turn: its plan, its tool calls inside of each other, and texts as they come.

What is over is printed once. At a terminal, what is still going on stands below it and is drawn again.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, Group
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text as Line

from coupler import PermissionRequest
from coupler.events import Plan, Stop, Text, ToolCall
from coupler.runtime.threads import in_thread

MARKS = {"pending": ("○", "dim"), "in_progress": ("◐", "yellow"), "completed": ("●", "green")}
ENDS = {"completed": ("✓", "green"), "failed": ("✗", "red")}
SPEAKER = re.compile(r"\*\*([\w.\[\]-]+)\*\*\n\n")
"""How Coupler says whose words follow, where several agents speak."""

MOST_LINES = 4
"""Lines of a command's output that are shown."""


@dataclass
class Step:
    """A tool call, and what was said in it."""

    call: ToolCall
    depth: int
    began: float = field(default_factory=time.monotonic)
    said: str = ""
    has_steps: bool = False

    @property
    def name(self) -> str:
        """The step of the workflow, as Coupler names it in words."""
        return str(_about(self.call).get("step", ""))


class Show:
    """Shows the turns of a session."""

    def __init__(self, console: Console) -> None:
        self.voice = ""
        """Whose model the agents have."""
        self._console = console
        self._live: Live | None = None
        self._steps: dict[str, Step] = {}
        self._plan: Plan | None = None
        self._loose = ""
        self._speaker = ""
        self._parked: set[str] = set()
        self._unheard: dict[str, Step] = {}
        """Steps that ended before their words came: they wait while another agent speaks."""

    @contextmanager
    def turn(self) -> Iterator[Callable[[object], None]]:
        """Show what happens meanwhile; it is told each event."""
        self._steps.clear()
        self._parked.clear()
        self._unheard.clear()
        try:
            self._go_on()
            yield self._see
        finally:
            self._rest()
            self._print_unheard()
            self._say_loose()

    async def ask(self, request: PermissionRequest, is_agreed: bool) -> bool:
        """Whether the person in front says yes; who is not there has agreed beforehand."""
        self._rest()
        self._console.print(Line.assemble(("? ", "bold yellow"), (request.tool_call.title, "bold")))
        if is_agreed:
            self._console.print("  [green]Yes[/] [dim](--yes)[/]")
            answer = "y"
        else:
            answer = await in_thread(lambda: self._console.input("  [dim]Y/n[/] "))
        self._go_on()
        return answer.strip().lower() in ("", "y", "yes")

    def _see(self, event: object) -> None:
        match event:
            case ToolCall():
                self._see_call(event)
            case Text(text):
                self._see_text(text)
            case Plan():
                self._see_plan(event)
            case Stop():
                self._say_loose()

    def _see_call(self, call: ToolCall) -> None:
        step = self._steps.get(call.id)
        if step is None:
            around = self._steps.get(_about(call).get("parent", ""))
            # A branch is shown by the step in it.
            depth = 0 if around is None else around.depth + (not _is_branch(call))
            step = self._steps[call.id] = Step(call, depth)
            if around is not None and not around.has_steps and not _is_branch(around.call):
                around.has_steps = True
                self._console.print(self._line("▸", "cyan", around))
        step.call = call
        if not call.is_open:
            del self._steps[call.id]
            if call.kind == "think" and not step.said and self._is_somebody_speaking():
                self._unheard[step.name] = step
                return
            if step.has_steps:
                self._print_unheard()
            self._print_over(step)

    def _is_somebody_speaking(self) -> bool:
        return any(step.said for step in self._steps.values())

    def _print_unheard(self) -> None:
        for step in self._unheard.values():
            self._print_over(step)
        self._unheard.clear()

    def _see_text(self, text: str) -> None:
        named = SPEAKER.match(text)
        if named is not None and named[1] in self._parked:
            return  # how to go on, which is told in other words here
        steps = [step for step in self._steps.values() if not _is_branch(step.call)]
        if named is not None:
            self._speaker = named[1]
            text = text[named.end() :]
        elif len(steps) == 1:
            self._speaker = steps[0].name
        waiting = self._unheard.get(self._speaker)
        speaking = next((step for step in steps if step.name == self._speaker), waiting)
        if speaking is None:
            self._loose += text
        else:
            speaking.said += text

    def _see_plan(self, plan: Plan) -> None:
        before, self._plan = self._plan, plan
        is_news = before is None or _states(before) != _states(plan)
        if is_news and self._live is None and _is_telling(plan):
            self._console.print(_plan_line(plan))

    def _print_over(self, step: Step) -> None:
        if _is_branch(step.call):
            return
        mark, colour = ENDS.get(step.call.status, ("○", "dim"))
        if _about(step.call).get("outcome") == "parked":
            self._parked.add(step.name)
            mark, colour = "…", "yellow"
        if mark != "…" or not step.said:
            self._console.print(self._line(mark, colour, step))
        for line in _first_lines(_output(step.call)):
            self._print_below(step, Line(f"│ {line}", "dim", no_wrap=True, overflow="ellipsis"))
        if step.said.strip():
            self._print_below(step, Line(step.said.strip()))

    def _print_below(self, step: Step, line: Line) -> None:
        self._console.print(Padding(line, (0, 0, 0, 2 * step.depth + 2), expand=False))

    def _line(self, mark: str, colour: str, step: Step) -> Line:
        seconds = time.monotonic() - step.began
        took = f"{seconds:.1f} s" if not step.call.is_open and seconds >= 0.05 else ""
        notes = [
            self.voice if step.call.kind == "think" else "",
            took,
            "waits for you" if mark == "…" else "",
        ]
        beside = "  ".join(note for note in notes if note)
        return Line.assemble(
            " " * (2 * step.depth), (mark, colour), f" {step.call.title}", (f"  {beside}", "dim")
        )

    def _say_loose(self) -> None:
        said, self._loose = self._loose.strip(), ""
        if said:
            self._console.print(Line(said))

    def _go_on(self) -> None:
        if self._console.is_terminal:
            self._live = Live(
                get_renderable=self._going_on,
                console=self._console,
                transient=True,
                refresh_per_second=12,
            )
            self._live.start()

    def _rest(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None

    def _going_on(self) -> Group:
        """What runs, what is being said, and the plan."""
        parts: list[Padding | Line] = []
        for step in self._steps.values():
            if _is_branch(step.call) or step.has_steps:
                continue
            row = Table.grid(padding=(0, 1, 0, 0))
            row.add_row(Spinner("dots", style="yellow"), Line(step.call.title))
            parts.append(Padding(row, (0, 0, 0, 2 * step.depth)))
            if step.said.strip():
                parts.append(Padding(Line(f"{step.said.strip()} ▌"), (0, 0, 0, 2 * step.depth + 2)))
        if self._loose.strip():
            parts.append(Line(f"{self._loose.strip()} ▌"))
        if self._plan is not None:
            parts.append(Line(""))
            parts.append(_plan_line(self._plan))
        return Group(*parts)


def _about(call: ToolCall) -> dict[str, str]:
    """What Coupler says of a call beyond the protocol: its step, and the call around it."""
    about: dict[str, str] = (call.meta or {}).get("coupler", {})
    return about


def _is_branch(call: ToolCall) -> bool:
    return call.id.endswith("]")


def _output(call: ToolCall) -> str:
    """What a command has written."""
    if call.kind != "execute":
        return ""
    texts = [getattr(getattr(each, "content", None), "text", "") for each in call.content]
    return "\n".join(text for text in texts if not text.endswith("?\n"))


def _first_lines(text: str) -> list[str]:
    lines = text.rstrip().splitlines()
    left_out = len(lines) - MOST_LINES
    return lines if left_out <= 0 else [*lines[:MOST_LINES], f"… {left_out} more lines"]


def _is_telling(plan: Plan) -> bool:
    """Whether something is being done, or all is."""
    states = _states(plan)
    return "in_progress" in states or "pending" not in states


def _states(plan: Plan) -> list[str]:
    return [entry.status for entry in plan.entries]


def _plan_line(plan: Plan) -> Line:
    line = Line.assemble(("Plan", "bold magenta"))
    for entry in plan.entries:
        mark, colour = MARKS.get(entry.status, ("?", ""))
        line.append(f"  {mark} ", colour)
        line.append(entry.content, "dim" if entry.status == "pending" else "")
    return line
