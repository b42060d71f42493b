"""Tools of MCP servers as LangChain tools, without a session: names, results, errors, and their end."""

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from langchain_core.tools import ToolException

from coupler.langchain.mcp_tools import LONGEST_NAME, ToolNames, checked_prefix, load_mcp_tools
from coupler.mcp.tools import Tool
from labs.langchain.scripted_model import ScriptedModel, call
from tables import table

SERVERS = Path(__file__).parent.parent / "agent" / "servers"
CLERK = {"command": sys.executable, "args": [str(SERVERS / "clerk.py")]}
PLAIN = {"command": sys.executable, "args": [str(SERVERS / "plain.py"), "fine"]}
EXITS = {"command": sys.executable, "args": [str(SERVERS / "plain.py"), "exit"]}

pytestmark = pytest.mark.usefixtures("unmeasured")


def tools(*pairs):
    return [Tool(server, name, "", {"type": "object"}) for server, name in pairs]


class TestNames:
    @table(
        ("prefix", "pairs", "taken", "names"),
        [
            ("collision", [("a", "x"), ("b", "y")], (), ["x", "y"]),
            ("collision", [("a", "x"), ("b", "x")], (), ["a_x", "b_x"]),
            ("collision", [("a", "x"), ("b", "y")], ("x",), ["a_x", "y"]),
            ("collision", [("a", "x.y"), ("b", "x/y")], (), ["a_x_y", "b_x_y"]),
            ("always", [("a", "x"), ("b", "y")], (), ["a_x", "b_y"]),
            ("never", [("a", "x"), ("b", "x")], (), ["x"]),
            ("never", [("a", "x"), ("b", "y")], ("x",), ["y"]),
        ],
    )
    def test_tools_are_prefixed_as_asked(self, prefix, pairs, taken, names):
        assert [*ToolNames(prefix).of(tools(*pairs), taken)] == names

    def test_a_name_that_was_given_stays_when_another_server_comes_later(self):
        names = ToolNames("collision")
        assert [*names.of(tools(("b", "x")))] == ["x"]
        assert {name: tool.server for name, tool in names.of(tools(("a", "x"), ("b", "x"))).items()} == {
            "a_x": "a",
            "x": "b",
        }

    def test_two_that_would_look_alike_even_with_prefixes_are_told_apart(self):
        named = ToolNames("always").of(tools(("a", "b_c"), ("a_b", "c")))
        assert len(named) == 2

    def test_long_names_are_cut_and_stay_apart(self):
        named = ToolNames("collision").of(tools(("a", "x" * 100), ("a", "x" * 101)))
        assert len(named) == 2
        assert max(map(len, named)) <= LONGEST_NAME

    def test_another_word_is_an_error_that_names_the_right_ones(self):
        with pytest.raises(ValueError, match="'collision', 'always', 'never', not 'sometimes'"):
            checked_prefix("sometimes")


def use(name, arguments=None, servers=None, **keywords):
    """The tool message of one use, in a program that is not served."""

    async def story():
        given = {"clerk": CLERK} if servers is None else servers
        async with load_mcp_tools(given, configured=False, **keywords) as loaded:
            tool = {tool.name: tool for tool in loaded}[name]
            call = {"name": name, "args": arguments or {}, "id": "c1", "type": "tool_call"}
            return await tool.ainvoke(call)

    return asyncio.run(story())


class TestUse:
    def test_text_is_a_text_and_arguments_may_be_called_like_anything(self):
        message = use("self", {"self": "me", "config": {"run_manager": 1}})
        assert (message.status, message.tool_call_id) == ("success", "c1")
        assert json.loads(message.content) == {"self": "me", "config": {"run_manager": 1}}

    def test_blocks_of_all_kinds_are_kept_and_structured_content_is_the_artifact(self):
        message = use("show")
        assert message.content == [
            {"type": "text", "text": "some words"},
            {"type": "image", "base64": "aW1hZ2U=", "mime_type": "image/png"},
            {"type": "file", "base64": "c291bmQ=", "mime_type": "audio/wav"},
            {"type": "text", "text": "[Resource: 1](memo://1)\n```\na memo\n```"},
            {"type": "file", "base64": "cGRm", "mime_type": "application/pdf"},
            {"type": "text", "text": "a page: https://example.com/a"},
        ]
        assert message.artifact == {"structured_content": {"answer": 42}}

    def test_an_error_of_the_tool_is_one_that_the_model_reads(self):
        message = use("refuse")
        assert (message.status, message.content) == ("error", "sold out")

    def test_names_that_providers_refuse_are_changed_and_the_server_is_called_by_its_own(self):
        assert use("odd_name_of_a_tool", {"text": "x"}).content == '{"text": "x"}'

    def test_what_a_server_claims_of_its_tool_is_kept(self):
        async def story():
            async with load_mcp_tools({"clerk": CLERK}, configured=False) as loaded:
                return {tool.name: tool.metadata["coupler"] for tool in loaded}["read_memo"]

        about = asyncio.run(story())
        assert (about["server"], about["tool"]) == ("clerk", "read_memo")
        assert about["annotations"]["read_only"] is True

    def test_without_a_call_of_a_model_the_content_is_returned_and_errors_are_raised(self):
        async def story():
            async with load_mcp_tools({"clerk": CLERK}, configured=False) as loaded:
                named = {tool.name: tool for tool in loaded}
                with pytest.raises(ToolException, match="sold out"):
                    await named["refuse"].ainvoke({})
                return await named["read_memo"].ainvoke({"text": "x"})

        assert asyncio.run(story()) == '{"text": "x"}'


class TestServers:
    def test_one_that_fails_costs_only_its_tools(self, caplog):
        async def story():
            async with load_mcp_tools({"bad": EXITS, "plain": PLAIN}, configured=False) as loaded:
                return [tool.name for tool in loaded]

        assert asyncio.run(story()) == ["echo"]
        assert "no licence found" in caplog.text

    def test_they_end_when_the_block_is_left_or_the_loop_ends(self):
        def children():
            living = [each for each in psutil.Process().children() if each.status() != psutil.STATUS_ZOMBIE]
            return [child for child in living if "clerk.py" in " ".join(child.cmdline())]

        async def story():
            async with load_mcp_tools({"clerk": CLERK}, configured=False):
                assert len(children()) == 1
            assert children() == []
            assert len(await load_mcp_tools({"clerk": CLERK}, configured=False)) > 5
            assert len(children()) == 1

        asyncio.run(story())
        assert children() == []

    @pytest.mark.parametrize("transport", ["http", "sse"])
    def test_addresses_are_written_as_here_or_as_in_other_packages(self, transport):
        command = [sys.executable, str(SERVERS / "shop.py"), transport]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            port = int(process.stdout.readline())
            path = "sse" if transport == "sse" else "mcp"
            name = "sse" if transport == "sse" else "streamable_http"
            url = f"http://127.0.0.1:{port}/{path}"
            message = use("price", {"item": "tea"}, {"shop": {"url": url, "transport": name}})
            process.kill()
        assert message.content == "tea: 3 EUR"

    @pytest.mark.parametrize(
        ("server", "problem"),
        [
            ({"comand": "x"}, "`shop`.`comand` is unknown; did you mean `command`"),
            ({"command": "x", "transport": "tcp"}, "`transport` is one of stdio, http"),
            ({"command": "x", "url": "https://example.com"}, "either `command` or `url`"),
        ],
    )
    def test_one_that_is_written_wrongly_is_an_error_that_says_where(self, server, problem):
        with pytest.raises(ValueError) as caught:
            load_mcp_tools({"shop": server}, configured=False)
        assert problem in str(caught.value)

    def test_those_of_the_configuration_are_there_too_and_weaker(self, tmp_path, monkeypatch):
        monkeypatch.setenv("COUPLER_HOME", str(tmp_path))
        args = json.dumps([str(SERVERS / "plain.py"), "fine"])
        table = f"command = {json.dumps(sys.executable)}\nargs = {args}\n"
        (tmp_path / "coupler.toml").write_text(f"[mcp.mine]\n{table}[mcp.clerk]\n{table}")

        async def story():
            async with load_mcp_tools({"clerk": CLERK}, cwd=tmp_path) as loaded:
                return {tool.metadata["coupler"]["server"]: tool.name for tool in loaded}

        assert asyncio.run(story()) == {"mine": "echo", "clerk": "sleep"}


def test_an_agent_uses_them_without_being_served():
    from langchain.agents import create_agent

    async def story():
        async with load_mcp_tools({"clerk": CLERK}, configured=False) as loaded:
            model = ScriptedModel(script=[[call("read_memo", "c1", text="x")], ["done"]])
            result = await create_agent(model, loaded).ainvoke({"messages": [("user", "go")]})
            return [message.content for message in result["messages"]]

    assert asyncio.run(story()) == ["go", "", '{"text": "x"}', "done"]
