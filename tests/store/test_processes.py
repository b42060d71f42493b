"""Several processes at once, and processes that are killed while they write."""

import random
import signal
import sys
import time

import pytest

from coupler.store.store import Store

pytestmark = pytest.mark.long

WRITER = """
    import asyncio, random
    from coupler.store.store import Store
    from coupler.store.sessions import SessionRecord

    id, rows, seed = argv[0], int(argv[1]), int(argv[2])
    chance = random.Random(seed)

    async def main():
        store = Store.open(path)
        if await store.find(id) is None:
            await store.create(SessionRecord(id, "coder", "/", turns=1))
        assert await store.hold(id)
        journal = await store.journal(id)
        number = 0
        print("ready", flush=True)
        sys.stdin.readline()
        while number < rows:
            for _ in range(chance.randint(1, 5)):
                number += 1
                journal.text("text", f"m{number // 7}", f"{number} ")
                if chance.random() < 0.3:
                    number += 1
                    journal.add("tool", "call", f"{number} ".encode())
                if chance.random() < 0.02:
                    number += 1
                    journal.add("file", "call", f"{number} ".encode() + b" " * 200_000)
            if chance.random() < 0.5:
                await asyncio.sleep(0)
            await store.flush()
            print(number, flush=True)
        store.close()

    asyncio.run(main())
"""


def numbers(store: Store, id: str) -> list[int]:
    found: list[int] = []
    after = 0
    while entries := store.blocking.entries(id, after, 500):
        after = entries[-1].seq
        found += [int(word) for entry in entries for word in entry.body.split()]
    return found


def go(child) -> None:
    assert child.stdout.readline() == "ready\n"
    child.stdin.write("\n")
    child.stdin.flush()


def test_two_processes_write_a_thousand_rows_each(path, run):
    children = {id: run(WRITER, id, 1000, seed) for seed, id in enumerate(("one", "two"))}
    for child in children.values():
        go(child)
    last = {id: int(child.communicate()[0].split()[-1]) for id, child in children.items()}

    assert [child.returncode for child in children.values()] == [0, 0]
    store = Store.open(path)
    try:
        for id in children:
            assert numbers(store, id) == list(range(1, last[id] + 1))
            assert last[id] >= 1000
    finally:
        store.close()


@pytest.mark.skipif(sys.platform == "win32", reason="signals are POSIX")
def test_what_was_reported_as_written_survives_a_kill(path, run):
    chance = random.Random()
    for attempt in range(8):
        id = f"session {attempt}"
        child = run(WRITER, id, 1_000_000, chance.randrange(10**6))
        go(child)
        # The moment is meant to be any: this waits for nothing.
        time.sleep(chance.uniform(0.0, 0.15))
        child.send_signal(signal.SIGKILL)
        reported = [int(line) for line in child.communicate()[0].splitlines() if line]

        store = Store.open(path)
        try:
            found = numbers(store, id)
            assert found == list(range(1, len(found) + 1))
            # The last line may be cut off in the middle of its number, which makes it smaller only.
            assert len(found) >= max(reported, default=0)
            assert store._database.read(lambda c: c.execute("PRAGMA integrity_check").fetchone()) == ("ok",)
        finally:
            store.close()
