"""Conversations with graphs that last: over turns, restarts, kills, forks and deletions."""

import contextlib
import itertools
import json
import os
import random
import signal
import sqlite3
import threading
from contextlib import closing

import pytest

from agent.sessions.steps import conversation, reopen, setup
from agent.steps import begin, cancel, end_of, leave
from labs.langchain.acting import ACTOR, HERE, Stage, introduced, surroundings
from raw_client import serve, texts

HEARD = "[['|'.join(m.text for m in messages if m.type == 'ai')]]"
"""A script that says what the model has said before."""


HEARD_BEFORE = "[['~' + '|'.join(m.text for m in messages if m.type == 'ai' and m.text[0] != '~')]]"
"""The same, without what it has said by this script."""


def said_before(client, session):
    updates, answer = client.prompt(session, HEARD)
    assert answer["result"]["stopReason"] == "end_turn"
    return texts(updates)


def threads_in(home):
    with closing(sqlite3.connect(home / "coupler.db")) as database:
        return dict(
            database.execute(
                "SELECT threads.id, count(*) FROM threads JOIN checkpoints ON number = thread"
                " WHERE threads.id IS NOT NULL GROUP BY number"
            )
        )


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def stage(home):
    stage = Stage(ACTOR, home, "--drafts", "fork")
    yield stage
    stage.close()


def test_sessions_remember_and_do_not_hear_of_each_other(stage):
    client, one = stage.session()
    _, other = stage.session()

    client.prompt(one, "[['first']]")
    client.prompt(other, "[['foreign']]")
    client.prompt(one, "[['second']]")

    assert said_before(client, one) == "first|second"


def test_a_fork_goes_its_own_way(stage):
    client, session = stage.session()
    client.prompt(session, "[['common']]")

    fork = client.call("session/fork", setup(session, "/"))["result"]["sessionId"]
    client.prompt(session, "[['ours']]")
    client.prompt(fork, "[['theirs']]")

    assert said_before(client, session) == "common|ours"
    assert said_before(client, fork) == "common|theirs"


def test_a_deleted_session_leaves_no_thread_and_its_fork_lives_on(stage, home):
    client, session = stage.session()
    client.prompt(session, "[['common']]")
    fork = client.call("session/fork", setup(session, "/"))["result"]["sessionId"]

    client.call("session/delete", {"sessionId": session})

    assert session not in threads_in(home)
    assert said_before(client, fork) == "common"


def test_a_thread_does_not_grow_with_every_turn(stage, home):
    client, session = stage.session()
    for _ in range(4):
        client.prompt(session, "[[call('add', f'c{len(messages)}', a=1, b=1)], ['Done.']]")
        # The one of this turn's end, and the one of its beginning until the next turn begins.
        assert threads_in(home)[session] <= 2

    client.prompt(session, "[['Hm.']]")

    assert said_before(client, session).split("|") == [*["", "Done."] * 4, "Hm."]


def test_only_its_user_can_read_what_is_kept(stage, home):
    client, session = stage.session()
    client.prompt(session, "[['private']]")

    assert (home / "coupler.db").stat().st_mode & 0o077 == 0


@pytest.fixture
def start(tmp_path):
    """Starts the actor with one home for all starts."""

    def start(target=ACTOR, *options, **more):
        client = serve(target, *options, env=surroundings(tmp_path), **more)
        introduced(client)
        return client

    return start


def test_a_conversation_goes_on_after_a_restart_as_it_was_shown(start):
    with start() as first:
        session = first.new_session("/")
        first.prompt(session, "[['One.']]")
        request = begin(first, session, "[['Two ', wait(30)]]", until="Two ")
        first.send(cancel(session))
        end_of(first, request)
        leave(first)

    with start() as second:
        updates, _ = reopen(second, "session/load", session, "/")
        assert [text for role, text in conversation(updates) if role == "agent"] == ["One.", "Two "]
        assert said_before(second, session) == "One.|Two "
        leave(second)


def test_what_a_killed_process_has_done_and_not_answered_is_remembered(start):
    with start() as first:
        session = first.new_session("/")
        first.prompt(session, "[['One.']]")
        # The checkpoint with the call is written, and the turn is not over.
        begin(first, session, "[['Two.', call('add', 'c', a=1, b=1)], ['Three', wait(30)]]", until="Three")
        first.process.send_signal(signal.SIGKILL)
        first.process.wait()

    with start() as second:
        reopen(second, "session/load", session, "/")
        assert said_before(second, session) == "One.|Two."
        leave(second)


def go_on_until_stored_again(client, session, home, *, may_fail=False):
    """Prompt until the session has a thread in a new file; return how often."""
    for number in itertools.count(1):
        _, answer = client.prompt(session, f"[['{number}.']]")
        if not may_fail or "result" in answer:
            assert answer.get("result") == {"stopReason": "end_turn"}, answer
        with contextlib.suppress(sqlite3.OperationalError):
            if (home / "coupler.db").exists() and session in threads_in(home):
                break
    return number


@pytest.mark.parametrize("lost", [["coupler.db"], ["coupler.db-wal", "coupler.db-shm"]], ids=["file", "log"])
def test_a_graph_goes_on_with_all_it_knows_when_the_store_is_deleted(start, tmp_path, lost):
    with start() as client:
        session = client.new_session("/")
        client.prompt(session, "[['One.']]")
        for name in lost:
            (tmp_path / name).unlink()
        prompts = go_on_until_stored_again(client, session, tmp_path)
        assert said_before(client, session) == "|".join(["One.", *(f"{at + 1}." for at in range(prompts))])
        leave(client)

    with start() as second:
        reopen(second, "session/load", session, "/")
        assert said_before(second, session).startswith("One.|1.")
        leave(second)


def test_a_graph_begins_anew_when_the_store_is_destroyed(start, tmp_path):
    with start() as client:
        session = client.new_session("/")
        client.prompt(session, "[['One.']]")
        for name in ("coupler.db", "coupler.db-wal"):
            os.truncate(tmp_path / name, 0)
        (tmp_path / "coupler.db").unlink()
        go_on_until_stored_again(client, session, tmp_path, may_fail=True)
        client.prompt(session, "[['Last.']]")
        assert said_before(client, session).endswith("Last.")
        leave(client)


@pytest.mark.long
def test_a_graph_remembers_all_that_was_answered_and_a_beginning_of_the_rest_however_often_it_is_killed(
    start, tmp_path
):
    session, answered, number = None, [], 0
    for _ in range(30):
        with start() as client:
            if session is None:
                session = client.new_session("/")
            else:
                reopen(client, "session/load", session, "/")
                updates, answer = client.prompt(session, HEARD_BEFORE)
                heard = texts(updates)[1:].split("|") if texts(updates) != "~" else []
                more = heard[len(answered) :]
                assert heard[: len(answered)] == answered, answer
                assert more == [str(number), f"done {number}"][: len(more)], answer
                answered = heard
            timer = threading.Timer(random.uniform(0, 0.4), client.process.kill)
            timer.start()
            with contextlib.suppress(AssertionError, BrokenPipeError):
                while True:
                    number += 1
                    step = f"[['{number}', call('add', 'c{number}', a=1, b=1)], ['done {number}']]"
                    _, answer = client.prompt(session, step)
                    assert answer["result"] == {"stopReason": "end_turn"}
                    answered += [str(number), f"done {number}"]
            timer.join()

    assert len(answered) > 60
    assert threads_in(tmp_path)[session] <= 2


def test_a_graph_inside_of_the_graph_keeps_the_memory_of_its_own(order):
    at = order(
        """
import operator
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

class Memory(TypedDict):
    heard: Annotated[list[str], operator.add]

graph = StateGraph(Memory).add_node("rest", lambda state: {}).add_edge(START, "rest")
inner = graph.compile(checkpointer=True)

async def ask(state):
    known = await inner.ainvoke({"heard": [state["messages"][-1].text]})
    return {"messages": [AIMessage(" ".join(known["heard"]))]}

agent = StateGraph(MessagesState).add_node(ask).add_edge(START, "ask").compile()
"""
    )

    assert [at.says(text) for text in ("a", "b", "c")] == ["a", "a b", "a b c"]


WAYS = {
    "in another loop": ("def", "asyncio.run(inner.ainvoke(given))"),
    "in a thread": ("def", "inner.invoke(given)"),
    "and holds up everything": ("async def", "inner.invoke(given)"),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("inner", ["agent_with(tools=[note])", "create_deep_agent(scripted(), [note])"])
def test_an_agent_that_a_tool_runs_by_itself_works_in_every_turn(order, inner, way):
    define, done = WAYS[way]
    at = order(
        f"""
from deepagents import create_deep_agent

@tool
def note(text: str) -> str:
    "Take a note."
    return text

inner = {inner}

@tool
{define} delegate(task: str) -> str:
    "Let another do it."
    given = {{"messages": [("user", task)]}}
    return {done}["messages"][-1].text

agent = agent_with(tools=[delegate])
"""
    )
    task = json.dumps([("note", {"text": "tea"})])

    for _ in range(2):
        [[status, content]] = at.does(("delegate", {"task": task}))

        assert (status, json.loads(content)) == ("success", [["success", "tea"]])
        assert [call["name"] for call in at.calls.values()] == ["delegate", "note"]


def test_sessions_that_are_not_kept_remember_as_long_as_they_are_open(start, tmp_path):
    with start(HERE / "graphs" / "shapes.py:static", "--no-store") as client:
        session = client.new_session("/")
        assert [texts(client.prompt(session, text)[0]) for text in ("a", "b")] == ["1: a", "3: b"]
        leave(client)
    assert not (tmp_path / "coupler.db").exists()
