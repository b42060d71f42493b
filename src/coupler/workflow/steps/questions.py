"""The kinds `approve` and `ask`: questions to the user."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from msgspec import structs

from coupler.workflow.errors import InputError, StepError
from coupler.workflow.journal.run_events import AnswerAsked, AnswerGiven, Result
from coupler.workflow.language.inputs import parse_input
from coupler.workflow.language.model import ApprovalGate, Approve, Ask, Workflow
from coupler.workflow.steps.kind import StepKind

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt

YES = frozenset({"y", "yes", "true", "allow"})
NO = frozenset({"n", "no", "false", "deny"})


class ApproveKind(StepKind[Approve]):
    """A question that is answered by yes or no."""

    struct = Approve
    asks_user = True
    is_always_shown = True
    is_detailed = True
    shape: ClassVar[tuple[str, str]] = ("{", "}")

    def fields(self, step: Approve, workflow: Workflow) -> Sequence[str]:
        return ("approved",)

    def own_gate(self, step: Approve) -> ApprovalGate | None:
        return step.question

    def check_answers(self, step: Approve, texts: Sequence[str], cwd: str) -> None:
        _check_single(texts)
        if texts[0].strip().lower() not in YES | NO:
            raise InputError("answer with yes or no")

    def title(self, step: Approve) -> str:
        return step.question.question or "Approve"

    async def perform(self, step: Approve, attempt: Attempt) -> Result:
        from coupler.workflow.engine.performers import ask_approval, denied_result

        gate = step.question
        approval = await ask_approval(gate, attempt, attempt.text(gate.question or "Go on?"))
        if not approval.approved:
            return denied_result(gate, attempt, approval.by)
        return Result(status="success", approved=True)

    def rehearsal(self, step: Approve, attempt: Attempt) -> str:
        return attempt.text(step.question.question or "")

    def mocked(self, step: Approve, content: str, attempt: Attempt) -> Result:
        is_approved = content.strip().lower() not in NO
        if not is_approved and step.question.on_deny == "fail":
            raise StepError("denied", "it was denied")
        return Result(status="success" if is_approved else "denied", approved=is_approved)

    def result_of_done(self, step: Approve) -> Result:
        return structs.replace(super().result_of_done(step), approved=True)


class AskKind(StepKind[Ask]):
    """A question whose answer is text, or a value of a type."""

    struct = Ask
    asks_user = True
    is_always_shown = True
    is_detailed = True
    shape: ClassVar[tuple[str, str]] = ("[/", "/]")

    def fields(self, step: Ask, workflow: Workflow) -> Sequence[str]:
        return ("text", "output")

    def check_answers(self, step: Ask, texts: Sequence[str], cwd: str) -> None:
        _check_single(texts)
        parse_input(step.answer, texts[0], cwd)

    def title(self, step: Ask) -> str:
        return step.question

    async def perform(self, step: Ask, attempt: Attempt) -> Result:
        from coupler.workflow.engine.attempt import answered

        question = attempt.text(step.question)
        async with attempt.asking:
            attempt.emit(AnswerAsked(question=question, choices=step.answer.enum))
            answer = await answered(attempt.front.ask(attempt.place, question, step.answer))
            attempt.emit(AnswerGiven(text=answer.text, by=answer.by))
        return Result(status="success", text=answer.text, output=answer.value)

    def rehearsal(self, step: Ask, attempt: Attempt) -> str:
        return attempt.text(step.question)

    def mocked(self, step: Ask, content: str, attempt: Attempt) -> Result:
        answer = content.removesuffix("\n")
        try:
            output = parse_input(step.answer, answer, attempt.cwd)
        except InputError as error:
            raise StepError("invalid_output", f"the file is no answer: {error}") from None
        return Result(status="success", text=answer, output=output)

    def result_of_done(self, step: Ask) -> Result:
        return structs.replace(super().result_of_done(step), text="")


def _check_single(texts: Sequence[str]) -> None:
    if len(texts) > 1:
        raise InputError("it is asked once: give one answer")
