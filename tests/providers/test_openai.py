"""Models behind an address: streamed answers, tools in a loop, and what servers do wrong."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from client.stage import run
from coupler import AgentError, Policy, connect
from coupler.client.reply import Reply
from coupler.events import Text
from coupler.mcp.tools import ToolResult
from coupler.providers import OpenAI
from coupler.schema.v1 import ImageContent, McpServerStdio, TextContent
from labs import scripted_model
from providers.model_server import ModelServer, Prepared, calls, recording, text
from raw_client import serve
from tables import table


def price(name: str, count: int = 1) -> str:
    """The price of something.

    In cents.
    """
    if name == "gold":
        raise LookupError("gold is not for sale")
    return f"{name} costs {count * 250}"


async def weather(city: str) -> dict[str, Any]:
    """The weather in a city."""
    return {"city": city, "sunny": True}


def ask(server: ModelServer, *prompts: Any, policy: Policy | None = None, **options: Any) -> list[Reply]:
    """The replies to prompts of one session."""

    async def story() -> list[Reply]:
        async with connect(OpenAI(model="m", base_url=server.url, **options)) as remote:
            session = await remote.new(permissions=policy)
            return [await session.prompt(prompt) for prompt in prompts]

    return run(story())


def failure(server: ModelServer, **options: Any) -> str:
    with pytest.raises(AgentError) as caught:
        ask(server, "hello", **options)
    return caught.value.message


def test_an_answer_streams_and_the_conversation_is_sent_again() -> None:
    with ModelServer(text("Hel", "lo."), text("Good", "bye.")) as server:
        first, second = ask(server, "hi", "bye", system_prompt="Be brief.", options={"temperature": 0})

    assert (first.text, second.text) == ("Hello.", "Goodbye.")
    assert server.requests[0] == {
        "path": "/v1/chat/completions",
        "model": "m",
        "messages": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hi"}],
        "stream": True,
        "stream_options": {"include_usage": True},
        "temperature": 0,
    }
    assert server.requests[1]["messages"][1:] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "bye"},
    ]


@pytest.mark.parametrize("name", ["openai-current", "openai-old"])
def test_a_recorded_stream_with_a_tool_is_played_to_its_end(name: str) -> None:
    with ModelServer(recording(name), recording("openai-whole")) as server:
        (reply,) = ask(server, "How much is tea?", tools=[price], allowed_tools=["price"])

    assert reply.text.endswith("\n\nAll at once.")
    (call,) = reply.tool_calls
    assert (call.title, call.name, call.status, call.raw_input) == (
        "price",
        "price",
        "completed",
        {"name": "tea"},
    )
    assert call.raw_output == "tea costs 250"
    assert server.requests[0]["tools"] == [
        {
            "type": "function",
            "function": {
                "name": "price",
                "description": "The price of something.\n\nIn cents.",
                "parameters": {
                    "type": "object",
                    "properties": {"name": {"type": "string"}, "count": {"type": "integer", "default": 1}},
                    "required": ["name"],
                    "additionalProperties": False,
                },
            },
        }
    ]
    id = "call_price" if name == "openai-current" else "call_1"
    assert call.id == id
    assert server.requests[1]["messages"][-1] == {
        "role": "tool",
        "tool_call_id": id,
        "content": "tea costs 250",
    }
    if name == "openai-current":
        usage = reply.usage
        assert reply.thoughts == "Look first."
        assert (usage.input, usage.output, usage.cached_read, usage.thought, usage.total) == (
            50,
            33,
            60,
            10,
            153,
        )
        assert (usage.cost, usage.currency) == (0.002, "USD")


def test_whatever_goes_wrong_in_a_tool_is_told_to_the_model() -> None:
    wanted = calls(
        ("c1", "price", '{"name": "gold"}'),
        ("c2", "price", '{"name": 5, "count": "many"}'),
        ("c3", "price", "{broken"),
        ("c4", "steal", "{}"),
        ("c5", "weather", '{"city": "Rome"}'),
    )
    with ModelServer(wanted, text("I see.")) as server:
        (reply,) = ask(server, "Buy", tools=[price, weather], allowed_tools=["price", "weather"])

    told = [message["content"] for message in server.requests[1]["messages"][-5:]]
    assert told[0] == "Error: LookupError: gold is not for sale"
    assert "Expected `int`" in told[1] or "Expected `str`" in told[1]
    assert "Expected `object`" in told[2]
    assert told[3] == "Error: LookupError: there is no tool 'steal'"
    assert json.loads(told[4]) == {"city": "Rome", "sunny": True}
    assert [call.status for call in reply.tool_calls] == ["failed", "failed", "failed", "failed", "completed"]


def test_what_a_tool_returns_is_told_as_it_is_to_other_agents() -> None:
    def buy(amount: int = 1, wishes: list[str] = ["fresh"]) -> None:  # noqa: B006 - as users write it
        """Buy.

        Args:
            amount: how many
        """

    def fail() -> ToolResult:
        return ToolResult((TextContent("sold out"),), is_error=True)

    wanted = calls(("c1", "buy", "{}"), ("c2", "fail", "{}"))
    with ModelServer(wanted, text("So be it.")) as server:
        (reply,) = ask(server, "Buy", tools=[buy, fail], allowed_tools=["buy", "fail"])

    offered = server.requests[0]["tools"][0]["function"]
    assert offered["description"] == "Buy."
    assert offered["parameters"]["properties"]["amount"]["description"] == "how many"
    told = [message["content"] for message in server.requests[1]["messages"][-2:]]
    assert told == ["done", "Error: sold out"]
    assert [call.status for call in reply.tool_calls] == ["completed", "failed"]


def test_a_tool_that_is_not_allowed_is_asked_about() -> None:
    wanted = calls(("c1", "price", '{"name": "tea"}'))
    ways = (
        (Policy.deny_all(), "it was not allowed", "failed"),
        (Policy.allow_all(), "tea costs 250", "completed"),
    )
    for policy, expected, status in ways:
        with ModelServer(wanted, text("So be it.")) as server:
            (reply,) = ask(server, "Buy", tools=[price], policy=policy)
        assert expected in server.requests[1]["messages"][-1]["content"]
        assert reply.tool_calls[0].status == status


def test_tools_of_mcp_servers_are_offered_and_used(tmp_path: Path) -> None:
    program = tmp_path / "server.py"
    program.write_text(MCP_SERVER)
    server_of_tools = McpServerStdio("ex-changes", sys.executable, [str(program)], [])
    wanted = calls(
        ("c1", "ex-changes__rate", '{"currency": "EUR"}'), ("c2", "ex-changes__rate", '{"currency": "E')
    )

    async def story(url: str) -> Reply:
        async with connect(OpenAI(model="m", base_url=url)) as remote:
            session = await remote.new(mcp_servers=[server_of_tools], permissions=Policy.allow_all())
            return await session.prompt("The rate?")

    with ModelServer(wanted, text("1.1")) as server:
        reply = run(story(server.url))

    assert [tool["function"]["name"] for tool in server.requests[0]["tools"]] == ["ex-changes__rate"]
    told = [message["content"] for message in server.requests[1]["messages"][-2:]]
    assert told == ["EUR: 1.1", "Error: TypeError: a tool's arguments are a mapping, not str"]
    assert [(call.name, call.status) for call in reply.tool_calls] == [("mcp__ex-changes__rate", "completed")]


def test_a_model_that_never_stops_calling_is_stopped() -> None:
    with ModelServer(calls(("c1", "price", '{"name": "tea"}'))) as server:
        (reply,) = ask(server, "Buy", tools=[price], allowed_tools=["price"], max_rounds=3)

    assert reply.stop_reason == "max_turn_requests"
    assert len(server.requests) == 3
    assert len({call.id for call in reply.tool_calls}) == 3


@pytest.mark.parametrize(("finish", "reason"), [("length", "max_tokens"), ("content_filter", "refusal")])
def test_finish_reasons_are_stop_reasons(finish: str, reason: str) -> None:
    with ModelServer(text("Half", finish_reason=finish)) as server:
        (reply,) = ask(server, "hello")

    assert (reply.text, reply.stop_reason) == ("Half", reason)


def test_an_answer_as_one_object_is_read_too() -> None:
    (whole,) = recording("openai-whole").payloads
    with ModelServer(Prepared([whole], streamed=False)) as server:
        (reply,) = ask(server, "hello")

    assert (reply.text, reply.usage.total, reply.usage.cost) == ("All at once.", 13, 0.002)


def test_the_form_of_the_answer_and_images_are_part_of_the_request() -> None:
    schema = {"type": "object", "properties": {}}
    with ModelServer(text("{}")) as server:
        ask(server, ["What is it?", ImageContent("iVBO", "image/png")], output_schema=schema)

    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    assert server.requests[0]["response_format"] == form
    assert server.requests[0]["messages"][-1]["content"] == [
        {"type": "text", "text": "What is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}},
    ]


def test_a_cancel_drops_the_connection_and_keeps_what_was_said() -> None:
    pieces = [{"choices": [{"index": 0, "delta": {"content": "I begin"}}]}]

    async def story(server: ModelServer) -> None:
        async with connect(OpenAI(model="m", base_url=server.url)) as remote:
            session = await remote.new()
            async for event in session.prompt("hello"):
                if isinstance(event, Text):
                    break
            await session.cancel()
            assert await asyncio.to_thread(server.left.wait, 10)
            assert (await session.prompt("again")).text == "Done."

    with ModelServer(Prepared(pieces, hangs=True), text("Done.")) as server:
        run(story(server))

    assert [message["content"] for message in server.requests[1]["messages"]] == ["hello", "I begin", "again"]


def test_the_conversation_is_there_after_a_restart(tmp_path: Path) -> None:
    agent = tmp_path / "agent.py"
    with ModelServer(text("One."), text("Two.")) as server:
        agent.write_text(
            f"from coupler.providers import OpenAI\nagent = OpenAI(model='m', base_url={server.url!r})\n"
        )
        with serve(agent) as client:
            client.initialize()
            session = client.new_session(str(tmp_path))
            client.prompt(session, "one")
        with serve(agent) as client:
            client.initialize()
            client.call("session/load", {"sessionId": session, "cwd": str(tmp_path), "mcpServers": []})
            client.prompt(session, "two")

    assert [message["content"] for message in server.requests[1]["messages"]] == ["one", "One.", "two"]


def test_a_busy_server_is_tried_again_and_then_given_up() -> None:
    busy = Prepared([{"error": {"message": "slow down"}}], 429, {"Retry-After": "0.01"}, streamed=False)
    with ModelServer(busy, busy, text("Now.")) as server:
        (reply,) = ask(server, "hello")
        assert reply.text == "Now."
    with ModelServer(busy) as server:
        message = failure(server)
        assert len(server.requests) == 3
    assert "status 429" in message
    assert "slow down" in message


@table(
    ("answer", "expected"),
    [
        (Prepared([{"error": {"message": "bad key"}}], 401, streamed=False), "OPENAI_API_KEY"),
        (Prepared([{"detail": "no such model"}], 404, streamed=False), "no such model"),
        (Prepared([b"<html>"], 400, streamed=False), "status 400"),
        (Prepared([b"\xff\xfe", b"", b"[]"]), "The model answered nothing"),
        (recording("openai-failed"), "The model is overloaded"),
        (text("Hel", "lo")._replace(breaks=True), "ended its answer in the middle"),
    ],
)
def test_what_a_server_does_wrong_is_said_in_words(answer: Prepared, expected: str) -> None:
    with ModelServer(answer) as server:
        assert expected in failure(server)
        assert len(server.requests) == 1


def test_a_prompt_that_was_never_answered_is_no_part_of_the_conversation() -> None:
    async def story(url: str) -> None:
        async with connect(OpenAI(model="m", base_url=url)) as remote:
            session = await remote.new()
            with pytest.raises(AgentError, match="status 400"):
                await session.prompt("first")
            await session.prompt("second")

    with ModelServer(Prepared([{}], 400, streamed=False), text("Yes.")) as server:
        run(story(server.url))

    assert server.requests[1]["messages"] == [{"role": "user", "content": "second"}]


def test_a_server_that_is_not_there_is_named() -> None:
    with ModelServer(text("x")) as server:
        pass

    assert "cannot be reached" in failure(server)


def test_model_address_and_key_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    secret = "sk-4f9a8c7be2d1"

    async def story() -> Reply:
        async with connect(OpenAI) as remote:
            return await (await remote.new()).prompt("hello")

    with pytest.raises(AgentError, match="No model is named: set OPENAI_MODEL"):
        run(story())
    monkeypatch.setenv("OPENAI_MODEL", "m-1")
    with pytest.raises(AgentError, match="no key for OpenAI"):
        run(story())
    with ModelServer(text(f"Your key is {secret}.")) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", secret)
        reply = run(story())

    assert server.requests[0]["model"] == "m-1"
    assert server.heads[0]["Authorization"] == f"Bearer {secret}"
    assert secret not in reply.text


def test_a_key_that_was_given_is_masked() -> None:
    secret = "sk-77aa8c7be2d1"
    with ModelServer(text(f"Your key is {secret}.")) as server:
        (reply,) = ask(server, "hello", api_key=secret)

    assert server.heads[0]["Authorization"] == f"Bearer {secret}"
    assert secret not in reply.text


def test_a_model_server_that_others_wrote_tests_for_is_answered_too() -> None:
    def write(filePath: str, content: str) -> str:  # noqa: N803 - the scripted model's own names
        """Write a file."""
        return f"{filePath}: {content}"

    running = scripted_model.serve()
    address = f"http://127.0.0.1:{running.server_address[1]}/v1"

    async def story() -> Reply:
        agent = OpenAI(model=scripted_model.MODEL, base_url=address, tools=[write], allowed_tools=["write"])
        async with connect(agent) as remote:
            return await (await remote.new()).prompt("Please write it")

    try:
        reply = run(story())
    finally:
        running.shutdown()
        running.server_close()

    assert reply.text.startswith("I write it. \n\nThe tool has answered")
    assert reply.tool_calls[0].raw_output == "note.txt: written\n"
    assert reply.usage.total == 30


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"options": {"temprature": 1}}, "no option 'temprature'"),
        ({"tools": [price, price]}, "two tools of the name `price`"),
        ({"tools": [lambda: 1]}, "no name for a tool"),
    ],
)
def test_what_a_request_cannot_hold_is_refused_at_once(options: dict[str, Any], message: str) -> None:
    with pytest.raises((ValueError, TypeError), match=message):
        OpenAI(**options)


MCP_SERVER = """
import json, sys
for line in sys.stdin:
    request = json.loads(line)
    if "id" not in request:
        continue
    match request["method"]:
        case "initialize":
            version = request["params"]["protocolVersion"]
            info = {"name": "exchange", "version": "1"}
            result = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": info}
        case "tools/list":
            schema = {"type": "object", "properties": {"currency": {"type": "string"}}}
            result = {"tools": [{"name": "rate", "description": "The rate.", "inputSchema": schema}]}
        case "tools/call":
            text = request["params"]["arguments"]["currency"] + ": 1.1"
            result = {"content": [{"type": "text", "text": text}]}
        case _:
            result = {}
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
"""
