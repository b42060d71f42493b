"""Executes a run on the command line: started or resumed, shown, interrupted, and ended with a code.

The displays that write lines are here: for logs, for programs, and for those who want only the end.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from coupler.cli.exit_codes import INTERRUPTED, INVALID_WORKFLOW, SYSTEM, WRONG_INPUT, print_error
from coupler.cli.main import handle_signals
from coupler.cli.output import Output, open_closed_streams, silence_stdout, stderr, stdout
from coupler.cli.run.progress import LiveDisplay, ProgressScreen, StepTree
from coupler.cli.run.questions import CommandFront, GivenAnswers, RehearsalFront, mock_files
from coupler.cli.run.run import output_lines, report_failure, write_outputs
from coupler.cli.run.run_log import RunLogWriter
from coupler.cli.store_access import UnusableStoreError
from coupler.cli.terminal import QuestionTerminal
from coupler.config import ConfigError
from coupler.runtime.extras import MissingExtraError
from coupler.runtime.terminal_text import clean, one_line
from coupler.store.errors import StoreError
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError
from coupler.workflow.journal.run_events import Rehearsed, StepFinished, StepStarted
from coupler.workflow.steps.kinds import kind_named

if TYPE_CHECKING:
    from coupler.cli.run.progress import Display, StepView
    from coupler.cli.run.run import RunOptions
    from coupler.workflow.engine.run import EngineOptions, StartedRun
    from coupler.workflow.journal.run_events import Logged, RunFinished
    from coupler.workflow.language.library import Bundle


log = logging.getLogger("coupler.cli")

MOST_INTERRUPTS = 3
"""Interrupts after which the program stops waiting for anything."""

CANCELLING = "cancelling; Ctrl-C again ends it at once"


def execute(program: str, options: RunOptions, story: Callable[[RunExecution], Awaitable[int]]) -> int:
    """Runs to the end, whoever interrupts it; returns the exit code."""

    async def work() -> int:
        task = asyncio.current_task()
        execution = RunExecution(program, options)
        with execution, handle_signals(lambda _: execution.interrupt(task), most=MOST_INTERRUPTS):
            return await story(execution)

    open_closed_streams(is_output_needed=False)
    try:
        return _flushed(asyncio.run(work()), program)
    except KeyboardInterrupt:
        # What was left in its midst complains when it is thrown away, and nobody wants to read that.
        sys.unraisablehook = lambda unraisable: None
        print_error("cancelled", program)
        return INTERRUPTED
    except asyncio.CancelledError:
        print_error("cancelled", program)
        return INTERRUPTED
    except InvalidWorkflowError as error:
        print_error("\n".join(["the workflow is not valid:", *_problem_lines(error)]), program)
        return INVALID_WORKFLOW
    except WorkflowError as error:
        print_error(str(error), program)
        return WRONG_INPUT
    except (UnusableStoreError, StoreError, ConfigError, MissingExtraError) as error:
        print_error(str(error), program)
        return SYSTEM


class RunExecution:
    """One run, from what was typed to the exit code; used as a context manager."""

    def __init__(self, program: str, options: RunOptions) -> None:
        self.program = program
        self.options = options
        self.terminal = _open_terminal()
        self._display: Display | None = None
        self._screen: ProgressScreen | None = None
        self._started: StartedRun | None = None

    def __enter__(self) -> RunExecution:
        return self

    def __exit__(self, *_: object) -> None:
        if self.terminal is not None:
            self.terminal.close()

    def prepare(self, bundle: Bundle, cwd: str) -> EngineOptions:
        """Prepares how the run is done; raises InputError for options that do not fit the workflow."""
        from coupler.workflow.engine.run import EngineOptions

        options = self.options
        if options.is_stepwise and self.terminal is None:
            raise InputError("--step asks before each step, and there is no terminal to ask on")
        answers = GivenAnswers(options.answers)
        answers.check(bundle, cwd)
        mocks = mock_files(options.mocks or {}, bundle)
        self._display = _display(self.program, options, cwd)
        self._screen = ProgressScreen(self._display)
        if options.is_rehearsal:
            return EngineOptions(RehearsalFront(), is_rehearsal=True, mocks=mocks)
        front = CommandFront(self._screen, self.terminal, answers, options.approval, cwd)
        return EngineOptions(front, mocks=mocks, pause=front.choose if options.is_stepwise else None)

    async def run(self, started: StartedRun, start: int) -> int:
        """Runs it and shows it, from this entry of its log on; returns the exit code."""
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
            return _report_write_error(self._screen.failure, self.program, finished.exit_code)
        return finished.exit_code

    def interrupt(self, task: asyncio.Task[Any] | None) -> None:
        """Cancels the run and runs its hooks the first time; the second time ends all at once."""
        if self._started is not None:
            self._started.engine.cancel()
            if self._display is not None:
                self._display.tell(CANCELLING)
        elif task is not None:
            task.cancel()


def _problem_lines(error: InvalidWorkflowError) -> Iterator[str]:
    """Formats each problem, with its file relative to this directory."""
    from coupler.cli.workflows import problem_line

    return (problem_line(problem, ".") for problem in error.problems)


def _flushed(code: int, program: str) -> int:
    """Flushes stdout: a closed pipe leaves the exit code as it is, a full disk does not."""
    try:
        stdout().flush()
    except BrokenPipeError:
        silence_stdout()
    except OSError as error:
        silence_stdout()
        return _report_write_error(error, program, code)
    return code


def _report_write_error(error: OSError, program: str, code: int) -> int:
    reason = (error.strerror or str(error)).lower()
    print_error(f"the output cannot be written: {reason}. `coupler runs` has all of it", program)
    return code or SYSTEM


def _open_terminal() -> QuestionTerminal | None:
    """The terminal to ask on, if a person types there and sees what is asked."""
    return QuestionTerminal.opened() if sys.stdin.isatty() and stderr().is_terminal else None


def _display(program: str, options: RunOptions, cwd: str) -> Display:
    output = stdout()
    if options.is_json:
        return LinesDisplay(output, program, is_json=True)
    if options.is_rehearsal:
        return PlanDisplay(output, program, cwd)
    if options.is_quiet:
        # What programs wrote goes as it is to those who want only that.
        return QuietDisplay(output if output.is_terminal else stdout(errors="surrogateescape"), program)
    if not output.is_terminal or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return LinesDisplay(output, program, is_json=False)
    return LiveDisplay(output, program)


class LinesDisplay:
    """Writes a line for each event, without anything that only a terminal understands."""

    pace: float | None = None
    shows_history = False

    def __init__(self, output: Output, program: str, *, is_json: bool) -> None:
        self.shows_texts = output.is_terminal
        self._output = output
        self._program = program
        self._is_json = is_json
        self._writer = RunLogWriter(output, None, is_json=is_json)  # its log is redacted

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._writer.tell(logged)

    def clear(self) -> None:
        self._writer.end()

    def tell(self, hint: str) -> None:
        print_error(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        self._writer.end()
        if not self._is_json:
            for line in output_lines(finished.outputs):
                self._output.line(line)
            self._output.flush()
        report_failure(self._program, run, finished)


class QuietDisplay:
    """Writes the outputs, once there are some."""

    pace: float | None = None
    shows_history = False
    shows_texts = False

    def __init__(self, output: Output, program: str) -> None:
        self._output = output
        self._program = program
        self._tree = StepTree()

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            self._tree.learn(logged)

    def clear(self) -> None:
        return

    def tell(self, hint: str) -> None:
        print_error(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        write_outputs(finished.outputs, self._output)
        report_failure(self._program, run, finished, self._tree.last_output_of(finished.failed_step))


class PlanDisplay:
    """Writes what a dry run would do: the steps, and below each its command or prompt as it would be."""

    pace: float | None = None
    shows_history = False
    shows_texts = False

    def __init__(self, output: Output, program: str, cwd: str) -> None:
        self._output = output
        self._program = program
        self._cwd = cwd
        self._tree = StepTree()

    def show(self, happened: Sequence[Logged]) -> None:
        for logged in happened:
            step = self._tree.learn(logged)
            if step is not None:
                self._tell(logged, step)
        self._output.flush()

    def clear(self) -> None:
        return

    def tell(self, hint: str) -> None:
        print_error(hint, self._program)

    def finish(self, run: str, finished: RunFinished) -> None:
        report_failure(self._program, None, finished)

    def _tell(self, logged: Logged, step: StepView) -> None:
        is_again = step.name.startswith("#")
        # A step that is come back to is called by its number below the first visit, which is far above here.
        name = one_line(str(step.place) if is_again else step.name)
        indent = "  " * (step.depth - is_again)
        kind = kind_named(step.kind)
        match logged.happening:
            case StepStarted():
                title = "" if kind.is_detailed else f"  {one_line(step.title)}"
                self._output.line(f"{indent}{name}  {step.kind}{title}")
            case Rehearsed() if kind.conditional_end:
                self._output.line(f"{indent}  {kind.conditional_end}")
            case StepFinished(result=result) if result.status == "skipped" and not step.title:
                self._output.line(f"{indent}{name}  skipped: its `if` is false, as far as is known")
            case StepFinished(result=result) if result.error is not None:
                self._output.line(f"{indent}  would fail: {one_line(result.error.message)}")
            case Rehearsed() as rehearsed:
                self._tell_work(rehearsed, f"{indent}  ")

    def _tell_work(self, rehearsed: Rehearsed, indent: str) -> None:
        if rehearsed.cwd != self._cwd:
            self._output.line(f"{indent}in {one_line(rehearsed.cwd)}")
        for name, value in rehearsed.env.items():
            self._output.line(f"{indent}with {one_line(name)}={one_line(value)}")
        for line in clean(rehearsed.text).strip("\n").split("\n"):
            self._output.line(f"{indent}| {line}".rstrip())
