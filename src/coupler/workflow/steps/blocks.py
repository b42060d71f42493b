"""The kinds `parallel`, `for_each` and `while`: steps that are made of other steps of the same file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import UNSET

from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Result
from coupler.workflow.language.model import ForEach, Json, Parallel, While, Workflow
from coupler.workflow.steps.kind import BlockKind

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import StepScope
    from coupler.workflow.engine.blocks import BlockRun


class ParallelKind(BlockKind[Parallel]):
    """Branches that run beside each other."""

    struct = Parallel
    has_branches = True
    generic_title: ClassVar[re.Pattern[str] | None] = re.compile(r"\d+ branches")

    def title(self, step: Parallel) -> str:
        return f"{len(step.branches)} branches"

    def box_title(self, step: Parallel) -> str:
        return f"parallel, wait for {step.wait}"

    def list_title(self, step: Parallel, number: int) -> str | None:
        return f"branch {number}"

    async def go_through(self, step: Parallel, block: BlockRun) -> Json:
        scopes = [block.scope.inside() for _ in step.branches]

        async def run_branch(number: int, is_over: bool) -> None:
            part = block.branch(number, step.branches)
            await block.run_part(
                part, step.branches[number], scopes[number], f"{block.name}.", is_over=is_over
            )

        try:
            await block.concurrently(len(step.branches), run_branch, step.wait, step.max_concurrent)
        finally:
            # Only now they are steps like any other: no branch sees how far another one is.
            for scope in scopes:
                block.scope.steps.update(scope.steps)
        return UNSET


class ForEachKind(BlockKind[ForEach]):
    """The same steps for each item of a list."""

    struct = ForEach
    is_loop = True
    loop_fields = ("index", "first", "last", "outer")
    generic_title: ClassVar[re.Pattern[str] | None] = re.compile(r"for each \w+")

    def fields(self, step: ForEach, workflow: Workflow) -> Sequence[str]:
        return ("results",)

    def loop_names(self, step: ForEach) -> frozenset[str]:
        return frozenset({step.name, "index", "loop"})

    def title(self, step: ForEach) -> str:
        return f"for each {step.name}"

    def outline(self, step: ForEach) -> str:
        items = step.items if isinstance(step.items, str) else msgspec.json.encode(step.items).decode()
        return f"{self.title(step)} of {items}"

    def box_title(self, step: ForEach) -> str:
        items = step.items if isinstance(step.items, str) else f"{len(step.items)} items"
        return f"{self.title(step)} of {items}"

    async def go_through(self, step: ForEach, block: BlockRun) -> Json:
        items = await block.items(step.items)
        scopes = [
            block.scope.inside(**{step.name: item}, **_round_names(block, number, len(items)))
            for number, item in enumerate(items)
        ]
        block.iterations = [scope.steps for scope in scopes]

        async def run_iteration(number: int, is_over: bool) -> None:
            part = block.iteration(number, items)
            prefix = f"{block.name}[{number}]."
            await block.run_part(part, step.steps, scopes[number], prefix, is_over=is_over)

        await block.concurrently(len(items), run_iteration, step.wait, step.max_concurrent)
        return UNSET


class WhileKind(BlockKind[While]):
    """The same steps again, as long as an expression is true."""

    struct = While
    is_loop = True
    loop_fields = ("index", "first", "outer")
    sees_last_round = True
    generic_title: ClassVar[re.Pattern[str] | None] = re.compile(r"while .*")

    def fields(self, step: While, workflow: Workflow) -> Sequence[str]:
        return ("results",)

    def variables(self, step: While) -> Iterator[str]:
        from coupler.workflow.steps.kinds import kind_of

        for each in step.steps:
            yield from kind_of(each).variables(each)

    def loop_names(self, step: While) -> frozenset[str]:
        return frozenset({"index", "loop"})

    def title(self, step: While) -> str:
        return f"while {step.test}"

    async def go_through(self, step: While, block: BlockRun) -> Json:
        scope: StepScope | None = None
        block.iterations = []
        for number in range(step.max_rounds + 1):
            names = (scope or block.scope).names
            if not block.attempt.expressions.goes_on(step.test, names, number):
                return UNSET
            if number == step.max_rounds:
                break
            scope = block.scope.next_round(scope, **_round_names(block, number))
            block.iterations.append(scope.steps)
            part, prefix = block.round(number), f"{block.name}[{number}]."
            await block.run_part(part, step.steps, scope, prefix, is_over=block.context.is_over)
        raise StepError(
            "budget",
            f"after {step.max_rounds} rounds `{step.test}` is still true: raise `max_rounds`, or go on with "
            "`on_error: continue`",
            result=Result(status="failed", results=block.results),
        )


def _round_names(block: BlockRun, number: int, count: int | None = None) -> dict[str, object]:
    """Return the names of a round besides its item; the number of all rounds is None if nobody knows it."""
    loop: dict[str, object] = {"index": number, "first": number == 0}
    if count is not None:
        loop["last"] = number == count - 1
    if "loop" in block.scope.names:
        loop["outer"] = block.scope.names["loop"]
    return {"index": number, "loop": loop}
