"""Tool calls of graphs that are out of the ordinary."""

import asyncio
import json
from dataclasses import dataclass
from typing import Annotated

import pytest
from langchain.agents import create_agent
from langchain.agents.middleware import after_model
from langchain.agents.structured_output import ProviderStrategy, ToolStrategy
from langchain.tools import InjectedToolCallId
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import tool
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.config import get_stream_writer
from langgraph.graph import MessagesState
from langgraph.prebuilt import ToolNode
from langgraph.types import Command
from pydantic import BaseModel

from agent.steps import text_of
from client.stage import run
from coupler import AgentError, acp, connect
from coupler.langchain import tool_guard
from coupler.langchain.checkpoints import copy_thread
from coupler.langchain.tool_calls import STOPPED
from labs.langchain.graphs.shapes import linear
from labs.langchain.scripted_model import ScriptedModel, call
from raw_client import texts
from tables import table


def reply_of(graph):
    async def talk():
        async with connect(graph) as agent:
            session = await agent.new()
            return await session.prompt("hello")

    return run(talk())


def calls_of(reply):
    return {each.name: each for each in reply.tool_calls}


def shown(tool_call):
    return "".join(item.content.text for item in tool_call.content)


def calling(*tools, script=None):
    name = tools[0].name
    return create_agent(ScriptedModel(script=script or [[call(name, "c")], ["Done."]]), [*tools])


@tool
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
async def broken() -> str:
    """Fail, always."""
    raise ValueError("broken")


@tool
async def outer() -> str:
    """Use other tools."""
    try:
        await broken.ainvoke({})
    except ValueError:
        return f"made {await add.ainvoke({'a': 1, 'b': 2})}"
    return "never"


def test_a_tool_that_a_tool_uses_is_a_call_inside_of_it():
    calls = calls_of(reply_of(calling(outer)))

    assert {name: each.status for name, each in calls.items()} == {
        "outer": "completed",
        "broken": "failed",
        "add": "completed",
    }
    assert calls["add"].meta == {"coupler": {"parent": calls["outer"].id}}
    assert shown(calls["add"]) == "3"


@tool
async def writing() -> str:
    """Write into LangGraph's stream."""
    get_stream_writer()("half way ")
    for _ in range(100):  # the stream is read while a tool works
        await asyncio.sleep(0)
    return "there"


def test_text_that_a_tool_writes_into_the_stream_is_its_output():
    assert shown(calls_of(reply_of(calling(writing)))["writing"]) == "half way there"


@tool
def commanding(id: Annotated[str, InjectedToolCallId]) -> Command:
    """Change the state."""
    return Command(update={"messages": [ToolMessage("changed", tool_call_id=id)]})


def test_what_a_tool_answers_in_the_agent_s_place_is_said():
    @tool(return_direct=True)
    async def look_up() -> str:
        """Look it up."""
        return "it is seven"

    reply = reply_of(create_agent(ScriptedModel(script=[[call("look_up", "1")], ["never"]]), [look_up]))

    assert reply.text == "it is seven"


class Weather(BaseModel):
    city: str
    degrees: int


@dataclass
class WeatherRecord:
    city: str
    degrees: int


@pytest.mark.parametrize(
    ("wanted", "answer"),
    [
        (ToolStrategy(Weather), call("Weather", "w", city="Rome", degrees=30)),
        (ToolStrategy(WeatherRecord), call("WeatherRecord", "w", city="Rome", degrees=30)),
        (ProviderStrategy(Weather), '{"city":"Rome","degrees":30}'),
    ],
    ids=["model", "record", "provider"],
)
def test_a_structured_response_is_said_once_however_the_model_gives_it(wanted, answer):
    model = ScriptedModel(script=[[call("add", "a", a=1, b=2)], [answer]])

    reply = reply_of(create_agent(model, [add], response_format=wanted))

    assert reply.text == '{"city":"Rome","degrees":30}'
    assert all(each.status == "completed" for each in reply.tool_calls)


def test_a_tool_that_returns_a_command_has_its_message_as_result():
    [each] = reply_of(calling(commanding)).tool_calls

    assert (each.status, shown(each)) == ("completed", "changed")


def test_a_tool_that_nobody_has_is_a_call_that_fails():
    graph = calling(add, script=[[call("unheard_of", "c")], ["Sorry."]])

    [each] = reply_of(graph).tool_calls

    assert each.status == "failed"
    assert "unheard_of" in shown(each)


def delegating(*tools, script):
    """An agent that has another one do it, whose script this is."""
    inner = create_agent(ScriptedModel(script=script), [*tools])

    @tool
    async def delegate() -> str:
        """Have another agent do it."""
        config = {"recursion_limit": 3}
        return (await inner.ainvoke({"messages": [("user", "go")]}, config))["messages"][-1].text

    return calling(delegate)


def test_a_tool_that_raises_in_the_agent_of_a_tool_fails_with_it():
    script = [[call("broken", "inner"), call("add", "other", index=1, a=1, b=2)]]

    calls = calls_of(reply_of(delegating(broken, add, script=script)))

    assert {name: each.status for name, each in calls.items()} == {
        "delegate": "failed",
        "broken": "failed",
        "add": "completed",
    }
    assert shown(calls["broken"]) in shown(calls["delegate"])


def test_a_call_that_the_agent_of_a_tool_never_came_to_make_fails():
    script = [[call("add", "first", a=1, b=2)], [call("broken", "never")]]

    calls = calls_of(reply_of(delegating(broken, add, script=script)))

    assert (calls["add"].status, calls["broken"].status) == ("completed", "failed")
    assert "stopped before" in shown(calls["broken"])


@table("id", ["", "x" * 5000, "two\nlines", "half \ud800", "\x00"])
def test_a_model_may_write_anything_where_an_id_should_be(id):
    graph = calling(add, script=[[call("add", id, a=1, b=2)], ["Done."]])

    reply = reply_of(graph)

    assert reply.text == "Done."
    assert all(each.status == "completed" and len(each.id) < 300 for each in reply.tool_calls)


def test_a_call_that_no_model_has_streamed_is_shown_when_its_message_comes():
    def call_node(state: MessagesState):
        return {"messages": [AIMessage("", tool_calls=[{"name": "add", "args": {"a": 1}, "id": "c"}])]}

    def answer_node(state: MessagesState):
        return {"messages": [ToolMessage("1", tool_call_id="c"), AIMessage("One.")]}

    reply = reply_of(linear(MessagesState, call_node, answer_node))

    [each] = reply.tool_calls
    assert (each.id, each.status, each.raw_input, reply.text) == ("c", "completed", {"a": 1}, "One.")


def test_a_call_without_arguments_that_can_be_read_is_not_made():
    piece = {"name": "add", "args": "oops", "id": "c", "error": None, "type": "invalid_tool_call"}

    def call_node(state: MessagesState):
        return {"messages": [AIMessage("Hm.", invalid_tool_calls=[piece])]}

    [each] = reply_of(linear(MessagesState, call_node)).tool_calls

    assert each.status == "failed"
    assert "not JSON" in shown(each)


def test_a_call_that_middleware_jumps_over_fails():
    @after_model(can_jump_to=["end"])
    def stop(state, runtime):
        return {"jump_to": "end"}

    model = ScriptedModel(script=[["I add. ", call("add", "c", a=1, b=2)]])
    reply = reply_of(create_agent(model, [add], middleware=[stop]))

    assert (reply.stop_reason, reply.text) == ("end_turn", "I add. ")
    assert calls_of(reply)["add"].status == "failed"
    assert STOPPED in shown(calls_of(reply)["add"])


def test_a_call_that_only_chooses_the_way_is_done():
    class Route(BaseModel):
        """Choose who goes on."""

        to: str

    model = ScriptedModel(script=[[call("Route", "c", to="there")]]).bind_tools([Route])

    async def choose(state):
        return {"messages": [await model.ainvoke(state["messages"])]}

    def arrive(state):
        return {"messages": [AIMessage("I am there.")]}

    reply = reply_of(linear(MessagesState, choose, arrive))

    assert (reply.text, calls_of(reply)["Route"].status) == ("I am there.", "completed")


async def cancelled():
    raise asyncio.CancelledError


async def waiting_for_what_is_cancelled():
    work = asyncio.ensure_future(asyncio.sleep(60))
    asyncio.get_running_loop().call_soon(work.cancel)
    await work


@pytest.mark.parametrize("work", [cancelled, waiting_for_what_is_cancelled])
def test_a_tool_in_which_something_is_cancelled_has_failed_and_the_model_goes_on(work):
    @tool
    async def fragile() -> str:
        """Wait for something."""
        await work()
        return "never"

    reply = reply_of(calling(fragile))

    assert (reply.stop_reason, reply.text) == ("end_turn", "Done.")
    assert calls_of(reply)["fragile"].status == "failed"
    assert "CancelledError" in shown(calls_of(reply)["fragile"])


def test_progress_outside_of_a_tool_is_refused():
    def node(state: MessagesState):
        acp.current().progress("half way")

    with pytest.raises(AgentError, match="progress is that of a tool call"):
        reply_of(linear(MessagesState, node))


def test_a_thread_is_copied_in_savers_that_cannot_do_it_themselves():
    def node(state: MessagesState):
        return {"messages": [AIMessage(f"{len(state['messages'])}")]}

    saver = InMemorySaver()
    graph = linear(MessagesState, node).compile(checkpointer=saver)

    async def copied():
        for text in ("one", "two"):
            await graph.ainvoke({"messages": [HumanMessage(text)]}, {"configurable": {"thread_id": "a"}})
        await copy_thread(saver, "a", "b")
        await graph.ainvoke({"messages": [HumanMessage("three")]}, {"configurable": {"thread_id": "b"}})
        return [
            [message.text for message in (await graph.aget_state(place)).values["messages"]]
            for place in ({"configurable": {"thread_id": id}} for id in "ab")
        ]

    first, second = run(copied())

    assert first == ["one", "1", "two", "3"]
    assert second == [*first, "three", "5"]


@pytest.mark.parametrize("said, has_net", [({}, True), ({"handle_tool_errors": False}, False)])
def test_an_author_who_has_said_what_becomes_of_errors_is_obeyed(said, has_net):
    assert tool_guard._leaves_errors_open(ToolNode([], **said)) is has_net


HANDOFFS = """
from langchain_core.messages import AIMessage
from langchain_core.tools import InjectedToolCallId
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import InjectedState
from langgraph.types import Command, Send

def handoff(name, is_told=True):
    # As `create_handoff_tool` of langgraph-supervisor does it.
    @tool(f"transfer_to_{name}", description=f"Ask {name}.")
    def hand_over(
        state: Annotated[dict, InjectedState], tool_call_id: Annotated[str, InjectedToolCallId]
    ) -> Command:
        told = [ToolMessage(f"Transferred to {name}", tool_call_id=tool_call_id)] if is_told else []
        if len(state["messages"][-1].tool_calls) > 1:
            messages = [*state["messages"][:-1], *told]
            return Command(graph=Command.PARENT, goto=[Send(name, {**state, "messages": messages})])
        messages = [*state["messages"], *told] if is_told else state["messages"][:-1]
        return Command(goto=name, graph=Command.PARENT, update={**state, "messages": messages})
    return hand_over

def expert(name):
    return lambda state: {"messages": [AIMessage(f"{name} is here.")]}

tools = [lookup, handoff("law"), handoff("tax"), handoff("art", is_told=False)]
supervisor = create_agent(scripted(), tools, name="supervisor")
agent = StateGraph(MessagesState).add_node("supervisor", supervisor, destinations=("law", "tax", "art"))
for name in ("law", "tax", "art"):
    agent = agent.add_node(name, expert(name))
agent = agent.add_edge(START, "supervisor").compile()
"""


class TestHandoffs:
    """Tools that leave their agent for another, and take the whole conversation along."""

    def handed_over(self, order, *names):
        at = order(HANDOFFS)
        at.does(("lookup", {"topic": "tea"}))
        at.says(json.dumps([(f"transfer_to_{name}", {}) for name in names]))
        assert texts(at.updates).endswith(" is here.")
        return [(call["status"], text_of(call)) for call in at.calls.values()]

    def test_the_result_is_that_of_its_own_call(self, order):
        assert self.handed_over(order, "law") == [("completed", "Transferred to law")]

    def test_handoffs_side_by_side_have_their_own_results(self, order):
        assert self.handed_over(order, "law", "tax") == [
            ("completed", "Transferred to law"),
            ("completed", "Transferred to tax"),
        ]

    def test_one_without_a_result_is_completed_without_any(self, order):
        assert self.handed_over(order, "art") == [("completed", "")]
