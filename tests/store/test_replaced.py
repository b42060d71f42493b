"""A database that is deleted or replaced while it is open, as the store sees it."""

import asyncio
import logging
import os
import random
import shutil
import sqlite3
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from coupler.runtime.guard import guarded_file, is_locked_by_guard
from coupler.store import StoreError
from coupler.store import database as database_module
from coupler.store.runs import RunChange, RunEntry, RunRecord
from coupler.store.store import Store
from store.parts import locked, record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted there")


@pytest.fixture(autouse=True)
def look_always(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look before each use instead of once a second."""
    monkeypatch.setattr(database_module, "LOOK_EVERY", 0.0)


def delete(path: str) -> None:
    for suffix in ("", "-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def write(store: Store, id: str, *bodies: str, **columns) -> None:
    async def add():
        journal = await store.journal(id)
        for body in bodies:
            journal.add("event", "", body.encode())
        if columns:
            journal.set(**columns)
        await store.flush()

    asyncio.run(add())


def bodies(store: Store, id: str) -> list[str]:
    return [entry.body.decode() for entry in store.blocking.entries(id)]


def other_store(open_store, directory: Path, *ids: str) -> str:
    """The path of another store with these sessions, one entry each."""
    path = str(directory / "other" / "coupler.db")
    store = open_store(path)
    for id in ids:
        asyncio.run(store.create(record(id, turns=1)))
        write(store, id, f"of {id}")
        asyncio.run(store.release(id))
    store.close()
    return path


def test_everything_of_an_open_session_is_in_the_new_file(path, store, open_store, caplog):
    asyncio.run(store.create(record("one", turns=1, title="kept", state=b"state")))
    write(store, "one", "a", "b", title="changed")
    delete(path)

    with caplog.at_level(logging.WARNING):
        write(store, "one", "c", state=b"later")

    assert "was deleted while it was open" in caplog.text
    assert bodies(store, "one") == ["a", "b", "c"]
    store.close()
    again = open_store()
    found = again.blocking.find("one")
    assert (found.title, found.state, found.turns) == ("changed", b"later", 1)
    assert bodies(again, "one") == ["a", "b", "c"]


def test_what_waits_for_a_flush_is_not_lost(path, store):
    async def go_on():
        await store.create(record("one"))
        journal = await store.journal("one")
        journal.text("text", "m", "before ")
        delete(path)
        journal.text("text", "m", "after")
        await store.flush()

    asyncio.run(go_on())
    assert bodies(store, "one") == ["before after"]


def test_a_number_that_is_taken_in_the_new_file_is_given_up(path, store, open_store, tmp_path):
    asyncio.run(store.create(record("one", state=b"mine")))
    write(store, "one", "a")
    other = other_store(open_store, tmp_path, "theirs", "theirs too")

    async def go_on():
        journal = await store.journal("one")
        journal.add("event", "", b"b")
        Path(other).replace(path)
        await store.flush()
        journal.add("event", "", b"c")
        journal.set(title="later")
        await store.flush()

    asyncio.run(go_on())

    assert bodies(store, "one") == ["a", "b", "c"]
    assert (store.blocking.find("one").title, store.blocking.find("one").state) == ("later", b"mine")
    assert bodies(store, "theirs") == ["of theirs"]
    assert bodies(store, "theirs too") == ["of theirs too"]


def test_a_run_goes_on_too_under_another_number(path, store, open_store, tmp_path):
    def made(id: str) -> RunRecord:
        return RunRecord(id=id, workflow="w", file="/w.yaml", digest="d", cwd="/", sources=b"source")

    def entry(seq: int) -> RunEntry:
        return RunEntry(seq, 1, "kind", "", 0, str(seq).encode())

    other = open_store(str(tmp_path / "other" / "coupler.db"))
    asyncio.run(other.runs.create(made("theirs")))
    other.close()

    async def go_on():
        number = await store.runs.create(made("mine"))
        await store.runs.write(number, [entry(1)], None)
        (tmp_path / "other" / "coupler.db").replace(path)
        await store.runs.write(number, [entry(2)], None)
        delete(path)
        await store.runs.write(number, [entry(3)], RunChange("success", 0))
        await store.runs.release(number)
        return await store.runs.entries("mine")

    assert [each.seq for each in asyncio.run(go_on())] == [1, 2, 3]
    found = store.runs.blocking.find("mine")
    assert (found.status, found.sources, found.pid) == ("success", b"source", None)


def test_two_stores_of_one_process_do_not_undo_each_others_work(path, store, open_store):
    second = open_store()
    asyncio.run(store.create(record("one", turns=1)))
    asyncio.run(second.create(record("two", turns=1)))
    write(store, "one", "a", updated_at=1000)
    write(second, "two", "a", updated_at=1000)
    delete(path)

    write(store, "one", "b", title="first", updated_at=2000)
    write(second, "two", "b", title="second", updated_at=2000)

    for each in (store, second):
        assert [bodies(each, id) for id in ("one", "two")] == [["a", "b"], ["a", "b"]]
        assert [each.blocking.find(id).title for id in ("one", "two")] == ["first", "second"]


def test_an_old_file_that_cannot_be_read_costs_the_history_only(path, store):
    asyncio.run(store.create(record("one", title="known")))
    write(store, "one", *("x" * 10_000 for _ in range(20)))
    store._database._thread.submit(database_module._empty_log).result()
    os.truncate(path, 4096)
    with Path(path).open("r+b") as file:
        file.write(b"\xff" * 4096)
    delete(path)
    heard = []
    store.tell_if_replaced(heard.append)

    write(store, "one", "b")

    assert store.blocking.find("one").title == "known"
    assert bodies(store, "one") == ["b"]
    (sentence,) = heard
    assert sentence.endswith("Of some only what was still in memory.")


def test_the_lock_that_shows_that_this_process_lives_is_made_again(path, store):
    asyncio.run(store.create(record("one")))
    shutil.rmtree(Path(path).parent)

    write(store, "one", "a")

    (holder,) = Path(f"{path}.holders").iterdir()
    assert holder.name == store._holder.id
    assert holder.stat().st_mode & 0o777 == 0o600


def test_the_lock_that_shows_that_its_programs_live_is_made_again(path, store):
    asyncio.run(store.create(record("one")))
    with guarded_file(f"{path}.none"):
        shutil.rmtree(Path(path).parent)

        write(store, "one", "a")

        assert is_locked_by_guard(f"{path}.holders/.{store._holder.id}.guard")


def test_a_session_that_another_process_has_there_is_left_to_it(path, store, run, tmp_path, caplog):
    asyncio.run(store.create(record("one", turns=1)))
    write(store, "one", "a")
    with closing(sqlite3.connect(path)) as source, closing(sqlite3.connect(tmp_path / "copy")) as copy:
        source.backup(copy)
        copy.execute("UPDATE sessions SET holder = NULL")
        copy.commit()
    delete(path)
    (tmp_path / "copy").rename(path)
    other = run("""
        import asyncio
        from coupler.store.store import Store
        store = Store.open(path)
        print(asyncio.run(store.hold("one")), flush=True)
        sys.stdin.readline()
    """)
    assert other.stdout.readline() == "True\n"

    assert store.blocking.find("one") is not None

    assert f"one is open in another Coupler process ({other.pid})" in caplog.text


@pytest.mark.parametrize("content", [b"notes " * 1000, b"SQLite format 3\0" + b"\xff" * 9000])
def test_what_is_no_database_is_refused_and_left_alone(path, store, content):
    asyncio.run(store.create(record("one")))
    write(store, "one", "a")
    delete(path)
    Path(path).write_bytes(content)

    for _ in range(3):
        with pytest.raises(StoreError, match="is not a Coupler database") as caught:
            store.blocking.find("one")
        assert caught.value.kind == "unusable"

    assert Path(path).read_bytes() == content
    Path(path).unlink()
    assert bodies(store, "one") == ["a"]


def test_a_lock_on_the_new_file_is_waited_for(path, store, open_store, tmp_path):
    asyncio.run(store.create(record("one")))
    other = other_store(open_store, tmp_path, "two")
    Path(other).replace(path)
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink()
    with locked(path) as connection:
        timer = threading.Timer(0.1, connection.execute, ["ROLLBACK"])
        timer.start()
        write(store, "one", "a")
        timer.join()
    assert bodies(store, "one") == ["a"]


def test_nothing_is_noticed_where_nothing_happened(path, store, open_store, run, caplog):
    asyncio.run(store.create(record("one")))
    files = database_module._files_at(path)
    assert None not in files
    for number in range(5):
        second = open_store()
        asyncio.run(second.create(record(str(number), state=bytes(2_000_000))))
        write(store, "one", str(number))
        second.blocking.delete(str(number))
        second.blocking.purge()
        second.close()
    run("""
        from coupler.store.store import Store
        store = Store.open(path)
        store._database.wait(lambda connection: None)
        store._database.submit(lambda connection: None).result()
        store.close()
    """).communicate()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    assert bodies(store, "one") == ["0", "1", "2", "3", "4"]
    assert not caplog.records
    assert database_module._files_at(path) == files


def test_it_is_looked_for_once_a_second_at_most(path, store, monkeypatch):
    monkeypatch.setattr(database_module, "LOOK_EVERY", 1000.0)
    asyncio.run(store.create(record("one")))
    looks = []

    with monkeypatch.context() as patched:
        patched.setattr(database_module, "_files_at", lambda path: looks.append(path))
        for number in range(100):
            write(store, "one", str(number))
            store.blocking.find("one")

    assert looks == []


def test_a_store_that_is_closed_at_once_has_it_too(path, open_store):
    store = open_store()
    asyncio.run(store.create(record("one", turns=1)))
    delete(path)
    store.close()
    assert open_store().blocking.find("one") is not None


BUSY = """
    import asyncio
    from coupler.store.sessions import SessionRecord
    from coupler.store.store import Store

    async def main():
        store = Store.open(path)
        await store.create(SessionRecord(argv[0], "coder", "/", turns=1))
        journal = await store.journal(argv[0])
        print("ready", flush=True)
        number = 0
        reading = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not reading.done():
            number += 1
            journal.add("event", "", str(number).encode() + b" " * 300)
            journal.set(updated_at=number)
            await store.flush()
            await asyncio.sleep(0.002)
        await store.release(argv[0])
        store.close()
        print(number, flush=True)

    asyncio.run(main())
"""


@pytest.mark.long
@pytest.mark.parametrize("lost", [[""], ["", "-wal", "-shm"], ["-wal"], ["-shm"], ["-wal", "-shm"]])
def test_several_busy_processes_lose_nothing_of_what_they_have_open(path, run, lost):
    children = {str(number): run(BUSY, number) for number in range(3)}
    for child in children.values():
        assert child.stdout.readline() == "ready\n"

    for _ in range(5):
        # The moment is meant to be any: this waits for nothing.
        time.sleep(random.uniform(0.3, 1.5))
        for suffix in lost:
            Path(f"{path}{suffix}").unlink(missing_ok=True)
    # Until all have looked: one that has noticed and ended cannot restore what others overwrite.
    time.sleep(1.5 * database_module.LOOK_EVERY)
    last = {id: int(child.communicate("\n")[0]) for id, child in children.items()}

    assert [child.returncode for child in children.values()] == [0] * 3
    store = Store.open(path)
    try:
        for id in children:
            found: list[int] = []
            after = 0
            while entries := store.blocking.entries(id, after):
                after = entries[-1].seq
                found += [int(entry.body) for entry in entries]
            assert found == list(range(1, last[id] + 1))
        assert store._database.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()) == ("ok",)
    finally:
        store.close()
