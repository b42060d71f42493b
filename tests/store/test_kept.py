"""Sessions that clients keep under a name."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import sys
from contextlib import closing

import pytest

from coupler.store import migrations
from coupler.store.errors import HeldError
from coupler.store.sessions import KeptSession


def test_a_name_is_one_session_in_a_directory_and_outlives_the_process(open_store):
    async def story():
        store = open_store()
        await store.keep_session(KeptSession("a", "/one", "s1", "/one", "f1"))
        await store.keep_session(KeptSession("a", "/two", "s2", "/two", "f2"))
        await store.keep_session(KeptSession("a", "/one", "s3", "/one", "f3", kept_at=5))
        store.close()
        store = open_store()
        assert await store.find_kept("a", "/one") == KeptSession("a", "/one", "s3", "/one", "f3", 5)
        assert (await store.find_kept("a", "/two")).kept_at > 0
        assert await store.find_kept("b", "/one") is None
        assert await store.forget_kept("a", "/one") and not await store.forget_kept("a", "/one")
        assert await store.find_kept("a", "/one") is None

    asyncio.run(story())


@pytest.mark.skipif(sys.platform == "win32", reason="paths are text there")
def test_a_directory_that_is_no_text_can_have_names(open_store):
    async def story():
        directory = os.fsdecode(b"/app/\xff")
        store = open_store()
        await store.keep_session(KeptSession("a", directory, "s1", directory, "f1", 5))
        assert await store.find_kept("a", directory) == KeptSession("a", directory, "s1", directory, "f1", 5)

    asyncio.run(story())


def test_a_name_is_held_by_one_user_until_it_is_released(open_store):
    async def story():
        store = open_store()
        await store.hold_name("a", "/one")
        await store.hold_name("a", "/two")
        with pytest.raises(HeldError) as caught:
            await store.hold_name("a", "/one")
        assert caught.value.pid == os.getpid()
        await store.release_name("a", "/one")
        await store.hold_name("a", "/one")

    asyncio.run(story())


def test_a_store_from_before_gets_the_tables(path, open_store, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:3])
        open_store().close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (3,)

    store = open_store()
    assert asyncio.run(store.find_kept("a", "/one")) is None
    asyncio.run(store.hold_name("a", "/one"))
