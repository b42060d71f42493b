"""Sessions of a graph that has a checkpointer of its own, whatever that one can do."""

import asyncio
from types import SimpleNamespace

import pytest
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from agent.sessions.steps import listed, setup
from coupler.events import Content, ToolOutput, ToolUpdate
from coupler.langchain import graph_agent
from coupler.langchain.graph_agent import GraphAgent
from coupler.langchain.graph_run import GraphRun
from coupler.langchain.messages import DisplayOptions
from coupler.schema.v1 import ImageContent
from labs.langchain.acting import HERE, Stage
from raw_client import PATIENCE, texts

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


def agent_of(saver):
    return GraphAgent(idle_graph(saver), ("module", "agent"), "agent", look=DisplayOptions(), store=None)


@pytest.fixture
def incapable():
    """A graph whose checkpointer does nothing that a checkpointer may leave out."""
    return agent_of(BaseCheckpointSaver())


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
    assert asyncio.run(incapable.external_sessions(set())) == []


def test_a_thread_of_many_steps_hides_no_other_and_a_saver_that_is_locked_while_it_lists_is_no_trouble(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(graph_agent, "MOST_CHECKPOINTS", 3)

    async def list_threads():
        async with AsyncSqliteSaver.from_conn_string(str(tmp_path / "own")) as saver:
            agent = agent_of(saver)
            for thread in ("old", "busy", "busy", "busy"):
                await agent.graph.ainvoke({"messages": ["hello"]}, {"configurable": {"thread_id": thread}})
            async with asyncio.timeout(PATIENCE):
                return {found.id: found.title for found in await agent.external_sessions({"known"})}

    assert asyncio.run(list_threads()) == {"old": "hello", "busy": "hello"}


def test_a_thread_that_has_lost_its_beginning_is_found_by_its_end():
    saver = InMemorySaver()
    agent = agent_of(saver)
    for _ in range(2):
        agent.graph.invoke({"messages": ["hello"]}, {"configurable": {"thread_id": "whole"}})
    last = saver.get_tuple({"configurable": {"thread_id": "whole"}})
    place = {"configurable": {"thread_id": "cut", "checkpoint_ns": ""}}
    saver.put(place, last.checkpoint, last.metadata, last.checkpoint["channel_versions"])

    found = asyncio.run(agent.external_sessions({"whole"}))

    assert [session.id for session in found] == ["cut"]


def test_a_thread_is_told_with_its_images_and_each_of_two_calls_with_one_id():
    agent = agent_of(InMemorySaver())
    messages = [
        HumanMessage("Add twice.", id="asked"),
        *(
            message
            for number in (1, 2)
            for message in (
                AIMessage(
                    "", id=f"ai{number}", tool_calls=[{"name": "add", "args": {"a": number}, "id": "0"}]
                ),
                ToolMessage(f"is {number}", tool_call_id="0"),
            )
        ),
        AIMessage([{"type": "image", "base64": "aa", "mime_type": "image/gif"}], id="shown"),
    ]
    place = {"configurable": {"thread_id": "elsewhere"}}
    agent.graph.update_state(place, {"messages": messages}, as_node="nothing")

    [session] = asyncio.run(agent.external_sessions(set()))

    [(_, *told)] = session.turns
    begun = [event for event in told if isinstance(event, ToolUpdate) and event.status == "pending"]
    outputs = {event.id: event.item.content.text for event in told if isinstance(event, ToolOutput)}
    assert [(call.raw_input, outputs[call.id]) for call in begun] == [({"a": 1}, "is 1"), ({"a": 2}, "is 2")]
    assert told[-1] == Content(ImageContent("aa", "image/gif"), "agent", "shown")


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
