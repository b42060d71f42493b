"""What tools put out before their end, whichever way LangGraph has for it."""

import asyncio

import pytest
from langchain.agents import create_agent
from langchain.tools import ToolRuntime
from langchain_core.tools import tool

from client.stage import run
from coupler import connect
from coupler.langchain import tool_calls
from labs.langchain.scripted_model import ScriptedModel, call


@tool
async def on_the_loop(runtime: ToolRuntime) -> str:
    """Put out something, as a coroutine."""
    runtime.emit_output_delta("half way ")
    for _ in range(100):  # what comes by the stream is read while a tool works
        await asyncio.sleep(0)
    return "done"


@tool
def in_a_thread(runtime: ToolRuntime) -> str:
    """Put out something, as a plain function."""
    runtime.emit_output_delta("half way ")
    return "done"


def shown_of(tool):
    async def talk():
        graph = create_agent(ScriptedModel(script=[[call(tool.name, "c")], ["Done."]]), [tool])
        async with connect(graph) as agent:
            return await (await agent.new()).prompt("hello")

    (shown,) = run(talk()).tool_calls
    return [item.content for item in shown.content]


def output_of(tool):
    return "".join(block.text for block in shown_of(tool))


@pytest.mark.parametrize("tool", [on_the_loop, in_a_thread], ids=lambda tool: tool.name)
def test_what_a_tool_puts_out_early_is_shown(tool):
    assert output_of(tool).startswith("half way ")


def test_what_is_no_text_is_shown_as_what_it_is():
    @tool
    async def drawing(runtime: ToolRuntime) -> str:
        """Put out a picture and a number."""
        runtime.emit_output_delta({"type": "image", "base64": "aaaa", "mime_type": "image/gif"})
        runtime.emit_output_delta({"done": 1})
        return "drawn"

    picture, text = shown_of(drawing)

    assert (picture.data, picture.mime_type) == ("aaaa", "image/gif")
    assert text.text == '{"done": 1}drawn'


def test_a_langgraph_that_has_the_place_elsewhere_is_asked_for_its_stream(monkeypatch):
    monkeypatch.setattr(tool_calls, "_writer_variable", None)
    monkeypatch.setattr(tool_calls, "HAS_OUTPUT_WRITER", False)

    assert output_of(on_the_loop).startswith("half way ")
