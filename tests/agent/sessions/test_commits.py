"""When a turn is committed: in one transaction with its answer, its prompt before anything of it is shown."""

import sqlite3
import struct
import time
from contextlib import closing

from agent.sessions.steps import conversation, listed, reopen
from agent.steps import begin
from coupler.store.database import now
from raw_client import PATIENCE, texts

QUICK = """
from coupler import Agent

class Quick(Agent):
    async def prompt(self, turn):
        turn.session.state = turn.text
        await turn.say(turn.text)
"""

SLOW = """
import asyncio

async def agent(turn):
    if turn.text != "be silent":
        await turn.say("said")
    await asyncio.Event().wait()
"""

# Says what another process would find of the turn, before it has shown anything.
LOOKS = """
import os, sqlite3
from coupler import Agent

class Looks(Agent):
    keeps_prompts = True

    async def prompt(self, turn):
        store = sqlite3.connect(os.path.join(os.environ["COUPLER_HOME"], "coupler.db"))
        await turn.say(str(store.execute("SELECT count(*) FROM entries WHERE kind = 'user'").fetchone()[0]))
        store.close()
"""

WAL_HEADER, FRAME_HEADER = 32, 24


TURNS = 20


def test_a_quick_turn_is_one_transaction_with_its_state(converse, tmp_path, coupler_home):
    client, _ = converse(QUICK)
    session = client.new_session(str(tmp_path))
    before = commits(coupler_home)

    for number in range(TURNS):
        client.prompt(session, f"prompt {number}")
    client.process.kill()
    client.process.wait()

    # On a slow machine some are not quick, and the dates of sessions are written apart.
    assert TURNS <= len(commits(coupler_home)) - len(before) < 1.5 * TURNS
    assert kinds(coupler_home, session) == ["user", "text", "stop"] * TURNS
    assert state(coupler_home, session) == f'j"prompt {number}"'.encode()


def test_turns_in_quick_succession_write_the_page_of_their_entries_and_no_other(
    converse, tmp_path, coupler_home
):
    client, _ = converse("async def agent(turn):\n    await turn.say('hello')")
    session = client.new_session(str(tmp_path))
    before = commits(coupler_home)

    for _ in range(TURNS):
        client.prompt(session, "again")

    pages = commits(coupler_home)[len(before) :]
    assert sorted(pages)[len(pages) // 2] == 1, pages


def test_a_prompt_is_durable_when_the_first_update_is_seen(converse, start, tmp_path):
    client, _ = converse(SLOW)
    session = client.new_session(str(tmp_path))
    begin(client, session, "be loud", until="said")
    client.process.kill()
    client.process.wait()

    again = start(SLOW)
    again.initialize()

    assert conversation(reopen(again, "session/load", session, tmp_path)[0])[0] == ("user", "be loud")


def test_a_prompt_of_which_nothing_is_shown_is_durable_soon(converse, tmp_path, coupler_home):
    client, _ = converse(SLOW)
    session = client.new_session(str(tmp_path))
    client.send(client.prompt_request(session, "be silent"))

    wait_until(lambda: kinds(coupler_home, session) == ["user"])

    client.send({"method": "session/cancel", "params": {"sessionId": session}})


def test_an_agent_that_keeps_prompts_itself_gets_them_when_they_are_durable(converse, tmp_path):
    client, _ = converse(LOOKS)
    session = client.new_session(str(tmp_path))

    assert [texts(client.prompt(session, "look")[0]) for _ in range(3)] == ["1", "2", "3"]


def until_next_millisecond():
    """Wait for a moment: dates have no more than milliseconds, and a turn takes less."""
    before = now()
    wait_until(lambda: now() > before)


def test_the_dates_of_sessions_follow_their_turns(converse, tmp_path, coupler_home):
    client, empty = converse(QUICK)
    first, second = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))

    for session in (first, second, first, second, first):
        until_next_millisecond()
        client.prompt(session, "again")

    assert [each["sessionId"] for each in listed(client) if each["sessionId"] != empty] == [first, second]
    # Also for processes that this one knows nothing of.
    until_next_millisecond()
    client.prompt(second, "again")
    wait_until(lambda: turns(coupler_home) == [(second, 3), (first, 3)])


def wait_until(is_so):
    deadline = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def commits(home):
    """How many pages each transaction has written, as the write-ahead log tells."""
    log = (home / "coupler.db-wal").read_bytes()
    [page_size], salts = struct.unpack(">I", log[8:12]), log[16:24]
    found, pages = [], 0
    for start in range(WAL_HEADER, len(log), FRAME_HEADER + page_size):
        header = log[start : start + FRAME_HEADER]
        if header[8:16] != salts:
            break
        pages += 1
        if header[4:8] != bytes(4):
            found.append(pages)
            pages = 0
    return found


def kinds(home, session):
    """The kinds of a session's entries, as another process sees them."""
    query = "SELECT kind FROM entries JOIN sessions ON number = session WHERE id = ? ORDER BY seq"
    return [kind for (kind,) in ask(home, query, session)]


def state(home, session):
    query = "SELECT state FROM states JOIN sessions ON number = session WHERE id = ?"
    [[found]] = ask(home, query, session)
    return found


def turns(home):
    """The sessions that had turns, and how many, the latest first."""
    return ask(home, "SELECT id, turns FROM sessions WHERE turns > 0 ORDER BY updated_at DESC")


def ask(home, query, *values):
    with closing(sqlite3.connect(home / "coupler.db", timeout=PATIENCE)) as connection:
        return connection.execute(query, values).fetchall()
