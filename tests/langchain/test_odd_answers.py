"""Answers of models that come in pieces as some providers send them."""

import pytest
from langchain.agents import create_agent
from langchain_core.messages import AIMessageChunk
from langchain_core.tools import tool

from client.stage import run
from coupler import connect
from coupler.agent.content import LONGEST_PIECE
from coupler.events import Text
from labs.langchain.scripted_model import ScriptedModel


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def piece(index=0, **known):
    chunk = {"name": None, "args": None, "id": None, "index": index, "type": "tool_call_chunk", **known}
    return AIMessageChunk(content="", tool_call_chunks=[chunk])


def blocks(*content):
    return AIMessageChunk(content=[*content], response_metadata={"output_version": "v1"})


def answered(*answers):
    """The reply to a prompt, and all that was told of it."""

    async def talk():
        async with connect(create_agent(ScriptedModel(script=[*answers]), [add])) as agent:
            prompt = (await agent.new()).prompt("hello")
            events = [event async for event in prompt]
            return await prompt, events

    return run(talk())


@pytest.mark.parametrize(
    "pieces",
    [
        [piece(name="add"), piece(id="c", args='{"a": 1, '), piece(args='"b": 2}')],
        [piece(id="c"), piece(name="add", args='{"a": 1, "b": 2}')],
        [piece(index=None, id="c", name="add", args='{"a": 1, "b": 2}')],
    ],
    ids=["the name first", "the id first", "no index"],
)
def test_a_call_is_shown_once_its_name_and_id_are_known(pieces):
    reply, _ = answered(pieces, ["Done."])

    (call,) = reply.tool_calls
    assert (call.id, call.name, call.status) == ("c", "add", "completed")
    assert call.raw_input == {"a": 1, "b": 2}


def test_a_long_text_comes_in_pieces():
    text = "x" * (LONGEST_PIECE + 1)

    reply, events = answered([text])

    assert reply.text == text
    assert [len(event.text) for event in events if isinstance(event, Text)] == [LONGEST_PIECE, 1]


def test_a_refusal_beside_the_content_is_said():
    reply, _ = answered([AIMessageChunk(content=[], additional_kwargs={"refusal": "I would rather not."})])

    assert reply.text == "I would rather not."


def test_the_result_of_a_provider_s_tool_is_found_by_its_call():
    use = {"type": "server_tool_call", "id": "s", "name": "web_search", "args": {"query": "tea"}}
    result = {"type": "server_tool_result", "tool_call_id": "s", "status": "error", "output": "none"}
    nobody_s = {"type": "server_tool_result", "status": "success", "output": "of nothing"}

    reply, _ = answered([blocks(use), blocks(nobody_s), blocks(result), "Done."])

    assert [(call.id, call.name, call.status) for call in reply.tool_calls] == [("s", "web_search", "failed")]
