"""Who holds a session: the living keep it, the dead do not."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from coupler.store import HeldError
from coupler.store.leases import LeaseHolder
from store.parts import record

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="signals and forks are POSIX")

# Makes a session, says so, and lives until it is told to end.
KEEPER = """
    import asyncio, os
    from coupler.store.store import Store
    from coupler.store.sessions import SessionRecord
    store = Store.open(path)
    asyncio.run(store.create(SessionRecord("theirs", "coder", "/", turns=1)))
    if "fork" in argv and os.fork() == 0:
        os.close(1)
        sys.stdin.read()  # the child lives on, as long as the test
        os._exit(0)
    if "exec" in argv:
        import subprocess
        subprocess.run(["true"])
    print(os.getpid(), flush=True)
    sys.stdin.readline()
    if "release" in argv:
        asyncio.run(store.release("theirs"))
        print("released", flush=True)
        sys.stdin.readline()
    store.close()
"""


def holders(path):
    return sorted(file.name for file in Path(f"{path}.holders").iterdir())


@pytest.mark.parametrize("way", ["alone", "fork", "exec"])
def test_a_session_of_a_living_process_is_refused(way, store, run):
    pid = int(run(KEEPER, way).stdout.readline())

    for ask in (store.hold, store.delete):
        with pytest.raises(HeldError, match="close it there first") as caught:
            asyncio.run(ask("theirs"))
        assert caught.value.pid == pid

    with pytest.raises(HeldError):
        store.blocking.delete("theirs")
    assert asyncio.run(store.find("theirs")) is not None


@pytest.mark.parametrize("way", ["alone", "fork"])
def test_a_session_of_a_killed_process_is_taken_over(way, path, store, run):
    child = run(KEEPER, way)
    pid = int(child.stdout.readline())
    assert len(holders(path)) == 2
    os.kill(pid, signal.SIGKILL)
    child.wait()

    assert asyncio.run(store.hold("theirs"))

    assert [name.split("-")[0] for name in holders(path)] == [str(os.getpid())]


def test_a_session_of_a_process_that_ended_is_free(path, store, run):
    child = run(KEEPER)
    child.stdout.readline()
    child.communicate("\n")

    assert asyncio.run(store.hold("theirs"))
    assert len(holders(path)) == 1


def test_a_released_session_is_free_while_its_process_lives(store, run):
    child = run(KEEPER, "release")
    child.stdout.readline()
    child.stdin.write("\n")
    child.stdin.flush()
    assert child.stdout.readline() == "released\n"

    assert asyncio.run(store.hold("theirs"))


def test_what_this_process_took_stays_taken(store, run):
    asyncio.run(store.create(record("mine")))
    assert asyncio.run(store.hold("mine"))
    assert asyncio.run(store.hold("mine"))

    program = """
        from coupler.store.store import Store
        from coupler.store import HeldError
        import asyncio
        store = Store.open(path)
        try:
            asyncio.run(store.hold("mine"))
        except HeldError as error:
            print(error.pid)
        store.close()
    """
    assert run(program).communicate()[0] == f"{os.getpid()}\n"


def test_a_session_that_is_not_there_cannot_be_held(store):
    assert asyncio.run(store.hold("nobody's")) is False


def test_one_process_has_one_holder_until_its_last_store_closes(path, open_store, run):
    first, second = open_store(), open_store()
    asyncio.run(first.create(record()))
    assert asyncio.run(second.hold("one"))
    second.close()

    assert len(holders(path)) == 1
    assert first._holder.is_alive(first._holder.id)

    first.close()
    assert holders(path) == []


def test_a_forked_child_that_closes_the_store_leaves_its_parents_sessions_held(path, run):
    program = """
        import os
        from coupler.store.store import Store
        store = Store.open(path)
        child = os.fork()
        if child == 0:
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        print(store._holder.id, flush=True)
        sys.stdin.read()
        store.close()
    """
    id = run(program).stdout.readline().strip()
    assert holders(path) == [id]


def test_what_the_dead_left_is_removed_at_the_next_start(path, open_store):
    directory = Path(f"{path}.holders")
    directory.mkdir(parents=True)
    (directory / "999999-abcdef").write_text("")
    (directory / "notes.txt").write_text("not a holder's")

    store = open_store()

    assert holders(path) == sorted([store._holder.id, "notes.txt"])


def test_a_strange_id_belongs_to_nobody(path):
    holder = LeaseHolder.of(path)
    try:
        for id in ("", "../../etc/passwd", "12", "x-y", "12-../a"):
            assert not holder.is_alive(id)
    finally:
        holder.release()


def test_a_database_in_memory_is_held_by_nobody_else(open_store):
    store = open_store(":memory:")
    asyncio.run(store.create(record()))
    assert asyncio.run(store.hold("one"))
    assert not store._holder.is_alive("1-abc")
