"""Which messages of a graph are new, and which only repeat what was read before."""

import json

import pytest
from langchain_core.messages import AIMessage
from langgraph.graph.message import add_messages

from coupler.langchain.messages import MessageDeduplicator
from raw_client import texts


def says_again(sayings, text, *place):
    return sayings.repeats(AIMessage(text), text, place)


def test_a_message_is_there_once_by_its_id_or_as_itself():
    sayings = MessageDeduplicator()
    sayings.know([AIMessage("before", id="1")])
    nameless = AIMessage("new")

    assert sayings.has(AIMessage("before", id="1"), ())
    assert not sayings.has(AIMessage("new", id="2"), ())
    assert sayings.has(AIMessage("new", id="2"), ())
    assert not sayings.has(nameless, ())
    assert sayings.has(nameless, ())


def test_a_message_is_known_by_the_id_that_the_state_has_given_it_since():
    sayings = MessageDeduplicator()
    written = AIMessage("new")
    sayings.has(written, ())

    [kept] = add_messages([], [written])

    assert sayings.has(AIMessage("new", id=kept.id), ())


def test_what_a_model_has_said_is_repeated_wherever_it_is_written():
    sayings = MessageDeduplicator()
    sayings.answer("done")

    assert says_again(sayings, "done")
    assert says_again(sayings, "done", "inner:1")
    assert not says_again(sayings, "other")


def test_what_is_said_inside_of_a_graph_is_repeated_by_it_once():
    sayings = MessageDeduplicator()

    assert [
        says_again(sayings, "done", "inner:1", "more:1"),
        says_again(sayings, "done", "inner:1"),
        says_again(sayings, "done", "inner:2"),
        says_again(sayings, "done"),
        says_again(sayings, "done"),
        says_again(sayings, "done"),
    ] == [False, True, False, True, True, False]


GRAPH = """
from langchain_core.messages import AIMessage
from langgraph.graph import START, MessagesState, StateGraph

class Plain(TypedDict):
    messages: Annotated[list, lambda old, new: [*old, *new]]

def working(state):
    return {"messages": [AIMessage("Working.")]}

def chain(*nodes, state=MessagesState):
    graph = StateGraph(state)
    for number, node in enumerate(nodes):
        graph.add_node(str(number), node)
        graph.add_edge(str(number - 1) if number else START, str(number))
    return graph.compile()

inner = chain(working)
"""


@pytest.mark.parametrize(
    ("agent", "times"),
    [
        ("chain(working, working)", 2),
        ("chain(working, working, state=Plain)", 2),
        ("chain(working, lambda state: {'messages': state['messages'][-1:]})", 1),
        ("chain(working, lambda state: {'messages': state['messages'][1:]}, state=Plain)", 1),
        ("chain(inner)", 1),
        ("chain(inner, inner)", 2),
        ("chain(inner, working)", 2),
        ("chain(lambda state: {'messages': [AIMessage(inner.invoke(state)['messages'][-1].text)]})", 1),
    ],
)
def test_nodes_that_say_the_same_are_all_heard(order, agent, times):
    at = order(f"{GRAPH}\nagent = {agent}")

    at.says("go")

    assert texts(at.updates) == "Working." * times


def test_what_a_node_makes_of_the_answer_of_a_model_is_not_said_again(order):
    at = order(
        f"""{GRAPH}
model = scripted()

async def ask(state):
    return {{"messages": [await model.ainvoke(state["messages"])]}}

def copy(state):
    return {{"messages": [AIMessage(state["messages"][-1].text)]}}

agent = chain(ask, copy)
"""
    )

    told = json.loads(at.says("tell"))

    assert told["model"] == "usual"
    assert texts(at.updates).count("usual") == 1
