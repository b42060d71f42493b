"""`asyncio.timeout`, on which all relies that is done after a cancel, in every release of Python 3.11."""

from __future__ import annotations

import asyncio

import pytest

import coupler.runtime.process  # noqa: F401 - as do all who wait for something to end
from coupler.runtime.threads import Timeout


async def cleaned_up(limit: Timeout) -> str:
    """What the cleaning up of a cancelled task comes to that waits for longer than it may."""
    try:
        await asyncio.Event().wait()
    except asyncio.CancelledError:
        try:
            async with limit:
                await asyncio.Event().wait()
        except TimeoutError:
            return "in time"
    return "not at all"


def test_what_is_cleaned_up_after_a_cancel_can_run_out_of_time() -> None:
    async def story() -> str:
        task = asyncio.ensure_future(cleaned_up(Timeout(0.0)))
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(story()) == "in time"


def test_another_cancel_meanwhile_is_a_cancel() -> None:
    async def story() -> None:
        task = asyncio.ensure_future(cleaned_up(Timeout(None)))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        await task

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(story())


def test_asyncio_makes_timeouts_that_do_so() -> None:
    async def story() -> str:
        task = asyncio.ensure_future(cleaned_up(asyncio.timeout(0.0)))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        task.cancel()
        return await task

    assert asyncio.run(story()) == "in time"
