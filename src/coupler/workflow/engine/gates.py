"""Questions that are answered by yes or no before something is done."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from msgspec import UNSET

from coupler.workflow.engine.attempt import Attempt
from coupler.workflow.engine.flow import Stopped
from coupler.workflow.engine.front import Approval, By, Wish
from coupler.workflow.engine.titles import title_of
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.happenings import ApprovalAsked, ApprovalGiven, Decided
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Gate, Step


async def pass_gate(step: Step, attempt: Attempt) -> Result | None:
    """Ask before a step is done, if it says so; a result instead of it if it is denied and skipped."""
    gate = step.gate
    if gate is None or (gate.question is None and gate.tools):
        return None
    decided = attempt.decision("approved")
    by: By = "user"
    if decided is UNSET:
        question = f"Run {title_of(step, attempt)}?" if gate.question is None else attempt.text(gate.question)
        approval = await ask_approval(gate, attempt, question)
        decided, by = approval.approved, approval.by
        if by != "nobody":
            await attempt.decide("approved", decided)
    return None if decided else denied_result(gate, attempt, by)


async def begin_once(step: Step, attempt: Attempt) -> None:
    """Ask whether a step that must run once may run, if an earlier process was stopped in its midst."""
    if not step.once:
        return
    if attempt.decision("began") == attempt.number:
        question = f"{attempt.place} was interrupted, and is to run once: it may be done. Run it again?"
        approval = await ask_approval(Gate(), attempt, question)
        if approval.by == "nobody":
            raise Parked(f"{attempt.place} was interrupted, and is to run once: somebody has to decide")
        if not approval.approved:
            raise StepError("denied", "it was interrupted, and is not to run again")
    await attempt.decide("began", attempt.number)


def note_waiting(step: Step, attempt: Attempt) -> None:
    """It waits for somebody, and was not interrupted: if it must run once, it goes on all the same."""
    if step.once:
        attempt.emit(Decided(what="began", value=0))


async def ask_approval(
    gate: Gate,
    attempt: Attempt,
    question: str,
    wish: Wish | None = None,
    settled: Callable[[], Awaitable[bool | None]] | None = None,
) -> Approval:
    """Ask, and tell that; whoever does not answer in time gives the default answer, else no.

    `wish` is what the step's agent wants to do, if it is not about the step. `settled` is looked at when it
    is this question's turn: the answer to one before it may have decided this one as well.
    """
    default = None if gate.default is None else gate.default == "allow"
    call = None if wish is None else wish.call
    async with attempt.asking:
        if settled is not None and (approved := await settled()) is not None:
            return Approval(approved, by="rule")
        attempt.emit(ApprovalAsked(question=question, call=call))
        try:
            async with asyncio.timeout(gate.timeout):
                approval = await attempt.front.approve(attempt.place, question, default, wish)
        except TimeoutError:
            approval = Approval(approved=bool(default), by="timeout")
        except asyncio.CancelledError:
            if wish is not None:
                # The agent, or who cancelled its turn, does not want to know any more.
                attempt.emit(ApprovalGiven(approved=False, by="nobody", call=call))
            raise
        attempt.emit(ApprovalGiven(approved=approval.approved, by=approval.by, call=call))
    return approval


def denied_result(gate: Gate, attempt: Attempt, by: By = "user") -> Result:
    """What becomes of a step after a no."""
    reason = "was not approved: nobody could be asked" if by == "nobody" else "was denied"
    match gate.on_deny:
        case "skip":
            return Result(status="denied", approved=False)
        case "fail":
            raise StepError("denied", f"it {reason}", result=Result(status="failed", approved=False))
        case "stop":
            raise Stopped("cancelled", f"{attempt.place} {reason}")
