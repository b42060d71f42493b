"""What was deleted makes the file smaller, also one of an earlier version, and nobody waits long for it."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import pytest

from coder.waiting import until
from coupler.store import space
from coupler.store.database import Database
from coupler.store.store import Store
from store.parts import record

MEGABYTE = 1_000_000

WRITER = """
    import asyncio, time
    from coupler.store.store import Store
    from coupler.store.sessions import SessionRecord

    async def main():
        store = Store.open(path)
        await store.create(SessionRecord("writer", "coder", "/", turns=1))
        journal = await store.journal("writer")
        print("ready", flush=True)
        longest, number = 0.0, 0
        reading = asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        while not reading.done():
            number += 1
            journal.add("event", str(number), b"x" * 100)
            began = time.monotonic()
            await store.flush()
            longest = max(longest, time.monotonic() - began)
            await asyncio.sleep(0.001)
        print(number, longest, flush=True)
        store.close()

    asyncio.run(main())
"""


def fill(store: Store, *ids: str, megabytes: int = 4, body: int = 20_000) -> None:
    """Keep sessions of so many megabytes each, their entries mixed as those of busy agents are."""

    async def write():
        journals = []
        for id in ids:
            await store.create(record(id, turns=1))
            journals.append(await store.journal(id))
        for _ in range(megabytes * MEGABYTE // body):
            for journal in journals:
                journal.add("event", "", os.urandom(body))
            await store.flush()

    asyncio.run(write())


def sizes(path: str) -> int:
    """The bytes of the file and of its log."""
    return sum(file.stat().st_size for file in map(Path, (path, f"{path}-wal")) if file.exists())


def make_earlier(path: str) -> None:
    """Make the file such as earlier versions made it, which cannot shrink."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA auto_vacuum = NONE")
        connection.execute("VACUUM")
        connection.execute("PRAGMA journal_mode = WAL")
        assert not space.read_space(connection).can_shrink


def is_sound(path: str) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def test_a_deleted_session_makes_the_file_smaller_while_it_is_open(path, store):
    fill(store, "one", "two", "three")
    assert sizes(path) > 12 * MEGABYTE

    asyncio.run(store.delete("one"))
    asyncio.run(store.delete("three"))

    until(lambda: sizes(path) < 5 * MEGABYTE)
    assert len(asyncio.run(store.entries("two", limit=1000))) > 20
    store.close()
    assert is_sound(path)


def test_many_deletions_are_done_one_after_the_other(path, store):
    ids = [str(number) for number in range(20)]
    fill(store, *ids, megabytes=1)
    waiting = []

    async def delete_all():
        for id in ids:
            await store.delete(id)
            waiting.append(len(store._database._thread._chores))

    asyncio.run(delete_all())

    assert max(waiting) <= 3  # a slice, a checkpoint, and a look whether nothing is written
    until(lambda: sizes(path) < MEGABYTE)


def test_a_command_leaves_the_file_smaller_when_it_returns(path, store):
    fill(store, "one", "two")

    store.blocking.delete("one")
    left = store.blocking.purge()

    assert (left, sizes(path) < 5 * MEGABYTE) == (0, True)


def test_entries_of_any_size_are_deleted_in_slices(path, store, monkeypatch):
    fill(store, "one", megabytes=4, body=200_000)
    store._database.transaction(lambda c: c.execute("UPDATE sessions SET deleted = 1"))
    left = []

    def purge(connection):
        from coupler.store.sessions import purge_slice

        is_more = purge_slice(connection)
        left.append(connection.execute("SELECT count(*) FROM entries").fetchone()[0])
        return is_more

    store._database.wait_to_reclaim_space(purge, is_alone=True)

    assert left[:4] == [14, 8, 2, 0]


class TestAFileOfAnEarlierVersion:
    def test_it_is_written_anew_when_that_pays(self, path, open_store, monkeypatch):
        monkeypatch.setattr(space, "REWRITE_FROM", 5 * MEGABYTE)
        store = open_store()
        fill(store, "one", "two")
        store.close()
        make_earlier(path)

        store = open_store()
        asyncio.run(store.delete("one"))
        until(
            lambda: (
                store._database.read(lambda c: c.execute("SELECT count(*) FROM sessions").fetchone()) == (1,)
            )
        )
        asyncio.run(store.flush())
        assert sizes(path) > 8 * MEGABYTE
        fill(store, "three")
        asyncio.run(store.delete("three"))
        asyncio.run(store.delete("two"))

        until(lambda: sizes(path) < MEGABYTE)
        assert store._database.read(space.read_space).can_shrink
        store.close()
        assert is_sound(path)

    @pytest.mark.parametrize("limit", ["LARGEST_REWRITE", "LONGEST_REWRITE"])
    def test_not_beside_the_work_if_others_would_wait_for_long(self, path, open_store, monkeypatch, limit):
        monkeypatch.setattr(space, "REWRITE_FROM", MEGABYTE)
        monkeypatch.setattr(space, "_STEPS_BETWEEN_LOOKS", 1)
        monkeypatch.setattr(space, limit, 0)
        monkeypatch.setattr("coupler.store.database.LONGEST_REWRITE", space.LONGEST_REWRITE)
        store = open_store()
        fill(store, "one", "two")
        store.close()
        make_earlier(path)

        store = open_store()
        asyncio.run(store.delete("one"))
        until(lambda: store._database.read(space.read_space).free_bytes > 3 * MEGABYTE)
        for _ in range(3):
            store._database._thread.submit(lambda connection: None, chore=True).result()

        assert sizes(path) > 8 * MEGABYTE
        assert not store._database.read(space.read_space).can_shrink

    def test_a_command_writes_it_anew_if_nobody_else_would_wait(self, path, open_store, run, monkeypatch):
        monkeypatch.setattr(space, "LARGEST_REWRITE", 0)
        monkeypatch.setattr(space, "REWRITE_FROM", MEGABYTE)
        store = open_store()
        fill(store, "one", "two")
        store.close()
        make_earlier(path)
        other = run("""
            from coupler.store.store import Store
            store = Store.open(path)
            print("ready", flush=True)
            sys.stdin.readline()
            store.close()
        """)
        other.stdout.readline()

        store = open_store()
        store.blocking.delete("one")
        assert store.blocking.purge() > 3 * MEGABYTE
        other.communicate("\n")

        assert store.blocking.purge() == 0
        assert sizes(path) < 5 * MEGABYTE


def test_space_that_an_earlier_process_left_is_given_back(path, open_store):
    store = open_store()
    fill(store, "one", "two")
    store._database.transaction(
        lambda c: c.execute(
            "DELETE FROM entries WHERE session = (SELECT number FROM sessions WHERE id = 'one')"
        )
    )
    store.close()
    assert sizes(path) > 8 * MEGABYTE

    database = Database(path)
    try:
        database.reclaim_left_space()
        until(lambda: sizes(path) < 5 * MEGABYTE)
    finally:
        database.close()


def test_closing_breaks_off_what_is_done_beside_the_work(path, store, caplog):
    fill(store, "one", "two", megabytes=8)
    asyncio.run(store.delete("one"))

    began = time.monotonic()
    store.close()

    assert time.monotonic() - began < 1
    assert not caplog.records
    assert not Path(f"{path}-wal").exists()
    assert is_sound(path)


def test_a_reader_elsewhere_delays_it_and_nobody_else(path, store):
    fill(store, "one", "two")
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM entries").fetchone()
        asyncio.run(store.delete("one"))
        until(lambda: store._database.read(space.read_space).free_pages == 0)
        began = time.monotonic()
        asyncio.run(store.create(record("three")))
        assert time.monotonic() - began < 1
        reader.execute("ROLLBACK")
    until(lambda: sizes(path) < 5 * MEGABYTE)


@pytest.mark.slow
def test_other_processes_write_meanwhile(path, store, run):
    fill(store, *map(str, range(10)), megabytes=8)
    writer = run(WRITER)
    assert writer.stdout.readline() == "ready\n"

    for number in range(8):
        store.blocking.delete(str(number))
    store.blocking.purge()

    number, longest = writer.communicate("\n")[0].split()
    assert writer.returncode == 0
    assert sizes(path) < 20 * MEGABYTE
    assert len(store.blocking.entries("writer", limit=10**6)) > 0
    assert int(number) > 10
    # Milliseconds are the promise; a shared machine may add a pause of its own.
    assert float(longest) < 1


def test_a_new_file_is_small_and_private_and_can_shrink(path, store):
    assert store._database.read(space.read_space).can_shrink
    assert Path(path).stat().st_mode & 0o077 == 0
