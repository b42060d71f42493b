"""Permission choices that are kept."""

import asyncio
import sqlite3
import time

from coupler.store import migrations
from coupler.store.choices import ChoiceRecord
from store.parts import record


def choice(pattern="git commit *", **fields):
    return ChoiceRecord(
        **{"project": "/a", "effect": "allow", "subject": "execute", "pattern": pattern, **fields}
    )


def remember(store, *records):
    asyncio.run(store.remember_choices(*records))


def test_what_was_chosen_is_found_again(open_store):
    store = open_store()
    first, second = choice(made_at=1), choice("ls", effect="deny", made_at=2)
    remember(store, second, first)
    store.close()

    again = open_store()
    assert asyncio.run(again.choices("/a")) == again.blocking.choices("/a") == (first, second)
    assert asyncio.run(again.choices("/b")) == ()


def test_a_date_that_is_not_given_is_now(store):
    before = int(time.time() * 1000)
    remember(store, choice())
    [kept] = store.blocking.choices()
    assert before <= kept.made_at <= int(time.time() * 1000)


def test_a_project_is_no_pattern(store):
    remember(store, choice(project="/a"), choice(project="/ab"), choice(project="/A"), choice(project="/%"))
    assert [each.project for each in store.blocking.choices("/a")] == ["/a"]
    assert len(store.blocking.choices()) == 4


def test_a_second_choice_for_the_same_scope_replaces_the_first(store):
    remember(store, choice(made_at=1))
    remember(store, choice(effect="deny", made_at=2))
    assert store.blocking.choices() == (choice(effect="deny", made_at=2),)


def test_one_choice_or_those_on_a_subject_or_all_are_forgotten(store):
    everything = [choice("a"), choice("b"), choice("c", subject="fetch"), choice("a", project="/b")]
    remember(store, *everything)
    assert store.blocking.forget_choices("/a", "execute", "a") == 1
    assert store.blocking.forget_choices("/a", "execute", "a") == 0
    assert store.blocking.forget_choices("/a", "execute") == 1
    assert store.blocking.forget_choices("/a") == 1
    assert [each.project for each in store.blocking.choices()] == ["/b"]


def test_a_row_that_no_version_wrote_allows_nothing(store):
    remember(store, choice())
    with sqlite3.connect(store.path) as connection:
        connection.execute("UPDATE choices SET effect = 'ALLOW'")
    connection.close()
    assert [each.effect for each in store.blocking.choices()] == ["deny"]


def test_a_file_of_the_first_version_gets_room_for_choices(path, open_store, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:1])
        store = open_store()
        asyncio.run(store.create(record(title="kept")))
        store.close()

    store = open_store()
    remember(store, choice())
    assert len(store.blocking.choices("/a")) == 1
    assert store.blocking.find("one").title == "kept"
