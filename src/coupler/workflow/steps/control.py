"""The kinds `call`, `set`, `stop`, `break` and `continue`: other workflows, variables, and ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar, TypeVar

from coupler.fields.nodes import MappingNode
from coupler.runtime.formatting import printable
from coupler.workflow.errors import InputError
from coupler.workflow.expressions.expression import is_plain
from coupler.workflow.journal.run_events import Rehearsed, Result
from coupler.workflow.language.inputs import check_given
from coupler.workflow.language.model import (
    Break,
    Call,
    Continue,
    Input,
    Json,
    Set,
    SourcePosition,
    Step,
    Stop,
    Workflow,
)
from coupler.workflow.steps.kind import BlockKind, StepKind
from coupler.workflow.validation.findings import ProblemCollector, nearest

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import Attempt, StepScope
    from coupler.workflow.engine.blocks import BlockRun
    from coupler.workflow.validation.checks import StepCheck


R = TypeVar("R", Break, Continue)


class CallKind(BlockKind[Call]):
    """Another workflow, whose outputs are the step's."""

    struct = Call
    is_recalled = False
    shape: ClassVar[tuple[str, str]] = ("[[", "]]")

    def fields(self, step: Call, workflow: Workflow) -> Sequence[str]:
        return ("output",)

    def called(self, step: Call) -> str | None:
        return step.workflow

    def check(self, step: Call, check: StepCheck) -> None:
        """Check its inputs; a workflow that was not found is reported elsewhere."""
        if (called := check.called.get((check.workflow.file, step.workflow))) is not None:
            _check_inputs(step, called, check.findings)

    def title(self, step: Call) -> str:
        return f"call {step.workflow}"

    async def go_through(self, step: Call, block: BlockRun) -> Json:
        context = block.context.inside(block.attempt.place, f"{block.name}/")
        return await block.lists.run_called(step, block.attempt, context)


class SetKind(StepKind[Set]):
    """Variables, from here on."""

    struct = Set
    is_instant = True
    shape: ClassVar[tuple[str, str]] = ("{{", "}}")

    def fields(self, step: Set, workflow: Workflow) -> Sequence[str]:
        return ("output",)

    def output_names(self, step: Set) -> Sequence[str] | None:
        return [*step.values]

    def variables(self, step: Set) -> Iterator[str]:
        yield from step.values

    def title(self, step: Set) -> str:
        return f"set {', '.join(step.values)}"

    async def perform(self, step: Set, attempt: Attempt) -> Result:
        values = {name: _evaluated(value, attempt) for name, value in step.values.items()}
        return Result(status="success", output=values)

    async def rehearse(self, step: Set, attempt: Attempt) -> Result:
        return await self.perform(step, attempt)

    def take_effect(self, step: Set, result: Result, scope: StepScope) -> None:
        assert isinstance(result.output, dict)
        scope.vars.update(result.output)


class StopKind(StepKind[Stop]):
    """The end of the workflow."""

    struct = Stop
    is_instant = True
    leaves_list = "stops"
    conditional_end = "ends the run there if its `if` is true"
    shape: ClassVar[tuple[str, str]] = ("((", "))")

    def title(self, step: Stop) -> str:
        return step.ending.message or f"stop: {step.ending.status}"

    async def perform(self, step: Stop, attempt: Attempt) -> Result:
        output = {
            "status": step.ending.status,
            "message": attempt.text(step.ending.message),
            "exit_code": step.ending.exit_code,
        }
        return Result(status="success", output=output)

    async def rehearse(self, step: Stop, attempt: Attempt) -> Result:
        if step.condition is None:
            return await self.perform(step, attempt)
        # Whether it would stop here is not known, and there is more to tell.
        attempt.emit(Rehearsed(text=f"stop: {attempt.text(step.ending.message)}"))
        return Result(status="skipped")

    def take_effect(self, step: Stop, result: Result, scope: StepScope) -> None:
        from coupler.workflow.engine.attempt import Stopped

        assert isinstance(result.output, dict)
        raise Stopped(**result.output)


class _LeavesRound(StepKind[R]):
    """The base of `break` and `continue`, which end the round of the loop around them."""

    is_instant = True
    shape: ClassVar[tuple[str, str]] = ("((", "))")

    def check(self, step: R, check: StepCheck) -> None:
        if (problem := self._problem(step, check.view.steps_around())) is not None:
            check.findings.wrong(check.findings.place_of(step, self.name), problem)

    def _problem(self, step: R, around: Sequence[Step]) -> str | None:
        from coupler.workflow.steps.kinds import kind_of

        if not any(kind_of(each).is_loop for each in around):
            return f"`{self.name}` is there only inside of a loop"
        if not kind_of(around[0]).is_loop:
            return (
                f"`{self.name}` cannot leave a branch of `{around[0].id}`: put it behind that step, where "
                "all branches are over"
            )
        return None

    async def perform(self, step: R, attempt: Attempt) -> Result:
        return Result(status="success")

    async def rehearse(self, step: R, attempt: Attempt) -> Result:
        if step.condition is None:
            return await self.perform(step, attempt)
        # What comes after it is told as well.
        attempt.emit(Rehearsed(text=self.title(step)))
        return Result(status="skipped")


class BreakKind(_LeavesRound[Break]):
    """The end of a loop."""

    struct = Break
    leaves_list = "leaves the loop"
    conditional_end = "leaves the loop there if its `if` is true"

    def _problem(self, step: Break, around: Sequence[Step]) -> str | None:
        from coupler.workflow.steps.kinds import kind_of

        problem = super()._problem(step, around)
        if problem is None and kind_of(around[0]).is_concurrent(around[0]):
            return (
                f"`break` needs a loop that takes one item after the other: leave `max_concurrent` of "
                f"`{around[0].id}` out"
            )
        return problem

    def title(self, step: Break) -> str:
        return "leave the loop"

    def take_effect(self, step: Break, result: Result, scope: StepScope) -> None:
        from coupler.workflow.engine.attempt import RoundLeft

        raise RoundLeft(leaves_loop=True)


class ContinueKind(_LeavesRound[Continue]):
    """The end of a round."""

    struct = Continue
    leaves_list = "ends the round"
    conditional_end = "ends the round there if its `if` is true"

    def title(self, step: Continue) -> str:
        return "end the round"

    def take_effect(self, step: Continue, result: Result, scope: StepScope) -> None:
        from coupler.workflow.engine.attempt import RoundLeft

        raise RoundLeft(leaves_loop=False)


def _evaluated(value: object, attempt: Attempt) -> object:
    return attempt.expressions.evaluate(value, attempt.names) if isinstance(value, str) else value


def _check_inputs(step: Call, called: Workflow, findings: ProblemCollector) -> None:
    for name, value in step.inputs.items():
        place = findings.place_of(step, "inputs", name)
        declared = called.inputs.get(name)
        if declared is None:
            findings.wrong(_place_of_key(step, name, findings), _unknown(name, called))
        else:
            _check_value(declared, value, place, findings)
    if step.position in findings.gaps.mappings:
        return  # what was taken out may have been inputs
    missing = [each.name for each in called.inputs.values() if each.required and each.name not in step.inputs]
    for name in missing:
        findings.wrong(
            findings.place_of(step, "call"),
            f"the workflow `{called.name}` needs the input `{name}`: give it in `inputs`",
        )


def _place_of_key(step: Call, name: str, findings: ProblemCollector) -> SourcePosition:
    given = findings.node_of(step, "inputs")
    return given.key(name).position if isinstance(given, MappingNode) else step.position


def _unknown(name: str, called: Workflow) -> str:
    known = [*called.inputs]
    if not known:
        return f"the workflow `{called.name}` takes no inputs"
    return f"the workflow `{called.name}` has no input `{printable(name, 60)}`; {nearest(name, known)}"


def _check_value(declared: Input, value: Json, place: SourcePosition, findings: ProblemCollector) -> None:
    """Check a literal value; that of a template, and whether a file is there, is known when it runs."""
    if declared.type == "file" or value is None or _has_template(value):
        return
    try:
        check_given(declared, value)
    except InputError as error:
        findings.wrong(place, str(error))


def _has_template(value: Json) -> bool:
    match value:
        case str():
            return not is_plain(value)
        case list():
            return any(map(_has_template, value))
        case dict():
            return any(map(_has_template, value.values()))
        case _:
            return False
