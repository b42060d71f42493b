"""Runs the parts of steps that are made of other steps: branches, and the rounds of loops.

Each is gone through in one way, whether its steps run or come from the journal. When it is over already,
only the results inside of it are gathered, and nothing in it runs.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol

import msgspec
from msgspec import UNSET

from coupler.workflow.engine.attempt import Attempt, NotReached, RoundLeft, StepFailed, StepScope
from coupler.workflow.engine.front import ListContext, in_one_line
from coupler.workflow.errors import Parked, StepError
from coupler.workflow.journal.run_events import (
    Decided,
    Failure,
    PartFinished,
    PartStarted,
    Place,
    Result,
    RunResumed,
    Status,
    StepFinished,
)
from coupler.workflow.steps.kinds import kind_of

if TYPE_CHECKING:
    from coupler.workflow.language.model import Call, Json, Step
    from coupler.workflow.steps.kind import BlockKind


SKIPPED = "skipped"
"""The decision which branches of a step are skipped, because a branch that they need has failed."""

Wait = Literal["all", "any", "settled"]
Branch = Callable[[], Awaitable[None]]


class ListRunner(Protocol):
    """Runs lists of steps, and workflows that are called: the interpreter."""

    async def run_list(self, steps: Sequence[Step], scope: StepScope, context: ListContext) -> None:
        """Run steps in their order; the result of each is put into the scope at once."""
        ...

    async def run_called(self, step: Call, attempt: Attempt, context: ListContext) -> Json:
        """Run another workflow, and return its outputs."""
        ...


BranchTask = asyncio.Task["StepFailed | Parked | None"]


@dataclass(frozen=True)
class BranchOrder:
    """The branches that others need, by their numbers; without cycles, as the check of a file promises."""

    needs: Sequence[frozenset[int]]
    numbers: Sequence[int]
    """The numbers of all branches, each after those that it needs."""
    skip: Callable[[int, bool], None] | None = None
    """Skips a branch, because one that it needs has failed; True: what is skipped was recorded before."""

    @classmethod
    def free(cls, count: int) -> BranchOrder:
        """Return the order of so many branches that need nothing of each other."""
        return cls([frozenset()] * count, range(count))


class BlockRun:
    """One attempt at a block, or the collection of its results once it is over."""

    def __init__(
        self,
        kind: BlockKind[Any],
        lists: ListRunner,
        scope: StepScope,
        attempt: Attempt,
        context: ListContext,
    ) -> None:
        self._kind = kind
        self.iterations: list[dict[str, Result]] | None = None
        """Results of the steps of each round of a loop, by their ids."""
        self.lists = lists
        self.scope = scope
        self.attempt = attempt
        self.context = context
        self.name = attempt.name

    async def run(self, step: Step) -> Result:
        """Run all of it; raises `StepError` for a failure inside that ends it."""
        try:
            output = await self._kind.go_through(step, self)
        except StepFailed as failed:
            partial = Result(status="failed", results=self.results)
            raise failed.as_error(partial) from None
        except asyncio.CancelledError:
            self.attempt.work.partial = Result(status="cancelled", results=self.results)
            raise
        return Result(status="success", output=output, results=self.results)

    @property
    def results(self) -> tuple[dict[str, Result], ...] | None:
        return None if self.iterations is None else tuple(self.iterations)

    async def recall(self, step: Step) -> None:
        """Collect the results that the journal has of the steps inside, as far as they were reached."""
        if self._kind.is_recalled:
            with suppress(NotReached, StepFailed, StepError):
                await self._kind.go_through(step, self)

    async def items(self, items: str | Sequence[Json]) -> Sequence[Json]:
        """Return the items of the loop; they are recorded, so that a resumed run has the same."""
        decided = self.attempt.decision("items")
        if decided is not UNSET:
            return list(decided)
        if self.context.is_over:
            raise NotReached
        evaluated = self.attempt.expressions.items(items, self.scope.names)
        await self.attempt.decide("items", evaluated)
        return evaluated

    def branch(self, number: int, branches: Sequence[Sequence[Step]]) -> BlockPart:
        """Return the part of a branch."""
        return BlockPart(self.attempt, number, None, len(branches), branch_title(branches[number]))

    def iteration(self, number: int, items: Sequence[Json]) -> BlockPart:
        """Return the part of an item of a loop."""
        return BlockPart(self.attempt, None, number, len(items), item_title(items[number], self.attempt))

    def round(self, number: int) -> BlockPart:
        """Return the part of a round, of which nobody knows how many there will be."""
        return BlockPart(self.attempt, None, number)

    async def run_part(
        self, part: BlockPart, steps: Sequence[Step], scope: StepScope, prefix: str, *, is_over: bool
    ) -> bool:
        """Run the steps of a part; returns whether the loop that it is a round of was left there."""
        context = replace(self.context.inside(self.attempt.place, prefix, part), is_over=is_over)
        with part.lasting(scope.steps):
            try:
                await self.lists.run_list(steps, scope, context)
            except RoundLeft as left:
                return left.leaves_loop
        return False

    def skip(self, number: int, branch: Sequence[Step], prefix: str) -> None:
        """Record that the steps of a branch are skipped, because one that it needs has failed."""
        if number not in self._skipped:
            self.attempt.emit(Decided(what=SKIPPED, value=[*self._skipped, number]))
        for step, place in self._places(branch, prefix):
            if self.attempt.memory.result(place, kind_of(step).name) is None:
                result = Result(status="skipped")
                self.attempt.memory.note(
                    StepFinished(place=place, id=step.id, kind=kind_of(step).name, result=result)
                )

    def forget_skipped(self, number: int, branch: Sequence[Step], prefix: str) -> None:
        """Forget that a branch was skipped: what it needs has failed in an earlier process, and not now."""
        if number in self._skipped:
            self.attempt.emit(Decided(what=SKIPPED, value=[each for each in self._skipped if each != number]))
            places = [place for _, place in self._places(branch, prefix)]
            reason = f"{branch_title(branch) or prefix} is not skipped any more"
            self.attempt.memory.note(RunResumed(reason=reason, forgets=(*places,)))

    @property
    def _skipped(self) -> list[int]:
        decided = self.attempt.decision(SKIPPED)
        return [] if decided is UNSET else list(decided)

    def _places(self, branch: Sequence[Step], prefix: str) -> list[tuple[Step, Place]]:
        context = self.context.inside(self.attempt.place, prefix)
        return [(step, context.place(step, 1)) for step in branch]

    async def concurrently(
        self,
        count: int,
        run_one: Callable[[int, bool], Awaitable[None]],
        wait: Wait,
        most: int | None,
        order: BranchOrder | None = None,
    ) -> None:
        winner = self.attempt.decision("winner")
        # There may be fewer than there were, if the workflow was changed.
        is_decided = winner is not UNSET and winner < count
        numbers = [winner] if is_decided else range(count)
        order = order or BranchOrder.free(count)
        if self.context.is_over:
            await self._recall_all(run_one, order)
            return
        for number in range(count) if is_decided else ():
            if number != winner:
                with suppress(NotReached, StepFailed):
                    await run_one(number, True)
        await run_concurrently(
            [lambda number=number: run_one(number, False) for number in numbers],  # type: ignore[misc]
            wait=wait,
            most=most,
            on_winner=lambda index: self.attempt.emit(Decided(what="winner", value=numbers[index])),
            order=BranchOrder.free(1) if is_decided else order,
        )

    async def _recall_all(self, run_one: Callable[[int, bool], Awaitable[None]], order: BranchOrder) -> None:
        failed: set[int] = set()
        for number in order.numbers:
            if order.needs[number] & failed and order.skip is not None:
                order.skip(number, True)
                failed.add(number)
                continue
            try:
                await run_one(number, True)
            except StepFailed:
                failed.add(number)
            except NotReached:
                pass


async def run_concurrently(
    branches: Sequence[Branch],
    *,
    wait: Wait,
    most: int | None,
    on_winner: Callable[[int], None],
    order: BranchOrder,
) -> None:
    """Run the branches, at most `most` at once; what is no longer needed is cancelled and waited for.

    `all` raises the first `StepFailed`; `any` tells the first that succeeds, and raises if none does;
    `settled` raises none. If a branch is parked the others go on as far as they can, and then it is raised.
    """
    room = _Room(most or max(1, len(branches)), wait)
    tasks: list[BranchTask] = []
    for number, branch in enumerate(branches):
        tasks.append(asyncio.ensure_future(_in_turn(branch, number, room, tasks, order)))
    try:
        await _until_decided(tasks, wait, on_winner)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class _Room:
    """Room for so many branches at once; none enters any more once it is decided how the step ends."""

    def __init__(self, most: int, wait: Wait) -> None:
        self._room = asyncio.Semaphore(most)
        self._wait = wait
        self._is_closed = False

    async def run(self, branch: Branch) -> StepFailed | Parked | None:
        """Run a branch when there is room, and return its failure or parking, if any."""
        async with self._room:
            if self._is_closed:
                return None
            try:
                await branch()
            except StepFailed as failed:
                self._is_closed |= self._wait == "all"
                return failed
            except Parked as parked:
                return parked
            except BaseException:
                self._is_closed = True
                raise
            self._is_closed |= self._wait == "any"
        return None


async def _in_turn(
    branch: Branch, number: int, room: _Room, tasks: Sequence[BranchTask], order: BranchOrder
) -> StepFailed | Parked | None:
    """Run a branch when what it needs is over and there is room.

    Returns its failure or parking, if any, or that of a branch that it needs; a `Stopped` is raised.
    """
    needed = [tasks[each] for each in sorted(order.needs[number])]
    if needed:
        await asyncio.wait(needed)
    ends = [task.result() for task in needed]
    failed = next((end for end in ends if isinstance(end, StepFailed)), None)
    if failed is not None and order.skip is not None:
        order.skip(number, False)
    parked = next((end for end in ends if isinstance(end, Parked)), None)
    return failed or parked or await room.run(branch)


async def _until_decided(tasks: Sequence[BranchTask], wait: Wait, on_winner: Callable[[int], None]) -> None:
    failures: list[StepFailed] = []
    parked: Parked | None = None
    async for number in _as_they_end(tasks):
        match tasks[number].result():
            case None if wait == "any":
                on_winner(number)
                return
            case StepFailed() as failure:
                failures.append(failure)
                if wait == "all":
                    raise failure
            case Parked() as parked:
                pass
            case _:
                pass
    if parked is not None:
        raise parked
    if wait == "any" and failures:
        raise failures[0]


async def _as_they_end(tasks: Sequence[BranchTask]) -> AsyncIterator[int]:
    """Yield the numbers of tasks as they end, sorted if they end together: a resumed run decides alike."""
    ended: asyncio.Queue[int] = asyncio.Queue()
    for number, task in enumerate(tasks):
        task.add_done_callback(lambda _, number=number: ended.put_nowait(number))  # type: ignore[misc]
    left = len(tasks)
    while left:
        together = [await ended.get()]
        while not ended.empty():
            together.append(ended.get_nowait())
        left -= len(together)
        for number in sorted(together):
            yield number


@dataclass
class BlockPart:
    """A branch of a block, or an iteration; records its beginning and its end.

    It begins with the first of its steps that is done now: of one that is in the journal nothing is recorded.
    """

    block: Attempt
    """The attempt at the step that it is a part of."""
    branch: int | None = None
    iteration: int | None = None
    total: int | None = None
    title: str = ""
    _began: float | None = None

    def begin(self) -> None:
        """Record once that something is done in it."""
        if self._began is not None:
            return
        self._began = time.monotonic()
        self.block.emit(
            PartStarted(
                branch=self.branch,
                iteration=self.iteration,
                attempt=self.block.number,
                total=self.total,
                title=self.title,
            )
        )

    @contextmanager
    def lasting(self, steps: Mapping[str, Result]) -> Iterator[None]:
        """Record its end after its list was run; `steps` has the results. One that is parked has no end."""
        try:
            yield
        except Parked:
            raise
        except StepFailed as failed:
            self._end("failed", msgspec.structs.replace(failed.failure, step=failed.step))
            raise
        except BaseException:
            self._end("cancelled")
            raise
        is_skipped = all(result.status == "skipped" for result in steps.values())
        self._end("skipped" if is_skipped else "success")

    def _end(self, status: Status, error: Failure | None = None) -> None:
        if self._began is None:
            return
        self.block.emit(
            PartFinished(
                branch=self.branch,
                iteration=self.iteration,
                attempt=self.block.number,
                status=status,
                error=error,
                duration=round(time.monotonic() - self._began, 6),
            )
        )


def branch_title(steps: Sequence[Step]) -> str:
    """Return the names that its steps were given."""
    return in_one_line(", ".join(step.id for step in steps if step.is_named))


def item_title(item: Json, block: Attempt) -> str:
    """Return the item of a loop, as far as it fits into a line."""
    text = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, default=str)
    return in_one_line(block.mask(text))
