"""Trusted files: remembered by path and content, across processes, and forgotten whole."""

from __future__ import annotations

import os
import sqlite3
import sys
from contextlib import closing

import pytest

from coupler.store import migrations
from coupler.store.choices import Trust


@pytest.fixture
def trust(open_store) -> Trust:
    return open_store().trust


def test_nothing_is_trusted_at_first(trust):
    assert not trust.is_trusted("/app/coupler.toml", b"a")
    assert trust.files() == []


def test_a_file_is_trusted_with_the_content_that_it_had(trust):
    trust.trust("/app/coupler.toml", b"a")

    assert trust.is_trusted("/app/coupler.toml", b"a")
    assert not trust.is_trusted("/app/coupler.toml", b"a ")
    assert not trust.is_trusted("/app/coupler.toml", b"")
    assert not trust.is_trusted("/app2/coupler.toml", b"a")
    assert not trust.is_trusted("/APP/coupler.toml", b"a")


def test_every_content_that_was_trusted_stays_so_until_the_file_is_forgotten(trust):
    for content in (b"a", b"b", b"a"):
        trust.trust("/app/coupler.toml", content)
    trust.trust("/other/coupler.toml", b"a")

    assert trust.is_trusted("/app/coupler.toml", b"a")
    assert trust.is_trusted("/app/coupler.toml", b"b")
    assert trust.distrust("/app/coupler.toml")
    assert not trust.distrust("/app/coupler.toml")
    assert not trust.is_trusted("/app/coupler.toml", b"a")
    assert not trust.is_trusted("/app/coupler.toml", b"b")
    (left,) = trust.files()
    assert left.path == "/other/coupler.toml"
    assert left.has(b"a")
    assert not left.has(b"b")


def test_the_list_goes_by_path_and_has_the_latest_first(trust, monkeypatch):
    moments = iter([1.0, 2.0, 3.0])
    monkeypatch.setattr("time.time", lambda: next(moments))
    for path, content in (("/b", b"old"), ("/b", b"new"), ("/a", b"x")):
        trust.trust(path, content)

    assert [(file.path, file.trusted_at) for file in trust.files()] == [
        ("/a", 3000),
        ("/b", 2000),
        ("/b", 1000),
    ]


def test_trust_outlives_the_process(open_store):
    store = open_store()
    store.trust.trust("/app/coupler.toml", b"a")
    store.close()
    assert open_store().trust.is_trusted("/app/coupler.toml", b"a")


@pytest.mark.skipif(sys.platform == "win32", reason="paths are text there")
def test_a_path_that_is_no_text_can_be_trusted(trust):
    path = os.fsdecode(b"/app/\xff/coupler.toml")
    trust.trust(path, b"a")
    assert trust.is_trusted(path, b"a")
    assert [file.path for file in trust.files()] == [path]


def test_a_store_from_before_gets_the_table(path, open_store, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:2])
        open_store().close()
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (2,)

    trust = open_store().trust
    trust.trust("/app/coupler.toml", b"a")
    assert trust.is_trusted("/app/coupler.toml", b"a")
