"""Serves the example agent and drives it with Coupler's own client, in this terminal: `make demo`."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from rich.console import Console

from coupler import connect
from coupler.events import Plan, Stop, Text, Thought, ToolCall

HERE = Path(__file__).parent
SURVEYOR = [sys.executable, "-m", "coupler", "serve", str(HERE / "surveyor.py")]
MARKS = {"pending": "○", "in_progress": "◐", "completed": "●", "failed": "✗"}


async def main() -> None:
    console = Console(highlight=False)
    console.print(f"[dim]$ coupler serve {HERE.name}/surveyor.py[/]")
    async with connect(SURVEYOR, cwd=HERE.parent) as agent:
        name = agent.info.title if agent.info else "the agent"
        session = await agent.new()
        console.print(f"[dim]connected to {name}, session {session.id[:13]}…[/]\n")
        console.print("[bold]> What is in this project?[/]\n")
        show = Show(console)
        async for event in session.prompt("What is in this project?"):
            show.event(event)


class Show:
    """Prints events as they come; text flows, everything else has a line of its own."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = False
        self._shown: dict[str, str] = {}

    def event(self, event: object) -> None:
        match event:
            case Text(text):
                self._in_text = True
                self._console.print(text, end="", markup=False, soft_wrap=True)
            case Thought(text):
                self._line(f"[dim italic]{text}[/]")
            case ToolCall(id=id, title=title, kind=kind, status=status) if self._is_news(id, status):
                self._line(f"[cyan]{MARKS.get(status, '?')} {title}[/] [dim]{kind}, {status}[/]")
            case Plan(entries):
                steps = "  ".join(f"{MARKS.get(entry.status, '?')} {entry.content}" for entry in entries)
                if self._is_news("plan", steps):
                    self._line(f"[magenta]{steps}[/]")
            case Stop(reason):
                self._line(f"\n[dim]turn ended: {reason}[/]")

    def _is_news(self, about: str, state: str) -> bool:
        """A call that waits is shown when it runs; what was shown is not shown again."""
        known, self._shown[about] = self._shown.get(about), state
        return state not in (known, "pending")

    def _line(self, text: str) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = False
        self._console.print(text)


if __name__ == "__main__":
    asyncio.run(main())
