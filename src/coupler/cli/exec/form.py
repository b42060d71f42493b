"""The dialogs of `coupler chat` in plain lines, for the terminal beside `coupler exec`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from coupler.cli.chat.front import Left
from coupler.cli.chat.parts import Part, Remark
from coupler.cli.chat.plain_text import plain

if TYPE_CHECKING:
    from coupler.cli.question_terminal import QuestionTerminal

ASKS = "The agent asks"
"""How a question begins, so that nobody takes an agent's words for another program's."""


class FormFront:
    """Shows what is asked and reads a line for an answer. Ctrl-C is the run's, and cancels the turn."""

    def __init__(self, terminal: QuestionTerminal) -> None:
        self._terminal = terminal

    def show(self, part: Part) -> None:
        self._terminal.write(f"{_shown(part)}\n")

    async def ask(self, question: str) -> str:
        line = await self._terminal.ask(question)
        if not line:
            self._terminal.write("\n")
            raise Left
        return line


def _shown(part: Part) -> str:
    match part:
        case Remark(title, detail, "question"):
            asked = title if title.startswith(ASKS) else f"{ASKS}: {title}"
            return f"\n{asked}\n{detail}"  # the answer so far may have no line end
        case Remark(title):
            return f"  {title}"
    return plain(part)
