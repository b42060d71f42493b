"""`session/close` and `session/delete`."""

import os

from agent.sessions.steps import REMEMBERS, conversation, listed, reopen, setup
from agent.steps import begin, error_of, still_serves
from raw_client import is_answer_to

TALKS = """
import asyncio

async def agent(turn):
    await turn.say("started")
    if turn.text == "wait":
        await asyncio.Event().wait()
"""

GATED = """
import asyncio
from pathlib import Path
from coupler import Agent

class Gated(Agent):
    async def opened(self, session):
        await self.pass_gate(session, "opened")

    async def closed(self, session):
        await self.pass_gate(session, "closed")

    async def prompt(self, turn): ...

    async def pass_gate(self, session, name):
        if Path(session.cwd, "is gated").exists():
            await asyncio.to_thread(Path(session.cwd, name).read_text)
"""


def test_closing_cancels_the_turn_first_and_is_answered_then(converse, tmp_path):
    client, _ = converse(TALKS)
    session = client.new_session(str(tmp_path))
    prompt = begin(client, session, "wait")

    close = client.request("session/close", {"sessionId": session})
    client.send(close)
    *_, cancelled = client.read_until(lambda frame: is_answer_to(frame, prompt["id"]))
    closed = client.read()

    assert cancelled["result"] == {"stopReason": "cancelled"}
    assert (closed["id"], closed["result"]) == (close["id"], {})
    assert error_of(client.prompt(session, "again")[1]) == (-32002, "unknown_session")


def test_a_closed_session_is_kept_and_can_be_loaded(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    client.call("session/close", {"sessionId": session})

    assert session in [each["sessionId"] for each in listed(client)]
    updates, _ = reopen(client, "session/load", session, tmp_path)
    assert conversation(updates) == [("user", "one"), ("agent", "1: one")]


def test_a_closed_session_is_free_for_another_process(start, tmp_path):
    first, second = start(REMEMBERS), start(REMEMBERS)
    first.initialize()
    second.initialize()
    session = first.new_session(str(tmp_path))
    first.prompt(session, "one")

    first.call("session/close", {"sessionId": session})

    _, answer = reopen(second, "session/load", session, tmp_path)
    assert "result" in answer


def test_closing_what_is_not_open_is_refused(converse):
    client, session = converse(REMEMBERS)
    client.call("session/close", {"sessionId": session})

    assert error_of(client.call("session/close", {"sessionId": session})) == (-32002, "unknown_session")


def test_a_deleted_session_is_gone_however_often_it_is_deleted(converse, tmp_path):
    client, _ = converse(REMEMBERS)
    session = client.new_session(str(tmp_path))
    client.prompt(session, "one")

    for _ in range(2):
        assert client.call("session/delete", {"sessionId": session})["result"] == {}

    assert session not in [each["sessionId"] for each in listed(client)]
    assert error_of(reopen(client, "session/load", session, tmp_path)[1]) == (-32002, "unknown_session")
    assert client.call("session/delete", {"sessionId": "never there"})["result"] == {}


def test_deleting_a_session_whose_turn_runs_cancels_it(converse, tmp_path):
    client, _ = converse(TALKS)
    session = client.new_session(str(tmp_path))
    prompt = begin(client, session, "wait")

    delete = client.request("session/delete", {"sessionId": session})
    client.send(delete)

    assert client.answer_to(prompt)["result"] == {"stopReason": "cancelled"}
    assert client.answer_to(delete)["result"] == {}
    still_serves(client)


def test_a_session_that_another_process_has_open_is_not_deleted(start, tmp_path):
    first, second = start(REMEMBERS), start(REMEMBERS)
    first.initialize()
    second.initialize()
    session = first.new_session(str(tmp_path))
    first.prompt(session, "one")

    answer = second.call("session/delete", {"sessionId": session})

    assert error_of(answer) == (-32600, "session_held")
    assert session in [each["sessionId"] for each in listed(first)]


def test_a_request_that_is_cancelled_while_it_waits_for_the_second_of_two_others_holds_up_nothing(
    converse, tmp_path
):
    """A close and a resume come first, each held at a gate; the load is cancelled between them."""
    os.mkfifo(tmp_path / "closed")
    os.mkfifo(tmp_path / "opened")
    client, _ = converse(GATED)
    session = client.new_session(str(tmp_path))
    client.prompt(session)
    (tmp_path / "is gated").touch()
    close = client.request("session/close", {"sessionId": session})
    resume = client.request("session/resume", setup(session, tmp_path))
    load = client.request("session/load", setup(session, tmp_path))
    prompt = client.prompt_request(session, "")
    client.send(close, resume, load, prompt)
    (tmp_path / "closed").write_text("go")
    client.answer_to(close)

    client.send({"method": "$/cancel_request", "params": {"requestId": load["id"]}})
    cancelled = client.answer_to(load)
    (tmp_path / "opened").write_text("go")

    assert error_of(cancelled) == (-32800, "cancelled")
    assert "result" in client.answer_to(resume)
    assert client.answer_to(prompt)["result"] == {"stopReason": "end_turn"}
