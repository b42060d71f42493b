"""The course of a run on a command line: started or resumed, shown, interrupted, and ended with a code."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from typing import IO, TYPE_CHECKING, Any

from coupler.cli.exit_codes import INTERRUPTED, INVALID_WORKFLOW, SYSTEM, WRONG_INPUT
from coupler.cli.kept import UnusableStoreError
from coupler.cli.question_terminal import QuestionTerminal
from coupler.cli.refusal import complain
from coupler.cli.run.answers import GivenAnswers, mocks_of
from coupler.cli.run.front import CommandFront, RehearsalFront
from coupler.cli.run.screen import Screen
from coupler.cli.signals import signals_heard
from coupler.config import ConfigError
from coupler.runtime.extras import MissingExtraError
from coupler.store.errors import StoreError
from coupler.workflow.errors import InputError, InvalidWorkflowError, WorkflowError

if TYPE_CHECKING:
    from coupler.cli.run.options import RunOptions
    from coupler.cli.run.screen import Display
    from coupler.workflow.engine.run import Started, Way
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
    from coupler.cli.workflows.check import relative

    return (relative(problem, ".") for problem in error.problems)


def _flushed(code: int, program: str) -> int:
    """Somebody who reads no more does not change how the run ended; what is lost on a full disk does."""
    from coupler.cli.exec.output import silence_stdout

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
    from coupler.cli.run.displays import LinesDisplay, PlanDisplay, QuietDisplay

    stream = sys.stdout
    if options.is_json:
        return LinesDisplay(stream, program, cwd, is_json=True)
    if options.is_rehearsal:
        return PlanDisplay(stream, program, cwd)
    if options.is_quiet:
        return QuietDisplay(stream, program)
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown"):
        return LinesDisplay(stream, program, cwd, is_json=False)
    from coupler.cli.run.live import LiveDisplay

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
