"""The displays of a run that write lines: for logs, for programs, and for those who want only the end."""

from __future__ import annotations

from collections.abc import Sequence
from typing import IO, TYPE_CHECKING

from coupler.cli.refusal import complain
from coupler.cli.run.ending import output_lines, tell_trouble, write_outputs
from coupler.cli.run.tree import StepTree
from coupler.cli.runs.log import Telling
from coupler.cli.sessions.wording import clean, one_line
from coupler.workflow.journal.run_events import Rehearsed, StepFinished, StepStarted

if TYPE_CHECKING:
    from coupler.cli.run.tree import StepView
    from coupler.workflow.journal.run_events import Logged, RunFinished

TELLING_KINDS = frozenset({"run", "agent", "converse", "approve", "ask"})
"""Steps of which a dry run tells more than their titles."""


class LinesDisplay:
    """A line for each thing that happens, without anything that only a terminal understands."""

    pace: float | None = None
    recalls = False

    def __init__(self, stream: IO[str], program: str, cwd: str, *, is_json: bool) -> None:
        self.tells_texts = stream.isatty()
        self._stream = stream
        self._program = program
        self._is_json = is_json
        self._telling = Telling(stream, cwd, is_json=is_json)

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._telling.tell(logged)

    def clear(self) -> None:
        self._telling.end()

    def tell(self, hint: str) -> None:
        complain(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        self._telling.end()
        if not self._is_json:
            for line in output_lines(finished.outputs):
                self._stream.write(f"{line}\n")
            self._stream.flush()
        tell_trouble(self._program, run, finished)


class QuietDisplay:
    """The outputs, once there are some."""

    pace: float | None = None
    recalls = False
    tells_texts = False

    def __init__(self, stream: IO[str], program: str) -> None:
        self._stream = stream
        self._program = program
        self._tree = StepTree()

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._tree.learn(logged)

    def clear(self) -> None:
        return

    def tell(self, hint: str) -> None:
        complain(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        write_outputs(finished.outputs, self._stream)
        tell_trouble(self._program, run, finished, self._tree.last_words_of(finished.failed_step))


class PlanDisplay:
    """What a dry run would do: the steps, and below each its command or prompt as it would be."""

    pace: float | None = None
    recalls = False
    tells_texts = False

    def __init__(self, stream: IO[str], program: str, cwd: str) -> None:
        self._stream = stream
        self._program = program
        self._cwd = cwd
        self._tree = StepTree()

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            step = self._tree.learn(logged)
            if step is not None:
                self._tell(logged, step)
        self._stream.flush()

    def clear(self) -> None:
        return

    def tell(self, hint: str) -> None:
        complain(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        tell_trouble(self._program, None, finished)

    def _tell(self, logged: Logged, step: StepView) -> None:
        is_again = step.name.startswith("#")
        # A step that is come back to is called by its number below the first visit, which is far above here.
        name = one_line(str(step.place) if is_again else step.name)
        indent = "  " * (step.depth - is_again)
        match logged.happening:
            case StepStarted():
                title = "" if step.kind in TELLING_KINDS else f"  {one_line(step.title)}"
                self._stream.write(f"{indent}{name}  {step.kind}{title}\n")
            case Rehearsed() if step.kind == "stop":
                self._stream.write(f"{indent}  ends the run there if its `if` is true\n")
            case StepFinished(result=result) if result.status == "skipped" and not step.title:
                self._stream.write(f"{indent}{name}  skipped: its `if` is false, as far as is known\n")
            case StepFinished(result=result) if result.error is not None:
                self._stream.write(f"{indent}  would fail: {one_line(result.error.message)}\n")
            case Rehearsed() as rehearsed:
                self._tell_work(rehearsed, f"{indent}  ")

    def _tell_work(self, rehearsed: Rehearsed, indent: str) -> None:
        if rehearsed.cwd != self._cwd:
            self._stream.write(f"{indent}in {one_line(rehearsed.cwd)}\n")
        for name, value in rehearsed.env.items():
            self._stream.write(f"{indent}with {one_line(name)}={one_line(value)}\n")
        for line in clean(rehearsed.text).strip("\n").split("\n"):
            self._stream.write(f"{indent}| {line}\n".rstrip() + "\n")
