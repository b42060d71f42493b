"""The actor as a node of another graph, which has the conversation in common with it."""

from langgraph.graph import START, MessagesState, StateGraph

from labs.langchain.graphs import actor

outer = StateGraph(MessagesState)
outer.add_node("actor", actor.agent)
outer.add_edge(START, "actor")
agent = outer.compile()
