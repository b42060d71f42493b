"""Steps that are made of other steps: branches, loops, and calls of other workflows.

Each is gone through in one way, whether its steps run or come from the journal. When it is over already,
only the results inside of it are gathered, and nothing in it runs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Protocol, TypeGuard

from msgspec import UNSET

from coupler.workflow.engine.attempt import Attempt
from coupler.workflow.engine.branching import Wait, run_beside
from coupler.workflow.engine.flow import NotReached, StepFailed
from coupler.workflow.engine.parts import Part, title_of_branch, title_of_item
from coupler.workflow.engine.scope import Scope
from coupler.workflow.engine.where import Where
from coupler.workflow.errors import StepError
from coupler.workflow.journal.happenings import Decided
from coupler.workflow.journal.result import Result
from coupler.workflow.language.definition import Call, ForEach, Json, Parallel, Step, While

Block = Parallel | ForEach | While | Call


class Lists(Protocol):
    """Runs lists of steps, and workflows that are called: the interpreter."""

    async def run_list(self, steps: Sequence[Step], scope: Scope, where: Where) -> None:
        """Run steps in their order; what becomes of each is put into the scope at once."""
        ...

    async def run_called(self, step: Call, attempt: Attempt, where: Where) -> Json:
        """Run another workflow, and return its outputs."""
        ...


def is_block(step: Step) -> TypeGuard[Block]:
    return isinstance(step, Parallel | ForEach | While | Call)


class Passage:
    """One way through one block: an attempt at it, or the look at one that is over."""

    def __init__(self, lists: Lists, scope: Scope, attempt: Attempt, where: Where) -> None:
        self.iterations: list[dict[str, Result]] | None = None
        """Of loops: what became of the steps of each round."""
        self._lists = lists
        self._scope = scope
        self._attempt = attempt
        self._where = where
        self._name = attempt.name

    async def run(self, step: Block) -> Result:
        """Go through all of it; raises `StepError` for a failure inside that ends it."""
        try:
            output = await self._go_through(step)
        except StepFailed as failed:
            partial = Result(status="failed", results=self.results)
            raise failed.as_error(partial) from None
        return Result(status="success", output=output, results=self.results)

    @property
    def results(self) -> tuple[dict[str, Result], ...] | None:
        return None if self.iterations is None else tuple(self.iterations)

    async def recall(self, step: Block) -> None:
        """Gather what the journal has of the steps inside, as far as they were reached."""
        if not isinstance(step, Call):
            with suppress(NotReached, StepFailed, StepError):
                await self._go_through(step)

    async def _go_through(self, step: Block) -> Json:
        match step:
            case Parallel():
                await self._parallel(step)
            case ForEach():
                await self._for_each(step)
            case While():
                await self._rounds(step)
            case Call():
                where = self._where.inside(self._attempt.place, f"{self._name}/")
                return await self._lists.run_called(step, self._attempt, where)
        return UNSET

    async def _parallel(self, step: Parallel) -> None:
        scopes = [self._scope.inside() for _ in step.branches]

        async def run_branch(number: int, is_over: bool) -> None:
            steps = step.branches[number]
            part = Part(self._attempt, number, None, len(scopes), title_of_branch(steps))
            await self._run_part(part, steps, scopes[number], f"{self._name}.", is_over=is_over)

        try:
            await self._beside(len(step.branches), run_branch, step.wait, step.max_concurrent)
        finally:
            # Only now they are steps like any other: no branch sees how far another one is.
            for scope in scopes:
                self._scope.steps.update(scope.steps)

    async def _for_each(self, step: ForEach) -> None:
        items = await self._items(step)
        scopes = [self._scope.inside(**{step.name: item, "index": n}) for n, item in enumerate(items)]
        self.iterations = [scope.steps for scope in scopes]

        async def run_iteration(number: int, is_over: bool) -> None:
            title = title_of_item(items[number], self._attempt)
            part = Part(self._attempt, None, number, len(items), title)
            prefix = f"{self._name}[{number}]."
            await self._run_part(part, step.steps, scopes[number], prefix, is_over=is_over)

        await self._beside(len(items), run_iteration, step.wait, step.max_concurrent)

    async def _items(self, step: ForEach) -> Sequence[Json]:
        """What the loop goes through: decided once, whatever becomes of what it was computed from."""
        decided = self._attempt.decision("items")
        if decided is not UNSET:
            return list(decided)
        if self._where.is_over:
            raise NotReached
        items = self._attempt.expressions.items(step.items, self._scope.names)
        await self._attempt.decide("items", items)
        return items

    async def _rounds(self, step: While) -> None:
        scope: Scope | None = None
        self.iterations = []
        for number in range(step.max_rounds + 1):
            names = (scope or self._scope).names
            if not self._attempt.expressions.goes_on(step.test, names, number):
                return
            if number == step.max_rounds:
                break
            scope = self._scope.next_round(scope, number)
            self.iterations.append(scope.steps)
            part = Part(self._attempt, None, number)
            prefix = f"{self._name}[{number}]."
            await self._run_part(part, step.steps, scope, prefix, is_over=self._where.is_over)
        raise StepError(
            "budget",
            f"after {step.max_rounds} rounds `{step.test}` is still true: raise `max_rounds`, or go on with "
            "`on_error: continue`",
            result=Result(status="failed", results=self.results),
        )

    async def _run_part(
        self, part: Part, steps: Sequence[Step], scope: Scope, prefix: str, *, is_over: bool
    ) -> None:
        where = replace(self._where.inside(self._attempt.place, prefix, part), is_over=is_over)
        with part.lasting(scope.steps):
            await self._lists.run_list(steps, scope, where)

    async def _beside(
        self, count: int, run_one: Callable[[int, bool], Awaitable[None]], wait: Wait, most: int | None
    ) -> None:
        winner = self._attempt.decision("winner")
        # There may be fewer than there were, if the workflow was changed.
        is_decided = winner is not UNSET and winner < count
        numbers = [winner] if is_decided else range(count)
        for number in range(count) if self._where.is_over or is_decided else ():
            if self._where.is_over or number != winner:
                with suppress(NotReached, StepFailed):
                    await run_one(number, True)
        if self._where.is_over:
            return
        await run_beside(
            [lambda number=number: run_one(number, False) for number in numbers],  # type: ignore[misc]
            wait=wait,
            most=most,
            on_winner=lambda index: self._attempt.emit(Decided(what="winner", value=numbers[index])),
        )
