"""Graphs of all kinds, each of which says in its own way what it was given."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NotRequired, TypedDict

from langchain.agents import create_agent
from langchain_core.language_models import FakeListChatModel
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.runtime import Runtime
from pydantic import BaseModel

from labs.langchain.scripted_model import ScriptedModel


def echo(state: MessagesState):
    return {"messages": [AIMessage(f"{len(state['messages'])}: {state['messages'][-1].text}")]}


def linear(state, *nodes, **options):
    graph = StateGraph(state)
    before = START
    for node in nodes:
        graph.add_node(node)
        graph.add_edge(before, node.__name__)
        before = node.__name__
    graph.add_edge(before, END)
    return graph


static = linear(MessagesState, echo).compile()
uncompiled = linear(MessagesState, echo)
own_saver = linear(MessagesState, echo).compile(checkpointer=InMemorySaver())


def restate(state: MessagesState):
    """Return the whole conversation, as some nodes do."""
    return {"messages": [*state["messages"], AIMessage("once")]}


restating = linear(MessagesState, restate).compile()


def write_pair(state: MessagesState):
    return {"messages": [("ai", "as a pair")]}


def write_dictionary(state: MessagesState):
    return {"messages": {"role": "assistant", "content": "as a dictionary"}}


unmade = linear(MessagesState, write_pair, write_dictionary).compile()


class Question(TypedDict):
    question: str
    answer: NotRequired[str]


def answer(state: Question):
    return {"answer": f"You asked: {state['question']}"}


texts = linear(Question, answer).compile()


class Wish(BaseModel):
    wish: str
    politely: bool = False


def grant(state: Wish):
    return {"wish": f"{state.wish}, granted"}


wishes = linear(Wish, grant).compile()


@dataclass
class Errand:
    place: str
    things: list[str] = field(default_factory=list)
    report: str | None = None


def go(state: Errand):
    return {"report": f"went to {state.place}"}


errands = linear(Errand, go).compile()


class Sum(TypedDict):
    numbers: Annotated[list[int], operator.add]
    total: int


def total(state: Sum):
    return {"total": sum(state["numbers"])}


numbers = linear(Sum, total).compile()


@entrypoint()
def functional(text: str) -> str:
    return text.upper()


@entrypoint()
async def annotated_as_text(text: "str") -> "str":
    return text.upper()


@entrypoint()
def with_keys(state: MessagesState, *, previous: list[str] | None = None):
    heard = [*(previous or []), state["messages"][-1].text]
    return entrypoint.final(value={"messages": [AIMessage(" and ".join(heard))]}, save=heard)


@entrypoint()
def with_keys_to_text(state: MessagesState) -> str:
    return state["messages"][-1].text.upper()


@entrypoint()
def with_one_text(question: "Question") -> str:
    return question["question"].upper()


@entrypoint()
def listening(messages: Sequence[AnyMessage]) -> str:
    return messages[-1].text.upper()


@entrypoint()
def with_anything(inputs: dict) -> str:
    return str(inputs)


@dataclass
class Manner:
    greeting: str = "Hello"


class Habit(BaseModel):
    greeting: str = "Welcome"


class Demand(BaseModel):
    greeting: str


def greet(state: MessagesState, runtime: Runtime[Any]):
    greeting = runtime.context.greeting if runtime.context is not None else "Who are you"
    return {"messages": [AIMessage(f"{greeting}, {state['messages'][-1].text}")]}


def greeting_by(context):
    graph = StateGraph(MessagesState, context_schema=context)
    graph.add_node(greet)
    graph.add_edge(START, "greet")
    return graph.compile()


mannered, habitual, demanding = (greeting_by(context) for context in (Manner, Habit, Demand))


model = ScriptedModel(script=[["plain ", "function"]])


def ask(state: MessagesState):
    """A plain node, which LangGraph runs in a thread."""
    return {"messages": [model.invoke(state["messages"])]}


threaded = linear(MessagesState, ask).compile()


def rewrite(state: MessagesState):
    """Say again what the model said, as a message of one's own."""
    return {"messages": [AIMessage(model.invoke(state["messages"]).text)]}


rewriting = linear(MessagesState, rewrite).compile()


class Outer(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


outer = StateGraph(Outer)
outer.add_node("inner", threaded)
outer.add_edge(START, "inner")
outer.add_edge("inner", END)
nested = outer.compile()


def classify(state: MessagesState):
    """Decide something with a model, which is nobody's business."""
    FakeListChatModel(responses=["billing"]).with_config(tags=["nostream"]).invoke(state["messages"])
    return {}


routed = linear(MessagesState, classify, echo).compile()

whole = create_agent(ScriptedModel(script=[["in one ", "piece"]], streams=False), [], name="whole")

chain = FakeListChatModel(responses=["no"]) | (lambda message: HumanMessage(message.text))


def factory(session):
    def where(state: MessagesState):
        return {"messages": [AIMessage(f"in {session.cwd}")]}

    return linear(MessagesState, where)
