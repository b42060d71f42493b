"""What goes wrong with the file of the saver is said in words that help."""

import asyncio
import sqlite3
import threading

import pytest
from langgraph.checkpoint.base import empty_checkpoint

from coupler.langchain import checkpoints as module
from coupler.langchain.checkpoints import SaverPool
from coupler.store.errors import StoreError

PLACE = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


async def failure_of(path, act):
    savers = SaverPool()
    saver = savers.take(str(path))
    try:
        with pytest.raises(StoreError) as raised:
            await act(saver)
    finally:
        await savers.leave(str(path))
    return raised.value


ACTS = {
    "read": lambda saver: saver.aget_tuple(PLACE),
    "deleted": lambda saver: saver.adelete_thread("t"),
    "copied": lambda saver: saver.acopy_thread("t", "u"),
    "pruned": lambda saver: saver.keep_only("t", "c"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_file_that_is_no_database_is_named(tmp_path, act):
    path = tmp_path / "store.langgraph"
    path.write_bytes(b"something else" * 100)

    error = asyncio.run(failure_of(path, act))

    assert error.kind == "unusable"
    assert str(path) in error.message


def test_a_file_that_another_program_holds_is_named_and_can_be_used_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "BUSY_TIMEOUT", 0.05)
    path = tmp_path / "store.langgraph"

    async def hold():
        savers = SaverPool()
        saver = savers.take(str(path))
        await saver.aget_tuple(PLACE)
        with sqlite3.connect(path, isolation_level=None) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreError) as raised:
                await saver.acopy_thread("t", "u")
            other.execute("ROLLBACK")
        other.close()
        await saver.acopy_thread("t", "u")
        await savers.leave(str(path))
        return raised.value

    assert asyncio.run(hold()).kind == "locked"


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_cancel_at_any_moment_leaves_it_usable_for_all_others_and_holds_nothing(tmp_path, act):
    async def cancelled_after(moments, path):
        savers = SaverPool()
        saver = savers.take(str(path))
        try:
            task = asyncio.create_task(act(saver))
            for _ in range(moments):
                await asyncio.sleep(0)
            was_over = task.done()
            task.cancel()
            await asyncio.wait([task])
            await saver.aget_tuple(PLACE)
            with sqlite3.connect(path, timeout=0, isolation_level=None) as other:
                other.execute("BEGIN IMMEDIATE")
            other.close()
            await act(saver)
        finally:
            await savers.leave(str(path))
        return was_over

    async def at_all_moments():
        moments = 1
        while not await cancelled_after(moments, tmp_path / f"{moments}.langgraph"):
            moments *= 2
        return moments

    assert asyncio.run(at_all_moments()) > 3


def test_a_file_that_could_not_be_opened_can_be_used_afterwards(tmp_path):
    path = tmp_path / "store.langgraph"
    path.mkdir()

    async def try_twice():
        savers = SaverPool()
        saver = savers.take(str(path))
        with pytest.raises(StoreError) as raised:
            await saver.aget_tuple(PLACE)
        path.rmdir()
        await saver.acopy_thread("t", "u")
        await savers.leave(str(path))
        return raised.value

    assert str(path) in asyncio.run(try_twice()).message


def test_only_what_was_known_at_a_checkpoint_is_kept_with_it(tmp_path):
    path = str(tmp_path / "store.langgraph")

    async def prune():
        savers = SaverPool()
        saver = savers.take(path)
        ids = []
        for place in ("", "inner", "task:1", "", "inner", "task:2", ""):
            config = {"configurable": {"thread_id": "t", "checkpoint_ns": place}}
            ids.append((checkpoint := empty_checkpoint())["id"])
            await saver.aput(config, checkpoint, {}, {})
        await saver.keep_only("t", ids[3])
        kept = {each.config["configurable"]["checkpoint_id"] async for each in saver.alist(None)}
        await savers.leave(path)
        return [index for index, id in enumerate(ids) if id in kept]

    assert asyncio.run(prune()) == [1, 3]


def test_what_a_state_becomes_while_the_file_is_busy_is_not_what_is_kept(tmp_path):
    path = str(tmp_path / "store.langgraph")

    async def change():
        savers = SaverPool()
        saver, is_free = savers.take(path), threading.Event()
        busy = asyncio.create_task(saver.run_in_thread(lambda _: is_free.wait()))
        checkpoint, written = empty_checkpoint(), ["as it was"]
        checkpoint["channel_values"] = {"notes": ["as it was"]}
        place = {"configurable": {**PLACE["configurable"], "checkpoint_id": checkpoint["id"]}}
        kept = asyncio.gather(
            saver.aput(PLACE, checkpoint, {}, {}), saver.aput_writes(place, [("notes", written)], "task")
        )
        await asyncio.sleep(0)
        checkpoint["channel_values"]["notes"].append("later")
        written.append("later")
        is_free.set()
        await asyncio.gather(busy, kept)
        found = await saver.aget_tuple(PLACE)
        await savers.leave(path)
        return found.checkpoint["channel_values"]["notes"], found.pending_writes

    assert asyncio.run(change()) == (["as it was"], [("task", "notes", ["as it was"])])
