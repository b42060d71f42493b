"""Performs steps that are made of no others: for real, in a rehearsal, or with results from files.

Here too is what comes before and after the work: gates, pauses of runs that go step by step, and retries.
"""

from __future__ import annotations

import asyncio
import random
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
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
from coupler.workflow.expressions.expression import unknown
from coupler.workflow.journal.journal import BEGAN, MARKED_DONE
from coupler.workflow.journal.run_events import (
    AnswerAsked,
    AnswerGiven,
    ApprovalAsked,
    ApprovalGiven,
    Decided,
    Place,
    Rehearsed,
    Result,
)
from coupler.workflow.language.model import (
    Agent,
    AgentSettings,
    ApprovalGate,
    Approve,
    Ask,
    Converse,
    Json,
    OnDeny,
    Retry,
    Run,
    Set,
    Step,
    Stop,
)

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
        match step:
            case Run():
                from coupler.workflow.steps.run import perform_command

                async with self._room:
                    return await perform_command(step, attempt)
            case Agent():
                from coupler.workflow.agents.prompts import perform_agent

                return await perform_agent(step, attempt)
            case Converse():
                from coupler.workflow.agents.prompts import perform_conversation

                return await perform_conversation(step, attempt)
            case Approve():
                return await _approve(step, attempt)
            case Ask():
                return await _ask(step, attempt)
            case Set():
                return _set(step, attempt)
            case Stop():
                return _stop(step, attempt)
            case _:
                raise AssertionError(f"{step.id} is made of other steps")


async def _approve(step: Approve, attempt: Attempt) -> Result:
    gate = step.question
    approval = await ask_approval(gate, attempt, attempt.text(gate.question or "Go on?"))
    if not approval.approved:
        return denied_result(gate, attempt, approval.by)
    return Result(status="success", approved=True)


async def _ask(step: Ask, attempt: Attempt) -> Result:
    question = attempt.text(step.question)
    async with attempt.asking:
        attempt.emit(AnswerAsked(question=question, choices=step.answer.enum))
        answer = await answered(attempt.front.ask(attempt.place, question, step.answer))
        attempt.emit(AnswerGiven(text=answer.text, by=answer.by))
    return Result(status="success", text=answer.text, output=answer.value)


def _set(step: Set, attempt: Attempt) -> Result:
    values = {name: _evaluated(value, attempt) for name, value in step.values.items()}
    return Result(status="success", output=values)


def _evaluated(value: object, attempt: Attempt) -> object:
    return attempt.expressions.evaluate(value, attempt.names) if isinstance(value, str) else value


def _stop(step: Stop, attempt: Attempt) -> Result:
    output = {"status": step.status, "message": attempt.text(step.message), "exit_code": step.exit_code}
    return Result(status="success", output=output)


NO = frozenset({"no", "n", "deny", "false"})


class Rehearsing:
    """Reports what each step would do in a dry run, and starts nothing."""

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        match step:
            case Stop() if step.condition is not None:
                # Whether it would stop here is not known, and there is more to tell.
                attempt.emit(Rehearsed(text=f"stop: {attempt.text(step.message)}"))
                return Result(status="skipped")
            case Set() | Stop():
                return await Performing().perform(step, attempt)
            case Run():
                text = attempt.text(step.script) if step.script is not None else f"the script {step.file}"
            case Agent() | Converse():
                text = attempt.text(step.agent) + _prompt(step.set_up, attempt)
            case Approve():
                text = attempt.text(step.question.question or "")
            case Ask():
                text = attempt.text(step.question)
            case _:
                raise AssertionError(f"{step.id} is made of other steps")
        attempt.emit(Rehearsed(text=text, cwd=attempt.cwd, env=dict(attempt.env)))
        return _unknown(step.id)


def _prompt(set_up: AgentSettings, attempt: Attempt) -> str:
    if set_up.prompt is not None:
        return f": {attempt.text(set_up.prompt)}"
    return f": the prompt in {set_up.prompt_file}" if set_up.prompt_file is not None else ""


def _unknown(id: str) -> Result:
    """Return the result of a step in a dry run: marks in place of its texts, and no outputs."""
    stdout, stderr, text = (unknown(id, field) for field in ("stdout", "stderr", "text"))
    return Result(status="success", exit_code=0, approved=True, stdout=stdout, stderr=stderr, text=text)


class Mocked:
    """Takes the results of some steps from files, for tests, and leaves the others to another performer."""

    def __init__(self, files: Mapping[str, Path], performer: Performer) -> None:
        self._contents = {name: _content(name, file) for name, file in files.items()}
        self._performer = performer

    async def perform(self, step: Step, attempt: Attempt) -> Result:
        content = self._contents.get(str(attempt.place), self._contents.get(step.id))
        if content is None:
            return await self._performer.perform(step, attempt)
        return _mocked(step, content, attempt)


def _content(name: str, file: Path) -> str:
    try:
        return file.read_bytes().decode(errors="surrogateescape")
    except OSError as error:
        raise InputError(f"--mock {name}: {file} cannot be read: {error.strerror}") from None


def _mocked(step: Step, content: str, attempt: Attempt) -> Result:
    """Return a result with the file's text as the step's output or answer."""
    match step:
        case Run():
            from coupler.workflow.steps.run import parsed_output

            output = parsed_output(step, content)
            return Result(status="success", stdout=content, stderr="", exit_code=0, output=output)
        case Approve():
            is_approved = content.strip().lower() not in NO
            if not is_approved and step.question.on_deny == "fail":
                raise StepError("denied", "it was denied")
            return Result(status="success" if is_approved else "denied", approved=is_approved)
        case Agent():
            return Result(status="success", text=content, output=_mocked_output(step, content))
        case Ask():
            answer = content.removesuffix("\n")
            return Result(status="success", text=answer, output=_mocked_answer(step, answer, attempt.cwd))
        case Converse():
            text = content.removesuffix("\n")
            return Result(status="success", text=text, output=[{"role": "agent", "text": text}])
        case _:
            text = content.removesuffix("\n")
            return Result(status="success", text=text, output=text)


def _mocked_output(step: Agent, content: str) -> Json | msgspec.UnsetType:
    """Return what an agent would answer, as strictly as from an agent; raises `StepError`."""
    from coupler.workflow.agents.agent_start import output_schema
    from coupler.workflow.steps.run import fitting

    if step.set_up.output is None:
        return msgspec.UNSET
    return fitting(output_schema(step.set_up.output, step.position.file), _json(content), "the file")


def _mocked_answer(step: Ask, answer: str, cwd: str) -> Json:
    from coupler.workflow.language.inputs import parse_input

    try:
        return parse_input(step.answer, answer, cwd)
    except InputError as error:
        raise StepError("invalid_output", f"the file is no answer: {error}") from None


def _json(content: str) -> Json:
    try:
        return msgspec.json.decode(content.encode(errors="surrogateescape"))
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise StepError("invalid_output", f"the file is no JSON: {error}") from None


Choice = Literal["run", "skip", "stop"]

Pause = Callable[[Place, str], Awaitable[Choice]]
"""Decides about the step at a place, which has this title, in runs that go step by step."""


async def pause_before(step: Step, attempt: Attempt, pause: Pause | None) -> Result | None:
    """Ask before the first attempt at a step; returns a result instead of it if it is skipped.

    Steps that only ask, decide or hold others are not asked about: they do nothing by themselves.
    """
    if pause is None or attempt.number > 1 or not isinstance(step, Run | Agent | Converse):
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
    if not step.once or isinstance(step, Set | Stop):
        return None
    if attempt.decision(BEGAN) == attempt.number:
        if attempt.decision(MARKED_DONE) is UNSET and await _ask_interrupted(attempt) == "done":
            await attempt.decide(MARKED_DONE, True)
        if attempt.decision(MARKED_DONE) is not UNSET:
            return _result_of_done(step)
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


def _result_of_done(step: Step) -> Result:
    """Return the result of a step that was done: it has succeeded, and what came out of it is not known."""
    done = Result(status="success", marked_done=True)
    match step:
        case Run():
            output: Json = [] if step.output == "lines" else UNSET
            return msgspec.structs.replace(done, exit_code=0, stdout="", stderr="", output=output)
        case Agent() | Ask():
            return msgspec.structs.replace(done, text="")
        case Converse():
            return msgspec.structs.replace(done, text="", output=[])
        case Approve():
            return msgspec.structs.replace(done, approved=True)
        case _:
            return done


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
