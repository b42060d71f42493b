"""Programs as users of LangChain write them, served as they are."""

import os
import signal
import textwrap

import pytest

from agent.sessions.steps import reopen
from agent.steps import begin, leave
from labs.langchain.acting import introduced, surroundings
from raw_client import serve, texts

COUNTS = """
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    def count(state: MessagesState):
        return {"messages": [AIMessage(f"{len(state['messages'])} messages")]}

    builder = StateGraph(MessagesState)
    builder.add_node(count)
    builder.add_edge(START, "count")
"""
"""The beginning of a program with a graph that says how many messages there are."""


@pytest.fixture
def program(tmp_path):
    """Serves a program, whose text is given; more than one after the other have one home."""
    clients = []

    def program(text, *options, name="program.py", **capabilities):
        file = tmp_path / name
        file.write_text("\n".join(textwrap.dedent(part) for part in text.split("####")))
        client = serve(file, *options, env=surroundings(tmp_path / "home"), cwd=tmp_path)
        clients.append(client)
        introduced(client, **capabilities)
        return client

    yield program
    for client in clients:
        with client:
            if client.process.poll() is None:
                leave(client)


def answers(client, *prompts):
    session = client.new_session()
    return [texts(client.prompt(session, prompt)[0]) for prompt in prompts]


ASYNC_SAVER = """
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
    from coupler import serve

    async def make(session):
        return builder.compile(checkpointer=AsyncSqliteSaver(aiosqlite.connect("own.db")))

    serve(factory=make)
"""


def test_a_fresh_saver_of_the_program_is_set_up_before_the_first_prompt(program):
    client = program(f"{COUNTS}####{ASYNC_SAVER}")

    assert answers(client, "one", "two") == ["1 messages", "3 messages"]


SAVERS = {
    "a plain saver": """
        import sqlite3
        from langgraph.checkpoint.sqlite import SqliteSaver

        agent = builder.compile(checkpointer=SqliteSaver(sqlite3.connect("own.db", check_same_thread=False)))
    """,
    "a saver that was made in another loop": """
        import asyncio
        import aiosqlite
        from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

        async def saver():
            return AsyncSqliteSaver(aiosqlite.connect("own.db"))

        agent = builder.compile(checkpointer=asyncio.run(saver()))
    """,
    "a saver that makes no tables by itself": """
        from langgraph.checkpoint.memory import InMemorySaver

        class Fussy(InMemorySaver):
            made = 0

            async def setup(self):
                self.made += 1

            async def aget_tuple(self, config):
                assert self.made == 1
                return await super().aget_tuple(config)

        agent = builder.compile(checkpointer=Fussy())
    """,
    "a saver whose tables somebody else has made": """
        from langgraph.checkpoint.memory import InMemorySaver

        class Forbidden(InMemorySaver):
            def setup(self):
                raise PermissionError("must be owner of the table")

        agent = builder.compile(checkpointer=Forbidden())
    """,
    "a store": """
        import sqlite3
        from langgraph.store.sqlite import SqliteStore

        class Store(SqliteStore):
            def batch(self, ops):
                assert self.is_setup
                return super().batch(ops)

        def recall(state: MessagesState, *, store):
            known = len(store.search(("kept",)))
            store.put(("kept",), str(known), {"is": "kept"})

        builder.add_node(recall)
        builder.add_edge("count", "recall")
        agent = builder.compile(store=Store(sqlite3.connect("own.db", check_same_thread=False)))
    """,
}


@pytest.mark.parametrize("made", SAVERS.values(), ids=SAVERS)
def test_savers_and_stores_of_the_program_are_set_up_once(program, made):
    client = program(f"{COUNTS}####{made}")

    assert answers(client, "one", "two") == ["1 messages", "3 messages"]
