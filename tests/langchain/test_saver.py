"""States of graphs are stored in proportion to what happened, are read as they were, and survive trouble."""

import asyncio
import sqlite3
import threading
from contextlib import asynccontextmanager, closing

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langgraph.checkpoint.base import empty_checkpoint
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph.message import add_messages

from coupler.langchain import saver as module
from coupler.langchain.checkpoints import SaverPool, ThreadedSaver
from coupler.store import database
from coupler.store.errors import StoreError
from coupler.store.store import Store

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
    "begun": lambda saver: saver.begin_turn("t", "c"),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_file_that_is_no_database_is_named(tmp_path, act):
    path = tmp_path / "coupler.db"
    path.write_bytes(b"something else" * 100)

    error = asyncio.run(failure_of(path, act))

    assert error.kind == "unusable"
    assert str(path) in error.message


def test_a_file_that_another_program_holds_is_named_and_can_be_used_afterwards(tmp_path, monkeypatch):
    monkeypatch.setattr(database.Database.__init__, "__kwdefaults__", {"patience": 0.05, "most_pages": None})
    path = tmp_path / "coupler.db"

    async def hold():
        async with opened(path) as saver:
            await saver.aget_tuple(PLACE)
            with closing(sqlite3.connect(path, isolation_level=None)) as other:
                other.execute("BEGIN EXCLUSIVE")
                with pytest.raises(StoreError) as raised:
                    await saver.acopy_thread("t", "u")
                other.execute("ROLLBACK")
            await saver.acopy_thread("t", "u")
        return raised.value

    assert asyncio.run(hold()).kind == "locked"


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_a_cancel_while_the_file_is_busy_leaves_it_usable_for_all_others_and_holds_nothing(tmp_path, act):
    path = tmp_path / "coupler.db"

    async def cancelled():
        async with opened(path) as saver:
            await saver.aget_tuple(PLACE)
            is_free = threading.Event()
            busy = saver._opened.submit(lambda _: is_free.wait())
            task = asyncio.create_task(act(saver))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])
            is_free.set()
            await asyncio.wrap_future(busy)
            await saver.aget_tuple(PLACE)
            with closing(sqlite3.connect(path, timeout=5, isolation_level=None)) as other:
                other.execute("BEGIN IMMEDIATE")
            await act(saver)

    asyncio.run(cancelled())


def test_a_file_that_could_not_be_opened_can_be_used_afterwards(tmp_path):
    path = tmp_path / "coupler.db"
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


@asynccontextmanager
async def opened(path):
    savers = SaverPool()
    path = None if path is None else str(path)
    try:
        yield savers.take(path)
    finally:
        await savers.leave(path)


def test_the_database_of_an_open_store_is_used_and_another_one_when_that_is_closed(tmp_path):
    path = str(tmp_path / "coupler.db")

    async def use():
        async with opened(path) as saver:
            stores = [Store.open(path), Store.open(path)]
            for store in (*reversed(stores), None):
                await put(saver, {"n": 1})
                assert (saver._opened is store._database) if store is not None else saver._is_owner
                if store is not None:
                    store.close()
            return await listed(saver)

    assert len(asyncio.run(use())) == 3


@pytest.fixture(params=["file", "memory"])
def path(request, tmp_path):
    return tmp_path / "coupler.db" if request.param == "file" else None


def place(namespace="", checkpoint=None):
    return {"configurable": {"thread_id": "t", "checkpoint_ns": namespace, "checkpoint_id": checkpoint}}


async def put(saver, values, namespace="", parent=None, version=None, metadata=None):
    """Store a state, and return the id of its checkpoint."""
    checkpoint = empty_checkpoint()
    checkpoint["channel_values"] = values
    new = {name: version or saver.get_next_version(None, None) for name in values}
    checkpoint["channel_versions"] = new
    await saver.aput(place(namespace, parent), checkpoint, metadata or {}, new)
    return checkpoint["id"]


async def listed(saver):
    return [each.config["configurable"]["checkpoint_id"] async for each in saver.alist(None)]


def test_only_what_was_known_at_a_checkpoint_is_kept_with_it(path):
    async def begin():
        async with opened(path) as saver:
            ids = [await put(saver, {}, each) for each in ("", "inner", "task:1", "", "inner", "task:2", "")]
            await saver.begin_turn("t", ids[3])
            kept = await listed(saver)
            return [index for index, id in enumerate(ids) if id in kept]

    assert asyncio.run(begin()) == [1, 3]


def test_what_waits_for_an_answer_below_is_kept_too(path):
    async def begin():
        async with opened(path) as saver:
            ids = [await put(saver, {}, each) for each in ("", "task:1", "task:1", "")]
            await saver.begin_turn("t", ids[3], with_tasks=True)
            kept = await listed(saver)
            return [index for index, id in enumerate(ids) if id in kept]

    assert asyncio.run(begin()) == [1, 2, 3]


def test_within_a_turn_each_checkpoint_replaces_the_one_before_but_not_the_last_answered_one(path):
    async def steps():
        async with opened(path) as saver:
            answered = await put(saver, {"n": 0})
            await saver.begin_turn("t", answered)
            ids = [await put(saver, {"n": n}) for n in range(1, 5)]
            inner = [await put(saver, {"n": n}, "task:1") for n in range(3)]
            return {*await listed(saver)} == {answered, ids[-1], inner[-1]}

    assert asyncio.run(steps())


def test_checkpoints_that_others_are_the_difference_to_stay(path):
    async def steps():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            counted = [
                {"counters_since_delta_snapshot": {"messages": [n, n], "never written": [0, 99]}}
                for n in range(4)
            ]
            ids = [
                await put(saver, {"messages": []}, metadata=each)
                for each in (*counted, counted[1], counted[2])
            ]
            kept = await listed(saver)
            return [index for index, id in enumerate(ids) if id in kept]

    assert asyncio.run(steps()) == [3, 4, 5]


def sizes(path):
    with closing(sqlite3.connect(path)) as connection:
        [items] = connection.execute("SELECT count(*), sum(length(body)) FROM checkpoint_items")
        [states] = connection.execute("SELECT count(*), sum(length(body)) FROM checkpoints")
    return items, states


def test_every_message_is_stored_once_however_many_steps_hand_it_over(tmp_path):
    path = tmp_path / "coupler.db"

    async def steps():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            messages = []
            for n in range(100):
                messages = add_messages(messages, [AIMessage(f"{n} " * 500, id=str(n))])
                at = await put(saver, {"messages": messages})
                await saver.aput_writes(place("", at), [("messages", messages[-1:])], "task")
            found = await saver.aget_tuple(PLACE)
            return messages, found.checkpoint["channel_values"]["messages"]

    messages, found = asyncio.run(steps())

    assert found == messages
    (items, size), (states, small) = sizes(path)
    assert items == 100
    assert size < 1.5 * sum(len(each.content) for each in messages)
    assert (states, small < 1000) == (1, True)


def test_states_are_read_as_they_were_by_the_same_and_by_another_process(path):
    states = [
        {"messages": [HumanMessage("a", id="1")], "files": {"a.txt": "x" * 5000, "b.txt": "short"}, "n": 1},
        {"messages": [HumanMessage("a", id="1"), "not a message", AIMessage("b" * 5000, id="2")], "n": None},
        {"messages": [AIMessage("b" * 5000, id="2")], "notes": ["y" * 2000, {"z": 1}], "text": "t" * 9000},
        {"messages": [], "files": {}, "set": {1, 2}, "bytes": b"\xff"},
    ]

    async def kept():
        async with opened(path) as saver:
            for state in states:
                await put(saver, state)
                found = await saver.aget_tuple(PLACE)
                assert found.checkpoint["channel_values"] == state
                saver._threads.clear()  # another process knows nothing
                found = await saver.aget_tuple(PLACE)
                assert found.checkpoint["channel_values"] == state

    asyncio.run(kept())


def test_a_message_that_is_changed_in_place_is_stored_anew_and_an_unstored_change_is_not_seen(path):
    async def change():
        async with opened(path) as saver:
            first, second = AIMessage("one", id="1"), AIMessage("two", id="2")
            await put(saver, {"messages": [first, second]})
            first.content = "changed"
            before = (await saver.aget_tuple(PLACE)).checkpoint["channel_values"]["messages"]
            await put(saver, {"messages": [first, second]})
            after = (await saver.aget_tuple(PLACE)).checkpoint["channel_values"]["messages"]
            return [each.content for each in before], [each.content for each in after]

    assert asyncio.run(change()) == (["one", "two"], ["changed", "two"])


def test_an_early_message_that_is_changed_in_the_middle_of_a_turn_is_stored_anew_when_it_ends(path):
    async def change():
        async with opened(path) as saver:
            messages = [AIMessage(str(n), id=str(n)) for n in range(100)]
            await put(saver, {"messages": messages})
            messages[0].content = "changed"
            for last in range(3):
                messages = [*messages, AIMessage("more", id=f"more {last}")]
                goes_on = {"branch:to:model": None} if last < 2 else {}
                await put(saver, {"messages": messages, **goes_on})
            saver._threads.clear()
            return (await saver.aget_tuple(PLACE)).checkpoint["channel_values"]["messages"]

    found = asyncio.run(change())

    assert [each.content for each in found] == ["changed", *map(str, range(1, 100)), *["more"] * 3]


def test_messages_that_were_removed_go_from_the_file_when_the_next_turn_begins(tmp_path):
    path = tmp_path / "coupler.db"

    async def compact():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            long = [AIMessage("x" * 10_000, id=str(n)) for n in range(200)]
            await put(saver, {"messages": long})
            short = add_messages(
                long, [*(RemoveMessage(str(n)) for n in range(190)), AIMessage("sum", id="s")]
            )
            end = await put(saver, {"messages": short})
            for _ in range(2):
                await saver.begin_turn("t", end)
            while sizes(path)[0][0] > 11:
                await asyncio.to_thread(saver._opened.submit_to_read(lambda _: None).result)
            again = add_messages(short, [long[0]])
            await put(saver, {"messages": again})
            saver._threads.clear()
            return again, (await saver.aget_tuple(PLACE)).checkpoint["channel_values"]["messages"]

    again, found = asyncio.run(compact())

    assert found == again
    assert sizes(path)[0][0] == 12


def test_a_value_that_stays_the_same_is_written_again_only_a_few_times(tmp_path):
    path = tmp_path / "coupler.db"

    async def steps():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            for _ in range(20):
                await put(saver, {"document": "d" * 50_000}, version="1")
            saver._threads.clear()
            return (await saver.aget_tuple(PLACE)).checkpoint["channel_values"]

    assert asyncio.run(steps()) == {"document": "d" * 50_000}
    (items, _), (_, small) = sizes(path)
    assert (items, small < 1000) == (1, True)


def test_a_value_that_grows_with_each_step_leaves_only_its_last_state(tmp_path):
    path = tmp_path / "coupler.db"

    async def steps():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            for n in range(50):
                await put(saver, {"report": "r" * 1000 * n})

    asyncio.run(steps())

    (items, _), (_, size) = sizes(path)
    assert (items, size < 52_000) == (0, True)


def test_a_failed_write_loses_nothing_that_a_later_one_needs(tmp_path, monkeypatch):
    path = tmp_path / "coupler.db"

    async def fail():
        async with opened(path) as saver:
            await saver.begin_turn("t", None)
            message = AIMessage("kept", id="1")

            def full(*_):
                raise sqlite3.OperationalError("no space")

            with monkeypatch.context() as patch:
                patch.setattr(module.tables, "write_checkpoint", full)
                with pytest.raises(StoreError):
                    await put(saver, {"messages": [message]})
            await put(saver, {"messages": [message, AIMessage("more", id="2")]})
            saver._threads.clear()
            found = await saver.aget_tuple(PLACE)
            return [each.content for each in found.checkpoint["channel_values"]["messages"]]

    assert asyncio.run(fail()) == ["kept", "more"]


def test_a_conversation_of_which_something_is_lost_goes_on_without_it(tmp_path, caplog):
    path = tmp_path / "coupler.db"

    async def lose():
        async with opened(path) as saver:
            await put(saver, {"messages": [AIMessage("one", id="1"), AIMessage("two", id="2")]})
            saver._threads.clear()
            with closing(sqlite3.connect(path)) as connection, connection:
                connection.execute("DELETE FROM checkpoint_items WHERE instr(body, 'one')")
            found = await saver.aget_tuple(PLACE)
            return [each.content for each in found.checkpoint["channel_values"]["messages"]]

    assert asyncio.run(lose()) == ["two"]
    assert "some of the conversation t is missing" in caplog.text


def test_a_copied_thread_goes_its_own_way(path):
    async def copy():
        async with opened(path) as saver:
            message = AIMessage("common", id="1")
            at = await put(saver, {"messages": [message]})
            await saver.aput_writes(
                place("", at), [("messages", [AIMessage("pending", id="2")])], "task", "path"
            )
            await saver.acopy_thread("t", "u")
            await saver.adelete_thread("t")
            found = await saver.aget_tuple({"configurable": {"thread_id": "u"}})
            return found.checkpoint["channel_values"]["messages"], found.pending_writes[0][2]

    assert asyncio.run(copy()) == ([AIMessage("common", id="1")], [AIMessage("pending", id="2")])


def test_threads_that_were_not_used_for_long_leave_the_memory(path, monkeypatch):
    monkeypatch.setattr(module, "MOST_REMEMBERED", 10_000)

    async def use():
        async with opened(path) as saver:
            for thread in "abc":
                checkpoint = empty_checkpoint()
                checkpoint["channel_values"] = {"messages": [AIMessage(thread * 8000, id=thread)]}
                where = {"configurable": {"thread_id": thread, "checkpoint_ns": ""}}
                await saver.aput(where, checkpoint, {}, {})
            remembered = [*saver._threads]
            found = [await saver.aget_tuple({"configurable": {"thread_id": each}}) for each in "abc"]
            return remembered, [each.checkpoint["channel_values"]["messages"][0].content[0] for each in found]

    assert asyncio.run(use()) == (["b", "c"], ["a", "b", "c"])


def test_listing_filters_as_langgraph_s_own_savers_do(path):
    async def lists(saver):
        ids = [
            await put(saver, {}, namespace, metadata={"step": step})
            for namespace, step in (("", -1), ("", 0), ("inner", 0), ("", 1))
        ]
        looks = [
            (None, {}),
            (PLACE, {}),
            ({"configurable": {"thread_id": "t"}}, {"limit": 2}),
            (PLACE, {"filter": {"step": 0}}),
            (PLACE, {"before": place("", ids[3]), "limit": 1}),
            ({"configurable": {"thread_id": "nobody"}}, {}),
        ]
        found = [[each async for each in saver.alist(config, **wanted)] for config, wanted in looks]
        return [[ids.index(each.config["configurable"]["checkpoint_id"]) for each in some] for some in found]

    async def both():
        async with opened(path) as saver:
            with closing(sqlite3.connect(":memory:", check_same_thread=False)) as connection:
                return await lists(saver), await lists(ThreadedSaver(SqliteSaver(connection)))

    ours, theirs = asyncio.run(both())
    assert ours == theirs


def test_what_a_state_becomes_while_the_file_is_busy_is_not_what_is_kept(tmp_path):
    async def change():
        async with opened(tmp_path / "coupler.db") as saver:
            await saver.aget_tuple(PLACE)
            is_free = threading.Event()
            busy = saver._opened.submit(lambda _: is_free.wait())
            checkpoint, written = empty_checkpoint(), ["as it was"]
            checkpoint["channel_values"] = {"notes": ["as it was"]}
            kept = asyncio.gather(
                saver.aput(PLACE, checkpoint, {}, {}),
                saver.aput_writes(place("", checkpoint["id"]), [("notes", written)], "task"),
            )
            await asyncio.sleep(0)
            checkpoint["channel_values"]["notes"].append("later")
            written.append("later")
            is_free.set()
            await asyncio.gather(asyncio.wrap_future(busy), kept)
            found = await saver.aget_tuple(PLACE)
            return found.checkpoint["channel_values"]["notes"], found.pending_writes

    assert asyncio.run(change()) == (["as it was"], [("task", "notes", ["as it was"])])
