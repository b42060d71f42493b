"""A graph as one writes it by hand, without a word of Coupler."""

from typing import Annotated, Any, TypedDict

from langchain_core.messages import AnyMessage
from langgraph.graph import START, StateGraph, add_messages
from langgraph.prebuilt import ToolNode, tools_condition
from langgraph.types import interrupt

from labs.langchain.graphs.doing_all import count, model_that_calls

model = model_that_calls(("count", {"number": 3}), ("choose", {"path": "README.md"}))


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


def choose(path: str) -> str:
    """Ask which color a file is to have."""
    return str(interrupt("Which color?"))


async def think(state: State) -> dict[str, Any]:
    return {"messages": [await model.ainvoke(state["messages"])]}


graph = StateGraph(State)
graph.add_node("model", think)
graph.add_node("tools", ToolNode([count, choose]))
graph.add_edge(START, "model")
graph.add_conditional_edges("model", tools_condition)
graph.add_edge("tools", "model")
agent = graph.compile()
