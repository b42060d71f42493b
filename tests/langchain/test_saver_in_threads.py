"""Graphs whose own checkpointer has no coroutines: it is used in threads, and keeps what it always kept."""

import sqlite3
from contextlib import closing

import pytest
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver

from client.stage import run
from coupler import connect
from coupler.langchain.checkpoints import ThreadedSaver, copy_thread, with_async_saver
from labs.langchain.graphs.shapes import MessagesState, echo, linear


class PlainSaver(BaseCheckpointSaver):
    """One that somebody has written without coroutines."""

    def __init__(self):
        super().__init__()
        kept = InMemorySaver()
        self.get_tuple, self.list, self.put = kept.get_tuple, kept.list, kept.put
        self.put_writes, self.delete_thread = kept.put_writes, kept.delete_thread


@pytest.fixture(params=["sqlite", "plain"])
def saver(request):
    with closing(sqlite3.connect(":memory:", check_same_thread=False)) as database:
        yield SqliteSaver(database) if request.param == "sqlite" else PlainSaver()


async def held(graph):
    async with connect(graph) as agent:
        session = await agent.new()
        return session.id, [(await session.prompt(text)).text for text in ("one", "two")]


def test_a_conversation_is_kept_in_the_author_s_own_checkpointer(saver):
    session, answers = run(held(linear(MessagesState, echo).compile(checkpointer=saver)))

    assert answers == ["1: one", "3: two"]
    kept = saver.get_tuple({"configurable": {"thread_id": session}})
    assert len(kept.checkpoint["channel_values"]["messages"]) == 4


def test_threads_are_listed_copied_and_deleted(saver):
    linear(MessagesState, echo).compile(checkpointer=saver).invoke(
        {"messages": "one"}, {"configurable": {"thread_id": "first"}}
    )
    threaded = ThreadedSaver(saver)

    async def change():
        await copy_thread(threaded, "first", "second")
        await threaded.adelete_thread("first")
        return {each.config["configurable"]["thread_id"] async for each in threaded.alist(None)}

    assert run(change()) == {"second"}


@pytest.mark.parametrize("own", [None, InMemorySaver()])
def test_a_graph_that_can_be_awaited_is_left_alone(own):
    graph = linear(MessagesState, echo).compile(checkpointer=own)

    assert with_async_saver(graph) is graph
