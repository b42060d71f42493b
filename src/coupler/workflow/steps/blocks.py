"""The kinds `parallel`, `for_each` and `while`: steps that are made of other steps of the same file."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar

import msgspec
from msgspec import UNSET

from coupler.runtime.formatting import printable
from coupler.workflow.errors import StepError
from coupler.workflow.journal.run_events import Result
from coupler.workflow.language.model import ForEach, Json, Parallel, While, Workflow
from coupler.workflow.steps.kind import BlockKind
from coupler.workflow.validation.findings import nearest, scalars_in

if TYPE_CHECKING:
    from coupler.workflow.engine.attempt import StepScope
    from coupler.workflow.engine.blocks import BlockRun
    from coupler.workflow.validation.checks import StepCheck


MOST_WITH_NEEDS = 1000
"""Branches of a step in which some need others."""


class ParallelKind(BlockKind[Parallel]):
    """Branches that run beside each other."""

    struct = Parallel
    has_branches = True
    generic_title: ClassVar[re.Pattern[str] | None] = re.compile(r"\d+ branches")

    def order(self, step: Parallel) -> Iterator[tuple[int, frozenset[int]]]:
        needs = needed_branches(step)
        for number in in_order(needs):
            needed = _needed_by(number, needs)
            # Branches that need each other are told by themselves, and see nothing of each other.
            yield number, frozenset() if number in needed else needed

    def check(self, step: Parallel, check: StepCheck) -> None:
        """Check what the branches need of each other."""
        findings, numbers, needs = check.findings, _numbers(step), needed_branches(step)
        all_needs = [_needed_by(number, needs) for number in range(len(needs))]
        in_round = {number for number, needed in enumerate(all_needs) if number in needed}
        for number, branch in enumerate(step.branches):
            if not branch or not branch[0].needs or findings.is_full:
                continue
            place = findings.place_of(branch[0], "needs")
            if len(step.branches) > MOST_WITH_NEEDS:
                findings.wrong(place, f"with `needs` a step has at most {MOST_WITH_NEEDS:,} branches")
                return
            for node in scalars_in(findings.node_of(branch[0], "needs")):
                if (problem := _problem_with_need(step, number, str(node.value), numbers)) is not None:
                    findings.wrong(node.position, problem)
            if number in in_round and number == min(all_needs[number] & in_round):
                chain = " → ".join(step.branches[each][0].id for each in _way_round(number, needs))
                findings.wrong(place, f"these branches wait for each other: {chain}")
            if step.wait == "any":
                message = "`needs` does not go with `wait: any`, which is over when one branch has succeeded"
                findings.wrong(place, message)

    def title(self, step: Parallel) -> str:
        return f"{len(step.branches)} branches"

    def box_title(self, step: Parallel) -> str:
        return f"parallel, wait for {step.wait}"

    def list_title(self, step: Parallel, number: int) -> str | None:
        return f"branch {number}"

    async def go_through(self, step: Parallel, block: BlockRun) -> Json:
        from coupler.workflow.engine.blocks import BranchOrder

        scopes = [block.scope.inside() for _ in step.branches]
        needs, prefix = needed_branches(step), f"{block.name}."

        async def run_branch(number: int, is_over: bool) -> None:
            for needed in sorted(_needed_by(number, needs)):
                scopes[number].also_sees(scopes[needed].steps)
            if needs[number] and not is_over:
                block.forget_skipped(number, step.branches[number], prefix)
            part = block.branch(number, step.branches)
            await block.run_part(part, step.branches[number], scopes[number], prefix, is_over=is_over)

        def skip_branch(number: int, is_over: bool) -> None:
            skipped = Result(status="skipped")
            scopes[number].steps.update((each.id, skipped) for each in step.branches[number])
            if not is_over:
                block.skip(number, step.branches[number], prefix)

        count, most = len(step.branches), step.max_concurrent
        order = BranchOrder(needs, in_order(needs), skip_branch if step.wait == "settled" else None)
        try:
            await block.concurrently(count, run_branch, step.wait, most, order)
        finally:
            # Only now they are steps like any other: no branch sees how far another one is.
            for scope in scopes:
                block.scope.steps.update(scope.steps)
        return UNSET


def needed_branches(step: Parallel) -> list[frozenset[int]]:
    """Return for each branch the numbers of those that it needs."""
    if len(step.branches) > MOST_WITH_NEEDS:
        return [frozenset()] * len(step.branches)
    numbers = _numbers(step)
    return [
        frozenset(numbers[name] for name in (branch[0].needs if branch else ()) if name in numbers)
        for branch in step.branches
    ]


def _numbers(step: Parallel) -> dict[str, int]:
    """Return the number of each step's branch by the step's id."""
    return {each.id: number for number, branch in enumerate(step.branches) for each in branch}


def in_order(needs: Sequence[frozenset[int]]) -> list[int]:
    """Return the numbers of all branches, each after those that it needs, unless they need each other."""
    found: dict[int, None] = {}
    left = [*range(len(needs))]
    while left:
        ready = [number for number in left if needs[number] <= found.keys()] or left
        found.update(dict.fromkeys(ready))
        left = [number for number in left if number not in found]
    return [*found]


def _problem_with_need(step: Parallel, number: int, name: str, numbers: Mapping[str, int]) -> str | None:
    if name in numbers:
        is_own = numbers[name] == number
        return f"`{name}` is a step of this very branch: `needs` names steps of others" if is_own else None
    others = [each for each, other in numbers.items() if other != number]
    near = nearest(name, others) if others else "it has no other branch"
    return f"no branch of `{step.id}` has the step `{printable(name, 60)}`; {near}"


def _way_round(number: int, needs: Sequence[frozenset[int]]) -> list[int]:
    """Return the shortest way from a branch that needs itself, by what branches need, back to it."""
    before: dict[int, int] = {}
    waiting = [number]
    for each in waiting:
        for needed in sorted(needs[each]):
            if needed not in before:
                before[needed] = each
                waiting.append(needed)
    way = [number, before[number]]
    while way[-1] != number:
        way.append(before[way[-1]])
    return way[::-1]


def _needed_by(number: int, needs: Sequence[frozenset[int]]) -> frozenset[int]:
    """Return the branches that must be over before one begins: those that it needs, and what they need."""
    found: set[int] = set()
    waiting = [*needs[number]]
    while waiting:
        each = waiting.pop()
        if each not in found:
            found.add(each)
            waiting.extend(needs[each])
    return frozenset(found)


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

    def is_concurrent(self, step: ForEach) -> bool:
        return step.max_concurrent > 1

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
        rounds = block.iterations = [scope.steps for scope in scopes]
        last = len(items) - 1

        async def run_iteration(number: int, is_over: bool) -> None:
            nonlocal last
            if number > last:
                return
            part, prefix = block.iteration(number, items), f"{block.name}[{number}]."
            if await block.run_part(part, step.steps, scopes[number], prefix, is_over=is_over):
                last = number
                del rounds[number + 1 :]

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
            if await block.run_part(part, step.steps, scope, prefix, is_over=block.context.is_over):
                return UNSET
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
