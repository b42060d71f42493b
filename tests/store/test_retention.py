"""The user's rules: which sessions and runs they delete, which never, and what is noted of it."""

import asyncio
import logging
import os
import re
import sqlite3
import time
from contextlib import closing

import pytest

from coder.waiting import until
from coupler.config.shapes import KeepRule
from coupler.store import retention, space
from coupler.store.retention import RetentionRules, last_report
from coupler.store.runs import RunChange, RunRecord
from store.parts import record

DAY = 86_400_000
SESSIONS_30D = RetentionRules(sessions=KeepRule(age=30 * 86400, words="30d"))


def days_ago(days: float) -> int:
    return int(time.time() * 1000 - days * DAY)


def keep_session(store, id: str, days: float, *, size: int = 0, is_open: bool = False) -> None:
    """Keep a session in which something happened last so many days ago."""

    async def keep():
        await store.create(record(id, turns=1))
        journal = await store.journal(id)
        for _ in range(size // 10_000):
            journal.add("event", "", os.urandom(10_000))
        journal.set(updated_at=days_ago(days))
        await store.flush()
        if not is_open:
            await store.release(id)

    asyncio.run(keep())


def keep_run(store, id: str, days: float, status: str = "success", *, is_open: bool = False) -> None:
    async def keep():
        made = RunRecord(id=id, workflow="w", file="/w.yaml", digest="d", cwd="/", sources=b"s" * 1000)
        number = await store.runs.create(made)
        await store.runs.write(number, [], RunChange(status))
        if not is_open:
            await store.runs.release(number)

    asyncio.run(keep())
    store._database.transaction(
        lambda c: c.execute("UPDATE runs SET updated_at = ? WHERE id = ?", [days_ago(days), id])
    )


def tidied(store, rules: RetentionRules) -> tuple[set[str], set[str]]:
    """Apply the rules to their end; the sessions and runs that are left."""
    store.tidy_up(rules)
    # The last slice has nothing left to do, and the log is folded after it.
    until(lambda: not store._database._thread._chores and not store._database._thread._is_at_chore)
    sessions = {each.id for each in store.blocking.page(limit=1000, include_empty=True).records}
    return sessions, set(store.runs.blocking.ids())


def test_by_default_nothing_is_deleted(store):
    keep_session(store, "old", 5000)
    keep_run(store, "old-run", 5000)
    assert tidied(store, RetentionRules()) == ({"old"}, {"old-run"})
    assert store.blocking.take_report() is None


def test_what_is_too_old_is_deleted_whole(store, caplog):
    keep_session(store, "old", 31, size=100_000)
    keep_session(store, "new", 29)
    keep_run(store, "old-run", 31)

    with caplog.at_level(logging.INFO, "coupler.store"):
        assert tidied(store, SESSIONS_30D) == ({"new"}, {"old-run"})

    # A session whose text was written in two rows has a few bytes more.
    assert re.search(r"sessions: 1, runs: 0, bytes: 1010\d\d\b", caplog.text)
    assert store._database.read(lambda c: c.execute("SELECT count(*) FROM entries").fetchone()) == (0,)
    report = store.blocking.take_report()
    assert (report.sessions, report.runs, report.bytes > 100_000) == (1, 0, True)
    assert store.blocking.take_report() is None
    assert store._database.read(last_report) == report


def test_what_a_living_process_has_stays(store, open_store):
    keep_session(store, "mine", 31, is_open=True)
    keep_run(store, "my-run", 31, is_open=True)
    other = open_store()

    rules = RetentionRules(KeepRule(age=60), KeepRule(age=60))
    assert tidied(other, rules) == ({"mine"}, {"my-run"})


def test_what_another_living_process_has_stays_until_that_dies(store, run):
    child = run("""
        import asyncio
        from coupler.store.store import Store
        from coupler.store.sessions import SessionRecord
        store = Store.open(path)
        asyncio.run(store.create(SessionRecord("theirs", "coder", "/", updated_at=1, turns=1)))
        print("ready", flush=True)
        sys.stdin.readline()
    """)
    child.stdout.readline()
    assert tidied(store, SESSIONS_30D) == ({"theirs"}, set())

    child.kill()
    child.wait()

    assert tidied(store, SESSIONS_30D) == (set(), set())


def test_a_run_that_waits_stays_and_one_that_was_interrupted_does_not(store):
    for status in ("success", "failed", "cancelled", "parked", "running"):
        keep_run(store, status, 400, status)

    rules = RetentionRules(runs=KeepRule(age=86400, size=1))

    assert tidied(store, rules) == (set(), {"parked"})
    assert store.blocking.take_report().runs == 4


def test_beyond_a_size_the_oldest_are_deleted_in_their_order(store):
    for days in range(1, 11):
        keep_session(store, f"{days} days", days, size=1_000_000)

    sessions, _ = tidied(store, RetentionRules(sessions=KeepRule(size=3_500_000)))

    assert sessions == {"1 days", "2 days", "3 days"}
    report = store.blocking.take_report()
    assert report.sessions == 7
    assert 7_000_000 < report.bytes < 7_200_000
    until(lambda: store._database.read(space.read_space).used_bytes < 4_500_000)


def test_the_newest_is_kept_however_large_it_is(store):
    keep_session(store, "old", 2, size=100_000)
    keep_session(store, "huge", 1, size=3_000_000)
    assert tidied(store, RetentionRules(sessions=KeepRule(size=1_000_000)))[0] == {"huge"}


def test_age_and_size_hold_together(store):
    for days in (1, 2, 3, 40):
        keep_session(store, f"{days} days", days, size=1_000_000)
    rules = RetentionRules(sessions=KeepRule(age=30 * 86400, size=2_500_000))
    assert tidied(store, rules)[0] == {"1 days", "2 days"}


def test_what_fits_is_not_measured_again_and_again(store, monkeypatch):
    for days in (1, 2, 3):
        keep_session(store, f"{days} days", days, size=1_000_000)
    keep_run(store, "run", 1)
    measured = []
    monkeypatch.setattr(
        retention,
        "measure_session",
        lambda read, number, measure=retention.measure_session: (
            measured.append(number),
            measure(read, number),
        )[1],
    )
    fitting = RetentionRules(sessions=KeepRule(size=10_000_000, words="10MB"))
    near = RetentionRules(sessions=KeepRule(size=3_200_000, words="3.2MB"))

    tidied(store, fitting)
    assert measured == []  # the whole file is smaller
    keep_session(store, "grown", 0, size=100_000)
    store._database.transaction(lambda c: c.execute("INSERT INTO meta VALUES ('filling', zeroblob(1000000))"))
    tidied(store, near)
    assert len(measured) == 4
    tidied(store, near)
    assert len(measured) == 4
    tidied(store, RetentionRules(sessions=KeepRule(size=3_200_001, words="3.3MB")))
    assert len(measured) == 8
    monkeypatch.setattr(retention, "SIZES_LAST", 0)
    tidied(store, near)
    assert len(measured) == 12


def test_a_session_that_goes_on_meanwhile_stays(store, monkeypatch):
    keep_session(store, "old", 31)
    sweep = retention.RetentionSweep(SESSIONS_30D, store._sessions, store.runs._table)
    assert store._database.transaction(sweep.do_some)

    store._database.transaction(lambda c: c.execute("UPDATE sessions SET updated_at = ?", [days_ago(0)]))
    while store._database.transaction(sweep.do_some):
        pass

    assert store.blocking.find("old") is not None
    assert store.blocking.take_report() is None


def test_thousands_are_deleted_in_short_slices(path, store):
    made = [(f"s{n}", days_ago(40)) for n in range(3000)]
    store._database.transaction(
        lambda c: c.executemany(
            "INSERT INTO sessions (id, agent, cwd, roots, created_at, updated_at, turns, settings, made_by)"
            " VALUES (?, 'a', '/', '[]', 0, ?, 1, '{}', '')",
            made,
        )
    )
    sweep = retention.RetentionSweep(SESSIONS_30D, store._sessions, store.runs._table)
    times = []

    def do_some(connection):
        began = time.thread_time()
        is_more = sweep.do_some(connection)
        times.append(time.thread_time() - began)
        return is_more

    while store._database.submit(do_some).result():
        pass

    assert store.blocking.take_report().sessions == 3000
    assert sorted(times)[-3] < 0.02


@pytest.mark.parametrize("value", [b"", b"[", b'{"sessions": "many"}'])
def test_a_note_that_cannot_be_read_is_none(path, store, value):
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("INSERT INTO meta VALUES ('retention untold', ?)", [value])
    assert store.blocking.take_report() is None
