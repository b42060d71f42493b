"""Runs of workflows in the store: what is kept of them, and which process has one."""

import asyncio
import signal

import pytest

from coder.waiting import until
from coupler.store import StoreError, database, runs
from coupler.store.runs import EntryPart, RunChange, RunEntry, RunRecord
from store.parts import locked

OWNER = """
    import asyncio
    from coupler.store.store import Store
    from coupler.store.runs import RunRecord

    store = Store.open(path)
    asyncio.run(store.runs.create(RunRecord(id="theirs", workflow="w", file="/f", digest="d", cwd="/")))
    print("ready", flush=True)
    sys.stdin.readline()
    store.close()
"""


def run_record(id="one", **fields):
    return RunRecord(
        **{"id": id, "workflow": "review", "file": "/f.yaml", "digest": "d", "cwd": "/", **fields}
    )


def entry(seq, body=b"", kind="note"):
    return RunEntry(seq, 1000 + seq, kind, "a[0].b", 2, body)


def created(store, id="one", **fields):
    return asyncio.run(store.runs.create(run_record(id, **fields)))


def written(store, number, *entries, change=None):
    asyncio.run(store.runs.write(number, entries, change))


class TestRecords:
    def test_everything_is_found_again_by_whoever_opens_the_file(self, open_store):
        store = open_store()
        created(store, file="/\udcff/f.yaml", cwd="/\udcfe", session_id="s", inputs=b"in", sources=b"src")
        found = store.runs.blocking.find("one")
        store.close()

        again = open_store().runs

        assert (found.file, found.cwd, found.session_id) == ("/\udcff/f.yaml", "/\udcfe", "s")
        assert (found.inputs, found.sources, found.status) == (b"in", b"src", "running")
        assert found.created_at == found.updated_at > 1_700_000_000_000
        for same in (again.blocking.find("one"), asyncio.run(again.find("one"))):
            assert (same.id, same.created_at, same.inputs) == ("one", found.created_at, b"in")
            assert (found.pid is not None, same.pid, same.is_interrupted) == (True, None, True)

    def test_an_id_is_given_once(self, store):
        assert created(store) is not None
        assert created(store) is None

    def test_lists_begin_with_the_newest_and_leave_out_what_is_long(self, store):
        for id in ("one", "two"):
            created(store, id, inputs=b"in", sources=b"src")

        assert store.runs.blocking.ids() == asyncio.run(store.runs.ids()) == ["two", "one"]
        assert [(each.id, each.inputs, each.sources) for each in store.runs.blocking.find_all()] == [
            ("two", b"", b""),
            ("one", b"", b""),
        ]

    def test_what_is_not_there_is_not_found(self, store):
        assert store.runs.blocking.find("nobody") is None
        assert asyncio.run(store.runs.hold("nobody")) is None


class TestEntries:
    def test_they_are_found_by_number_and_kind(self, store):
        number = created(store)
        entries = [entry(1), entry(4, kind="decided"), entry(5, b"x")]
        written(store, number, *entries)

        def found(**options):
            return asyncio.run(store.runs.entries("one", **options))

        assert found() == store.runs.blocking.entries("one") == entries
        assert found(after=1, until=4) == [entries[1]]
        assert found(kinds=["decided", "other"]) == [entries[1]]

    def test_much_is_read_bit_by_bit_unless_all_of_it_is_wanted(self, store):
        number = created(store)
        written(store, number, *(entry(seq, b"x" * (runs.READ_BYTES // 2)) for seq in range(1, 6)))

        some = asyncio.run(store.runs.entries("one"))

        assert [each.seq for each in some] == [1, 2]
        assert [each.seq for each in asyncio.run(store.runs.entries("one", is_whole=True))] == [1, 2, 3, 4, 5]

    def test_writing_them_twice_is_writing_them_once(self, store):
        number = created(store)
        for _ in range(2):
            written(store, number, entry(1), entry(2), change=RunChange("parked", 5, "asks"))

        assert len(store.runs.blocking.entries("one")) == 2
        found = store.runs.blocking.find("one")
        assert (found.status, found.exit_code, found.message) == ("parked", 5, "asks")

    def test_parts_that_bodies_have_in_common_are_stored_once_and_read_whole(self, store):
        number = created(store)
        shared = runs.shared_body([b"<", EntryPart(1, 1, 2000), b"|", EntryPart(2, 0, 3), b">"])
        written(store, number, entry(1, b"(" + b"x" * 2000 + b")"), entry(2, b"abcdef"), entry(3, shared))

        assert len(shared) < 100
        assert store.runs.blocking.entries("one", after=2) == [entry(3, b"<" + b"x" * 2000 + b"|abc>")]

    @pytest.mark.parametrize("part", [EntryPart(7, 0, 3), EntryPart(1, 4, 3)], ids=["no entry", "too short"])
    def test_a_body_whose_parts_are_gone_is_left_as_it_is(self, store, part):
        number = created(store)
        damaged = entry(2, runs.shared_body([b"<", part, b">"]))
        written(store, number, entry(1, b"abcdef"), damaged)

        assert store.runs.blocking.entries("one") == [entry(1, b"abcdef"), damaged]

    def test_much_is_left_to_the_stores_thread(self, store):
        number = created(store)
        asyncio.run(store.runs.write(number, [entry(1, b"x" * 2_000_000)], None, size=2_000_000))
        assert len(store.runs.blocking.entries("one")[0].body) == 2_000_000

    def test_who_does_not_have_the_run_writes_nothing(self, store):
        number = created(store)
        asyncio.run(store.runs.release(number))

        with pytest.raises(StoreError, match="another process has taken this run"):
            written(store, number, entry(1), change=RunChange("success"))

        assert store.runs.blocking.entries("one") == []
        assert store.runs.blocking.find("one").status == "running"


class TestProcesses:
    def test_a_run_of_a_living_process_can_neither_be_taken_nor_ended(self, store, run):
        child = run(OWNER)
        assert child.stdout.readline() == "ready\n"

        assert store.runs.blocking.find("theirs").pid == child.pid
        assert asyncio.run(store.runs.hold("theirs")) == child.pid
        assert not store.runs.blocking.end_unheld("theirs", "end", b"", RunChange("cancelled"))

    def test_a_killed_process_leaves_its_run_to_whoever_comes(self, store, run):
        child = run(OWNER)
        assert child.stdout.readline() == "ready\n"
        child.send_signal(signal.SIGKILL)
        child.wait()

        assert store.runs.blocking.find("theirs").is_interrupted
        number, seq = asyncio.run(store.runs.hold("theirs"))
        written(store, number, entry(seq + 1))
        assert store.runs.blocking.find("theirs").pid is not None

    def test_what_nobody_has_can_be_ended(self, store):
        number = created(store)
        written(store, number, entry(7))
        asyncio.run(store.runs.release(number))

        assert store.runs.blocking.end_unheld("one", "end", b"body", RunChange("cancelled", 130))

        assert store.runs.blocking.find("one").status == "cancelled"
        assert store.runs.blocking.entries("one")[-1].seq == 8


def test_a_run_that_cannot_be_released_in_a_lock_is_released_after_it(path, open_store, monkeypatch):
    monkeypatch.setattr(database, "RETRY_AFTER", 0.01)
    store = open_store(patience=0.05)
    number = created(store)

    with locked(path), pytest.raises(StoreError, match="another program holds"):
        asyncio.run(store.runs.release(number))

    until(lambda: isinstance(asyncio.run(store.runs.hold("one")), tuple))
