"""What expressions see: the inputs, the steps so far, the variables, and the names of the loops around.

A scope belongs to one list of steps. Branches and iterations have scopes of their own, which look into those
around them and never write there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Json

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
