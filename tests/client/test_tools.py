"""Python functions as tools of an agent: over HTTP and through the program that pipes, called by scripts."""

import asyncio
import contextlib
import contextvars
import http.client
import json
import re
import threading
import time
from urllib.parse import urlsplit

import psutil
import pytest

from client.stage import is_running, run, until
from coupler import EndTurn, McpError, Turn, connect
from coupler.client.errors import AgentError
from coupler.client.observation import ToolFinished
from coupler.client.prompt import RESULT_DELIVERY_TIMEOUT
from coupler.client.quirks import Usual
from coupler.client.tools import ToolContext
from coupler.schema.v1 import ImageContent, McpServerStdio, TextContent

WAYS = pytest.mark.parametrize("way", ["http", "stdio"])

CALLS = """
from mcp_client import opened, turns
for prompt, entries in turns(http={http}):
    server = opened(entries[0])
    note("tools", server.tools())
    for call in json.loads(text_of(prompt)):
        note("result", server.call(*call[:2], **(call[2] if call[2:] else {{}})))
    server.close()
    send(end(prompt))
"""


def calls(way):
    """An agent whose prompts are lists of calls."""
    return CALLS.format(http=way == "http")


async def called(agent, *wanted, **options):
    """The results of calls in a session with these options."""
    async with agent.connect() as remote:
        session = await remote.new(**options)
        await session.prompt(json.dumps(wanted))
    return agent.noted("result")


def told(result):
    return result["content"][0]["text"]


def add(a: int, b: int = 0) -> int:
    """Add two numbers.

    Args:
        a: the first
    """
    return a + b


class TestCalls:
    @WAYS
    def test_a_function_is_listed_and_called(self, script, way):
        agent = script(calls(way))

        (result,) = run(called(agent, ["add", {"a": 1, "b": 2}], tools=[add]))

        assert (told(result), result["structuredContent"]) == ("3", {"result": 3})
        ((tool,),) = agent.noted("tools")
        assert (tool["name"], tool["description"]) == ("add", "Add two numbers.")
        assert tool["inputSchema"]["properties"]["a"] == {"type": "integer", "description": "the first"}
        assert tool["inputSchema"]["required"] == ["a"]

    @WAYS
    def test_whatever_is_wrong_with_a_call_is_told_to_the_model(self, script, way):
        async def unlucky() -> None:
            raise ValueError("no luck today")

        async def gives_up() -> None:
            pytest.fail("a test fails with what is no Exception")

        def leaves() -> None:
            raise SystemExit(3)

        def iterates() -> None:
            next(iter(()))

        def odd() -> object:
            return object()

        wanted = [
            (["add", {"a": "1"}], "at `$.a`: Expected `int`, got `str`"),
            (["add", {}], "Object missing required field `a`"),
            (["add", {"a": 1, "c": 1}], "Object contains unknown field `c`"),
            (["nothing", {}], "there is no tool `nothing`; there is: `add`"),
            (["structured_output", {}], "no answer of a given form is asked for now"),
            (["unlucky", {}], "`unlucky` failed: no luck today"),
            (["gives_up", {}], "`gives_up` failed: a test fails with what is no Exception"),
            (["leaves", {}], "SystemExit: 3"),
            (["iterates", {}], "StopIteration"),
            (["odd", {}], "cannot be written as JSON"),
        ]
        results = run(
            called(
                script(calls(way)),
                *(call for call, _ in wanted),
                tools=[add, unlucky, gives_up, leaves, iterates, odd],
            )
        )

        for result, (_, words) in zip(results, wanted, strict=True):
            assert result["isError"], result
            assert words in told(result)
            assert "Traceback" not in told(result)

    def test_what_a_function_returns_is_text_blocks_or_json(self, script):
        def words() -> str:
            return "so \ud800 so"

        def nothing() -> None:
            pass

        def picture() -> list[object]:
            return [TextContent("look"), ImageContent("AAAA", "image/png")]

        def record() -> dict[str, object]:
            return {"a": [1, None]}

        def later() -> object:
            async def soon() -> str:
                return "later"

            return soon()

        tools = [words, nothing, picture, record, later]
        got = run(called(script(calls("http")), *([tool.__name__, {}] for tool in tools), tools=tools))

        assert told(got[0]) == "so ? so"
        assert told(got[1]) == "done"
        assert [block["type"] for block in got[2]["content"]] == ["text", "image"]
        assert got[3]["structuredContent"] == {"a": [1, None]}
        assert json.loads(told(got[3])) == {"a": [1, None]}
        assert told(got[4]) == "later"

    def test_a_call_knows_its_session_and_hides_that_from_the_model(self, script):
        seen = []

        def look(context: ToolContext, at: str) -> None:
            seen.append((context.session.id, context.call_id, context.cancelled.is_set(), at))

        agent = script(calls("http"))
        run(called(agent, ["look", {"at": "me"}, {"_meta": {"claudecode/toolUseId": "t1"}}], tools=[look]))

        assert seen == [("s1", "t1", False, "me")]
        assert [*agent.noted("tools")[0][0]["inputSchema"]["properties"]] == ["at"]

    def test_functions_run_in_threads_with_the_variables_of_the_program(self, script):
        name: contextvars.ContextVar[str] = contextvars.ContextVar("name", default="nobody")
        threads = set()

        def whose() -> str:
            threads.add(threading.current_thread())
            return name.get()

        async def story():
            name.set("somebody")
            return await called(script(calls("http")), ["whose", {}], tools=[whose])

        assert told(run(story())[0]) == "somebody"
        assert threading.main_thread() not in threads

    @WAYS
    def test_calls_run_at_the_same_time(self, script, way):
        meeting = threading.Barrier(4, timeout=20)

        def meet() -> int:
            return meeting.wait()

        agent = script(
            f"""
            from mcp_client import *
            for prompt, entries in turns(http={way == "http"}):
                server = opened(entries[0])
                meet = {{"name": "meet", "arguments": {{}}}}
                requests = [server.request("tools/call", meet) for _ in range(4)]
                def one(request):
                    note("result", server.send(json.dumps(request).encode(), request["id"]))
                threads = [threading.Thread(target=one, args=[request]) for request in requests]
                for thread in threads: thread.start()
                for thread in threads: thread.join()
                server.close()
                send(end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                await (await remote.new(tools=[meet])).prompt("go")

        run(story())
        assert sorted(map(told, agent.noted("result"))) == ["0", "1", "2", "3"]

    def test_sessions_with_tools_of_the_same_name_do_not_mix(self, script):
        agent = script(calls("http"))

        def speaker(words):
            def speak() -> str:
                return words

            return speak

        async def story():
            async with agent.connect() as remote:
                one = await remote.new(tools=[speaker("one")])
                two = await remote.new(tools=[speaker("two")])
                for session in (one, two, one):
                    await session.prompt('[["speak", {}]]')

        run(story())
        assert [told(result) for result in agent.noted("result")] == ["one", "two", "one"]

    def test_an_agent_of_this_package_uses_them_like_any_server(self):
        async def turn(turn: Turn) -> None:
            tools = await turn.mcp.tools()
            result = await turn.mcp.call("coupler", "add", {"a": 2, "b": 3})
            await turn.say(f"{[tool.name for tool in tools]} {result.text}")

        async def story():
            async with connect(turn) as agent:
                session = await agent.new(tools=[add], permissions=lambda _: True)
                return (await session.prompt("go")).text

        assert run(story()) == "['add'] 5"


OWN_NAME = re.compile("coupler[2-7][a-z2-7]{5}")
"""Letters and digits, which every agent leaves as they are; `mcp__server__tool` has 44 of 64 for the tool."""

NEW_AND_LOADED = """
while True:
    frame = read()
    if frame.get("method") == "initialize":
        capabilities = {"loadSession": True, "mcpCapabilities": {"http": True}}
        send(result(frame, {**HELLO, "agentCapabilities": capabilities}))
    elif frame.get("method") == "session/new":
        send(result(frame, {"sessionId": f"s{frame['id']}"}))
    elif frame.get("method") == "session/load":
        send(result(frame, {}))
"""


def server_names(agent, method="session/new"):
    """The names of the servers of each session, as the agent was told them."""
    return [[entry["name"] for entry in frame["params"]["mcpServers"]] for frame in agent.received_of(method)]


class TestDeclaring:
    def test_what_no_model_could_call_is_refused_before_anything_is_sent(self, script):
        def starred(*words: str) -> None: ...

        def odd(of: object) -> None: ...

        def structured_output() -> None: ...

        refused = [
            ([lambda: 1], "'<lambda>' is no name for a tool"),
            ([3], "a tool is a function with a name, not int"),
            ([add, add], "there are two tools of the name `add`"),
            ([structured_output], "`structured_output` is the tool that takes typed answers"),
            ([starred], "models give arguments by name"),
            ([print], "models give arguments by name"),
        ]
        agent = script("for prompt in prompts(): pass")

        async def story():
            async with agent.connect() as remote:
                for tools, words in refused:
                    with pytest.raises(TypeError, match=words):
                        await remote.new(tools=tools)

        run(story())
        assert not agent.received_of("session/new")

    def test_ours_comes_first_and_gives_way_to_a_name_that_is_taken(self, script):
        agent = script("for prompt in prompts(): pass")

        async def story():
            async with agent.connect() as remote:
                await remote.new(tools=[add])
            [[known]] = server_names(agent)
            async with agent.connect() as remote:
                await remote.new(tools=[add], mcp_servers=[McpServerStdio(known, "true", [], [])])
            return known

        known = run(story())
        ours, theirs = server_names(agent)[1]
        assert theirs == known
        assert OWN_NAME.fullmatch(ours)
        assert ours != theirs

    def test_a_name_is_given_once_in_a_process_and_means_the_same_tools_in_every_process(self, script):
        def subtract(a: int) -> int:
            return -a

        def same_name_as_add(a: str) -> str:
            return a

        same_name_as_add.__name__ = "add"
        agent = script(NEW_AND_LOADED)
        openings = [[add], [subtract], [add], [same_name_as_add], [add, subtract]]

        async def story():
            async with agent.connect() as remote:
                for tools in openings:
                    await (await remote.new(tools=tools)).close()
                await remote.new(output=int)
                await remote.new(output=str)

        run(story())
        run(story())
        names = [name for [name] in server_names(agent)]
        first, again = names[:7], names[7:]
        assert all(OWN_NAME.fullmatch(name) for name in first)
        assert len({*first}) == len(first)
        assert again == first

    def test_a_session_that_is_loaded_in_a_new_process_has_the_name_that_it_had(self, script):
        agent = script(NEW_AND_LOADED)

        async def story():
            async with agent.connect() as remote:
                await remote.new(tools=[add])
            async with agent.connect() as remote:
                await (await remote.load("s1", tools=[add])).close()
                await remote.load("s1", tools=[add])  # in the same process there is a server of that name

        run(story())
        [[first]] = server_names(agent)
        [[loaded], [once_more]] = server_names(agent, "session/load")
        assert loaded == first
        assert OWN_NAME.fullmatch(once_more)
        assert once_more != first

    def test_context_managers_are_entered_for_a_session_and_left_with_it(self, script):
        events = []

        @contextlib.asynccontextmanager
        async def database():
            events.append("opened")

            def query() -> str:
                return events[-1]

            try:
                yield [query, add]
            finally:
                events.append("closed")

        @contextlib.contextmanager
        def file():
            def write() -> None: ...

            events.append("file opened")
            yield write
            events.append("file closed")

        agent = script(calls("http"))

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[database(), file()])
                await session.prompt('[["query", {}]]')
                await session.close()
                assert events == ["opened", "file opened", "file closed", "closed"]

        run(story())
        assert [tool["name"] for tool in agent.noted("tools")[0]] == ["query", "add", "write"]

    def test_a_session_that_the_agent_refuses_leaves_nothing_open(self, script):
        events = []

        @contextlib.contextmanager
        def held():
            try:
                yield add
            finally:
                events.append("left")

        agent = script("hello()\nsend(error(read(), -32000, 'not today'))\nread()")

        async def story():
            async with agent.connect() as remote:
                with pytest.raises(AgentError, match="not today"):
                    await remote.new(tools=[held()])
                assert events == ["left"]

        run(story())

    def test_a_context_manager_that_cannot_be_entered_costs_its_session_and_leaves_the_others(self, script):
        events = []

        @contextlib.contextmanager
        def good():
            try:
                yield add
            finally:
                events.append("left")

        @contextlib.contextmanager
        def bad():
            raise OSError("no disk")
            yield

        async def story():
            async with script("for prompt in prompts(): pass").connect() as remote:
                with pytest.raises(OSError, match="no disk"):
                    await remote.new(tools=[good(), bad()])
                assert events == ["left"]
                await remote.new()

        run(story())


def test_a_result_that_is_too_long_for_an_agent_of_this_package_is_told_as_that():
    def big() -> str:
        return "é" * 2_000_000

    async def agent(turn: Turn) -> None:
        try:
            await turn.mcp.call("coupler", "big", {})
        except McpError as error:
            await turn.say(str(error))

    async def story():
        async with connect(agent) as remote:
            return await (await remote.new(tools=[big], permissions="allow-all")).prompt("go")

    told = run(story()).text
    assert re.sub("`coupler[2-7a-z]{6}`", "`coupler`", told) == (
        "the MCP server `coupler` did not run `big`: the answer is longer than 10 MiB"
    )


class TestEnding:
    def test_an_end_of_turn_is_a_plain_result_and_reaches_who_prompted(self, script):
        def finish(answer: int) -> None:
            raise EndTurn({"answer": answer})

        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                note("result", opened(entries[0]).call("finish", {"answer": 42}))
                read_until(is_cancel)
                send(say("last words"), end(prompt, "cancelled"))
            """
        )
        texts = []

        async def story():
            async with agent.connect(on_event=lambda event: texts.append(event)) as remote:
                session = await remote.new(tools=[finish])
                with pytest.raises(EndTurn) as caught:
                    await session.prompt("go")
                return caught.value.payload

        assert run(story()) == {"answer": 42}
        assert agent.noted("result") == [{"content": [{"type": "text", "text": "done"}], "isError": False}]
        assert any("last words" in repr(event) for event in texts)

    def test_an_agent_has_the_result_before_its_turn_is_ended(self):
        def finish() -> None:
            raise EndTurn(5)

        got = []

        async def agent(turn: Turn) -> None:
            try:
                got.append((await turn.mcp.call("coupler", "finish", {})).text)
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                got.append("cancelled")
                raise

        async def story():
            async with connect(agent) as remote:
                session = await remote.new(tools=[finish], permissions="allow-all")
                for _ in range(5):
                    with pytest.raises(EndTurn):
                        await session.prompt("go")

        run(story())
        assert got == ["done", "cancelled"] * 5

    @pytest.mark.parametrize("reports", [True, False])
    def test_a_turn_is_ended_when_the_call_is_reported_or_a_moment_later(self, script, reports):
        def finish() -> None:
            raise EndTurn(5)

        agent = script(
            f"""
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                opened(entries[0]).call("finish", {{}})
                import time
                began = time.monotonic()
                title = entries[0]["name"] + "_finish"
                if {reports}:
                    send(update("tool_call", toolCallId="c1", title=title, status="completed"))
                read_until(is_cancel)
                note("after", time.monotonic() - began)
                send(end(prompt, "cancelled"))
            """
        )

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[finish])
                with pytest.raises(EndTurn):
                    await session.prompt("go")

        run(story())
        (after,) = agent.noted("after")
        assert (
            (after < RESULT_DELIVERY_TIMEOUT / 2)
            if reports
            else (RESULT_DELIVERY_TIMEOUT / 2 < after < 10 * RESULT_DELIVERY_TIMEOUT)
        )

    def test_an_agent_that_ends_its_turn_by_itself_then_is_not_cancelled(self, script):
        def finish() -> None:
            raise EndTurn(5)

        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                opened(entries[0]).call("finish", {})
                send(say("so be it"), end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[finish])
                for _ in range(2):
                    with pytest.raises(EndTurn):
                        await session.prompt("go", until=lambda reply: pytest.fail("judged"))

        run(story())
        assert agent.received_of("session/cancel") == []

    @WAYS
    def test_a_cancel_of_the_turn_cancels_what_runs(self, script, way):
        begun, ended = [], []
        release = threading.Event()

        async def sleeps() -> None:
            begun.append("sleeps")
            try:
                await asyncio.sleep(60)
            finally:
                ended.append("sleeps")

        def blocks(context: ToolContext) -> None:
            begun.append("blocks")
            if context.cancelled.wait(20):
                ended.append("blocks")
            release.set()

        agent = script(
            f"""
            from mcp_client import *
            for prompt, entries in turns(http={way == "http"}):
                server = opened(entries[0])
                def one(request):
                    note("result", server.send(json.dumps(request).encode(), request["id"]))
                names = [{{"name": name, "arguments": {{}}}} for name in ("sleeps", "blocks")]
                requests = [server.request("tools/call", name) for name in names]
                threads = [threading.Thread(target=one, args=[request]) for request in requests]
                for thread in threads: thread.start()
                read_until(is_cancel)
                for thread in threads: thread.join()
                note("late", server.call("sleeps", {{}}))
                server.close()
                send(end(prompt, "cancelled"))
            """
        )

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[sleeps, blocks])
                async with session.prompt("go"):
                    await until(lambda: len(begun) == 2)
                await until(release.is_set)

        run(story())
        assert sorted(ended) == ["blocks", "sleeps"]
        assert [told(result) for result in agent.noted("result")] == ["the call was cancelled"] * 2
        assert [told(result) for result in agent.noted("late")] == ["the turn was cancelled"]

    def test_the_program_that_pipes_ends_with_the_session_though_the_agent_keeps_it(self, script):
        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns():
                server = opened(entries[0])
                note("shim", server.process.pid)
                send(end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[add])
                await session.prompt("go")
                (pid,) = agent.noted("shim")
                assert is_running(pid)
                await session.close()
                await until(lambda: not is_running(pid))

        run(story())

    @WAYS
    def test_a_session_is_closed_though_a_tool_does_not_listen(self, script, way, caplog):
        begun, released = [], asyncio.Event()

        async def stubborn() -> None:
            begun.append(True)
            while not released.is_set():
                with contextlib.suppress(asyncio.CancelledError):
                    await released.wait()

        agent = script(
            f"""
            from mcp_client import *
            for prompt, entries in turns(http={way == "http"}):
                server = opened(entries[0])
                threading.Thread(target=server.call, args=["stubborn", {{}}], daemon=True).start()
                read_until(is_cancel)
                send(end(prompt, "cancelled"))
            """
        )

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[stubborn])
                async with session.prompt("go"):
                    await until(lambda: begun)
                started = time.monotonic()
                await session.close()
                elapsed = time.monotonic() - started
                released.set()
                return elapsed

        assert run(story()) < 9
        assert "calls of tools that did not end when they were cancelled: 1" in caplog.text

    def test_an_agent_that_dies_ends_what_ran_for_it(self, script):
        ended = []
        begun = threading.Event()

        async def sleeps() -> None:
            begun.set()
            try:
                await asyncio.sleep(60)
            finally:
                ended.append(True)

        @contextlib.asynccontextmanager
        async def held():
            yield sleeps
            ended.append("left")

        agent = script(
            """
            from mcp_client import *
            for prompt, entries in turns(http=True):
                server = opened(entries[0])
                threading.Thread(target=server.call, args=["sleeps", {}], daemon=True).start()
                server.call("die", {})
            """
        )

        def die() -> None:
            assert begun.wait(20)
            psutil.Process(agent.noted("pid")[0]).kill()

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[held(), die])
                with pytest.raises(AgentError) as caught:
                    await session.prompt("go")
                await until(lambda: len(ended) == 2)
                return caught.value.kind

        assert run(story()) == "died"
        assert ended == [True, "left"]


class TestSafety:
    def test_only_who_has_the_token_and_names_the_right_host_is_served(self, script):
        agent = script(calls("http"))
        body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}})

        def status(entry, method="POST", path=None, **changed):
            address = urlsplit(entry["url"])
            connection = http.client.HTTPConnection(address.hostname, address.port, timeout=20)
            right = {header["name"]: header["value"] for header in entry["headers"]}
            headers = {**right, **{name.replace("_", "-"): value for name, value in changed.items()}}
            connection.putrequest(method, path or address.path, skip_host="Host" in headers)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                if value is not None:
                    connection.putheader(name, value)
            connection.endheaders(body.encode())
            answer = connection.getresponse()
            answer.read()
            connection.close()
            return answer.status

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(tools=[add])
                other = await remote.new(tools=[add])
                first, second = (new["params"]["mcpServers"][0] for new in agent.received_of("session/new"))
                token = first["headers"][0]["value"]
                wrong = [
                    ({"Authorization": None}, 401),
                    ({"Authorization": token[:-1]}, 401),
                    ({"Authorization": token.lower()}, 401),
                    ({"Authorization": second["headers"][0]["value"]}, 401),
                    ({"Authorization": "Bearer ü"}, 401),
                    ({"Host": "example.com"}, 421),
                    ({"Host": "localhost"}, 421),
                    ({"Origin": "http://127.0.0.1"}, 403),
                    ({"path": "/"}, 404),
                    ({"method": "GET"}, 405),
                ]
                for changed, expected in wrong:
                    assert await asyncio.to_thread(lambda c=changed: status(first, **c)) == expected, changed
                await session.close()
                with pytest.raises(OSError):
                    await asyncio.to_thread(status, first)
                assert await asyncio.to_thread(lambda: status(second, Authorization=None)) == 401
                await other.close()

        run(story())

    def test_arguments_that_are_too_long_cost_one_call(self, script):
        agent = script(
            """
            from mcp_client import *
            for prompt, entries in turns(http=True):
                server = opened(entries[0])
                note("long", server.call("add", {"a": "x" * 11_000_000})["status"])
                note("deep", server.post("[" * 100_000)[0])
                note("result", server.call("add", {"a": 1}))
                send(end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                await (await remote.new(tools=[add])).prompt("go")

        run(story())
        assert (agent.noted("long"), agent.noted("deep")) == ([413], [400])
        assert told(agent.noted("result")[0]) == "1"

    def test_lines_that_are_no_messages_cost_an_error_each(self, script):
        agent = script(
            """
            from mcp_client import *
            for prompt, entries in turns(http=False):
                server = opened(entries[0])
                long = server.request("tools/call", {"name": "add", "arguments": {"a": "x" * 11_000_000}})
                note("long", server.send(json.dumps(long).encode(), long["id"])["error"]["code"])
                note("deep", server.send(b"[" * 100_000, None)["error"]["code"])
                odd = b'{"jsonrpc":"2.0","id":77,"method":"tools/call","params":3}'
                note("odd", server.send(odd, 77)["error"]["code"])
                note("result", server.call("add", {"a": 1}))
                server.close()
                send(end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                await (await remote.new(tools=[add])).prompt("go")

        run(story())
        assert all(agent.noted(kind)[0] < 0 for kind in ("long", "deep", "odd"))
        assert told(agent.noted("result")[0]) == "1"

    def test_a_program_without_the_right_token_is_sent_away(self, script, caplog):
        agent = script(
            """
            from mcp_client import *
            for prompt, entries in turns(http=False):
                for variable in entries[0]["env"]:
                    if "TOKEN" in variable["name"]: variable["value"] = "x" * 43
                process = subprocess.Popen(
                    [entries[0]["command"], *entries[0]["args"]],
                    env={variable["name"]: variable["value"] for variable in entries[0]["env"]},
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                )
                out, err = process.communicate()
                note("said", [process.returncode, out.decode(), err.decode()])
                send(end(prompt))
            """
        )

        async def story():
            async with agent.connect() as remote:
                await (await remote.new(tools=[add])).prompt("go")

        run(story())
        ((code, out, err),) = agent.noted("said")
        assert (code, out) == (1, "")
        assert "does not know this session" in err
        assert "sent no valid token" in caplog.text

    def test_the_token_is_in_no_argument(self, script):
        agent = script("for prompt in prompts(): pass")

        async def story():
            async with agent.connect() as remote:
                await remote.new(tools=[add])

        run(story())
        (entry,) = agent.received_of("session/new")[0]["params"]["mcpServers"]
        token = next(each["value"] for each in entry["env"] if each["name"] == "COUPLER_SHIM_TOKEN")
        assert len(token) > 30
        assert token not in " ".join([entry["command"], *entry["args"]])


class TestObserving:
    def finished(self, agent, **options):
        seen = []

        async def story():
            async with agent.connect(
                on_event=lambda event: seen.append(event) if isinstance(event, ToolFinished) else None
            ) as remote:
                session = await remote.new(**options)
                await session.prompt("go")

        run(story())
        return [(event.call.id, event.call.status, event.bridged) for event in seen]

    @pytest.mark.parametrize("key", ["claudecode/toolUseId", "progressToken", "vendor.example/tool_call_id"])
    def test_a_call_that_the_agent_reports_too_is_told_once(self, script, key):
        agent = script(
            f"""
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                send(update("tool_call", toolCallId="c1", title="add", status="in_progress"))
                opened(entries[0]).call("add", {{"a": 1}}, _meta={{{key!r}: "c1"}})
                send(update("tool_call_update", toolCallId="c1", status="in_progress"))
                send(update("tool_call_update", toolCallId="c1", status="completed"))
                send(update("tool_call", toolCallId="c2", title="other", status="completed"))
                send(end(prompt))
            """
        )
        calls = self.finished(agent, tools=[add])
        assert calls == [("c1", "completed", True), ("c2", "completed", False)]

    def test_a_call_of_an_agent_of_this_package_is_told_once(self):
        async def turn(turn: Turn) -> None:
            await turn.mcp.call("coupler", "add", {"a": 2})

        seen = []

        async def story():
            async with connect(turn) as agent:
                session = await agent.new(tools=[add], permissions=lambda _: True)
                session.on_event(seen.append)
                return await session.prompt("go")

        (call,) = run(story()).tool_calls
        finished = [event for event in seen if isinstance(event, ToolFinished)]
        assert [(event.call.id, event.bridged) for event in finished] == [(call.id, True)]

    @pytest.mark.parametrize(
        "words",
        [
            {"toolCallId": "c1", "title": "<ours>_add", "rawInput": {"a": 1}},
            {"toolCallId": "c1", "title": "mcp__<ours>__add", "rawInput": {"a": 1}},
            {"toolCallId": "c1", "title": "add (<ours> MCP Server)"},
            {"toolCallId": "c1", "title": "<ours>_add", "rawInput": '{"a": 1}'},
            {"toolCallId": "c1", "title": "Tool: <ours>/add", "rawInput": {"arguments": {"a": 1}}},
            {"toolCallId": "c1", "title": "add", "rawInput": {"tool": "add", "arguments": {"a": 1}}},
            {"toolCallId": "mcp_<ours>_add__mcp_<ours>_add_1794_0"},
        ],
    )
    def test_a_call_that_the_agent_knows_by_another_id_is_told_once(self, script, words):
        agent = script(
            f"""
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                words = json.loads({json.dumps(words)!r}.replace("<ours>", entries[0]["name"]))
                opened(entries[0]).call("add", {{"a": 1}})
                send(update("tool_call_update", status="completed", **words))
                send(update("tool_call_update", status="completed", **{{**words, "toolCallId": "again"}}))
                send(end(prompt))
            """
        )
        _, other = calls = self.finished(agent, tools=[add])
        assert [call[1:] for call in calls] == [("completed", True), ("completed", False)]
        assert other[0] == "again"

    def test_other_calls_are_not_taken_for_ours(self, script):
        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                opened(entries[0]).call("add", {"a": 1})
                ours = entries[0]["name"]
                for number, words in enumerate(
                    [
                        {"title": f"{ours}_add", "rawInput": {"a": 2}},
                        {"title": f"{ours}_read_add", "rawInput": {"a": 1}},
                        {"title": "my_add", "rawInput": {"a": 1}},
                        {"title": "add up", "rawInput": {"a": 1}},
                    ]
                ):
                    send(update("tool_call", toolCallId=f"c{number}", status="completed", **words))
                send(end(prompt))
            """
        )
        calls = self.finished(agent, tools=[add])
        assert [call[2] for call in calls] == [True, False, False, False, False]

    def test_calls_without_an_id_are_told_one_by_one(self, script):
        agent = script(
            """
            from mcp_client import opened, turns
            for prompt, entries in turns(http=True):
                server = opened(entries[0])
                server.call("add", {"a": 1})
                server.call("add", {"a": "x"})
                send(end(prompt))
            """
        )
        (first, *_), (second, *_) = calls = self.finished(agent, tools=[add])
        assert first != second
        assert [call[1:] for call in calls] == [("completed", True), ("failed", True)]


LISTS_LATE = """
import threading, time
from mcp_client import opened, turns

def lists(entry):
    time.sleep(0.3)  # long after the client could have sent its prompt
    server = opened(entry)
    note("seen", [tool["name"] for tool in server.tools()])
    server.ask("prompts/list", {})
    server.close()

while True:
    frame = read()
    if frame.get("method") == "initialize":
        capabilities = {"mcpCapabilities": {"http": HTTP}}
        send(result(frame, {**HELLO, "agentCapabilities": capabilities}))
    elif frame.get("method") == "session/new":
        send(result(frame, {"sessionId": f"s{frame['id']}"}))
        threading.Thread(target=lists, args=frame["params"]["mcpServers"]).start()
    elif frame.get("method") == "session/prompt":
        note("seen", "prompt")
        send(end(frame))
"""

NEVER_LISTS = """
from mcp_client import turns
for prompt, entries in turns(http=True):
    note("seen", "prompt")
    send(end(prompt))
"""


class Waits(Usual):
    """An agent whose first prompt waits for its question about tools."""

    def __init__(self, seconds):
        self.tools_wait = seconds


class TestWaitingForTheAgent:
    """A prompt that comes before the agent has asked for the tools cannot use them."""

    @pytest.mark.parametrize("http", [True, False])
    def test_the_first_prompt_is_sent_when_the_agent_has_the_tools(self, script, http):
        agent = script(LISTS_LATE.replace("HTTP", repr(http)))

        async def story():
            async with agent.connect(quirks=Waits(20.0)) as remote:
                session = await remote.new(tools=[add])
                await session.prompt("go")
                await session.prompt("go on")

        run(story())
        assert agent.noted("seen") == [["add"], "prompt", "prompt"]

    def test_an_agent_that_never_asks_is_waited_for_once(self, script):
        agent = script(NEVER_LISTS)
        waited = []

        async def story():
            async with agent.connect(quirks=Waits(0.5)) as remote:
                for _ in range(3):
                    session = await remote.new(tools=[add])
                    began = time.monotonic()
                    await session.prompt("go")
                    waited.append(time.monotonic() - began >= 0.5)
                    await session.close()

        run(story())
        assert waited == [True, False, False]

    def test_nobody_waits_without_tools(self, script):
        agent = script(NEVER_LISTS)

        async def story():
            async with agent.connect(quirks=Waits(1000.0)) as remote:
                await (await remote.new()).prompt("go")

        run(story())

    def test_a_cancel_ends_the_wait_and_nothing_is_sent(self, script):
        agent = script(NEVER_LISTS)

        async def story():
            async with agent.connect(quirks=Waits(1000.0)) as remote:
                session = await remote.new(tools=[add])
                async with session.prompt("go") as running:
                    await session.cancel()
                    assert (await running).stop_reason == "cancelled"
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.1):
                        await session.prompt("go")
                with pytest.raises(AgentError, match=r"within 0\.1 s") as late:
                    await session.prompt("go", timeout=0.1)
                assert late.value.kind == "deadline"

        run(story())
        assert agent.noted("seen") == []
        assert not agent.received_of("session/cancel")

    def test_an_agent_that_ends_meanwhile_is_told_as_that(self, script):
        agent = script(NEVER_LISTS)

        async def story():
            async with agent.connect(quirks=Waits(1000.0)) as remote:
                session = await remote.new(tools=[add])
                async with session.prompt("go") as running:
                    remote.kill()
                    with pytest.raises(AgentError) as died:
                        await running
            return died.value.kind

        assert run(story()) == "died"
