"""Performs steps that are made of no others by their kinds: for real, in a rehearsal, or with mocked results.

Here too is what comes before and after the work: gates, pauses of runs that go step by step, and retries.
"""

from __future__ import annotations

import asyncio
import random
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec
from msgspec import UNSET

from coupler.workflow.engine.attempt import Stopped, answered
from coupler.workflow.engine.front import (
    LONGEST_TITLE,
    AnsweredBy,
    Approval,
    PermissionQuestion,
    step_title,
)
from coupler.workflow.errors import CallDenied, InputError, Parked, StepError
from coupler.workflow.journal.journal import BEGAN, MARKED_DONE
from coupler.workflow.journal.run_events import (
    ApprovalAsked,
    ApprovalGiven,
    Decided,
    Place,
    Result,
)
from coupler.workflow.language.model import ApprovalGate, OnDeny, Retry, Step
from coupler.workflow.steps.kinds import kind_of

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt
    from coupler.workflow.engine.interpreter import Performer


FILES_OF_COMMAND = 5
"""Files that this process has open for each running command: the ends of its pipes, and some at its start."""

OTHER_FILES = 40
"""Those that a run needs besides."""


def most_commands() -> int:
    """Return how many commands may run at once with the files that this process may open."""
    if sys.platform == "win32":
        return 64
    import resource

    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if most == resource.RLIM_INFINITY:
        return 1024
    return max(1, (most - OTHER_FILES) // FILES_OF_COMMAND)


class Performing:
    """Performs steps for real: starts commands and agents, and asks."""

    def __init__(self) -> None:
        self._room = asyncio.Semaphore(most_commands())

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        kind = kind_of(step)
        async with self._room if kind.opens_files else nullcontext():
            return await kind.perform(step, attempt)


class Rehearsing:
    """Reports what each step would do in a dry run, and starts nothing."""

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        return await kind_of(step).rehearse(step, attempt)


class Mocked:
    """Takes the results of some steps from files, for tests, and leaves the others to another performer."""

    def __init__(self, files: Mapping[str, Path], performer: Performer) -> None:
        self._contents = {name: _content(name, file) for name, file in files.items()}
        self._performer = performer

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        content = self._contents.get(str(attempt.place), self._contents.get(step.id))
        if content is None:
            return await self._performer.perform(step, attempt)
        return kind_of(step).mocked(step, content, attempt)


def _content(name: str, file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise InputError(f"--mock {name}: {file} cannot be read: {error.strerror}") from None


Choice = Literal["run", "skip", "stop"]

Pause = Callable[[Place, str], Awaitable[Choice]]
"""Decides about the step at a place, which has this title, in runs that go step by step."""


async def pause_before(step: Step, attempt: Attempt, pause: Pause | None) -> Result | None:
    """Ask before the first attempt at a step; returns a result instead of it if it is skipped.

    Steps that only ask, decide or hold others are not asked about: they do nothing by themselves.
    """
    if pause is None or attempt.number > 1 or not kind_of(step).works:
        return None
    async with attempt.asking:
        choice = await pause(attempt.place, step_title(step, attempt))
    match choice:
        case "run":
            return None
        case "skip":
            return Result(status="skipped")
        case "stop":
            raise Stopped("cancelled", f"it was stopped before {attempt.place}")


async def pass_gate(step: Step, attempt: Attempt) -> Result | None:
    """Ask before a step is done, if it says so; returns a result if it is denied and skipped."""
    gate = step.gate
    if gate is None or (gate.question is None and gate.tools):
        return None
    decided = attempt.decision("approved")
    by: AnsweredBy = "user"
    if decided is UNSET:
        question = (
            f"Run {step_title(step, attempt)}?" if gate.question is None else attempt.text(gate.question)
        )
        approval = await ask_approval(gate, attempt, question)
        decided, by = approval.approved, approval.by
        if by != "nobody":
            await attempt.decide("approved", decided)
    return None if decided else denied_result(gate, attempt, by)


async def begin_once(step: Step, attempt: Attempt) -> Result | None:
    """Record that a step with `once` begins; if an earlier process was stopped in its midst, ask before.

    Returns a result if somebody says that it was done.
    """
    if not step.once or kind_of(step).is_instant:
        return None
    if attempt.decision(BEGAN) == attempt.number:
        if attempt.decision(MARKED_DONE) is UNSET and await _ask_interrupted(attempt) == "done":
            await attempt.decide(MARKED_DONE, True)
        if attempt.decision(MARKED_DONE) is not UNSET:
            return kind_of(step).result_of_done(step)
    await attempt.decide(BEGAN, attempt.number)
    return None


async def _ask_interrupted(attempt: Attempt) -> Literal["again", "done"]:
    """Ask what becomes of an interrupted step; raises `Parked` if nobody is there, and `Stopped`."""
    what = f"{attempt.place} was interrupted, and is to run once: it may be done."
    question = f"{what} Run it again, go on as done, or stop?"
    async with attempt.asking:
        attempt.emit(ApprovalAsked(question=question))
        answer = await answered(attempt.front.ask_interrupted(attempt.place, question))
        choice = answer.choice
        attempt.emit(ApprovalGiven(approved=choice != "stop", by=answer.by, marked_done=choice == "done"))
    if answer.by == "nobody":
        resume = f"coupler resume {attempt.run_id}"
        raise Parked(
            f"{what} If it was, go on with `{resume} --done {shlex.quote(str(attempt.place))}`; "
            f"run it again with `{resume} --yes`; or choose at a terminal"
        )
    if choice == "stop":
        raise Stopped("cancelled", f"{attempt.place} was interrupted, and is not to run again")
    return choice


def note_waiting(step: Step, attempt: Attempt) -> None:
    """Record that a `once` step only waits for somebody, so that it may go on after a restart."""
    if step.once:
        attempt.emit(Decided(what=BEGAN, value=0))


async def ask_approval(
    gate: ApprovalGate,
    attempt: Attempt,
    question: str,
    wish: PermissionQuestion | None = None,
) -> Approval:
    """Ask for a yes or no, and record it; without an answer in time it is the default, else no.

    `wish` is the tool call of the step's agent, if the question is not about the step.
    """
    default = None if gate.default is None else gate.default == "allow"
    call = None if wish is None else wish.call
    async with attempt.asking:
        attempt.emit(ApprovalAsked(question=question, call=call))
        try:
            async with asyncio.timeout(gate.timeout):
                asking = attempt.front.approve(attempt.place, question, default, wish)
                # An answer to the agent is worth nothing once its turn is cancelled.
                approval = await (answered(asking) if wish is None else asking)
        except TimeoutError:
            approval = Approval(approved=bool(default), by="timeout")
        except asyncio.CancelledError:
            if wish is not None:
                # The agent, or who cancelled its turn, does not want to know any more.
                attempt.emit(ApprovalGiven(approved=False, by="nobody", call=call))
            raise
        attempt.emit(ApprovalGiven(approved=approval.approved, by=approval.by, call=call))
    return approval


def denied_result(gate: ApprovalGate, attempt: Attempt, by: AnsweredBy = "user") -> Result:
    """Return the result of a step after a no; raises `StepError` or `Stopped` if `on_deny` says so."""
    return _denied(gate.on_deny, attempt, by, "it", Result(status="failed"))


def denied_call_result(
    gate: ApprovalGate | None, attempt: Attempt, denied: CallDenied, so_far: Result
) -> Result:
    """Return the result of a step whose agent was denied a tool call, with what there is of its answer."""
    assert gate is not None
    assert gate.on_denied_call is not None
    call = attempt.mask(denied.title)[:LONGEST_TITLE]
    return _denied(gate.on_denied_call, attempt, denied.by, f"its tool call `{call}`", so_far)


def _denied(on_deny: OnDeny, attempt: Attempt, by: AnsweredBy, what: str, so_far: Result) -> Result:
    reason = "was not approved: nobody could be asked" if by == "nobody" else "was denied"
    result = msgspec.structs.replace(so_far, approved=False)
    match on_deny:
        case "skip":
            return msgspec.structs.replace(result, status="denied")
        case "fail":
            raise StepError("denied", f"{what} {reason}", result=result)
        case "stop":
            raise Stopped("cancelled", f"{attempt.place} {reason}")


NEVER_AGAIN = frozenset({"denied", "cancelled", "budget"})
"""Kinds of errors that another attempt cannot mend, unless `on` names them."""

LONGEST_DELAY = 3600.0
"""Seconds that a provider may make us wait at most."""


def delay_before_next(retry: Retry | None, attempt: int, error: StepError) -> float | None:
    """Return the seconds until the next attempt, or None if this was the last one."""
    if retry is None or attempt >= retry.attempts or not _is_worth_it(retry, error):
        return None
    delay = min(_grown(retry, attempt), retry.max_delay)
    if retry.jitter:
        delay *= 1 + random.uniform(-retry.jitter, retry.jitter)
    if error.retry_after is not None:
        delay = max(delay, min(error.retry_after, LONGEST_DELAY))
    return delay


def _is_worth_it(retry: Retry, error: StepError) -> bool:
    if not retry.on:
        return error.kind not in NEVER_AGAIN
    return error.kind in retry.on or (error.exit_code is not None and error.exit_code in retry.on)


def _grown(retry: Retry, attempt: int) -> float:
    match retry.backoff:
        case "constant":
            return retry.delay
        case "linear":
            return retry.delay * attempt
        case "exponential":
            # Capped before it grows: 2.0 to a high power is too large for a float.
            return retry.delay * 2.0 ** min(attempt - 1, 64)
