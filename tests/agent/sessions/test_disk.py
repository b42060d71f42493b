"""A store that is locked or full fails what needs it, with a sentence, and never the process."""

import os
import resource
import shutil
import sqlite3
import subprocess
import threading
import time
from contextlib import contextmanager

import pytest

from agent.sessions.steps import REMEMBERS, conversation, listed, reopen
from agent.steps import begin, end_of, error_of, still_serves
from coder.waiting import until
from raw_client import COUPLER, RawClient, texts

pytestmark = pytest.mark.usefixtures("unmeasured")

STORE_FAILED = (-32603, "store_failed")

# As the real one, with less patience.
IMPATIENT = """
from coupler.store.database import Database

Database.__init__.__kwdefaults__["patience"] = 0.3
"""
HASTY = (
    IMPATIENT
    + """
import asyncio
from coupler import Agent

class Slow(Agent):
    async def prompt(self, turn):
        turn.session.state = [*(turn.session.state or []), turn.text]
        await turn.say("started")
        if turn.text == "wait":
            await turn.call_editor(asking())
        await turn.say(f" and done: {turn.session.state}")

def asking():
    from coupler.schema.v1 import ReadTextFileRequest
    return ReadTextFileRequest("", "/gate")
"""
)


# Says something at once, and leaves a file when it has.
TALKATIVE = """
from pathlib import Path

async def agent(turn):
    await turn.say("at once")
    Path(turn.session.cwd, "said").touch()
"""


class TestLocked:
    def test_nothing_of_a_turn_is_sent_before_its_prompt_is_durable(self, converse, tmp_path, coupler_home):
        client, _ = converse(TALKATIVE)
        session = client.new_session(str(tmp_path))
        client.prompt(session, "first")
        (tmp_path / "said").unlink()
        with locked(coupler_home) as unlock:
            prompt = client.prompt_request(session, "remember this")
            client.send(prompt)
            until((tmp_path / "said").exists)

            # What belongs to no session is answered meanwhile, and is all that comes.
            other = client.request("none/such", {})
            client.send(other)
            frames = [client.read()]
            unlock()
            frames += client.read_until(lambda frame: frame.get("method") == "session/update")
            client.process.kill()
            client.process.wait()

        assert error_of(frames[0]) == (-32601, "method_not_found")
        assert [frame.get("method") for frame in frames[1:]] == ["session/update"]
        assert prompt["id"] not in [frame.get("id") for frame in frames]
        with sqlite3.connect(coupler_home / "coupler.db") as connection:
            bodies = connection.execute("SELECT body FROM entries WHERE kind = 'user'").fetchall()
        assert b"remember this" in bodies[-1][0]

    def test_a_short_lock_makes_a_turn_longer_and_nothing_else(self, converse, tmp_path, coupler_home):
        client, _ = converse(REMEMBERS)
        session = client.new_session(str(tmp_path))
        with locked(coupler_home) as unlock:
            threading.Timer(1.0, unlock).start()

            began = time.monotonic()
            updates, answer = client.prompt(session, "one")

        assert answer["result"] == {"stopReason": "end_turn"}
        assert time.monotonic() - began > 0.9
        assert texts(updates) == "1: one"
        assert history(client, session, tmp_path) == [("user", "one"), ("agent", "1: one")]

    def test_the_first_prompt_in_a_long_lock_fails_and_others_are_refused_before_the_agent_sees_them(
        self, converse, tmp_path, coupler_home
    ):
        client, _ = converse(IMPATIENT + REMEMBERS)
        session = client.new_session(str(tmp_path))
        client.prompt(session, "one")

        with locked(coupler_home):
            began = time.monotonic()
            _, answer = client.prompt(session, "failed")
            took = time.monotonic() - began
            updates, refusal = client.prompt(session, "refused")
            # What only reads goes on meanwhile.
            assert session in [each["sessionId"] for each in listed(client)]

        assert 0.2 < took < 4
        assert error_of(answer) == error_of(refusal) == STORE_FAILED
        assert "another program holds" in answer["error"]["message"]
        assert answer["error"]["data"]["kind"] == "locked"
        assert texts(updates) == ""
        assert texts(client.prompt(session, "two")[0]) == "3: two"
        # What the user saw is kept, as a turn that failed.
        assert history(client, session, tmp_path) == [
            ("user", "one"),
            ("agent", "1: one"),
            ("user", "failed"),
            ("agent", "2: failed"),
            ("user", "two"),
            ("agent", "3: two"),
        ]

    def test_a_turn_whose_end_cannot_be_stored_fails_and_the_next_one_works(
        self, start, tmp_path, coupler_home
    ):
        client = start(HASTY)
        client.initialize(fs={"readTextFile": True})
        session, other = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))
        prompt, question = wait_at_gate(client, session)
        with locked(coupler_home):
            client.send({"id": question["id"], "result": {"content": ""}})
            updates, answer = end_of(client, prompt)
            assert error_of(client.prompt(other, "meanwhile")[1]) == STORE_FAILED

        assert error_of(answer) == STORE_FAILED
        assert texts(updates) == " and done: ['wait']"
        assert client.prompt(session, "next")[1]["result"] == {"stopReason": "end_turn"}
        assert client.prompt(other, "next")[1]["result"] == {"stopReason": "end_turn"}
        # What the user saw is kept, as a turn that failed.
        assert history(client, session, tmp_path) == [
            ("user", "wait"),
            ("agent", "started and done: ['wait']"),
            ("user", "next"),
            ("agent", "started and done: ['wait', 'next']"),
        ]
        assert history(client, other, tmp_path) == [
            ("user", "next"),
            ("agent", "started and done: ['next']"),
        ]

    def test_a_session_is_not_made_while_the_store_is_locked_but_afterwards(
        self, converse, tmp_path, coupler_home
    ):
        client, session = converse(HASTY)
        requests = [client.request("session/new", {"cwd": str(tmp_path), "mcpServers": []}) for _ in range(8)]
        prompt = client.prompt_request(session, "meanwhile")

        with locked(coupler_home):
            began = time.monotonic()
            client.send(*requests, prompt)
            answers = [client.answer_to(request) for request in (*requests, prompt)]
            took = time.monotonic() - began

        # All have waited for the same lock at the same time, and nobody twice.
        assert {error_of(answer) for answer in answers} == {STORE_FAILED}
        assert took < 2
        assert client.new_session(str(tmp_path))
        assert len(listed(client)) == 2

    def test_the_process_ends_in_time_while_the_store_is_locked(self, start, tmp_path, coupler_home):
        client = start(REMEMBERS)
        client.initialize()
        session = client.new_session(str(tmp_path))
        client.prompt(session, "one")

        with locked(coupler_home):
            client.send(client.prompt_request(session, "two"))
            began = time.monotonic()
            client.close_stdin()
            assert client.wait() == 0

        assert time.monotonic() - began < 2.5

    def test_a_cancel_is_obeyed_while_the_prompt_waits_for_the_store(self, converse, tmp_path, coupler_home):
        client, _ = converse(REMEMBERS)
        session = client.new_session(str(tmp_path))
        client.prompt(session, "one")
        with locked(coupler_home) as unlock:
            request = client.prompt_request(session, "two")
            client.send(request, {"method": "session/cancel", "params": {"sessionId": session}})
            still_serves(client)
            unlock()

            assert client.answer_to(request)["result"] == {"stopReason": "cancelled"}

        assert texts(client.prompt(session, "three")[0]).startswith("2: three")

    @pytest.mark.parametrize("lasts", ["short", "long"])
    def test_a_question_is_held_with_its_turn_and_its_answer_goes_on(
        self, start, tmp_path, coupler_home, lasts
    ):
        client = start(HASTY if lasts == "long" else HASTY.removeprefix(IMPATIENT))
        client.initialize(fs={"readTextFile": True})
        session, other = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))
        for each in (session, other):
            client.prompt(each, "first")
        listed(client)  # writes the sessions' dates: nothing but the prompts is to be stored
        with locked(coupler_home) as unlock:
            prompts = [client.prompt_request(session, "wait"), client.prompt_request(other, "hello")]
            client.send(*prompts)
            still_serves(client)
            if lasts == "short":
                unlock()
            question = client.read_until(lambda frame: frame.get("method") == "fs/read_text_file")[-1]
            client.send({"id": question["id"], "result": {"content": ""}})
            answers = [client.answer_to(prompt) for prompt in prompts]

        if lasts == "short":
            assert [answer["result"] for answer in answers] == [{"stopReason": "end_turn"}] * 2
        else:
            assert [error_of(answer) for answer in answers] == [STORE_FAILED] * 2

    def test_a_cancel_in_a_long_lock_is_answered_when_coupler_waits_no_longer(
        self, start, tmp_path, coupler_home
    ):
        client = start(HASTY)
        client.initialize(fs={"readTextFile": True})
        session = client.new_session(str(tmp_path))
        client.prompt(session, "first")
        with locked(coupler_home):
            prompt = client.prompt_request(session, "wait")
            client.send(prompt, {"method": "session/cancel", "params": {"sessionId": session}})

            assert client.answer_to(prompt)["result"] == {"stopReason": "cancelled"}


# Lets the database grow only while no file called "full" is there.
NARROW = """
import os, sqlite3

class Narrow(sqlite3.Connection):
    def execute(self, statement, *values):
        if statement.startswith(("BEGIN", "INSERT INTO entries")):
            most = 1 if os.path.exists(os.environ["FULL"]) else 2**30
            super().execute(f"PRAGMA max_page_count = {most}")
        return super().execute(statement, *values)

connect = sqlite3.connect
sqlite3.connect = lambda *values, **keywords: connect(*values, factory=Narrow, **keywords)
"""
LONG = "long " * 20_000


class TestFull:
    def test_a_full_disk_refuses_prompts_and_all_works_when_there_is_room_again(self, narrow, tmp_path):
        client, full = narrow(REMEMBERS)
        session, other = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))
        client.prompt(session, "one")
        full.touch()

        _, answer = client.prompt(session, LONG)

        assert error_of(answer) == STORE_FAILED
        assert "the disk is full: free some space" in answer["error"]["message"]
        assert answer["error"]["data"]["kind"] == "full"
        assert error_of(client.prompt(other, LONG)[1]) == STORE_FAILED
        full.unlink()
        assert texts(client.prompt(session, "two")[0]) == "2: two"
        assert texts(client.prompt(other, "three")[0]) == "1: three"
        assert history(client, session, tmp_path) == [
            ("user", "one"),
            ("agent", "1: one"),
            ("user", "two"),
            ("agent", "2: two"),
        ]
        assert history(client, other, tmp_path) == [("user", "three"), ("agent", "1: three")]

    def test_a_disk_that_gets_full_during_a_turn_fails_the_turn_alone(self, narrow, tmp_path):
        client, full = narrow(
            """
            import os
            async def agent(turn):
                if turn.text == "fill":
                    open(os.environ["FULL"], "w")
                    await turn.say("x" * 100_000)
                await turn.say("done")
            """
        )
        session, other = client.new_session(str(tmp_path)), client.new_session(str(tmp_path))

        updates, answer = client.prompt(session, "fill")

        assert error_of(answer) == STORE_FAILED
        assert texts(updates).endswith("done")
        full.unlink()
        for each in (session, other):
            assert client.prompt(each, "again")[1]["result"] == {"stopReason": "end_turn"}
        said = history(client, session, tmp_path)
        assert [who for who, _ in said] == ["user", "agent", "user", "agent"]
        assert len(said[1][1]) == 100_004

    def test_what_failed_is_there_after_a_restart_too(self, narrow, start, tmp_path):
        client, full = narrow(REMEMBERS)
        session = client.new_session(str(tmp_path))
        client.prompt(session, "one")
        full.touch()
        client.prompt(session, LONG)
        full.unlink()
        client.prompt(session, "two")
        client.close_stdin()
        client.wait()

        again = start(REMEMBERS)
        again.initialize()

        assert history(again, session, tmp_path) == [
            ("user", "one"),
            ("agent", "1: one"),
            ("user", "two"),
            ("agent", "2: two"),
        ]

    @pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="only Linux limits another process")
    def test_a_limit_of_file_sizes_is_named_and_its_end_helps(self, converse, tmp_path, coupler_home):
        client, _ = converse(REMEMBERS)
        session = client.new_session(str(tmp_path))
        client.prompt(session, "one")
        size = (coupler_home / "coupler.db-wal").stat().st_size
        before = resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, (size + 5000, before[1]))

        _, answer = client.prompt(session, LONG)

        assert error_of(answer) == STORE_FAILED
        assert f"no file of more than {size + 5000:,} bytes (`ulimit -f`)" in answer["error"]["message"]
        assert answer["error"]["data"]["kind"] == "full"
        resource.prlimit(client.process.pid, resource.RLIMIT_FSIZE, before)
        assert texts(client.prompt(session, "two")[0]) == "2: two"
        assert history(client, session, tmp_path) == [
            ("user", "one"),
            ("agent", "1: one"),
            ("user", "two"),
            ("agent", "2: two"),
        ]

    def test_a_file_system_without_room_is_no_other_case(self, app, tmp_path, small_disk):
        with small_disk(app(REMEMBERS)) as client:
            disk = f"/proc/{client.process.pid}/root{tmp_path}/disk"
            client.initialize()
            session = client.new_session(str(tmp_path))
            client.prompt(session, "one")
            with open(f"{disk}/filler", "wb", buffering=0) as filler:  # noqa: PTH123
                fill(filler)

            _, answer = client.prompt(session, LONG)

            assert error_of(answer) == STORE_FAILED
            assert "the disk is full: free some space" in answer["error"]["message"]
            os.remove(f"{disk}/filler")  # noqa: PTH107
            assert texts(client.prompt(session, "two")[0]) == "2: two"
            assert history(client, session, tmp_path) == [
                ("user", "one"),
                ("agent", "1: one"),
                ("user", "two"),
                ("agent", "2: two"),
            ]


@pytest.fixture
def narrow(start, tmp_path):
    """Starts an agent whose disk is full while a file is there; returns the client and that file."""

    def begin(source):
        (tmp_path / "site").mkdir()
        (tmp_path / "site" / "sitecustomize.py").write_text(NARROW)
        full = tmp_path / "full"
        client = start(source, env={"PYTHONPATH": str(tmp_path / "site"), "FULL": str(full)})
        client.initialize()
        return client, full

    return begin


@pytest.fixture
def small_disk(tmp_path):
    """Serves with the store on a disk of its own, which only that process sees and which ends with it."""
    (tmp_path / "disk").mkdir()
    isolated = ["unshare", "--mount", "--map-root-user"]
    mount = f'mount -t tmpfs -o size=512k none "{tmp_path}/disk"'
    if (
        shutil.which("unshare") is None
        or subprocess.run([*isolated, "sh", "-c", mount], capture_output=True).returncode
    ):
        pytest.skip("no file system can be mounted here")

    def begin(target):
        store = f"{tmp_path}/disk/coupler.db"
        words = [*COUPLER, "serve", str(target), "--store", store]
        return RawClient(*isolated, "sh", "-c", f'{mount} && exec "$@"', "sh", *words)

    return begin


@contextmanager
def locked(home):
    """Hold the database as another program would; gives a function that lets go earlier."""
    connection = sqlite3.connect(home / "coupler.db", isolation_level=None, check_same_thread=False)
    connection.execute("BEGIN IMMEDIATE")
    once = threading.Lock()

    def unlock():
        with once:
            if connection.in_transaction:
                connection.execute("ROLLBACK")

    try:
        yield unlock
    finally:
        unlock()
        connection.close()


def history(client, session, cwd):
    """Who said what, as it is loaded."""
    client._held.clear()
    updates, answer = reopen(client, "session/load", session, cwd)
    assert "result" in answer, answer
    return conversation(updates)


def wait_at_gate(client, session):
    """Let a turn begin and wait for the client; returns the prompt and the agent's question."""
    prompt = begin(client, session, "wait")
    [*_, question] = client.read_until(lambda frame: frame.get("method") == "fs/read_text_file")
    return prompt, question


def fill(file):
    """Write until there is no room, not even for a byte."""
    for size in (4096, 1):
        try:
            while True:
                file.write(b"x" * size)
        except OSError:
            pass
