"""One try at one step: all that its work needs of the run around it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

import msgspec

from coupler.workflow.engine.front import Front
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Decided, Failure, Happening, Place, Result
from coupler.workflow.language.model import Json, Template, Workflow

if TYPE_CHECKING:
    from coupler.client.reply import Budget
    from coupler.workflow.agents.agents import Agents
    from coupler.workflow.engine.interpreter import Memory
    from coupler.workflow.expressions.expression import FlowExpressions


@dataclass(frozen=True)
class Attempt:
    """Belongs to the task that performs the step, and ends with it."""

    place: Place
    workflow: Workflow
    names: Mapping[str, object]
    """What expressions see: inputs, secrets, steps, vars, run, and the names of loops."""
    expressions: FlowExpressions
    cwd: str
    """Where the step works: absolute, and there."""
    env: Mapping[str, str]
    """What its programs get besides our own environment."""
    memory: Memory
    front: Front
    asking: asyncio.Lock
    """Held while somebody is asked, so that questions come one at a time."""
    agents: Agents
    budget: Budget | None = None
    """What is left for all steps of the workflow, if it is called and says so."""
    number: int = 1
    mask: Callable[[str], str] = str
    """Hides secrets in what people see; before a text is cut, because nobody recognises the half of one."""
    interrupted: list[Result] = field(default_factory=list)
    """What there is of the step if it is cancelled, from who performs it: its time may just be up."""

    @property
    def name(self) -> str:
        """What the paths of steps inside of this one begin with; another attempt has others."""
        return str(self.place) if self.number == 1 else f"{self.place}~{self.number}"

    def text(self, template: Template) -> str:
        """A template as text."""
        return self.expressions.text(template, self.names)

    def value(self, template: Json) -> Json:
        """A template as a value: one whole `{{ }}` keeps its type; lists and mappings are rendered inside."""
        return self.expressions.value(template, self.names)

    def emit(self, happening: Happening) -> None:
        """Tell what happens in this step."""
        self.memory.note(msgspec.structs.replace(happening, place=self.place))

    def decision(self, what: str) -> Json:
        """What was decided at this step, maybe by an earlier process, or `UNSET`."""
        return self.memory.decision(self.place, what)

    async def decide(self, what: str, value: Json) -> None:
        """Keep what must come out the same way when the run is resumed; durable when this returns."""
        self.emit(Decided(what=what, value=value))
        await self.memory.durable()


# What ends a list of steps before its last one.
#
# None of it is an `Exception`, so that the work of a step never catches it by mistake.


class Stopped(BaseException):
    """A `stop`, or a denied gate that stops: the workflow around it ends here."""

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


class StepFailed(BaseException):
    """A step failed, and nothing in its list handles that."""

    def __init__(self, place: Place, result: Result) -> None:
        assert result.error is not None
        super().__init__(result.error.message)
        self.failure: Failure = result.error
        self.step = result.error.step or str(place)
        """The path of the innermost step that failed."""

    def as_error(self, partial: Result | None = None) -> StepError:
        """The same as the failure of the step around it."""
        failure = self.failure
        message = failure.message if failure.step is not None else f"{self.step}: {failure.message}"
        return StepError(failure.kind, message, exit_code=failure.exit_code, step=self.step, result=partial)


class NotReached(BaseException):
    """While a finished step is gone through again for its results: from here on there are none."""


class StepsExhausted(BaseException):
    """The run has taken more steps than it may."""


# What expressions see: the inputs, the steps so far, the variables, and the names of the loops around.
#
# A scope belongs to one list of steps. Branches and iterations have scopes of their own, which look into
# those around them and never write there.


FIELDS = tuple(field for field in Result.__struct_fields__ if field not in ("attempts", "agent"))
"""What `steps.x` has."""


class Scope:
    """The names of one list of steps, on top of those around it."""

    def __init__(self, constants: Mapping[str, object], around: Scope | None = None) -> None:
        self.steps: dict[str, Result] = {}
        """What became of the steps of this list, and of the branches in it."""
        self.vars: dict[str, Json] = {}
        self._last_round: dict[str, Result] = {}
        self._around = around
        self.names: Mapping[str, object] = {
            **(around.names if around is not None else {}),
            **constants,
            "steps": Steps(self),
            "vars": Variables(self),
        }

    def inside(self, **constants: object) -> Scope:
        """A scope for a branch or an iteration."""
        return Scope(constants, self)

    def next_round(self, last: Scope | None, index: int) -> Scope:
        """A scope for a round of a `while`: it sees what the last one did, and sets variables around it."""
        scope = Scope({"index": index}, self)
        scope.vars = self.vars
        if last is not None:
            scope._last_round = {**last._last_round, **last.steps}
        return scope

    def find(self, id: str) -> Result | None:
        scope: Scope | None = self
        while scope is not None:
            result = scope.steps.get(id) or scope._last_round.get(id)
            if result is not None:
                return result
            scope = scope._around
        return None

    def step_ids(self) -> list[str]:
        """Those of all steps that are known here, the outermost first."""
        scopes = self.outermost_first()
        return list(dict.fromkeys(step for scope in scopes for step in (*scope._last_round, *scope.steps)))

    def outermost_first(self) -> list[Scope]:
        scopes = [self]
        while (around := scopes[-1]._around) is not None:
            scopes.append(around)
        return scopes[::-1]


class Steps(Mapping[str, "StepView"]):
    """`steps`: what became of each step that this scope knows."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def __getitem__(self, id: str) -> StepView:
        result = self._scope.find(id)
        if result is None:
            raise KeyError(id)
        return StepView(result)

    def result_of(self, id: str) -> Result | None:
        """All of it, with what expressions do not see; None if the step was not reached."""
        return self._scope.find(id)

    def __iter__(self) -> Iterator[str]:
        return iter(self._scope.step_ids())

    def __len__(self) -> int:
        return len(self._scope.step_ids())


class Variables(Mapping[str, Json]):
    """`vars`: what `set` has set."""

    def __init__(self, scope: Scope) -> None:
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


class StepView(Mapping[str, object]):
    """`steps.x`: the result of one step, field by field; texts are not copied."""

    def __init__(self, result: Result) -> None:
        self._result = result

    def __getitem__(self, name: str) -> object:
        if name not in FIELDS:
            raise KeyError(name)
        value = getattr(self._result, name)
        if name == "results" and value is not None:
            return [Iteration(steps) for steps in value]
        if value is msgspec.UNSET:
            return None
        return msgspec.structs.asdict(value) if isinstance(value, msgspec.Struct) else value

    def __iter__(self) -> Iterator[str]:
        return iter(FIELDS)

    def __len__(self) -> int:
        return len(FIELDS)


class Iteration(Mapping[str, StepView]):
    """`steps.x.results[0]`: the steps of one iteration."""

    def __init__(self, steps: Mapping[str, Result]) -> None:
        self._steps = steps

    def __getitem__(self, id: str) -> StepView:
        return StepView(self._steps[id])

    def __iter__(self) -> Iterator[str]:
        return iter(self._steps)

    def __len__(self) -> int:
        return len(self._steps)
