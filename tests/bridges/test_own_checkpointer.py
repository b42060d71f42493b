"""Sessions of a graph that has a checkpointer of its own, whatever that one can do."""

import asyncio
from types import SimpleNamespace

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from bridges.acting import HERE, Stage
from coupler.bridges.langchain.graph_agent import GraphAgent
from coupler.bridges.langchain.graph_run import GraphRun
from coupler.bridges.langchain.stream.model_run import Look
from raw_client import texts
from sessions.steps import listed, setup

REMEMBERING = HERE / "graphs" / "remembering.py"


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    stage = Stage(REMEMBERING, tmp_path_factory.mktemp("home"), "--drafts", "fork")
    yield stage
    stage.close()


def idle_graph(saver):
    builder = StateGraph(MessagesState)
    builder.add_node("nothing", lambda state: {})
    builder.add_edge(START, "nothing")
    return builder.compile(checkpointer=saver)


@pytest.fixture
def incapable():
    """A graph whose checkpointer does nothing that a checkpointer may leave out."""
    graph = idle_graph(BaseCheckpointSaver())
    return GraphAgent(graph, ("module", "agent"), "agent", look=Look(), store=None)


def test_a_fork_remembers_and_goes_its_own_way(stage):
    client, session = stage.session()
    client.prompt(session, "one")

    fork = client.call("session/fork", setup(session, "/"))["result"]["sessionId"]

    assert texts(client.prompt(fork, "two")[0]) == "3 messages"
    assert texts(client.prompt(session, "three")[0]) == "3 messages"


def test_a_deleted_session_does_not_come_back_as_a_thread_that_somebody_else_began(stage):
    client, session = stage.session()
    client.prompt(session, "one")
    assert session in [each["sessionId"] for each in listed(client)]

    assert "result" in client.call("session/delete", {"sessionId": session})

    assert session not in [each["sessionId"] for each in listed(client)]


def test_a_thread_that_cannot_be_deleted_is_told_of_in_the_log(incapable, caplog):
    asyncio.run(incapable.forget("s1", {"thread": "t1"}))

    assert "cannot delete the thread t1" in caplog.text


def test_threads_that_cannot_be_listed_are_none(incapable):
    assert asyncio.run(incapable.foreign(set())) == []


@pytest.mark.parametrize("state", [None, {}, "of another agent"])
def test_a_session_that_never_had_a_thread_leaves_none(incapable, state, caplog):
    asyncio.run(incapable.forget("s1", state))

    assert caplog.text == ""


@pytest.mark.parametrize("begun, is_left", [({"foreign": True}, True), ({}, False)])
def test_what_a_turn_without_an_end_left_is_dropped_but_nothing_that_others_have_begun(begun, is_left):
    saver = InMemorySaver()
    thread = {"configurable": {"thread_id": "thread"}}

    async def prompt_again():
        graph = idle_graph(saver)
        await graph.ainvoke({"messages": ["hello"]}, thread)
        state = {"thread": "thread", "checkpoint": None, **begun}
        current = SimpleNamespace(session=SimpleNamespace(state=state, outlet=None))
        await GraphRun(graph, saver, None, current, None)._drop_what_was_not_answered()

    asyncio.run(prompt_again())

    assert (saver.get_tuple(thread) is not None) is is_left
