"""Blocking work beside an event loop: few threads, and none that hangs keeps others waiting."""

import asyncio
import threading

import pytest

from coupler.runtime.threads import MOST_AT_ONCE, in_thread


def test_much_work_at_once_is_done_by_few_threads():
    async def story():
        most = []
        others = {*threading.enumerate()}  # of tests before this one

        def work(number):
            new = {*threading.enumerate()} - others
            most.append(sum(thread.name == "coupler-blocking" for thread in new))
            return number

        results = await asyncio.gather(
            *(in_thread(lambda number=number: work(number)) for number in range(500))
        )

        assert results == [*range(500)]
        assert max(most) <= MOST_AT_ONCE

    asyncio.run(story())


def test_work_that_hangs_keeps_no_other_work_waiting():
    async def story():
        hangs = threading.Event()
        hanging = [asyncio.create_task(in_thread(hangs.wait)) for _ in range(3 * MOST_AT_ONCE)]
        try:
            async with asyncio.timeout(30):
                assert await in_thread(lambda: "done") == "done"
            assert not any(task.done() for task in hanging)
        finally:
            hangs.set()
        assert await asyncio.gather(*hanging) == [True] * len(hanging)

    asyncio.run(story())


def test_an_error_of_work_that_had_to_wait_comes_back():
    async def story():
        def fail():
            raise ValueError("no")

        failing = [in_thread(fail) for _ in range(5 * MOST_AT_ONCE)]
        errors = await asyncio.gather(*failing, return_exceptions=True)
        assert [str(error) for error in errors] == ["no"] * len(failing)
        with pytest.raises(ValueError, match="no"):
            await in_thread(fail)

    asyncio.run(story())


def test_work_whose_waiting_is_cancelled_keeps_its_thread_only_for_itself():
    async def story():
        hangs = threading.Event()
        hanging = [asyncio.create_task(in_thread(hangs.wait)) for _ in range(2 * MOST_AT_ONCE)]
        await asyncio.sleep(0)
        for task in hanging:
            task.cancel()
        try:
            async with asyncio.timeout(30):
                assert await in_thread(lambda: "done") == "done"
        finally:
            hangs.set()

    asyncio.run(story())
