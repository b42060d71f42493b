"""Sessions that are kept: found, listed page by page, copied and deleted."""

import asyncio
import base64
import sqlite3
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coder.waiting import until
from coupler.store import CursorError, space
from coupler.store.sessions import CursorSigner, PagePosition, SessionQuery, purge_slice
from coupler.store.store import Store
from store.parts import record


def create(store, *records):
    async def create_all():
        return [await store.create(each) for each in records]

    return asyncio.run(create_all())


def write(store, id, *entries, **columns):
    """Journal some entries, each a kind, in a turn of their own."""

    async def write_all():
        journal = await store.journal(id)
        journal.begin_turn()
        for number, kind in enumerate(entries):
            journal.add(kind, str(number), kind.encode())
        journal.set(turns=journal.turn, **columns)
        await store.flush()

    asyncio.run(write_all())


def listed(store, agent="coder", **query):
    """The ids on all pages."""

    async def list_all():
        ids, cursor = [], None
        while True:
            page = await store.page(agent, cursor=cursor, **query)
            ids += [each.id for each in page.records]
            cursor = page.next_cursor
            if cursor is None:
                return ids

    return asyncio.run(list_all())


class TestFinding:
    def test_what_was_created_is_found_whole(self, path, open_store):
        store = open_store()
        whole = record(
            roots=("/a", "/ü"),
            title="Ein Titel",
            created_at=1,
            updated_at=2,
            turns=3,
            settings='{"mode":"ask"}',
            usage='{"used":1}',
            state=b"\x00\xff",
        )
        assert create(store, whole) == [whole]
        store.close()

        again = open_store()
        assert asyncio.run(again.find("one")) == again.blocking.find("one") == whole

    def test_dates_that_are_not_given_are_now(self, store):
        before = int(time.time() * 1000)
        (made,) = create(store, record())
        assert before <= made.created_at == made.updated_at <= int(time.time() * 1000)
        assert asyncio.run(store.find("one")) == made

    @pytest.mark.parametrize("id", ["", "ONE", "one ", "on", "'; DROP TABLE sessions"])
    def test_an_id_is_exact(self, store, id):
        create(store, record())
        assert asyncio.run(store.find(id)) is None

    def test_an_id_is_used_once(self, store):
        create(store, record())
        with pytest.raises(ValueError, match="make a new id"):
            create(store, record())


class TestListing:
    def test_the_newest_come_first_and_without_their_state(self, store):
        dates = {"old": 1, "newest": 9, "middle": 5}
        create(store, *(record(id, updated_at=date, state=b"x") for id, date in dates.items()))

        page = asyncio.run(store.page("coder"))

        assert [(each.id, each.state) for each in page.records] == [
            ("newest", None),
            ("middle", None),
            ("old", None),
        ]
        assert page.next_cursor is None

    def test_it_can_be_asked_for_one_agent_and_one_directory(self, store):
        create(
            store,
            record("a", updated_at=1),
            record("b", cwd="/other", updated_at=2),
            record("c", agent="reviewer", updated_at=3),
        )
        assert listed(store) == ["b", "a"]
        assert listed(store, cwd="/project") == ["a"]
        assert listed(store, cwd="/proj") == []
        assert listed(store, agent="reviewer") == ["c"]
        assert listed(store, agent=None) == ["c", "b", "a"]
        assert listed(store, agent=None, cwd="/project") == ["c", "a"]

    def test_an_empty_session_is_listed_only_where_it_was_made(self, store, run):
        program = """
            import asyncio
            from coupler.store.store import Store
            from coupler.store.sessions import SessionRecord
            store = Store.open(path)
            asyncio.run(store.create(SessionRecord("theirs, empty", "coder", "/", updated_at=1)))
            asyncio.run(store.create(SessionRecord("theirs", "coder", "/", turns=1, updated_at=2)))
            print([each.id for each in store.blocking.page("coder").records])
            store.close()
        """
        assert run(program).communicate()[0] == "['theirs', 'theirs, empty']\n"
        create(store, record("mine, empty", updated_at=3))

        assert listed(store) == ["mine, empty", "theirs"]
        assert listed(store, include_empty=True) == ["mine, empty", "theirs", "theirs, empty"]
        assert [each.id for each in store.blocking.page().records] == ["mine, empty", "theirs"]
        assert asyncio.run(store.find("theirs, empty")) is not None

    @pytest.mark.parametrize("limit", [1, 2, 7, 24, 25, 26])
    def test_pages_hold_each_session_once_also_those_of_one_moment(self, store, limit):
        create(store, *(record(str(number), updated_at=1 + number // 5) for number in range(25)))
        ids = listed(store, limit=limit)
        assert ids == [str(number) for number in reversed(range(25))]

    def test_what_changes_between_pages_repeats_nothing(self, store):
        create(store, *(record(str(number), updated_at=1 + number) for number in range(6)))
        first = asyncio.run(store.page("coder", limit=3))

        write(store, "4", "stop", updated_at=100)
        asyncio.run(store.delete("3"))
        second = asyncio.run(store.page("coder", limit=3, cursor=first.next_cursor))

        assert [each.id for each in first.records] == ["5", "4", "3"]
        assert [each.id for each in second.records] == ["2", "1", "0"]

    def test_ten_thousand_sessions_are_no_burden(self, store, path):
        create(store, record("first", turns=1, state=bytes(100_000)))
        connection = sqlite3.connect(path)
        with connection:
            connection.executemany(
                "INSERT INTO sessions SELECT NULL, ?, agent, ?, roots, title, created_at, ?, turns, settings,"
                " usage, made_by, holder, deleted FROM sessions WHERE id = 'first'",
                ((f"s{n}", f"/project/{n % 7}", 1000 + n // 3) for n in range(10_000)),
            )
        connection.close()

        times = []
        for query in ({}, {"cwd": "/project/3"}, {"agent": None}):
            for _ in range(5):
                began = time.perf_counter()
                asyncio.run(store.page(**{"agent": "coder", **query}))
                times.append(time.perf_counter() - began)
        ids = listed(store, limit=500)

        print(f"a page of 10,000: {sorted(times)[len(times) // 2] * 1000:.2f} ms")
        assert min(times) < 0.05
        assert len(ids) == len(set(ids)) == 10_001


class TestCursors:
    @pytest.fixture
    def cursor(self, store):
        create(store, *(record(str(number)) for number in range(5)))
        return asyncio.run(store.page("coder", limit=2)).next_cursor

    def test_it_survives_a_restart(self, store, open_store, cursor):
        store.close()
        page = asyncio.run(open_store().page("coder", limit=2, cursor=cursor, include_empty=False))
        assert page.next_cursor is None

    def test_it_needs_no_quoting_in_an_address(self, cursor):
        assert cursor.replace("-", "").replace("_", "").isalnum()

    @pytest.mark.parametrize(
        "query",
        [
            {"agent": "reviewer"},
            {"agent": None},
            {"agent": "coder", "cwd": "/project"},
            {"agent": "coder", "include_empty": True},
        ],
    )
    def test_it_holds_for_its_own_query_only(self, store, cursor, query):
        with pytest.raises(CursorError, match="list again without a cursor"):
            asyncio.run(store.page(**query, cursor=cursor))

    def test_it_holds_for_its_own_store_only(self, open_store, cursor, tmp_path):
        other = open_store(str(tmp_path / "other.db"))
        with pytest.raises(CursorError):
            asyncio.run(other.page("coder", cursor=cursor))

    @pytest.mark.parametrize(
        "forged", ["", "2", "null", "ü", "a\ud800", "AAAA", "=", "A" * 43, "A" * 5000, " "]
    )
    def test_what_was_never_given_out_is_refused(self, store, forged):
        with pytest.raises(CursorError):
            asyncio.run(store.page("coder", cursor=forged))

    def test_each_changed_or_missing_character_is_noticed(self, store, cursor):
        changed = [
            cursor[:place] + other + cursor[place + 1 :]
            for place in range(len(cursor))
            for other in ("A", "B", "-", "_", "!", "")
            if other != cursor[place]
        ]
        for forged in [*changed, cursor + "A", cursor + "=", cursor + "\n", " " + cursor, cursor * 2]:
            with pytest.raises(CursorError):
                asyncio.run(store.page("coder", cursor=forged))

    @given(st.binary(max_size=64))
    def test_noise_is_refused(self, noise):
        with pytest.raises(CursorError):
            CursorSigner(b"key").position(
                base64.urlsafe_b64encode(noise).decode(), SessionQuery("coder", None, False)
            )

    @given(st.integers(0, 2**62), st.integers(0, 2**62), st.text(), st.none() | st.text())
    def test_what_was_given_out_is_understood(self, updated_at, number, agent, cwd):
        seal, query = CursorSigner(b"key"), SessionQuery(agent, cwd, False)
        position = PagePosition(updated_at, number)
        assert seal.position(seal.cursor(position, query), query) == position


class TestDeleting:
    def test_it_is_gone_at_once_and_its_entries_soon(self, store):
        create(store, record(state=b"secret"), record("other"))
        write(store, "one", *["event"] * 2500)
        write(store, "other", "event")

        assert asyncio.run(store.delete("one"))

        assert asyncio.run(store.find("one")) is None
        assert asyncio.run(store.entries("one")) == []
        assert listed(store) == ["other"]
        assert not asyncio.run(store.hold("one"))
        while store._database.submit(purge_slice).result():
            pass
        assert count(store, "entries") == 1
        assert count(store, "sessions") == 1
        assert count(store, "states") == 0

    def test_deleting_again_is_no_error(self, store):
        create(store, record())
        assert asyncio.run(store.delete("one")) is True
        assert asyncio.run(store.delete("one")) is False
        assert asyncio.run(store.delete("never there")) is False

    def test_another_agents_session_stays(self, store):
        create(store, record())
        assert asyncio.run(store.delete("one", agent="reviewer")) is False
        assert asyncio.run(store.delete("one", agent="coder")) is True

    def test_a_command_leaves_nothing_behind(self, store):
        create(store, record(state=b"secret"))
        write(store, "one", *["event"] * 2500)

        assert store.blocking.delete("one")
        assert store.blocking.purge() == 0

        assert [count(store, table) for table in ("sessions", "entries", "states")] == [0, 0, 0]

    def test_a_purge_goes_in_slices(self, store, monkeypatch):
        monkeypatch.setattr(space, "SLICE_ROWS", 10)
        create(store, record())
        write(store, "one", *["event"] * 25)
        store._database.transaction(lambda c: c.execute("UPDATE sessions SET deleted = 1"))

        left = []
        while store._database.transaction(purge_slice):
            left.append(count(store, "entries"))

        assert left == [15, 5, 0]

    def test_a_purge_that_was_cut_off_is_finished_by_the_next_start(self, store, path):
        create(store, record())
        write(store, "one", *["event"] * 2500)
        store._database.transaction(lambda c: c.execute("UPDATE sessions SET deleted = 1"))
        store.close()

        again = Store.open(path)
        try:
            until(lambda: count(again, "sessions") == 0)
            assert count(again, "entries") == 0
        finally:
            again.close()

    def test_what_still_happens_in_it_is_not_kept(self, store):
        create(store, record())

        async def go_on_after_the_end():
            journal = await store.journal("one")
            journal.text("text", "m", "before")
            await store.delete("one")
            while store._database.submit(purge_slice).result():
                pass
            journal.text("text", "m", "after")
            journal.add("event", "", b"after")
            await store.flush()
            with pytest.raises(LookupError, match="no session"):
                await store.journal("one")

        asyncio.run(go_on_after_the_end())
        assert count(store, "entries") == 0

    def test_the_number_of_a_deleted_session_does_not_come_back(self, store):
        create(store, record())
        store.blocking.delete("one")
        store.blocking.purge()
        create(store, record("two"))
        assert store._database.read(lambda c: c.execute("SELECT number FROM sessions").fetchone()) == (2,)


class TestCopying:
    def test_a_copy_goes_on_from_the_last_whole_turn(self, store):
        create(store, record(title="Original"))
        columns = {"state": b"s", "settings": '{"a":1}', "usage": "{}"}
        write(store, "one", "user", "text", "stop", **columns)
        write(store, "one", "user", "stop")
        write(store, "one", "user", "text")

        made = asyncio.run(store.copy("one", record("two", cwd="/elsewhere", roots=("/r",)), until="stop"))

        assert asyncio.run(store.find("two")) == made
        assert (made.title, made.turns, made.cwd, made.roots) == ("Original", 2, "/elsewhere", ("/r",))
        assert (made.state, made.settings, made.usage) == (b"s", '{"a":1}', "{}")
        entries = asyncio.run(store.entries("one"))
        assert asyncio.run(store.entries("two")) == entries[:5]
        assert len(entries) == 7

    def test_both_go_on_by_themselves(self, store):
        create(store, record())
        write(store, "one", "user", "stop")
        asyncio.run(store.copy("one", record("two", title="Copy"), until="stop"))

        write(store, "two", "user", "stop")
        asyncio.run(store.delete("one"))

        assert [entry.turn for entry in asyncio.run(store.entries("two"))] == [1, 1, 2, 2]
        assert asyncio.run(store.find("two")).title == "Copy"

    def test_a_session_without_a_whole_turn_gives_an_empty_copy(self, store):
        create(store, record())
        write(store, "one", "user")
        assert asyncio.run(store.copy("one", record("two"), until="stop")).turns == 0
        assert asyncio.run(store.entries("two")) == []

    def test_what_was_not_yet_written_is_copied_too(self, store):
        create(store, record())

        async def copy_at_once():
            journal = await store.journal("one")
            journal.begin_turn()
            journal.text("text", "m", "said")
            journal.add("stop", "", b"")
            await store.copy("one", record("two"), until="stop")
            return await store.entries("two")

        assert [entry.kind for entry in asyncio.run(copy_at_once())] == ["text", "stop"]

    def test_what_is_not_there_cannot_be_copied(self, store):
        assert asyncio.run(store.copy("nobody's", record("two"), until="stop")) is None
        assert asyncio.run(store.find("two")) is None

    def test_a_copy_is_held_by_who_made_it(self, store):
        create(store, record())
        asyncio.run(store.copy("one", record("two"), until="stop"))
        assert asyncio.run(store.hold("two"))


def count(store, table):
    return store._database.read(lambda c: c.execute(f"SELECT count(*) FROM {table}").fetchone())[0]
