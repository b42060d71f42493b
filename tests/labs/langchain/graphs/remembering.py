"""A graph with a checkpointer of its own, in which somebody has held a conversation already."""

from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph

EARLIER = [
    SystemMessage("You are kind.", id="system"),
    HumanMessage("How much is one and one?\nQuickly.", id="asked"),
    AIMessage(
        [{"type": "reasoning", "reasoning": "Easy."}, {"type": "text", "text": "Let me see."}],
        id="called",
        tool_calls=[{"name": "add", "args": {"a": 1, "b": 1}, "id": "sum"}],
    ),
    ToolMessage("2", tool_call_id="sum", id="result"),
    AIMessage("Two.", id="answered"),
]


def count(state: MessagesState):
    return {"messages": [AIMessage(f"{len(state['messages'])} messages")]}


builder = StateGraph(MessagesState)
builder.add_node(count)
builder.add_edge(START, "count")
builder.add_edge("count", END)
agent = builder.compile(checkpointer=InMemorySaver())
for thread, cwd in (("elsewhere", "/"), ("empty", "/")):
    messages = EARLIER if thread == "elsewhere" else []
    place = {"configurable": {"thread_id": thread}, "metadata": {"cwd": cwd}}
    agent.update_state(place, {"messages": messages}, as_node="count")
