"""A store that is deleted or replaced while it is open: sessions go on, and are kept in the new one."""

import shutil
import sqlite3
import sys
from contextlib import closing
from pathlib import Path

import pytest

from agent.sessions.steps import REMEMBERS, conversation, listed, reopen
from agent.steps import error_of, leave
from coder.waiting import until
from raw_client import texts

pytestmark = [
    pytest.mark.usefixtures("unmeasured"),
    pytest.mark.skipif(sys.platform == "win32", reason="open files cannot be deleted there"),
]

NOTICES = {"session": {"notices": {}}}


@pytest.fixture
def store(coupler_home: Path) -> Path:
    return coupler_home / "coupler.db"


@pytest.fixture
def opened(start, tmp_path):
    """A client with an open session that has had a turn, and that session."""
    client = start(REMEMBERS)
    client.initialize(**NOTICES)
    session = client.new_session(str(tmp_path))
    client.prompt(session, "first")
    return client, session


def beside(store: Path) -> list[Path]:
    return [store.with_name(f"{store.name}{suffix}") for suffix in ("-wal", "-shm")]


def go_on_until(client, session, condition) -> tuple[list[str], list[dict]]:
    """Prompt until something has happened, which is looked for once a second; the texts, and all updates."""
    said, seen = [], []

    def prompt_once() -> bool:
        text = f"again {len(said)}"
        said.append(text)
        updates, answer = client.prompt(session, text)
        assert answer.get("result") == {"stopReason": "end_turn"}, answer
        assert texts(updates) == f"{len(said) + 1}: {text}"
        seen.extend(updates)
        return condition()

    until(prompt_once)
    return said, seen


def said_in(start, session: str, cwd: Path) -> list[str]:
    """What the user said in a session, as another process loads it."""
    client = start(REMEMBERS)
    client.initialize()
    updates, answer = reopen(client, "session/load", session, cwd)
    assert "result" in answer, answer
    history = conversation(updates)
    told = [text for role, text in history if role == "user"]
    # Everything was answered, and the agent's state is that of the last answer.
    assert [text for role, text in history if role == "agent"] == [
        f"{n}: {text}" for n, text in enumerate(told, 1)
    ]
    assert texts(client.prompt(session, "last")[0]) == f"{len(told) + 1}: last"
    leave(client)
    return told


def is_sound(store: Path) -> bool:
    with closing(sqlite3.connect(store)) as connection:
        return connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


class TestDeleted:
    @pytest.mark.parametrize("how", ["the file", "the file and its log", "everything"])
    def test_a_new_one_is_made_with_the_sessions_that_are_open(self, opened, store, start, tmp_path, how):
        client, session = opened
        match how:
            case "the file":
                store.unlink()
            case "the file and its log":
                for file in (store, *beside(store)):
                    file.unlink()
            case _:
                shutil.rmtree(store.parent)

        said, updates = go_on_until(client, session, store.exists)

        (notice,) = (update for update in updates if update["sessionUpdate"] == "notice")
        assert notice["severity"] == "warning"
        assert "was deleted while it was open" in notice["title"]
        until(lambda: f"{store} was deleted while it was open".encode() in client.stderr)
        assert store.stat().st_mode & 0o777 == 0o600
        leave(client)
        assert said_in(start, session, tmp_path) == ["first", *said]
        assert is_sound(store)

    def test_what_was_not_open_is_gone_and_new_sessions_are_kept(self, opened, store, tmp_path):
        client, session = opened
        closed = client.new_session(str(tmp_path))
        client.prompt(closed, "closed")
        client.call("session/close", {"sessionId": closed})
        store.unlink()

        go_on_until(client, session, store.exists)

        assert [each["sessionId"] for each in listed(client)] == [session]
        another = client.new_session(str(tmp_path))
        client.prompt(another, "another")
        assert {each["sessionId"] for each in listed(client)} == {session, another}

    def test_it_is_noticed_by_what_only_reads_and_at_the_end(self, opened, store, start, tmp_path):
        client, session = opened
        store.unlink()
        leave(client)
        assert said_in(start, session, tmp_path) == ["first"]

    def test_a_session_stays_held(self, opened, store, start, tmp_path):
        client, session = opened
        shutil.rmtree(store.parent)
        go_on_until(client, session, store.exists)

        other = start(REMEMBERS)
        other.initialize()
        _, answer = reopen(other, "session/load", session, tmp_path)

        assert error_of(answer)[1] == "session_held"
        assert answer["error"]["data"]["pid"] == client.process.pid

    def test_two_agents_keep_theirs_in_the_same_new_one(self, opened, store, start, tmp_path):
        client, session = opened
        second = start(REMEMBERS)
        second.initialize(**NOTICES)
        theirs = second.new_session(str(tmp_path))
        second.prompt(theirs, "first")
        store.unlink()

        said, _ = go_on_until(client, session, store.exists)
        made = client.new_session(str(tmp_path))
        client.prompt(made, "first")
        said_there, _ = go_on_until(second, theirs, lambda: b"while it was open" in second.stderr)

        assert {each["sessionId"] for each in listed(second)} == {session, theirs, made}
        leave(client)
        leave(second)
        assert said_in(start, session, tmp_path) == ["first", *said]
        assert said_in(start, theirs, tmp_path) == ["first", *said_there]
        assert said_in(start, made, tmp_path) == ["first"]
        assert is_sound(store)

    def test_a_file_that_was_moved_away_is_whole(self, opened, store, tmp_path):
        client, session = opened
        moved = store.rename(tmp_path / "moved.db")

        go_on_until(client, session, store.exists)

        with closing(sqlite3.connect(moved)) as connection:
            bodies = connection.execute("SELECT body FROM entries WHERE kind = 'user'").fetchall()
        assert b"first" in bodies[0][0]
        assert is_sound(moved)


class TestReplaced:
    def test_another_store_is_used_and_gets_the_open_sessions(self, opened, store, start, tmp_path):
        client, session = opened
        other = make_other(start, tmp_path)
        (tmp_path / "other-home" / "coupler.db").replace(store)

        said, updates = go_on_until(client, session, lambda: b"while it was open" in client.stderr)

        assert any("was replaced" in update.get("title", "") for update in updates)
        assert {each["sessionId"] for each in listed(client)} == {session, *other}
        leave(client)
        assert said_in(start, session, tmp_path) == ["first", *said]
        for each in other:
            assert said_in(start, each, tmp_path) == ["first"]
        assert is_sound(store)

    def test_an_earlier_copy_is_brought_up_to_date(self, opened, store, start, tmp_path):
        client, session = opened
        with (
            closing(sqlite3.connect(store)) as connection,
            closing(sqlite3.connect(tmp_path / "copy")) as copy,
        ):
            connection.backup(copy)
        client.prompt(session, "again")
        (tmp_path / "copy").replace(store)

        until(lambda: b"while it was open" in client.stderr or not listed(client))

        leave(client)
        assert said_in(start, session, tmp_path) == ["first", "again"]

    def test_what_is_no_store_refuses_prompts_until_it_is_gone(self, opened, store, start, tmp_path):
        client, session = opened
        (tmp_path / "notes").write_text("these are notes, and no database " * 500)
        (tmp_path / "notes").replace(store)

        answers = []

        def is_refused() -> bool:
            answers.append(client.prompt(session, "again")[1])
            return "error" in answers[-1]

        until(is_refused)
        assert error_of(answers[-1]) == (-32603, "store_failed")
        assert "is not a Coupler database, or damaged: move it away" in answers[-1]["error"]["message"]
        assert error_of(client.call("session/list", {})) == (-32603, "store_failed")
        assert "these are notes" in store.read_text()

        store.unlink()
        until(lambda: "result" in client.prompt(session, "then")[1])
        leave(client)
        told = history_of(start, session, tmp_path)
        assert told[0] == "first"
        assert told[-1] == "then"


class TestWithoutItsLog:
    @pytest.mark.parametrize("lost", [("-wal",), ("-shm",), ("-wal", "-shm")])
    def test_nothing_is_lost(self, opened, store, start, tmp_path, lost):
        client, session = opened
        closed = client.new_session(str(tmp_path))
        client.prompt(closed, "first")
        client.call("session/close", {"sessionId": closed})
        for suffix in lost:
            store.with_name(f"{store.name}{suffix}").unlink()

        said, _ = go_on_until(client, session, lambda: b"while it was open" in client.stderr)

        assert {each["sessionId"] for each in listed(client)} == {session, closed}
        leave(client)
        assert said_in(start, session, tmp_path) == ["first", *said]
        assert said_in(start, closed, tmp_path) == ["first"]
        assert is_sound(store)


def test_it_is_noticed_during_a_turn(start, store, tmp_path):
    client = start(GATED)
    client.initialize(fs={"readTextFile": True})
    session = client.new_session(str(tmp_path))
    request = client.prompt_request(session, "count")
    client.send(request)
    gate = client.read_until(lambda frame: frame.get("method") == "fs/read_text_file")[-1]
    store.unlink()

    def step() -> bool:
        nonlocal gate
        client.send({"id": gate["id"], "result": {"content": "go on"}})
        gate = client.read_until(lambda frame: frame.get("method") == "fs/read_text_file")[-1]
        return store.exists()

    until(step)
    client.send({"id": gate["id"], "result": {"content": "end"}})
    assert client.answer_to(request)["result"] == {"stopReason": "end_turn"}
    leave(client)

    again = start(GATED)
    again.initialize()
    updates, _ = reopen(again, "session/load", session, tmp_path)
    counted = [int(word) for _, text in conversation(updates)[1:] for word in text.split() if word.isdigit()]
    assert counted == list(range(len(counted)))
    assert len(counted) > 1


GATED = """
from coupler.schema.v1 import ReadTextFileRequest

async def agent(turn):
    for number in range(10000):
        await turn.say(f"{number} ")
        if (await turn.call_editor(ReadTextFileRequest("", "/gate"))).content == "end":
            return
"""


def history_of(start, session: str, cwd: Path) -> list[str]:
    client = start(REMEMBERS)
    client.initialize()
    updates, _ = reopen(client, "session/load", session, cwd)
    leave(client)
    return [text for role, text in conversation(updates) if role == "user"]


def make_other(start, directory: Path) -> list[str]:
    """Sessions in a store of another home, below the directory."""
    client = start(REMEMBERS, env={"COUPLER_HOME": str(directory / "other-home")})
    client.initialize()
    made = [client.new_session(str(directory)) for _ in range(3)]
    for session in made:
        client.prompt(session, "first")
    leave(client)
    return made
