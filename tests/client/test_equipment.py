"""MCP servers that a user gives for a session: passed on, bridged, or refused."""

import socket
import subprocess
import sys
from pathlib import Path

import pytest

from client.stage import run
from coupler import AgentError
from coupler.client import resources
from coupler.client.resources import ServerNames, ToolResources
from coupler.mcp import package
from coupler.mcp.servers import ServerEnvironment, SessionServers, merge_servers
from coupler.mcp.tool_names import written_name
from coupler.schema.v1 import (
    EnvVariable,
    HttpHeader,
    McpCapabilities,
    McpServerHttp,
    McpServerSse,
    McpServerStdio,
)

SHOP = Path(__file__).parent.parent / "agent" / "servers" / "shop.py"

VISITS = """
from mcp_client import opened, turns
for prompt, entries in turns({takes}):
    for entry in entries:
        server = opened(entry)
        note("tools", [tool["name"] for tool in server.tools()])
        note("result", server.call("price", {{"item": "tea"}}))
        note("refused", server.call("refuse", {{}}))
        server.close()
    send(end(prompt))
"""


@pytest.fixture
def shop(request):
    """A server behind an address on loopback; the parameter is the transport."""
    with subprocess.Popen(
        [sys.executable, str(SHOP), request.param], stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            port = int(process.stdout.readline())
            if request.param == "sse":
                yield McpServerSse("shop", f"http://127.0.0.1:{port}/sse", [])
            else:
                yield McpServerHttp("shop", f"http://127.0.0.1:{port}/mcp", [])
        finally:
            process.kill()


async def visited(agent, *servers, **options):
    async with agent.connect() as remote:
        session = await remote.new(mcp_servers=servers, **options)
        await session.prompt("go")


def entries(agent):
    return agent.received_of("session/new")[0]["params"]["mcpServers"]


class TestBridging:
    @pytest.mark.parametrize("shop", ["http", "sse"], indirect=True)
    def test_an_agent_that_takes_only_programs_reaches_a_server_behind_an_address(self, script, shop):
        agent = script(VISITS.format(takes=""))

        run(visited(agent, shop))

        assert "price" in agent.noted("tools")[0]
        assert agent.noted("result")[0]["content"][0]["text"] == "tea: 3 EUR"
        assert agent.noted("refused")[0]["isError"]
        (entry,) = entries(agent)
        assert (entry["name"], "url" in entry) == ("shop", False)

    def test_a_server_that_cannot_be_reached_is_an_error_for_who_asks(self, script):
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        agent = script(
            """
            from mcp_client import VERSION, Program, turns
            for prompt, entries in turns():
                for entry in entries:
                    server = Program(entry)
                    me = {"name": "scripted", "version": "1"}
                    hello = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": me}
                    note("hello", server.ask("initialize", hello))
                    server.close()
                send(end(prompt))
            """
        )
        address = f"http://127.0.0.1:{port}/"

        run(visited(agent, McpServerHttp("far", address, []), McpServerSse("older", address, [])))

        first, second = agent.noted("hello")
        assert "error" in first
        assert "error" in second
        assert "`older`" in second["error"]["message"]

    def test_headers_stay_here(self, script):
        agent = script(VISITS.format(takes="http=False"))
        secret = HttpHeader("Authorization", "Bearer of-a-secret")

        async def story():
            async with agent.connect() as remote:
                await remote.new(mcp_servers=[McpServerHttp("far", "https://example.com/mcp", [secret])])

        run(story())
        assert "of-a-secret" not in str(entries(agent))

    def test_an_address_that_is_none_is_refused_before_anything_is_sent(self, script):
        agent = script(VISITS.format(takes=""))

        with pytest.raises(ValueError, match="must begin with https:// or http://"):
            run(visited(agent, McpServerHttp("far", "ftp://example.com", [])))

        assert not agent.received_of("session/new")


class TestPassingOn:
    def test_what_the_agent_takes_is_passed_on_as_it_is(self, script):
        agent = script("from mcp_client import turns\nfor prompt, _ in turns(http=True): send(end(prompt))")
        far = McpServerHttp("far", "https://example.com/mcp", [HttpHeader("A", "b")])
        near = McpServerStdio("near", "server", ["--fast"], [])
        older = McpServerSse("older", "https://example.com/sse", [])

        def add() -> None: ...

        run(visited(agent, near, older, far, tools=[add]))

        ours, *others = [(entry["name"], entry.get("type")) for entry in entries(agent)]
        assert (written_name(ours[0]), ours[1]) == ("coupler", "http")
        assert others == [
            ("near", None),
            ("older", None),
            ("far", "http"),
        ]
        assert entries(agent)[-1]["headers"] == [{"name": "A", "value": "b"}]

    def test_a_session_that_needs_nothing_of_it_does_not_load_the_package(self, script, monkeypatch):
        monkeypatch.setattr(resources, "load_loopback", None)
        agent = script("for prompt in prompts(): send(end(prompt))")

        run(visited(agent, McpServerStdio("near", "server", [], [])))

        assert [entry["name"] for entry in entries(agent)] == ["near"]


class TestWithoutThePackage:
    @pytest.fixture(autouse=True)
    def missing(self, monkeypatch):
        """The packages of `coupler[mcp]` are not installed."""
        monkeypatch.setattr(package, "_loopback", None)
        monkeypatch.setattr(resources, "is_installed", lambda: False)
        monkeypatch.setitem(sys.modules, "mcp.server.lowlevel.server", None)

    def test_a_server_that_would_have_to_be_bridged_is_refused(self, script):
        agent = script(VISITS.format(takes=""))

        with pytest.raises(AgentError, match=r"no MCP servers over http: 'far'.*pip install .coupler\[mcp\]"):
            run(visited(agent, McpServerHttp("far", "https://example.com", [])))

        assert not agent.received_of("session/new")

    def test_functions_say_what_to_install(self, script):
        def add() -> None: ...

        agent = script(VISITS.format(takes=""))

        with pytest.raises(ImportError, match=r'pip install "coupler\[mcp\]"'):
            run(visited(agent, tools=[add]))

        assert not agent.received_of("session/new")

    def test_typed_answers_come_as_text(self, script):
        agent = script("for prompt in prompts(): send(say('[1]'), end(prompt))")

        async def story():
            async with agent.connect() as remote:
                session = await remote.new(output=list[int])
                return await session.prompt("go", output=list[int])

        reply = run(story())
        assert (reply.output, reply.output_way) == ([1], "text")
        assert entries(agent) == []


class TestOtherClients:
    """The clients of the `mcp` package, which speak newer versions of it than scripts do."""

    async def used(self, entries, name, tool, arguments):
        servers = SessionServers(merge_servers(entries), ServerEnvironment("/", {}))
        try:
            tools = await servers.tools_of(name)
            result = await servers.call(name, tool, arguments, 20)
            return [each.name for each in tools], result.text
        finally:
            await servers.close()

    @pytest.mark.parametrize("over_http", [True, False])
    def test_tools_of_ours_are_used(self, script, over_http):
        def add(a: int, b: int) -> int:
            return a + b

        agent = script(VISITS.format(takes=f"http={over_http}"))

        async def story():
            async with agent.connect() as remote:
                await remote.new(tools=[add])
                (entry,) = entries(agent)
                return await self.used([entry_of(entry)], "coupler", "add", {"a": 1, "b": 2})

        assert run(story()) == (["add"], "3")

    @pytest.mark.parametrize("shop", ["http", "sse"], indirect=True)
    def test_a_bridge_is_used(self, shop):
        async def story():
            opened = ToolResources([], [shop], None)
            entries = await opened.open(McpCapabilities(), ServerNames())
            try:
                return await self.used(entries, "shop", "price", {"item": "tea"})
            finally:
                await opened.close()

        tools, text = run(story())
        assert "price" in tools
        assert text == "tea: 3 EUR"


def entry_of(raw):
    """An entry as an agent reads it."""
    if raw.get("type") == "http":
        return McpServerHttp(raw["name"], raw["url"], [HttpHeader(**header) for header in raw["headers"]])
    return McpServerStdio(
        raw["name"], raw["command"], raw["args"], [EnvVariable(**variable) for variable in raw["env"]]
    )
