"""The servers of a session, without a session: their merging, their way in, and who waits for whom."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from coupler.mcp import connection, package
from coupler.mcp.servers import ServerEnvironment, SessionServers, merge_servers
from coupler.mcp.tools import McpError, printable
from coupler.schema.v1 import EnvVariable, McpServerHttp, McpServerStdio

PLAIN = Path(__file__).parent.parent / "agent" / "servers" / "plain.py"


def plain(manner: str = "fine", *arguments: object, name: str = "plain") -> McpServerStdio:
    words = [str(PLAIN), manner, *map(str, arguments)]
    return McpServerStdio(name, sys.executable, words, [])


def session(*servers: McpServerStdio | McpServerHttp) -> SessionServers:
    return SessionServers(merge_servers(servers), ServerEnvironment("/", os.environ))


class TestMerging:
    def test_the_last_source_wins_on_a_name_and_the_order_is_that_of_the_first(self):
        weak, strong = plain("weak", name="a"), plain("strong", name="a")
        found = merge_servers([weak, plain(name="b")], [strong])
        assert [*found] == ["a", "b"]
        assert found["a"] is strong

    def test_another_kind_of_server_replaces_one_too(self):
        far = McpServerHttp("a", "https://example.com", [])
        assert merge_servers([plain(name="a")], [far]) == {"a": far}


class TestSurroundings:
    def test_only_what_every_program_needs_is_inherited(self):
        surroundings = ServerEnvironment("/", {"PATH": "/bin", "HOME": "/h", "AWS_SECRET_ACCESS_KEY": "x"})
        assert surroundings.environment({"OWN": "1"}) == {"PATH": "/bin", "HOME": "/h", "OWN": "1"}

    def test_what_a_server_is_given_comes_first(self):
        assert ServerEnvironment("/", {"PATH": "/bin"}).environment({"PATH": "/own"}) == {"PATH": "/own"}


class TestPackage:
    @pytest.fixture(autouse=True)
    def unremembered(self):
        package.is_installed.cache_clear()
        yield
        package.is_installed.cache_clear()

    def test_it_is_found_without_being_imported(self):
        assert package.is_installed()

    def test_a_directory_that_happens_to_be_called_so_is_none(self, tmp_path, monkeypatch):
        (tmp_path / "mcp").mkdir()
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        monkeypatch.delitem(sys.modules, "mcp", raising=False)
        assert not package.is_installed()

    def test_an_older_version_is_none(self, tmp_path, monkeypatch):
        (tmp_path / "mcp").mkdir()
        (tmp_path / "mcp" / "__init__.py").touch()
        monkeypatch.setattr(sys, "path", [str(tmp_path)])
        monkeypatch.delitem(sys.modules, "mcp", raising=False)
        assert not package.is_installed()


class TestErrors:
    def test_a_name_is_shown_in_one_line_and_not_too_long(self):
        assert printable("a\nb") == r"a\nb"
        assert len(printable("x" * 1000)) == 100

    def test_an_error_survives_a_pipe(self):
        import pickle

        error = pickle.loads(pickle.dumps(McpError("lost", "s", "gone")))
        assert (error.kind, error.server, str(error)) == ("lost", "s", "gone")


class TestSharing:
    def test_who_gives_up_waiting_takes_nothing_from_the_others(self, tmp_path):
        async def story() -> None:
            servers = session(plain("fine", tmp_path / "starts"))
            waiting = [asyncio.ensure_future(servers.tools_of("plain")) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()

            assert [len(tools) for tools in await asyncio.gather(*waiting[1:])] == [1, 1]
            assert len((tmp_path / "starts").read_text().split()) == 1
            await servers.close()

        asyncio.run(story())

    def test_after_the_end_nothing_is_started_any_more(self, tmp_path):
        async def story() -> None:
            servers = session(plain("fine", tmp_path / "starts"))
            await servers.close()

            with pytest.raises(McpError) as caught:
                await servers.tools_of("plain")

            assert caught.value.kind == "lost"
            assert not (tmp_path / "starts").exists()

        asyncio.run(story())

    def test_closing_while_a_server_starts_ends_it_and_the_wait(self):
        async def story() -> None:
            servers = session(plain("mute"))
            starting = asyncio.ensure_future(servers.tools_of("plain"))
            while not servers._connections or servers._connections["plain"]._owner is None:
                await asyncio.sleep(0.01)
            await servers.close()

            with pytest.raises(McpError) as caught:
                await starting
            assert caught.value.kind == "lost"

        asyncio.run(story())

    def test_closing_before_a_server_has_begun_to_start_ends_the_wait(self):
        async def story() -> None:
            servers = session(plain("mute"))
            starting = asyncio.ensure_future(servers.tools_of("plain"))
            while not servers._connections or servers._connections["plain"]._owner is None:
                await asyncio.sleep(0)
            servers._connections["plain"]._owner.cancel()

            with pytest.raises(McpError) as caught:
                await asyncio.wait_for(starting, 10)
            assert caught.value.kind == "lost"
            await servers.close()

        asyncio.run(story())

    def test_closing_that_is_cancelled_leaves_no_process_either(self, tmp_path):
        async def story() -> None:
            before = {*psutil.Process().children()}  # other tests of this worker may have a guard running
            servers = session(plain("mute", tmp_path / "starts"))
            starting = asyncio.ensure_future(servers.tools_of("plain"))
            while not (tmp_path / "starts").exists():
                await asyncio.sleep(0.01)
            closing = asyncio.ensure_future(servers.close())
            await asyncio.sleep(0)
            closing.cancel()
            await asyncio.gather(starting, closing, return_exceptions=True)

            async with asyncio.timeout(10):
                while {*psutil.Process().children()} - before:
                    await asyncio.sleep(0.01)

        asyncio.run(story())

    def test_a_server_whose_variables_changed_is_another_one(self):
        async def story() -> None:
            servers = session(plain())
            before = (await servers.call("plain", "pids", {}, 10)).text
            entry = McpServerStdio("plain", sys.executable, plain().args, [EnvVariable("A", "1")])

            await servers.replace(merge_servers([entry]))

            assert (await servers.call("plain", "pids", {}, 10)).text != before
            await servers.close()

        asyncio.run(story())


class TestAnswers:
    @pytest.mark.parametrize(
        "head",
        [
            b"content-type: application/json\r\n\r\n",
            b"content-type: application/json\r\ncontent-encoding: gzip\r\ncontent-length: 3\r\n\r\nabc",
        ],
    )
    def test_an_answer_without_end_or_one_that_could_grow_is_not_read(self, head):
        async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\n" + head)
            try:
                while b"gzip" not in head:
                    writer.write(b" " * 65536)
                    await writer.drain()
            except ConnectionError:
                pass
            writer.close()

        async def story() -> None:
            server = await asyncio.start_server(answer, "127.0.0.1", 0)
            port = server.sockets[0].getsockname()[1]
            servers = session(McpServerHttp("far", f"http://127.0.0.1:{port}/", []))
            async with asyncio.timeout(20):
                with pytest.raises(McpError) as caught:
                    await servers.tools_of("far")
            assert str(caught.value).startswith("the MCP server `far` could not be reached")
            await servers.close()
            server.close()

        asyncio.run(story())


FLOODING = """
import itertools, json, os, sys

def send(**frame):
    os.write(1, json.dumps({"jsonrpc": "2.0", **frame}).encode() + b"\\n")

def next_message():
    return json.loads(sys.stdin.buffer.readline())

while True:
    message = next_message()
    id, params = message.get("id"), message.get("params", {})
    match message["method"]:
        case "initialize":
            capabilities = {"capabilities": {"tools": {}}, "serverInfo": {"name": "f", "version": "1"}}
            send(id=id, result={"protocolVersion": "2025-11-25", **capabilities})
        case "tools/list":
            page = int(params.get("cursor") or 0)
            tool = {"name": f"t{page}", "description": "x" * 4_000_000, "inputSchema": {"type": "object"}}
            result = {"tools": [tool], "nextCursor": f"{page + 1}"}
            print(json.dumps({"jsonrpc": "2.0", "id": id, "result": result}), flush=True)
        case "tools/call" if params["name"] == "asks":
            for number in range(3000) if "reads" in params["arguments"] else itertools.count():
                send(id=f"p{number}", method="ping")
            for _ in range(3000):
                next_message()
            send(id=id, result={"content": [{"type": "text", "text": "read"}]})
        case _ if id is not None:
            send(id=id, error={"code": -32601, "message": "unknown"})
"""


class TestFloods:
    def server(self, tmp_path: Path) -> SessionServers:
        program = tmp_path / "flooding.py"
        program.write_text(FLOODING)
        return session(McpServerStdio("flooding", sys.executable, [str(program)], []))

    def test_a_server_that_asks_and_reads_no_answer_is_held_up_and_a_cancel_does_not_wait_for_it(
        self, tmp_path, monkeypatch
    ):
        monkeypatch.setattr(connection, "MOST_REQUESTS", 20)

        async def story() -> None:
            servers = self.server(tmp_path)
            call = asyncio.create_task(servers.call("flooding", "asks", {}, 60))
            async with asyncio.timeout(60):
                while len(asyncio.all_tasks()) < 20:
                    await asyncio.sleep(0.01)
            for _ in range(100):
                await asyncio.sleep(0.01)
                assert len(asyncio.all_tasks()) < 60, "each request of it is a task"
            call.cancel()
            async with asyncio.timeout(4):
                await asyncio.wait([call])
            await servers.close()

        asyncio.run(story())

    def test_a_server_that_reads_its_answers_late_goes_on(self, tmp_path):
        async def story() -> None:
            servers = self.server(tmp_path)
            result = await servers.call("flooding", "asks", {"reads": True}, 60)
            assert result.text == "read"
            await servers.close()

        asyncio.run(story())

    def test_tools_that_are_too_long_together_are_refused(self, tmp_path):
        async def story() -> None:
            servers = self.server(tmp_path)
            with pytest.raises(McpError, match="16,777,216 characters: that is too many"):
                await servers.tools_of("flooding")
            await servers.close()

        asyncio.run(story())
