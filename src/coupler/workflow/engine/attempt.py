"""Holds one attempt at a step: its access to the run, and the names that its expressions see."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

import msgspec

from coupler.workflow.engine.front import FrontEnd
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Decided, Failure, Happening, Place, Result
from coupler.workflow.language.model import Json, Workflow
from coupler.workflow.language.shapes import TemplateText

if TYPE_CHECKING:
    from coupler.client.reply import Budget
    from coupler.workflow.agents.agents import Agents
    from coupler.workflow.engine.interpreter import StepJournal
    from coupler.workflow.expressions.expression import FlowExpressions


T = TypeVar("T")

RESULT_FIELDS = tuple(
    field for field in Result.__struct_fields__ if field not in ("attempts", "agent", "marked_done")
)
"""The fields of `steps.x`."""


class StepWork:
    """The work of one step, with all attempts: its result once it is over, or what there is of one before.

    A cancel takes away no result that is there: whoever has it goes on, and the cancel is raised as soon as
    the result is recorded. Belongs to the task that runs the step.
    """

    def __init__(self) -> None:
        self.attempts = 1
        self.result: Result | None = None
        """The result of work that is over, although its performer may still have to tidy up."""
        self.partial: Result | None = None
        """The part of a result that is there when the work is cancelled, or its time is up."""
        self._cancels = _cancels()

    def begin(self, attempt: int) -> None:
        """Begin an attempt: nothing of an earlier one counts any more."""
        self.attempts, self.result, self.partial = attempt, None, None

    @property
    def is_cancelled(self) -> bool:
        """True if the step was cancelled since it began."""
        return _cancels() > self._cancels

    def raise_cancel(self) -> None:
        """Raise the cancel that came when a result was there already, now that it is recorded."""
        if self.is_cancelled:
            raise asyncio.CancelledError

    def ended_early(self) -> Result:
        """Return the result of the step if it goes no further."""
        if self.result is not None:
            return msgspec.structs.replace(self.result, attempts=self.attempts)
        partial = self.partial or Result(status="cancelled")
        return msgspec.structs.replace(partial, status="cancelled", attempts=self.attempts)


def _cancels() -> int:
    """Return how many cancels of this task nobody has taken back."""
    task = asyncio.current_task()
    return 0 if task is None else task.cancelling()


async def answered(question: Awaitable[T]) -> T:
    """Wait for an answer; a cancel that comes after it does not take it away.

    Whoever records the answer raises the cancel: see `Attempt.decide` and `StepWork.raise_cancel`.
    """
    asking = asyncio.ensure_future(question)
    try:
        # Shielded, so that an answer that was read comes through before the cancel does.
        return await asyncio.shield(asking)
    except asyncio.CancelledError:
        asking.cancel()
        return await asking


@dataclass(frozen=True)
class Attempt:
    """One attempt at a step, with all that its work needs of the run.

    Belongs to the task that performs the step, and ends with it.
    """

    place: Place
    workflow: Workflow
    names: Mapping[str, object]
    """The names of expressions: inputs, secrets, steps, vars, run, and those of loops."""
    expressions: FlowExpressions
    cwd: str
    """The directory that the step works in: absolute, and there."""
    env: Mapping[str, str]
    """Variables that its programs get besides our own environment."""
    memory: StepJournal
    front: FrontEnd
    asking: asyncio.Lock
    """Held while somebody is asked, so that questions come one at a time."""
    agents: Agents
    work: StepWork
    """The work of the step, of which this is one attempt."""
    budget: Budget | None = None
    """The budget for all steps of the workflow, if it is called and has one."""
    number: int = 1
    mask: Callable[[str], str] = str
    """Redacts secrets for people; before a text is cut, because nobody recognises the half of one."""

    @property
    def name(self) -> str:
        """The prefix of the paths of steps inside of this one; another attempt has another prefix."""
        return str(self.place) if self.number == 1 else f"{self.place}~{self.number}"

    @property
    def run_id(self) -> str:
        """The id of the run, by which people name it."""
        run = self.names["run"]
        assert isinstance(run, Mapping)
        return str(run["id"])

    def text(self, template: TemplateText) -> str:
        """Render a template as text."""
        return self.expressions.text(template, self.names)

    def value(self, template: Json) -> Json:
        """Render a template to a value: one `{{ }}` keeps its type; lists and mappings are gone through."""
        return self.expressions.value(template, self.names)

    def emit(self, event: Happening) -> None:
        """Record an event of this step."""
        self.memory.note(msgspec.structs.replace(event, place=self.place))

    def decision(self, what: str) -> Json:
        """Return what was decided at this step, maybe by an earlier process, or `UNSET`."""
        return self.memory.decision(self.place, what)

    async def decide(self, what: str, value: Json) -> None:
        """Record what must come out the same way when the run is resumed; durable when this returns.

        A cancel that came after the decision is raised now.
        """
        self.emit(Decided(what=what, value=value))
        await self.memory.durable()
        self.work.raise_cancel()


class StepScope:
    """The names of one list of steps, on top of those around it.

    Branches and iterations have scopes of their own, which look into those around them and never write there.
    """

    def __init__(self, constants: Mapping[str, object], around: StepScope | None = None) -> None:
        self.steps: dict[str, Result] = {}
        """Results of the steps of this list, and of the branches in it, by id."""
        self.vars: dict[str, Json] = {}
        self._others: dict[str, Result] = {}
        """Results that its steps see besides: of the last round, or of branches that this one needs."""
        self._around = around
        self.names: Mapping[str, object] = {
            **(around.names if around is not None else {}),
            **constants,
            "steps": StepResults(self),
            "vars": Variables(self),
        }

    def inside(self, **constants: object) -> StepScope:
        """Return a scope for a branch or an iteration."""
        return StepScope(constants, self)

    def next_round(self, last: StepScope | None, **constants: object) -> StepScope:
        """Return a scope for a round of a `while`: it sees the last round, and sets variables around it."""
        scope = StepScope(constants, self)
        scope.vars = self.vars
        if last is not None:
            scope.also_sees({**last._others, **last.steps})
        return scope

    def also_sees(self, results: Mapping[str, Result]) -> None:
        """Let its steps see the results of others, which are no steps of this list."""
        self._others.update(results)

    def find(self, id: str) -> Result | None:
        """Return the result of the nearest step with this id."""
        scope: StepScope | None = self
        while scope is not None:
            result = scope.steps.get(id) or scope._others.get(id)
            if result is not None:
                return result
            scope = scope._around
        return None

    def step_ids(self) -> list[str]:
        """Return the ids of all steps that are known here, the outermost first."""
        scopes = self.outermost_first()
        return list(dict.fromkeys(step for scope in scopes for step in (*scope._others, *scope.steps)))

    def outermost_first(self) -> list[StepScope]:
        scopes = [self]
        while (around := scopes[-1]._around) is not None:
            scopes.append(around)
        return scopes[::-1]


class StepResults(Mapping[str, "StepResultView"]):
    """`steps`: the results of all steps that this scope knows."""

    def __init__(self, scope: StepScope) -> None:
        self._scope = scope

    def __getitem__(self, id: str) -> StepResultView:
        result = self._scope.find(id)
        if result is None:
            raise KeyError(id)
        return StepResultView(result)

    def result_of(self, id: str) -> Result | None:
        """Return a whole result, with what expressions do not see; None if the step was not reached."""
        return self._scope.find(id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.step_ids())

    def __len__(self) -> int:
        return len(self._scope.step_ids())


class Variables(Mapping[str, Json]):
    """`vars`: the variables that `set` has set."""

    def __init__(self, scope: StepScope) -> None:
        self._scope = scope

    def __getitem__(self, name: str) -> Json:
        for scope in reversed(self._scope.outermost_first()):
            if name in scope.vars:
                return scope.vars[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter({name: None for scope in self._scope.outermost_first() for name in scope.vars})

    def __len__(self) -> int:
        return sum(1 for _ in self)


class StepResultView(Mapping[str, object]):
    """`steps.x`: the result of one step, field by field; texts are not copied."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __getitem__(self, name: str) -> object:
        if name not in RESULT_FIELDS:
            raise KeyError(name)
        value = getattr(self._result, name)
        if name == "results" and value is not None:
            return [Iteration(steps) for steps in value]
        if value is msgspec.UNSET:
            return None
        if not isinstance(value, msgspec.Struct):
            return value
        names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
        return {name: getattr(value, field) for name, field in names}

    def __iter__(self) -> Iterator[str]:
        return iter(RESULT_FIELDS)

    def __len__(self) -> int:
        return len(RESULT_FIELDS)


class Iteration(Mapping[str, StepResultView]):
    """`steps.x.results[0]`: the steps of one iteration."""

    def __init__(self, steps: Mapping[str, Result]) -> None:
        self._steps = steps

    def __getitem__(self, id: str) -> StepResultView:
        return StepResultView(self._steps[id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)


class Stopped(BaseException):
    """A `stop`, or a denied gate that stops: the workflow around it ends here.

    Like the others that end a list of steps early, it is no `Exception`, so that the work of a step never
    catches it by mistake.
    """

    def __init__(
        self,
        status: Literal["success", "failure", "cancelled"],
        message: str = "",
        exit_code: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.exit_code = exit_code


class RoundLeft(BaseException):
    """A `break` or a `continue`: the round around it ends here."""

    def __init__(self, *, leaves_loop: bool) -> None:
        super().__init__()
        self.leaves_loop = leaves_loop


class StepFailed(BaseException):
    """A step failed, and nothing in its list handles that."""

    def __init__(self, place: Place, result: Result) -> None:
        assert result.error is not None
        super().__init__(result.error.message)
        self.failure: Failure = result.error
        self.step = result.error.step or str(place)
        """The path of the innermost step that failed."""

    def as_error(self, partial: Result | None = None) -> StepError:
        """Return it as the failure of the step around it."""
        failure = self.failure
        message = failure.message if failure.step is not None else f"{self.step}: {failure.message}"
        return StepError(failure.kind, message, exit_code=failure.exit_code, step=self.step, result=partial)


class NotReached(BaseException):
    """Raised where the results of a finished step end, when they are collected from the journal."""


class StepsExhausted(BaseException):
    """The run has taken more steps than it may."""
