"""Programs as users of LangChain write them, served as they are."""

import signal
import sqlite3
import textwrap
from contextlib import closing

import pytest

from agent.sessions.steps import reopen, setup
from agent.steps import asks, begin, cancel, end_of, leave
from coder.waiting import until
from coupler.langchain.checkpoints import INTERRUPTED, NOT_BEGUN
from labs.langchain.acting import by_id, introduced, statuses, surroundings
from labs.langchain.desk import CLERK
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

    def program(text, *options, attribute=None, fresh=False, **capabilities):
        file = tmp_path / "program.py"
        file.write_text("\n".join(textwrap.dedent(part) for part in text.split("####")))
        target = file if attribute is None else f"{file}:{attribute}"
        client = serve(target, *options, env=surroundings(tmp_path / "home"), cwd=tmp_path, fresh=fresh)
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
    "a saver that cannot be hashed": """
        from langgraph.checkpoint.memory import InMemorySaver

        class Unhashable(InMemorySaver):
            __hash__ = None

        agent = builder.compile(checkpointer=Unhashable())
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


CUT_OFF = """
    import asyncio
    from langchain.agents import create_agent
    from labs.langchain.scripted_model import ScriptedModel, call, wait
    from coupler import Command, serve

    async def slow() -> str:
        "Take long."
        await asyncio.sleep(600)

    def answer(messages):
        last = messages[-1].text
        if last == "Use it":
            return ["I wait.", call("slow", "c")]
        return ["Now ", wait(600)] if last == "Talk" else [" | ".join(each.text for each in messages)]

    agent = create_agent(ScriptedModel(script=answer), [slow])
"""


def killed(client, session, prompt, store, shows, step):
    """Kill the process in the middle of a prompt, when this was shown and the step before it is written."""
    client.send(client.prompt_request(session, prompt))
    client.read_until(lambda frame: shows in str(frame))
    # LangGraph writes a step while the next one runs.
    query = "SELECT max(json_extract(CAST(metadata AS TEXT), '$.step')) FROM checkpoints"
    with closing(sqlite3.connect(store)) as opened:
        until(lambda: opened.execute(query).fetchone()[0] == step)
    client.process.send_signal(signal.SIGKILL)
    client.process.wait()


CUTS = {
    "in an answer": ("", "Talk", "Now ", 3, "Hello | Hello | Talk | What?"),
    "in a tool": (
        "",
        "Use it",
        "in_progress",
        4,
        f"Hello | Hello | Use it | I wait. | {INTERRUPTED} | What?",
    ),
    "by wish": (", keep_cut_off=False", "Talk", "Now ", 3, "Hello | Hello | What?"),
}


@pytest.mark.parametrize("options, prompt, shows, step, known", CUTS.values(), ids=CUTS)
def test_a_turn_that_a_kill_has_cut_off_is_known_to_the_model_unless_the_program_is_against_it(
    program, tmp_path, options, prompt, shows, step, known
):
    text = f"{CUT_OFF}####serve(agent{options})"
    client = program(text)
    session = client.new_session()
    client.prompt(session, "Hello")
    killed(client, session, prompt, tmp_path / "home" / "coupler.db", shows, step)

    again = program(text)
    reopen(again, "session/load", session, "/")

    assert texts(again.prompt(session, "What?")[0]) == known


def test_a_first_turn_that_a_kill_has_cut_off_is_known(program, tmp_path):
    text = f"{CUT_OFF}####serve(agent)"
    client = program(text)
    session = client.new_session()
    killed(client, session, "Talk", tmp_path / "home" / "coupler.db", "Now ", 0)

    again = program(text)
    reopen(again, "session/load", session, "/")

    assert texts(again.prompt(session, "What?")[0]) == "Talk | What?"


OWN_SAVER = """
    import aiosqlite
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async def make(session):
        saver = AsyncSqliteSaver(aiosqlite.connect("own.db"))
        return create_agent(ScriptedModel(script=answer), [slow], checkpointer=saver)

    serve(factory=make)
"""


def test_a_turn_that_was_cut_off_is_known_from_the_programs_own_saver_too(program, tmp_path):
    client = program(f"{CUT_OFF}####{OWN_SAVER}")
    session = client.new_session()
    client.prompt(session, "Hello")
    killed(client, session, "Talk", tmp_path / "own.db", "Now ", 3)

    again = program(f"{CUT_OFF}####{OWN_SAVER}")
    reopen(again, "session/load", session, "/")

    assert texts(again.prompt(session, "What?")[0]) == "Hello | Hello | Talk | What?"


def test_a_graph_declares_slash_commands(program):
    client = program(
        f"{CUT_OFF}####"
        "serve(agent, commands=[Command('plan', 'Plan it', hint='what to plan'), Command('tidy', 'Tidy up')])"
    )
    session = client.new_session()

    updates, _ = client.prompt(session, "/plan it")

    told = [each for each in updates if each["sessionUpdate"] == "available_commands_update"]
    assert {tuple(each["name"] for each in one["availableCommands"]) for one in told} == {("plan", "tidy")}
    assert texts(updates) == "/plan it"


LIVE = """
    import threading
    from typing import Any
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph

    class State(MessagesState, total=False):
        lock: Any
        tools: dict
        seen: list

    def look(state: State):
        tools = sorted((state.get("tools") or {}).items())
        known = [(name, callable(each) or each) for name, each in tools]
        told = f"{type(state.get('lock')).__name__} {known}"
        lock, made = state.get("lock") or threading.Lock(), {"add": lambda a, b: a + b, "name": "adder"}
        if state["messages"][-1].text == "make":
            return {"messages": [AIMessage(told)], "lock": lock, "tools": made, "seen": [lock] * 2}
        return {"messages": [AIMessage(f"{told} {[each is state['lock'] for each in state['seen']]}")]}

    agent = StateGraph(State).add_node(look).add_edge(START, "look").compile()
"""


def test_values_that_cannot_be_stored_live_with_the_process_and_are_named_when_they_are_lost(program):
    client = program(LIVE, "--drafts", "fork")
    session = client.new_session()

    made, *said = [texts(client.prompt(session, text)[0]) for text in ("make", "look", "look")]

    assert made == "NoneType []"
    assert said == ["lock [('add', True), ('name', 'adder')] [True, True]"] * 2
    fork = client.call("session/fork", setup(session, "/"))["result"]["sessionId"]
    assert texts(client.prompt(fork, "look")[0]) == said[0]
    client.call("session/close", {"sessionId": session})
    reopen(client, "session/load", session, "/")
    assert texts(client.prompt(session, "look")[0]) == said[0]
    leave(client)
    warned = [line for line in client.stderr.decode().splitlines() if "cannot be stored" in line]
    assert [line.split("`")[1] for line in warned] == ["lock", "tools", "seen"]

    again = program(LIVE)
    reopen(again, "session/load", session, "/")
    lost, told = texts(again.prompt(session, "make")[0]), texts(again.prompt(session, "look")[0])

    assert lost.startswith("Warning: The agent has lost a part of its state")
    for each in ("`lock` (_thread.lock)", "`tools` (function)", "`seen` (_thread.lock)"):
        assert each in lost
    assert lost.endswith("NoneType [('name', 'adder')]")
    assert told == said[0]


PLAIN_MIDDLEWARE = """
    import threading
    from langchain.agents import create_agent
    from langchain.agents.middleware import AgentMiddleware, wrap_model_call
    from langchain_core.messages import SystemMessage
    from labs.langchain.scripted_model import ScriptedModel, call, wait

    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    class Twice(AgentMiddleware):
        def wrap_tool_call(self, request, handler):
            assert threading.current_thread() is not threading.main_thread()
            first = handler(request)
            again = handler(request)
            return again.model_copy(update={"content": f"{first.text}, and again {again.text}"})

    @wrap_model_call
    def with_system(request, handler):
        return handler(request.override(system_message=SystemMessage("Be kind.")))

    @wrap_model_call
    async def awaited(request, handler):
        return await handler(request)

    def answer(messages):
        if messages[-1].text == "wait":
            return ["I wait", wait(600)]
        if messages[-1].type == "human":
            return [call("add", f"c{len(messages)}", a=1, b=2)]
        return ["Known: ", f"{messages[0].text} {messages[-1].text}"]

    agent = create_agent(ScriptedModel(script=answer), [add], middleware=[awaited, with_system, Twice()])
"""


def test_middleware_of_plain_functions_runs_in_a_thread_and_ends_with_a_cancel(program):
    client = program(PLAIN_MIDDLEWARE)
    session = client.new_session()

    updates, _ = client.prompt(session, "add")
    waiting = begin(client, session, "wait", until="I wait")
    client.send(cancel(session))
    _, cancelled = end_of(client, waiting)
    again, _ = client.prompt(session, "add")

    assert [update["content"]["text"] for update in updates if "messageId" in update] == [
        "Known: ",
        "Be kind. 3, and again 3",
    ]
    assert cancelled["result"]["stopReason"] == "cancelled"
    assert texts(again) == texts(updates)


STRUCTURED = """
    from langchain.agents import create_agent
    from langchain.agents.structured_output import ToolStrategy
    from pydantic import BaseModel
    from labs.langchain.scripted_model import ScriptedModel, call

    class Weather(BaseModel):
        degrees: int

    script = [[call("Weather", "c1", degrees="warm")], [call("Weather", "c2", degrees=20)]]
    agent = create_agent(ScriptedModel(script=script), [], response_format=ToolStrategy(Weather))
"""


def test_a_structured_answer_that_does_not_fit_is_a_failed_call(program):
    client = program(STRUCTURED)

    updates, _ = client.prompt(client.new_session(), "How warm is it?")

    assert {id: call["status"] for id, call in by_id(updates).items()} == {"c1": "failed", "c2": "completed"}
    assert texts(updates) == '{"degrees":20}'


RESULTS = """
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from labs.langchain.scripted_model import ScriptedModel, call
    from coupler import acp

    def add(a: int, b: int) -> int:
        "Add two numbers."
        return a + b

    async def slow() -> str:
        "Take long."
        import asyncio
        await asyncio.sleep(600)

    def delete(path: str) -> str:
        "Delete something."

    def answer(messages):
        match messages[-1].text:
            case "add": return [call("add", "c1", a=1, b=2)]
            case "both": return [call("slow", "c2"), call("delete", "c3", index=1, path="x")]
            case "tell": return [" | ".join(each.text for each in messages if each.type == "tool")]
            case _: return ["Well."]

    agent = create_agent(
        ScriptedModel(script=answer), [add, slow, delete], middleware=[acp.permissions({"delete": "ask"})]
    )
"""


def test_the_text_that_a_tool_returns_is_its_raw_output(program):
    client = program(RESULTS)

    updates, _ = client.prompt(client.new_session(), "add")

    assert by_id(updates)["c1"]["rawOutput"] == "3"


def test_the_model_is_told_of_a_call_that_never_began_that_it_was_not_made(program):
    client = program(RESULTS)
    session = client.new_session()
    request = client.prompt_request(session, "both")
    client.send(request)
    seen = client.read_until(lambda frame: "in_progress" in str(frame))
    if not any(asks("session/request_permission")(frame) for frame in seen):
        client.read_until(asks("session/request_permission"))

    client.send(cancel(session))
    end_of(client, request)

    assert texts(client.prompt(session, "tell")[0]) == f"{INTERRUPTED} | {NOT_BEGUN}"


USED_BY_A_NODE = """
    from langchain_core.messages import AIMessage
    from langgraph.graph import START, MessagesState, StateGraph
    from coupler import acp

    async def use(state: MessagesState):
        [tool] = [each for each in await acp.mcp_tools(acp.current().session) if each.name == "read_memo"]
        return {"messages": [AIMessage(await tool.ainvoke({"text": "x"}))]}

    agent = StateGraph(MessagesState).add_node(use).add_edge(START, "use").compile()
"""


def test_a_tool_of_a_server_that_a_node_uses_is_one_call(program):
    client = program(USED_BY_A_NODE)
    session = client.new_session("/", CLERK)
    request = client.prompt_request(session, "go")
    client.send(request)
    *seen, question = client.read_until(asks("session/request_permission"))
    client.send(
        {"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
    )

    updates, _ = end_of(client, request)

    updates = [
        frame["params"]["update"] for frame in seen if frame.get("method") == "session/update"
    ] + updates
    [id] = by_id(updates)
    assert question["params"]["toolCall"]["toolCallId"] == id
    assert statuses(updates, id) == ["pending", "in_progress", "completed"]


THINKS = """
    from langchain.agents import create_agent
    from labs.langchain.scripted_model import ScriptedModel, think
    import coupler
    from coupler import serve

    agent = create_agent(ScriptedModel(script=[[think("Hm."), "Yes."]]), [])
"""
ENDS = {
    "at the top": "serve(agent, thoughts=False)",
    "below main": "if __name__ == '__main__':\n    serve(agent, thoughts=False)\n    raise SystemExit(1)",
    "below main with its module": "if '__main__' == __name__:\n    coupler.serve(agent, thoughts=False)",
    "below main with a variable": (
        "if __name__ == '__main__':\n    is_loud = False\n    serve(agent, thoughts=is_loud)"
    ),
}


@pytest.mark.parametrize("end", ENDS.values(), ids=ENDS)
@pytest.mark.parametrize("named", [False, True], ids=["file", "variable"])
def test_the_options_of_serve_hold_wherever_it_is_called(program, end, named):
    client = program(f"{THINKS}####{end}", attribute="agent" if named else None)

    updates, _ = client.prompt(client.new_session(), "Well?")

    assert texts(updates) == "Yes."
    assert "agent_thought_chunk" not in [each["sessionUpdate"] for each in updates]


def test_options_of_a_call_of_serve_that_does_not_count_are_told_of(program):
    client = program(
        f"{THINKS}####def main():\n    serve(agent, thoughts=False)\nif __name__ == '__main__':\n    main()"
    )

    updates, _ = client.prompt(client.new_session(), "Well?")

    assert "agent_thought_chunk" in [each["sessionUpdate"] for each in updates]
    assert "`coupler serve` does not run this call of serve()" in client.stderr.decode()


def test_what_a_program_tries_out_below_main_is_not_run(program):
    client = program(f"{THINKS}####if __name__ == '__main__':\n    raise SystemExit('tried out')")

    assert answers(client, "Well?") == ["Yes."]


@pytest.mark.parametrize(
    "kind, capabilities", [("agent_thought_chunk", {}), ("notice", {"session": {"notices": {}}})]
)
def test_an_agent_that_does_not_use_the_editors_servers_says_once_what_to_write(program, kind, capabilities):
    client = program(f"{COUNTS}####agent = builder.compile()", **capabilities)
    session = client.new_session("/", CLERK)

    told = [[each for each in client.prompt(session, text)[0] if "acp.tools()" in str(each)] for text in "ab"]

    [[first], again] = told
    assert again == []
    assert kind in first["sessionUpdate"]
    assert "clerk" in str(first)
    assert "create_agent(…, middleware=[acp.tools()])" in str(first)


MISTAKES = {
    "a factory that returns nothing": (
        "def make(session):\n    agent = graph\nserve(factory=make)",
        "the factory make returned None: end it with `return`",
    ),
    "a model": (
        "from langchain_openai import ChatOpenAI\nserve(ChatOpenAI(model='m', api_key='k'))",
        "this is a ChatOpenAI, a model: call serve(create_agent(model, tools))",
    ),
    "a coroutine": (
        "async def make(session):\n    return graph\nserve(make(None))",
        "this is what `make(…)` returned, a coroutine that nobody has awaited: call serve(factory=make)",
    ),
    "a function with other parameters": (
        "def make(config, extra):\n    return graph\nserve(make)",
        "If it makes the agent, let it take the session or nothing, and call serve(factory=make)",
    ),
    "commands of an agent that is no graph": (
        "async def agent(turn): ...\nserve(agent, commands=[])",
        "serve(…, commands=…) is for graphs of LangGraph: set the attribute `commands` of an Agent",
    ),
    "a saver that was not entered": (
        "from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver\n"
        "serve(builder.compile(checkpointer=AsyncSqliteSaver.from_conn_string('own.db')))",
        "What `from_conn_string(…)` returns is a context manager, and must be entered",
    ),
    "a store that was not entered": (
        "from langgraph.store.sqlite import SqliteStore\n"
        "serve(builder.compile(store=SqliteStore.from_conn_string('own.db')))",
        "What `from_conn_string(…)` returns is a context manager, and must be entered",
    ),
    "a saver without a loop": (
        "import aiosqlite\nfrom langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver\n"
        "serve(builder.compile(checkpointer=AsyncSqliteSaver(aiosqlite.connect('own.db'))))",
        "make this in `async def make(session)`, which returns the agent, and call serve(factory=make)",
    ),
    "a saver that is closed": (
        "from langgraph.checkpoint.sqlite import SqliteSaver\n"
        "with SqliteSaver.from_conn_string('own.db') as saver:\n"
        "    serve(builder.compile(checkpointer=saver))",
        "The agent's SqliteSaver is closed: the `with` block that made it has ended",
    ),
    "a saver that is closed when the factory returns": (
        "from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver\nasync def make(session):\n"
        "    async with AsyncSqliteSaver.from_conn_string('own.db') as saver:\n"
        "        return builder.compile(checkpointer=saver)\nserve(factory=make)",
        'of serve(factory=make) AsyncSqliteSaver(aiosqlite.connect("agent.db")), without `with`',
    ),
    "a model of a package that is missing": (
        "from langchain.agents import create_agent\nserve(create_agent('mistralai:large', []))",
        "program.py, line 15)",
    ),
    "an agent that is made and served in a function": (
        "del graph\ndef main(): serve(builder.compile())\nif __name__ == '__main__': main()\ndel builder",
        "program.py, line 15: `coupler serve` does not run this call of serve(); call serve() at",
    ),
    "a file without an agent": (
        "del graph, builder\ndef make(): ...",
        "there is nothing to serve: serve takes a function with one parameter named `turn`",
    ),
}


@pytest.mark.parametrize("text, sentence", MISTAKES.values(), ids=MISTAKES)
def test_a_mistake_is_answered_with_what_to_do(program, text, sentence):
    client = program(f"{COUNTS}####graph = builder.compile()\nfrom coupler import serve\n{text}")

    answer = client.call("session/new", {"cwd": "/", "mcpServers": []})
    if "result" in answer:
        _, answer = client.prompt(answer["result"]["sessionId"], "one")

    assert sentence in answer["error"]["message"]
    assert "say which one" not in answer["error"]["message"]
    assert "src/coupler" not in answer["error"]["message"]


WORKS = {
    "a factory without the session": "def make():\n    return graph\nserve(factory=make)",
    "a factory as the target": "def make(session):\n    return graph\nserve(make)",
    "a factory without the session as the target": "async def make():\n    return graph\nserve(make)",
    "in a loop": "import asyncio\nasync def main():\n    serve(graph)\nasyncio.run(main())",
    "the namespace of `import coupler`": (
        "import sys\nsys.modules.pop('coupler.acp', None)\nvars(sys.modules['coupler']).pop('acp', None)\n"
        "import coupler\nassert coupler.acp.current() is None\nserve(graph)"
    ),
    "a mode of other agents": (
        "import coupler\nfrom coupler import acp\nfrom langchain.agents import create_agent\n"
        "from labs.langchain.scripted_model import ScriptedModel\n"
        "model = ScriptedModel(script=[['1 messages']])\n"
        "serve(create_agent(model, [], middleware=[acp.modes(coupler.Mode('calm'))]))"
    ),
}


@pytest.mark.parametrize("text", WORKS.values(), ids=WORKS)
def test_what_is_clearly_meant_works(program, text):
    client = program(f"{COUNTS}####graph = builder.compile()\nfrom coupler import serve\n{text}")

    assert answers(client, "one") == ["1 messages"]


def test_serve_in_a_running_loop_says_what_to_write(tmp_path):
    file = tmp_path / "program.py"
    file.write_text(
        "import asyncio\nfrom coupler import serve\nasync def agent(turn): ...\n"
        "async def main(): serve(agent)\nasyncio.run(main())\n"
    )
    with serve(file, python=True) as client:
        assert client.wait() == 1
        assert "write `await serve_async(…)`" in client.stderr.decode()


BEFORE_SERVE = {
    "options of the command line": (
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--loud')\nparser.parse_args()"
    ),
    "a print": "print('Hello.')",
    "an event loop": "import asyncio\nasync def warm_up(): return None\nasyncio.run(warm_up())",
    "imports": "import logging as logs\nlogs.basicConfig()",
}
"""What programs do below the main guard before they call serve()."""


@pytest.mark.parametrize("before", BEFORE_SERVE.values(), ids=BEFORE_SERVE)
def test_what_stands_below_the_main_guard_before_serve_is_run_as_python_would(program, before):
    block = textwrap.indent(f"{before}\nserve(agent, thoughts=False)", "    ")
    client = program(f"{THINKS}####if __name__ == '__main__':\n{block}")

    updates, _ = client.prompt(client.new_session(), "Well?")

    assert texts(updates) == "Yes."
    assert "agent_thought_chunk" not in [each["sessionUpdate"] for each in updates]
    assert [line for line in client.lines if not line.startswith(b"{")] == []


FAILURES = {
    "an exit": ("raise SystemExit(3)", "SystemExit: 3"),
    "an error": ("int('x')", "ValueError"),
    "an argument that is missing": (
        "import argparse; p = argparse.ArgumentParser(); p.add_argument('city'); p.parse_args()",
        "SystemExit: 2",
    ),
}


@pytest.mark.parametrize(("fails", "told"), FAILURES.values(), ids=FAILURES)
def test_what_fails_below_the_main_guard_costs_its_options_only(program, fails, told):
    client = program(f"{THINKS}####if __name__ == '__main__':\n    {fails}\n    serve(agent, thoughts=False)")

    updates, _ = client.prompt(client.new_session(), "Well?")

    assert texts(updates) == "Yes."
    assert "agent_thought_chunk" in [each["sessionUpdate"] for each in updates]
    log = client.stderr.decode()
    assert told in log
    assert "the options of serve() below it do not hold" in log


def test_what_fails_below_the_main_guard_is_told_if_the_agent_is_made_there(program):
    client = program(
        "from coupler import serve\nif __name__ == '__main__':\n    city = int('x')\n    serve(make(city))"
    )

    [error] = [client.call("session/new", {"cwd": "/", "mcpServers": []})["error"]]

    assert "invalid literal for int()" in error["message"]
    assert "line 3" in error["message"]


def test_a_serve_below_the_main_guard_that_is_another_librarys_is_not_run(program):
    client = program(
        f"{THINKS}####class web:\n    def serve(app, port=80): raise SystemExit('a web server')\n"
        "if __name__ == '__main__':\n    web.serve(agent, port=8000)"
    )

    assert answers(client, "Well?") == ["Yes."]
    assert "serve()" not in client.stderr.decode()


WITHOUT_PRIVATE_NAMES = """
    import langgraph.pregel._tools
    from langchain.agents.middleware import AgentMiddleware
    from langgraph.checkpoint.serde import _msgpack, types

    del langgraph.pregel._tools._tool_call_writer, types._DeltaSnapshot
    _msgpack.SAFE_MSGPACK_TYPES = [*_msgpack.SAFE_MSGPACK_TYPES]
    del AgentMiddleware.awrap_tool_call
    AgentMiddleware.awrap_model_call = staticmethod(print)
"""
"""Takes away what later versions of LangChain may call otherwise."""


def test_a_graph_is_served_without_the_private_names_of_langchain(program):
    client = program(f"{COUNTS}####{WITHOUT_PRIVATE_NAMES}####agent = builder.compile()", fresh=True)

    assert answers(client, "one", "two") == ["1 messages", "3 messages"]


def test_values_of_the_authors_own_types_are_read_again_without_a_warning(program):
    client = program("""
        from dataclasses import dataclass
        from langchain_core.messages import AIMessage
        from langgraph.graph import START, MessagesState, StateGraph

        @dataclass
        class Place:
            visits: int = 0

        class State(MessagesState):
            place: Place

        def visit(state: State):
            place = Place(state["place"].visits + 1 if "place" in state else 1)
            return {"place": place, "messages": [AIMessage(f"{place.visits} visits")]}

        builder = StateGraph(State)
        builder.add_node(visit)
        builder.add_edge(START, "visit")
        agent = builder.compile()
    """)

    assert answers(client, "one", "two") == ["1 visits", "2 visits"]
    assert client.stderr == b""


STATES = {
    "a list with a reducer": ("question: str\n    seen: Annotated[list[str], operator.add]", "[HI]"),
    "a list that a node fills": ("question: str\n    seen: list[str]", "[HI]"),
    "a list and an answer": ("question: str\n    seen: list[str]\n    answer: NotRequired[str]", "[HI]"),
}


@pytest.mark.parametrize("keys, answer", STATES.values(), ids=STATES)
def test_a_state_with_one_text_to_give_takes_the_prompt_as_that(program, keys, answer):
    client = program(
        "import operator\nfrom typing import Annotated, NotRequired, TypedDict\n"
        "from langgraph.graph import START, StateGraph\n"
        f"class State(TypedDict):\n    {keys}\n"
        "def node(state):\n    return {'seen': [state['question'].upper()]}\n"
        "def last(state):\n    return {'question': f\"[{', '.join(state['seen'])}]\"}\n"
        "builder = StateGraph(State).add_sequence([node, last]).add_edge(START, 'node')\n"
        "agent = builder.compile()"
    )

    assert answers(client, "hi") == [answer]


def test_a_state_with_two_texts_to_give_is_answered_with_what_to_write(program):
    client = program(
        "from typing import TypedDict\nfrom langgraph.graph import START, StateGraph\n"
        "class State(TypedDict):\n    question: str\n    answer: str\n"
        "def node(state):\n    return {'answer': 'x'}\n"
        "agent = StateGraph(State).add_node(node).add_edge(START, 'node').compile()"
    )

    error = client.call("session/new", {"cwd": "/", "mcpServers": []})["error"]

    assert "this graph takes question, answer" in error["message"]
    assert "mark the others as `NotRequired[str]`" in error["message"]


REVIEWED_BELOW = """
    from langchain.agents import create_agent
    from langchain.agents.middleware import HumanInTheLoopMiddleware
    from labs.langchain.scripted_model import ScriptedModel, call

    def send(to: str) -> str:
        "Send it."
        return f"sent to {to}"

    review = HumanInTheLoopMiddleware({"send": True}, interrupt_mode="MODE")
    helper = create_agent(
        ScriptedModel(script=[[call("send", "s", to="Bob")], ["Helped."]]), [send], middleware=[review]
    )

    async def delegate(what: str) -> str:
        "Delegate it."
        return (await helper.ainvoke({"messages": [("user", what)]}))["messages"][-1].text

    agent = create_agent(ScriptedModel(script=[[call("delegate", "d", what="it")], ["Done."]]), [delegate])
"""


@pytest.mark.parametrize("mode", ["batched", "per_call"])
@pytest.mark.parametrize(
    "words, to", [("approve", "Bob"), ("edit\nto: Ann", "Ann")], ids=["as it is", "edited"]
)
def test_a_call_of_a_sub_agent_that_is_decided_about_in_the_chat_is_one_call(program, mode, words, to):
    client = program(REVIEWED_BELOW.replace("MODE", mode))
    session = client.new_session()
    request = client.prompt_request(session, "Send it")
    client.send(request)
    *_, question = client.read_until(asks("session/request_permission"))
    client.send({"id": question["id"], "result": {"outcome": {"outcome": "selected", "optionId": "chat"}}})
    client.answer_to(request)
    client._held.clear()

    updates, _ = client.prompt(session, words)

    assert texts(updates) == "Done."
    [outer, inner] = by_id(updates)
    assert statuses(updates, outer) == statuses(updates, inner) == ["pending", "in_progress", "completed"]
    calls = by_id(updates)
    assert calls[inner]["rawInput"] == {"to": to}
    assert calls[inner]["rawOutput"] == f"sent to {to}"
    assert calls[inner]["_meta"]["coupler"]["parent"] == outer
