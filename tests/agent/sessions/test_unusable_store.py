"""A store that cannot be opened: hello is answered all the same, and a session is refused with a sentence."""

import os
import sqlite3
import subprocess
import sys
from textwrap import dedent

import pytest

from agent.sessions.steps import REMEMBERS
from agent.steps import error_of
from raw_client import texts

pytestmark = pytest.mark.usefixtures("unmeasured")

STORE_FAILED = (-32603, "store_failed")


@pytest.mark.parametrize("wrong", ["directory", "garbage", "in a file", "newer", "read-only"])
def test_hello_is_answered_and_a_session_is_refused_with_a_sentence(start, tmp_path, wrong):
    if wrong == "read-only" and os.geteuid() == 0:
        pytest.skip("everything can be written by root")
    store, sentence = unusable_store(tmp_path, wrong)
    client = start(REMEMBERS, "--store", str(store))

    assert "result" in client.initialize()
    answer = client.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})

    assert error_of(answer) == STORE_FAILED
    assert sentence in answer["error"]["message"]
    assert answer["error"]["message"].count("\n") == 0
    assert error_of(client.call("session/list", {})) == STORE_FAILED


def test_a_session_can_be_made_once_the_obstacle_is_gone(start, tmp_path):
    store, _ = unusable_store(tmp_path, "directory")
    client = start(REMEMBERS, "--store", str(store))
    client.initialize()
    assert "error" in client.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})

    store.rmdir()

    session = client.new_session(str(tmp_path))
    assert texts(client.prompt(session, "one")[0]) == "1: one"


def test_a_newer_file_stays_as_it_is(start, tmp_path):
    store, _ = unusable_store(tmp_path, "newer")
    before = store.read_bytes()
    client = start(REMEMBERS, "--store", str(store))
    client.initialize()

    client.call("session/new", {"cwd": str(tmp_path), "mcpServers": []})

    assert store.read_bytes() == before


def unusable_store(directory, wrong):
    """A store that cannot be used, and what is said about it."""
    store = directory / "store.db"
    match wrong:
        case "directory":
            store.mkdir()
            return store, "cannot be used"
        case "garbage":
            store.write_bytes(b"something else entirely\n" * 1000)
            return store, "is not a Coupler database"
        case "in a file":
            store.write_text("")
            return store / "store.db", "cannot be used"
        case "newer":
            make_store(store)
            connection = sqlite3.connect(store)
            connection.execute("PRAGMA user_version = 999")
            connection.close()
            return store, "written by a newer Coupler"
        case _:
            (directory / "closed").mkdir(mode=0o500)
            return directory / "closed" / "store.db", "cannot be used"


def make_store(store):
    script = f"""
    from coupler.store.store import Store
    Store.open({str(store)!r}).close()
    """
    subprocess.run([sys.executable, "-c", dedent(script)], check=True)
