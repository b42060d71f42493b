"""A LangGraph graph without a checkpointer of its own: its threads are kept by Coupler."""

from langchain_core.messages import AIMessage
from langgraph.graph import END, START, MessagesState, StateGraph


def answer(state: MessagesState) -> MessagesState:
    heard = [message.text for message in state["messages"] if message.type == "human"]
    return {"messages": [AIMessage("|".join(heard))]}


graph = StateGraph(MessagesState).add_node(answer).add_edge(START, "answer").add_edge("answer", END).compile()
