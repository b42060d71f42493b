"""A run on a terminal: a picture that is drawn over the one before, and at the end one that stays."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from coupler.cli.run.ending import output_lines, result_line, tell_trouble
from coupler.cli.run.picture import Frame, picture, tree
from coupler.cli.run.tree import StepTree
from coupler.cli.runs.wording import STYLES, spoken_duration
from coupler.cli.sessions.wording import one_line
from coupler.workflow.journal.run_events import RunStarted

if TYPE_CHECKING:
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
