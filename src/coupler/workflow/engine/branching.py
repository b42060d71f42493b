"""Several things beside each other, until all, one, or every one of them is over."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
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


async def _as_they_end(tasks: Sequence[asyncio.Task[StepFailed | Parked | None]]) -> AsyncIterator[int]:
    """Their numbers, in the order of the list if they end together: so a resumed run decides alike."""
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
