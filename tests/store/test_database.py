"""The file: its privacy, its versions, and what happens when others have it."""

import asyncio
import errno
import logging
import os
import pickle
import shutil
import sqlite3
import stat
import sys
import threading
import time
from pathlib import Path

import pytest

from coupler.store import CursorError, HeldError, StoreError, errors, migrations
from coupler.store import database as database_module
from coupler.store.database import Database
from coupler.store.store import Store
from store.parts import locked, record


def modes(directory: Path) -> dict[str, int]:
    return {file.name: stat.S_IMODE(file.stat().st_mode) for file in directory.iterdir() if file.is_file()}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
@pytest.mark.parametrize("mask", [0, 0o022, 0o277])
def test_only_the_owner_can_read_it_whatever_the_umask(mask, path, open_store):
    before = os.umask(mask)
    try:
        store = open_store()
        asyncio.run(store.create(record()))
    finally:
        os.umask(before)

    directory = Path(path).parent
    assert stat.S_IMODE(directory.stat().st_mode) == 0o700
    assert modes(directory) == dict.fromkeys(["coupler.db", "coupler.db-wal", "coupler.db-shm"], 0o600)
    assert set(modes(Path(f"{path}.holders")).values()) == {0o600}


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX modes")
def test_a_file_that_others_can_read_is_made_private(path, open_store):
    open_store().close()
    Path(path).chmod(0o644)

    open_store()

    assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_opening_it_twice_in_one_process_is_fine(open_store):
    first, second = open_store(), open_store()
    asyncio.run(first.create(record()))

    second.close()

    assert asyncio.run(first.find("one")) is not None


def test_the_log_is_folded_into_the_file_when_the_last_one_closes(path, open_store):
    first, second = open_store(), open_store()
    asyncio.run(first.create(record()))
    first.close()
    assert Path(f"{path}-wal").exists()

    second.close()

    assert not Path(f"{path}-wal").exists()


def test_many_processes_can_make_the_file_at_once(path, run):
    program = """
        from coupler.store.store import Store
        print("ready", flush=True)
        sys.stdin.readline()
        store = Store.open(path)
        print(store.blocking.page(), flush=True)
        store.close()
    """
    children = [run(program) for _ in range(4)]
    for child in children:
        child.stdout.readline()
    for child in children:
        child.stdin.write("\n")
        child.stdin.flush()

    assert [child.communicate()[0] for child in children] == [
        "SessionPage(records=(), next_cursor=None)\n"
    ] * 4
    assert [child.returncode for child in children] == [0] * 4


class TestVersions:
    def test_an_older_file_is_brought_up_to_date_with_what_it_holds(self, path, open_store, monkeypatch):
        store = open_store()
        asyncio.run(store.create(record(title="kept")))
        store.close()

        def add_colour(connection):
            connection.execute("ALTER TABLE sessions ADD COLUMN colour TEXT DEFAULT 'blue'")

        monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, add_colour))
        store = open_store()

        assert asyncio.run(store.find("one")).title == "kept"
        store.close()
        with sqlite3.connect(path) as connection:
            assert connection.execute("SELECT colour FROM sessions").fetchall() == [("blue",)]
            assert connection.execute("PRAGMA user_version").fetchone() == (len(migrations.MIGRATIONS),)
        connection.close()

    def test_a_migration_that_fails_changes_nothing(self, path, open_store, monkeypatch):
        open_store().close()
        before = Path(path).read_bytes()

        def fail(connection):
            connection.execute("DROP TABLE entries")
            raise sqlite3.OperationalError("no such luck")

        monkeypatch.setattr(migrations, "MIGRATIONS", (*migrations.MIGRATIONS, fail))
        with pytest.raises(StoreError, match="no such luck"):
            Database(path)

        assert Path(path).read_bytes() == before

    def test_a_newer_file_is_refused_untouched(self, path, open_store):
        open_store().close()
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA journal_mode = DELETE")
        connection.execute("PRAGMA user_version = 99")
        connection.close()
        before = Path(path).read_bytes()

        with pytest.raises(StoreError, match="newer Coupler: upgrade") as caught:
            Database(path)

        assert caught.value.kind == "newer"
        assert Path(path).read_bytes() == before

    def test_another_programs_database_is_refused_untouched(self, path):
        Path(path).parent.mkdir()
        connection = sqlite3.connect(path)
        connection.execute("CREATE TABLE theirs (a)")
        connection.close()
        before = Path(path).read_bytes()

        with pytest.raises(StoreError, match="not a Coupler database"):
            Database(path)

        assert Path(path).read_bytes() == before

    def test_a_file_that_is_no_database_is_refused_untouched(self, path):
        Path(path).parent.mkdir()
        Path(path).write_text("just some notes, of more than a hundred characters " * 5)

        with pytest.raises(StoreError, match="not a Coupler database") as caught:
            Database(path)

        assert caught.value.kind == "unusable"
        assert Path(path).read_text().startswith("just some notes")


class TestPlacesThatCannotBeUsed:
    def test_a_directory_that_cannot_be_made(self, tmp_path):
        (tmp_path / "file").write_text("")

        with pytest.raises(StoreError, match=r"check its permissions, or set COUPLER_HOME") as caught:
            Database(str(tmp_path / "file" / "coupler.db"))

        assert caught.value.kind == "unusable"

    def test_a_directory_in_its_place(self, tmp_path):
        with pytest.raises(StoreError) as caught:
            Database(str(tmp_path))
        assert caught.value.kind == "unusable"

    def test_holders_that_cannot_be_kept(self, path):
        Path(path).parent.mkdir()
        Path(f"{path}.holders").write_text("")

        with pytest.raises(StoreError, match="holders") as caught:
            Store.open(path)
        assert caught.value.kind == "unusable"

    def test_no_home_at_all(self, monkeypatch):
        for name in ("COUPLER_HOME", "XDG_DATA_HOME", "LOCALAPPDATA"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setattr(os.path, "expanduser", lambda path: path)

        with pytest.raises(StoreError, match="set COUPLER_HOME") as caught:
            Store.open()
        assert caught.value.kind == "unusable"

    def test_by_default_it_is_the_users_own(self, coupler_home):
        store = Store.open()
        store.close()
        assert store.path == str(coupler_home / "coupler.db")


@pytest.mark.skipif(sys.platform == "win32", reason="a POSIX file system without shared memory")
class TestWithoutAWriteAheadLog:
    @pytest.fixture(autouse=True)
    def no_shared_memory(self, monkeypatch):
        connect = sqlite3.connect
        monkeypatch.setattr(
            database_module.sqlite3,
            "connect",
            lambda path, **options: connect(f"file:{path}?vfs=unix-dotfile", uri=True, **options),
        )

    def test_it_warns_and_goes_on(self, path, open_store, caplog):
        with caplog.at_level(logging.WARNING):
            store = open_store()
        asyncio.run(store.create(record()))

        assert asyncio.run(store.find("one")) is not None
        assert "no write-ahead log is possible" in caplog.text
        assert not Path(f"{path}-wal").exists()

    def test_reads_wait_for_a_writer_without_blocking_the_loop(self, path, open_store):
        store = open_store()
        asyncio.run(store.create(record()))

        async def find_while_locked(connection):
            finding = asyncio.create_task(store.find("one"))
            while not store._database.has_waiting_work:
                await asyncio.sleep(0)
            connection.execute("ROLLBACK")
            return await finding

        with locked(path) as connection:
            assert asyncio.run(find_while_locked(connection)) is not None

    def test_a_command_waits_for_a_writer(self, path, open_store):
        store = open_store()
        asyncio.run(store.create(record()))
        with locked(path) as connection:
            timer = threading.Timer(0.05, connection.execute, ["ROLLBACK"])
            timer.start()
            assert store.blocking.find("one") is not None
            timer.join()


def test_more_safety_against_power_loss_can_be_asked_for(path):
    for asked, level in (("normal", 1), ("full", 2)):
        database = Database(path, asked)
        assert database.read(lambda c: c.execute("PRAGMA synchronous").fetchone()) == (level,)
        assert database.submit(lambda c: c.execute("PRAGMA synchronous").fetchone()).result() == (level,)
        database.close()


def test_a_database_in_memory_needs_no_file_and_no_thread(open_store):
    before = threading.active_count()
    store = open_store(":memory:")

    asyncio.run(store.create(record()))

    assert asyncio.run(store.find("one")) is not None
    assert asyncio.run(store.delete("one"))
    assert threading.active_count() == before
    assert not Path(":memory:.holders").exists()


def test_the_thread_ends_with_the_store(open_store):
    store = open_store()
    store._database.submit(lambda connection: None).result()
    assert any(thread.name == "coupler-store" for thread in threading.enumerate())

    store.close()

    assert not any(thread.name == "coupler-store" for thread in threading.enumerate())
    with pytest.raises(RuntimeError, match="closed"):
        store._database.submit(lambda connection: None)


class TestALockedFile:
    def test_a_write_on_the_loop_fails_at_once(self, path, store):
        times = []
        with locked(path):
            for _ in range(5):
                began = time.perf_counter()
                with pytest.raises(StoreError, match="another program holds") as caught:
                    store._database.transaction(lambda connection: None)
                times.append(time.perf_counter() - began)
        assert caught.value.kind == "locked"
        assert min(times) < 0.05

    def test_reads_do_not_wait(self, path, store):
        with locked(path):
            began = time.perf_counter()
            assert asyncio.run(store.find("one")) is None
            assert time.perf_counter() - began < 0.5

    def test_a_patient_write_goes_through_when_it_is_freed(self, path, store):
        async def create_while_locked(connection):
            creating = asyncio.create_task(store.create(record()))
            while not store._database.has_waiting_work:
                await asyncio.sleep(0)
            connection.execute("ROLLBACK")
            await creating

        with locked(path) as connection:
            asyncio.run(create_while_locked(connection))
        assert asyncio.run(store.find("one")) is not None

    def test_a_patient_write_fails_when_its_patience_ends(self, path, open_store):
        store = open_store(patience=0.1)
        with locked(path), pytest.raises(StoreError) as caught:
            asyncio.run(store.create(record()))
        assert caught.value.kind == "locked"

    def test_of_many_writes_that_wait_for_the_same_lock_none_waits_longer_than_the_first(
        self, path, open_store
    ):
        store = open_store(patience=0.2)

        async def create_many():
            return await asyncio.gather(
                *(store.create(record(str(number))) for number in range(20)), return_exceptions=True
            )

        with locked(path):
            began = time.perf_counter()
            errors = asyncio.run(create_many())
            assert time.perf_counter() - began < 2

        assert [error.kind for error in errors] == ["locked"] * 20
        # Who comes later waits in full again.
        with locked(path):
            began = time.perf_counter()
            asyncio.run(create_many())
            assert time.perf_counter() - began > 0.15

    def test_the_loop_goes_on_meanwhile(self, path, open_store):
        store = open_store(patience=0.4)

        async def watch():
            creating = asyncio.create_task(store.create(record()))
            longest, last = 0.0, time.perf_counter()
            while not creating.done():
                await asyncio.sleep(0.002)
                longest, last = max(longest, time.perf_counter() - last), time.perf_counter()
            with pytest.raises(StoreError):
                await creating
            return longest

        with locked(path):
            # 50 ms is the promise; a shared machine may add a pause of its own.
            assert min(asyncio.run(watch()) for _ in range(3)) < 0.05

    def test_writes_keep_their_order(self, path, store):
        async def create_many(connection):
            first = asyncio.create_task(store.create(record("0")))
            while not store._database.has_waiting_work:
                await asyncio.sleep(0)
            connection.execute("ROLLBACK")
            await asyncio.gather(first, *(store.create(record(str(n))) for n in range(1, 20)))

        with locked(path) as connection:
            asyncio.run(create_many(connection))
        rows = store._database.read(lambda c: c.execute("SELECT id FROM sessions ORDER BY number").fetchall())
        assert [row[0] for row in rows] == [str(number) for number in range(20)]

    def test_a_command_waits_too(self, path, store):
        asyncio.run(store.create(record()))
        with locked(path) as connection:
            timer = threading.Timer(0.05, connection.execute, ["ROLLBACK"])
            timer.start()
            assert store.blocking.delete("one")
            timer.join()

    def test_opening_needs_no_lock_when_the_file_is_up_to_date(self, path, open_store):
        open_store().close()
        with locked(path):
            began = time.perf_counter()
            open_store()
            assert time.perf_counter() - began < 1

    def test_a_new_file_that_stays_locked_cannot_be_opened(self, path):
        Path(path).parent.mkdir()
        with locked(path), pytest.raises(StoreError) as caught:
            Database(path, patience=0.05)
        assert caught.value.kind == "locked"


def test_a_full_disk_fails_the_write_and_says_where_to_free_space(path, open_store):
    store = open_store(most_pages=40)

    with pytest.raises(StoreError, match="free some space in") as caught:
        asyncio.run(store.create(record(state=bytes(1_000_000))))

    assert caught.value.kind == "full"
    asyncio.run(store.create(record()))
    assert asyncio.run(store.find("one")).state is None


@pytest.mark.skipif(sys.platform == "win32", reason="there are no such limits")
class TestWhatKeepsAFileFromGrowing:
    @pytest.mark.parametrize("limit", [4096, 20_000, 60_000, 200_000, 2_000_000])
    def test_a_limit_of_file_sizes_is_named(self, run, limit):
        child = run(
            """
            import asyncio, os, resource
            from coupler.store import StoreError
            from coupler.store.sessions import SessionRecord
            from coupler.store.store import Store
            limit = int(argv[0])
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
            try:
                store = Store.open(path)
                asyncio.run(store.create(SessionRecord("one", "a", "/", state=os.urandom(5_000_000))))
            except StoreError as error:
                print(error.kind, error, flush=True)
            """,
            limit,
        )
        said = child.communicate()[0]
        assert said.startswith("full ")
        assert f"may write no file of more than {limit:,} bytes (`ulimit -f`): raise that limit" in said

    @pytest.mark.parametrize(
        ("number", "words"),
        [
            (errno.EDQUOT, "your disk quota is used up: free some space in"),
            (errno.ENOSPC, "the disk is full: free some space in"),
            (errno.EIO, "cannot be used (disk I/O error)"),
        ],
    )
    def test_a_quota_is_told_from_a_full_disk_and_a_broken_one(self, tmp_path, monkeypatch, number, words):
        def refuse(descriptor, content):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(errors.os, "write", refuse)
        error = sqlite3.OperationalError("disk I/O error")
        error.sqlite_errorcode = sqlite3.SQLITE_IOERR_WRITE

        assert words in str(errors.translate_error(error, str(tmp_path / "coupler.db")))
        assert [*tmp_path.iterdir()] == []


def test_an_error_in_the_work_rolls_it_back(store):
    def work(connection):
        connection.execute("DELETE FROM meta")
        raise KeyError("mine")

    with pytest.raises(KeyError):
        store._database.transaction(work)
    assert store._database.read(lambda c: c.execute("SELECT count(*) FROM meta").fetchone()) == (1,)


@pytest.mark.parametrize("most", [4, 1])
def test_the_log_does_not_grow_for_ever(path, open_store, monkeypatch, most):
    monkeypatch.setattr(database_module, "CHECKPOINT_AT", 100_000)
    monkeypatch.setattr(database_module, "LARGEST_LOG", most * 100_000)
    store = open_store()
    folded = []
    for name in ("_checkpoint", "_empty_log"):
        work = getattr(database_module, name)
        monkeypatch.setattr(
            database_module, name, lambda connection, *mode, work=work: folded.append(work(connection, *mode))
        )

    for number in range(300):
        asyncio.run(store.create(record(str(number), state=bytes(10_000))))

    store.close()
    assert folded
    assert Path(path).stat().st_size > 3_000_000


@pytest.mark.parametrize(
    "error", [StoreError("full", "it is full"), HeldError("one", 42), CursorError()], ids=lambda e: e.kind
)
def test_errors_can_be_sent_to_another_process(error):
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), copy.kind, str(copy)) == (type(error), error.kind, str(error))


def test_a_copied_file_is_a_backup(path, open_store, tmp_path):
    store = open_store()
    asyncio.run(store.create(record()))
    store.close()

    shutil.copy(path, tmp_path / "copy.db")

    assert asyncio.run(open_store(str(tmp_path / "copy.db")).find("one")) is not None
