"""Several things beside each other, until all, one, or every one of them is over."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal

from coupler.workflow.engine.flow import StepFailed
from coupler.workflow.errors import Parked

Wait = Literal["all", "any", "settled"]
Branch = Callable[[], Awaitable[None]]


async def run_beside(
    branches: Sequence[Branch],
    *,
    wait: Wait,
    most: int | None,
    on_winner: Callable[[int], None],
) -> None:
    """Run the branches, at most `most` at once; what is no longer needed is cancelled and waited for.

    `all` raises the first `StepFailed`; `any` tells the first that succeeds, and raises if none does;
    `settled` raises none. If a branch is parked the others go on as far as they can, and then it is raised.
    """
    room = asyncio.Semaphore(most or max(1, len(branches)))
    tasks = [asyncio.ensure_future(_in_turn(branch, room)) for branch in branches]
    try:
        await _until_decided(tasks, wait, on_winner)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _in_turn(branch: Branch, room: asyncio.Semaphore) -> StepFailed | Parked | None:
    """How a branch ended; a `Stopped` ends the branches beside it as well, and is raised."""
    async with room:
        try:
            await branch()
        except (StepFailed, Parked) as end:
            return end
    return None


async def _until_decided(
    tasks: Sequence[asyncio.Task[StepFailed | Parked | None]], wait: Wait, on_winner: Callable[[int], None]
) -> None:
    failures: list[StepFailed] = []
    parked: Parked | None = None
    open_tasks = set(tasks)
    while open_tasks:
        done, open_tasks = await asyncio.wait(open_tasks, return_when=asyncio.FIRST_COMPLETED)
        # In the order in which they were written, so that a resumed run decides in the same way.
        for task in sorted(done, key=tasks.index):
            match task.result():
                case None if wait == "any":
                    on_winner(tasks.index(task))
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
