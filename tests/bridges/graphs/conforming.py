"""Three kinds of graphs that do all they can in one turn: made by LangChain, by deepagents, and by hand.

A prompt with the word "slow" makes them talk until they are cancelled.
"""

from typing import Annotated, TypedDict

from deepagents import create_deep_agent
from langchain.agents import create_agent
from langchain.agents.middleware import TodoListMiddleware
from langchain_core.messages import AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition

from bridges.scripted_model import ScriptedModel, call, think, used, wait
from coupler import acp

TODOS = [
    {"content": "Look", "status": "completed"},
    {"content": "Count", "status": "in_progress"},
]


def count(number: int) -> str:
    """Count up to a number."""
    return " ".join(map(str, range(number)))


def answer_with(*calls):
    """A script: think, call the tools, and say what is done."""

    def answer(messages):
        last = messages[-1]
        turn = sum(isinstance(message, HumanMessage) for message in messages)
        if isinstance(last, HumanMessage) and "slow" in last.text.lower():
            return [piece for _ in range(1000) for piece in ("and so on, ", wait(0.05))]
        if isinstance(last, HumanMessage):
            made = [
                call(name, f"call_{turn}_{index}", index=index, **arguments)
                for index, (name, arguments) in enumerate(calls)
            ]
            return [think("I should count. "), "Let me ", "count. ", *made]
        return ["That is ", "done.", used(100, 20)]

    return answer


def model_for(*calls):
    return ScriptedModel(script=answer_with(*calls))


created = create_agent(
    model_for(("count", {"number": 3}), ("write_todos", {"todos": TODOS})),
    [count, *acp.editor_tools()],
    middleware=[
        TodoListMiddleware(),
        acp.tools(),
        acp.permissions({"count": "ask"}),
        acp.modes(),
        acp.plan(),
    ],
)

deep = create_deep_agent(model_for(("write_todos", {"todos": TODOS}), ("ls", {"path": "/"})), tools=[count])


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def plain_graph():
    """A graph as one writes it by hand."""
    model = model_for(("count", {"number": 3}))

    async def think_about_it(state: State) -> dict[str, object]:
        return {"messages": [await model.ainvoke(state["messages"])]}

    graph = StateGraph(State)
    graph.add_node("model", think_about_it)
    graph.add_node("tools", ToolNode([count]))
    graph.add_edge(START, "model")
    graph.add_conditional_edges("model", tools_condition)
    graph.add_edge("tools", "model")
    return graph.compile()


plain = plain_graph()
