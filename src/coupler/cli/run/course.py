"""The course of a run on a command line: started or resumed, shown, interrupted, and ended with a code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import IO, TYPE_CHECKING, Any

from coupler.cli.exit_codes import INTERRUPTED, INVALID_WORKFLOW, SYSTEM, WRONG_INPUT, complain
from coupler.cli.main import signals_heard
from coupler.cli.run.progress import Screen, StepTree
from coupler.cli.run.questions import CommandFront, GivenAnswers, RehearsalFront, mocks_of
from coupler.cli.run.run import output_lines, tell_trouble, write_outputs
from coupler.cli.runs import Telling
from coupler.cli.store_access import UnusableStoreError
from coupler.cli.terminal import QuestionTerminal, clean, one_line
from coupler.config import ConfigError
from coupler.runtime.extras import MissingExtraError
from coupler.store.errors import StoreError
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError
from coupler.workflow.journal.run_events import Rehearsed, StepFinished, StepStarted

if TYPE_CHECKING:
    from coupler.cli.run.progress import Display, StepView
    from coupler.cli.run.run import RunOptions
    from coupler.workflow.engine.run import Started, Way
    from coupler.workflow.journal.run_events import Logged, RunFinished
    from coupler.workflow.language.library import Bundle


log = logging.getLogger("coupler.cli")

MOST_INTERRUPTS = 3
"""After so many, whatever the program waits for is waited for no longer."""

CANCELLING = "cancelling; Ctrl-C again ends it at once"


class Course:
    """One run, from what was typed to the exit code; used as a context manager."""

    def __init__(self, program: str, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self.terminal = _terminal()
        self._display: Display | None = None
        self._screen: Screen | None = None
        self._started: Started | None = None

    def __enter__(self) -> Course:
        return self

    def __exit__(self, *_: object) -> None:
        if self.terminal is not None:
            self.terminal.close()

    def way(self, bundle: Bundle, cwd: str) -> Way:
        """How the run is done; raises InputError for options that do not fit the workflow."""
        from coupler.workflow.engine.run import Way

        options = self.options
        if options.is_stepwise and self.terminal is None:
            raise InputError("--step asks before each step, and there is no terminal to ask on")
        answers = GivenAnswers(options.answers)
        answers.check(bundle, cwd)
        mocks = mocks_of(options.mocks or {}, bundle)
        self._display = _display(self.program, options, cwd)
        self._screen = Screen(self._display)
        if options.is_rehearsal:
            return Way(RehearsalFront(), is_rehearsal=True, mocks=mocks)
        front = CommandFront(self._screen, self.terminal, answers, options.approval, cwd)
        return Way(front, mocks=mocks, pause=front.choose if options.is_stepwise else None)

    async def take(self, started: Started, start: int) -> int:
        """Run it and show it, from this entry of its log on; the exit code."""
        assert self._screen is not None
        run = started.run
        following = asyncio.ensure_future(self._screen.follow(run.log, start))
        self._screen.mask = run.secrecy.masker.mask
        self._started = started
        try:
            finished = await started.engine.run()
        except BaseException:
            following.cancel()
            raise
        finally:
            self._started = None
        try:
            await following
        except ExceptionGroup:
            log.exception("the run could not be shown to its end")
        await self._screen.finish(run.id, run.secrecy.masked(finished))
        if self._screen.failure is not None:
            return _unwritten(self._screen.failure, self.program, finished.exit_code)
        return finished.exit_code

    def interrupt(self, task: asyncio.Task[Any] | None) -> None:
        """The first time the run is cancelled and its hooks run; the second time all ends at once."""
        if self._started is not None:
            self._started.engine.cancel()
            if self._display is not None:
                self._display.tell(CANCELLING)
        elif task is not None:
            task.cancel()


def conducted(program: str, options: RunOptions, story: Callable[[Course], Awaitable[int]]) -> int:
    """Run to the end, whoever interrupts it; the exit code."""

    async def work() -> int:
        task = asyncio.current_task()
        course = Course(program, options)
        with course, signals_heard(lambda _: course.interrupt(task), most=MOST_INTERRUPTS):
            return await story(course)

    _mend_streams(is_exact=options.is_quiet)
    try:
        return _flushed(asyncio.run(work()), program)
    except KeyboardInterrupt:
        # What was left in its midst complains when it is thrown away, and nobody wants to read that.
        sys.unraisablehook = lambda unraisable: None
        complain("cancelled", program)
        return INTERRUPTED
    except asyncio.CancelledError:
        complain("cancelled", program)
        return INTERRUPTED
    except InvalidWorkflowError as error:
        complain("\n".join(["the workflow is not valid:", *_seen_from_here(error)]), program)
        return INVALID_WORKFLOW
    except WorkflowError as error:
        complain(str(error), program)
        return WRONG_INPUT
    except (UnusableStoreError, StoreError, ConfigError, MissingExtraError) as error:
        complain(str(error), program)
        return SYSTEM


def _seen_from_here(error: InvalidWorkflowError) -> Iterator[str]:
    """Each problem, with its file as it would be typed here."""
    from coupler.cli.workflows import relative

    return (relative(problem, ".") for problem in error.problems)


def _flushed(code: int, program: str) -> int:
    """Somebody who reads no more does not change how the run ended; what is lost on a full disk does."""
    from coupler.cli.exec_output import silence_stdout

    try:
        sys.stdout.flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        return _unwritten(error, program, code)
    return code


def _unwritten(error: OSError, program: str, code: int) -> int:
    reason = (error.strerror or str(error)).lower()
    complain(f"the output cannot be written: {reason}. `coupler runs` has all of it", program)
    return code or SYSTEM


def _terminal() -> QuestionTerminal | None:
    """Where somebody can be asked: a person types there, and sees what is asked."""
    streams = (sys.stdin, sys.stderr)
    if not all(stream is not None and stream.isatty() for stream in streams):
        return None
    return QuestionTerminal.opened()


def _display(program: str, options: RunOptions, cwd: str) -> Display:
    stream = sys.stdout
    if options.is_json:
        return LinesDisplay(stream, program, cwd, is_json=True)
    if options.is_rehearsal:
        return PlanDisplay(stream, program, cwd)
    if options.is_quiet:
        return QuietDisplay(stream, program)
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return LinesDisplay(stream, program, cwd, is_json=False)
    from coupler.cli.run.progress import LiveDisplay

    return LiveDisplay(stream, program)


def _mend_streams(*, is_exact: bool) -> None:
    """What a stream cannot show is escaped; what programs wrote goes as it is to those who want only that."""
    if sys.stdout is None:
        sys.stdout = open(os.devnull, "w")  # noqa: PTH123
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: PTH123
    exact: list[IO[str]] = [sys.stdout] if is_exact else []
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            is_bytes = stream in exact and not stream.isatty()
            stream.reconfigure(errors="surrogateescape" if is_bytes else "backslashreplace")


# The displays of a run that write lines: for logs, for programs, and for those who want only the end.


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
